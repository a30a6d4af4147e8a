package main

import (
	"testing"
	"time"

	"deeplink/bench/load"
)

// The short form of `bench slow`, without its times.
func testSlow(t *testing.T, f *fleet) {
	_, keys, err := makeLinks(t.Context(), f, 1)
	if err != nil {
		t.Fatal(err)
	}
	command := slowCommand{Slow: 100, Unknown: 1000, UnknownRate: 1000, Rate: 100, Calm: time.Second}
	b, err := command.besiege(t.Context(), f, load.NewKeys(keys[0].path))
	if err != nil {
		t.Fatal(err)
	}
	if len(b.died) > 0 || b.before.Requests == 0 || b.during.Requests == 0 || lost(b.before)+lost(b.during) > 0 || b.arrived.Open == 0 ||
		b.left.Guesses.Statuses[404] < max(b.left.Guesses.Requests*9/10, int64(command.Unknown/2)) {
		t.Errorf("before %+v, during %+v, unknown %+v, %d slow connections, died %v", b.before, b.during, b.left.Guesses, b.arrived.Open, b.died)
	}
}
