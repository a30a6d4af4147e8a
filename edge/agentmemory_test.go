package main

import (
	"fmt"
	"strings"
	"sync"
	"testing"
)

// TestKeptAgentsSayWhatTheyDid reads real agents again and again, among many others that fight for the same places.
func TestKeptAgentsSayWhatTheyDid(t *testing.T) {
	t.Parallel()
	k := newAgents()
	var group sync.WaitGroup
	for reader := range 4 {
		group.Go(func() {
			for round := range 100 {
				for i, real := range realAgents {
					if got := k.read([]byte(real.userAgent)).with([]byte(real.hint)); got != real.want {
						t.Errorf("round %d, %s: %v, expected %v", round, real.name, got, real.want)
						return
					}
					k.read(fmt.Appendf(nil, "%d of %d in round %d like Android", i, reader, round))
				}
			}
		})
	}
	group.Wait()
}

func TestAgentsAreKeptByHowOftenTheyCome(t *testing.T) {
	k := newAgents()
	kept := func() (n int) {
		for i := range k.places {
			if k.places[i].Load() != nil {
				n++
			}
		}
		return n
	}
	often, long := []byte(realAgents[0].userAgent), []byte(strings.Repeat("x", longestKept+1))
	// That the first is never kept has the probability (15/16)^1000, which is 10^-28.
	for range 1000 {
		k.read(often)
		k.read(long)
	}
	if n := kept(); n != 1 {
		t.Errorf("%d agents are kept, expected the one that comes often and is not too long", n)
	}
	if n := testing.AllocsPerRun(1000, func() { k.read(often) }); n != 0 {
		t.Errorf("%v allocations for an agent that is kept, expected none", n)
	}
}
