package writes

import (
	"testing"
	"time"

	"deeplink/bench/prove/testfleet"
	"deeplink/shared/testkit"
)

// The short form of the drills. `prove drills writes` has the sizes that PROOFS.md shows.
func TestRepeatedAndBulkWritesHaveOneEffect(t *testing.T) {
	testkit.Prove(t)
	for _, d := range (Command{Clients: 100, Writes: 3, Kill: time.Second, Links: 20_000, Rounds: 2, Span: 100 * time.Millisecond}).drills() {
		t.Run(d.name, func(t *testing.T) {
			findings, err := d.run(t.Context(), testfleet.Start(t, 2, 2))
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range findings {
				t.Logf("%s: %s", f.What, f.Figure)
				if !f.Kept && !f.Timed {
					t.Errorf("%s: %s, expected %s", f.What, f.Figure, f.Bound)
				}
			}
		})
	}
}
