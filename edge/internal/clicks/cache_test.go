package clicks

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"deeplink/shared/agent"
)

// The cache is read by several goroutines, with many other User-Agents that compete for the same slots.
func TestCachedAgentsAreReadAsOthers(t *testing.T) {
	t.Parallel()
	const pixel = "Mozilla/5.0 (Linux; Android 16; Pixel 9) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0 Mobile Safari/537.36"
	var r Recorder
	r.agents.of = agentsToRecord
	var group sync.WaitGroup
	for reader := range 4 {
		group.Go(func() {
			for round := range 1000 {
				for i, text := range []string{chrome, pixel, "", "Slackbot 1.0"} {
					var want Value
					r.agents.derive(&want, []byte(text))
					var fresh Value
					got := r.Agent([]byte(text), &fresh)
					if got.Client(nil) != agent.Parse([]byte(text), nil) || got.evidence != want.evidence ||
						got.facts != want.facts || got.digest != want.digest || string(got.text) != text || got.hash != want.hash {
						t.Errorf("round %d, %s: %v", round, text, got)
						return
					}
					r.Agent(fmt.Appendf(nil, "%d of %d in round %d like Android", i, reader, round), &fresh)
				}
			}
		})
	}
	group.Wait()
}

func TestCacheStoresFrequentShortAgentsOnly(t *testing.T) {
	var r Recorder
	stored := func() (n int) {
		for i := range r.agents.slots {
			if r.agents.slots[i].Load() != nil {
				n++
			}
		}
		return n
	}
	frequent, long := []byte(chrome), []byte(strings.Repeat("x", maxCached+1))
	// The probability that the first is never stored is (15/16)^1000 = 10^-28.
	for range 1000 {
		var fresh Value
		r.Agent(frequent, &fresh)
		r.Agent(long, &fresh)
	}
	if n := stored(); n != 1 {
		t.Errorf("%d User-Agents are cached, expected only the frequent one that is not too long", n)
	}
	if n := testing.AllocsPerRun(1000, func() {
		var fresh Value
		r.Agent(frequent, &fresh)
	}); n != 0 {
		t.Errorf("%v allocations for a cached User-Agent, expected none", n)
	}
}
