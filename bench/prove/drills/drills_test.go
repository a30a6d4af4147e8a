package drills

import (
	"testing"
	"time"

	"deeplink/bench/prove/figures"
	"deeplink/bench/prove/fleet"
	"deeplink/bench/prove/testfleet"
	"deeplink/bench/prove/visitor"
	"deeplink/deploy/stack"
	"deeplink/shared/testkit"
)

// The short form of the drills that count something. `prove drills` measures durations, on an otherwise idle machine.
func TestRestartsAndOutagesLoseNoClick(t *testing.T) {
	testkit.Prove(t)
	restart := rollingRestart{clients: 2, rounds: 1, drain: 300 * time.Millisecond}
	f := testfleet.Start(t, 2, 3, "EDGE_DRAIN="+restart.drain.String())
	for _, d := range []drill{
		{name: "stampede", run: stampede{requests: 1000}.run},
		{name: "everything forgotten", run: forgetting{links: 200, clients: 4, calm: time.Second, settled: time.Second}.run},
		{name: "rolling restart", run: restart.run},
		{name: "Postgres stopped", run: outage{span: 4 * time.Second, clients: 2}.run}, // last, because the fleet needs time to recover
	} {
		d.check(t, f)
	}
}

// The short form of the drills in which one tenant has a problem and the others must not notice.
func TestNoTenantDelaysAnother(t *testing.T) {
	testkit.Prove(t)
	f := testfleet.Start(t, 2, 1)
	for _, d := range []drill{
		{name: "locked organization", run: lockedOrganization(1, time.Second, 3*time.Second).run},
		{name: "locked device", run: lockedDevice(1, time.Second, 3*time.Second).run},
		{name: "long lists", run: longLists{links: 20_000, clients: 40, calm: time.Second, span: 3 * time.Second,
			neighbours: neighbours{tenants: 2, every: 50 * time.Millisecond, calls: listers}}.run},
	} {
		d.check(t, f)
	}
}

// check runs the drill and fails the test for each exceeded bound, except those that a busy machine alone can exceed.
func (d drill) check(t *testing.T, f *fleet.Fleet) {
	t.Run(d.name, func(t *testing.T) {
		findings, err := d.run(t.Context(), f)
		if err != nil {
			t.Fatal(err)
		}
		for _, finding := range findings {
			t.Logf("%s: %s", finding.What, finding.Figure)
			if !finding.Kept && !finding.Timed {
				t.Errorf("%s: %s, expected %s", finding.What, finding.Figure, finding.Bound)
			}
		}
	})
}

// A drill that detects nothing would report that every bound was kept.
func TestLostClicksAreCounted(t *testing.T) {
	testkit.Prove(t)
	f := testfleet.Start(t, 1, 1)
	_, keys, err := fleet.MakeLinks(t.Context(), f, 1)
	if err != nil {
		t.Fatal(err)
	}
	clicks := visitor.NewVisits()
	v := visitor.New(f.Edges[0].Addr)
	clicks.Click(v, keys[0].Path)
	clicks.Click(v, keys[0].Path+"none")
	if err := f.Edges[0].Kill(); err != nil {
		t.Fatal(err)
	}
	if died := fleet.Dead(map[string]*stack.Node{"edge": f.Edges[0], "control": f.Controls[0]}); len(died) != 1 {
		t.Errorf("with one killed edge and one running control, these count as dead: %q", died)
	}
	clicks.Click(v, keys[0].Path) // on the connection that was closed
	clicks.Click(v, keys[0].Path) // connection refused: retried, so not lost
	if all, others := clicks.Total(302); all != 3 || others != 2 || clicks.Refused != 1 {
		t.Errorf("%d clicks, %d lost, %d refused of: %v", all, others, clicks.Refused, clicks)
	}
	if f := figures.None("no request", 0, 0); f.Kept {
		t.Error("no request was sent, and the bound counts as kept")
	}
}
