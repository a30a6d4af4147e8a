package agent

import (
	"fmt"
	"strings"
	"sync"
	"testing"
)

// The cache is read by several goroutines, with many other User-Agents that compete for the same slots.
func TestCacheUnderContentionReturnsWhatParseReturns(t *testing.T) {
	t.Parallel()
	c := NewCache()
	var group sync.WaitGroup
	for reader := range 4 {
		group.Go(func() {
			for round := range 100 {
				for i, real := range realAgents {
					if got := c.Parse([]byte(real.userAgent), []byte(real.hint)); got != real.want {
						t.Errorf("round %d, %s: %v, expected %v", round, real.name, got, real.want)
						return
					}
					c.Parse(fmt.Appendf(nil, "%d of %d in round %d like Android", i, reader, round), nil)
				}
			}
		})
	}
	group.Wait()
}

func TestCacheStoresFrequentShortAgentsOnly(t *testing.T) {
	c := NewCache()
	stored := func() (n int) {
		for i := range c.slots {
			if c.slots[i].Load() != nil {
				n++
			}
		}
		return n
	}
	frequent, long := []byte(realAgents[0].userAgent), []byte(strings.Repeat("x", maxCachedLength+1))
	// The probability that the first is never stored is (15/16)^1000 = 10^-28.
	for range 1000 {
		c.Parse(frequent, nil)
		c.Parse(long, nil)
	}
	if n := stored(); n != 1 {
		t.Errorf("%d User-Agents are cached, expected only the frequent one that is not too long", n)
	}
	if n := testing.AllocsPerRun(1000, func() { c.Parse(frequent, nil) }); n != 0 {
		t.Errorf("%v allocations for a cached User-Agent, expected none", n)
	}
}
