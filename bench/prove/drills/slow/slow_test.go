package slow

import (
	"testing"
	"time"

	"deeplink/bench/load"
	"deeplink/bench/prove/fleet"
	"deeplink/bench/prove/testfleet"
	"deeplink/shared/testkit"
)

// The short form of `prove drills slow`, without its durations.
func TestSlowClientsAndUnknownCodesLoseNoClick(t *testing.T) {
	testkit.Prove(t)
	f := testfleet.Start(t, 1, 1)
	_, keys, err := fleet.MakeLinks(t.Context(), f, 1)
	if err != nil {
		t.Fatal(err)
	}
	command := Command{Rounds: 2, Slow: 100, Unknown: 1000, UnknownRate: 1000, Rate: 100, Calm: time.Second}
	b, err := command.besiege(t.Context(), f, load.NewKeys(keys[0].Path))
	if err != nil {
		t.Fatal(err)
	}
	if len(b.died) > 0 || lost(b.before)+lost(b.during) > 0 || len(b.during.Rounds) != command.Rounds {
		t.Errorf("before %+v, during %+v, died %v", b.before, b.during, b.died)
	}
	for i, left := range b.left {
		asked := left.Guesses.Requests
		if b.before.Rounds[i].Requests == 0 || b.during.Rounds[i].Requests == 0 || b.arrived[i].Open == 0 ||
			left.Guesses.Statuses[404] < max(asked*9/10, int64(command.Unknown/command.Rounds/2)) {
			t.Errorf("round %d: before %+v, during %+v, unknown %+v, %d slow connections", i, b.before.Rounds[i], b.during.Rounds[i], left.Guesses, b.arrived[i].Open)
		}
	}
}
