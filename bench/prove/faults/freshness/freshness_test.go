package freshness

import (
	"os"
	"testing"

	"deeplink/bench/prove/fleet"
	"deeplink/bench/prove/testfleet"
	"deeplink/shared/testkit"
)

// The short form of `prove faults freshness`, with real processes.
func TestNoEdgeServesTheVersionBeforeACompletedChange(t *testing.T) {
	testkit.Prove(t)
	const rounds, edges = 20, 2
	f := testfleet.Start(t, 2, edges)
	for _, fault := range []string{"none", "edge", "redis"} { // Redis last: it stays stopped
		t.Run("fault "+fault, func(t *testing.T) {
			command := Command{Rounds: rounds, Workers: 2, Readers: 1, Fault: fault}
			report, err := command.measure(t.Context(), f)
			if err != nil {
				t.Fatal(err)
			}
			report.print(os.Stdout)
			for _, row := range report.rows {
				if len(row.stale) > 0 {
					t.Errorf("%s: %d stale responses, the first: %s", row.name, len(row.stale), row.stale[0])
				}
				if told := row.asked.Load() - row.refused.Load(); told < edges*rounds || row.reads.Load() == 0 {
					t.Errorf("%s: %d changes with %d reads: the run proves nothing", row.name, told, row.reads.Load())
				}
			}
		})
	}
}

// A checker that detects nothing would pass every run.
func TestStaleResponsesAreCounted(t *testing.T) {
	testkit.Prove(t)
	f := testfleet.Start(t, 1, 2)
	tenant, err := f.NewTenant(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	w := newWorker(tenant, &row{})
	defer w.hangUp()
	_, code, err := w.create(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(w.row.stale) != 0 {
		t.Fatalf("a new link counts as stale: %v", w.row.stale)
	}
	for _, want := range []struct {
		status   int
		location string
	}{{404, ""}, {302, fleet.Target(1)}} {
		w.row.stale = nil
		if err := w.expect(code, want.status, want.location); err != nil {
			t.Fatal(err)
		}
		if len(w.row.stale) != 2 {
			t.Errorf("two edges serve %s, %d %s was expected, and %d responses counted as stale", fleet.Target(0), want.status, want.location, len(w.row.stale))
		}
	}
}
