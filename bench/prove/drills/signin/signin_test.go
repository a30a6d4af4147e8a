package signin

import (
	"testing"

	"deeplink/bench/prove/testfleet"
	"deeplink/shared/testkit"
)

// The short form of the drills. `prove drills signin` has the sizes that PROOFS.md shows.
func TestSessionsOutliveRenewalsKillsAndKeys(t *testing.T) {
	testkit.Prove(t)
	for _, d := range (Command{Renewals: 12, Sessions: 6, Confirmations: 200}).drills() {
		t.Run(d.name, func(t *testing.T) {
			findings, err := d.run(t.Context(), testfleet.Start(t, 0, 0))
			for _, f := range findings {
				t.Logf("%s: %s", f.What, f.Figure)
				if !f.Kept && !f.Timed {
					t.Errorf("%s: %s, expected %s", f.What, f.Figure, f.Bound)
				}
			}
			if err != nil {
				t.Fatal(err)
			}
		})
	}
}
