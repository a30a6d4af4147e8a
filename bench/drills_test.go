package main

import (
	"testing"
	"time"

	"deeplink/deploy/stack"
)

// The short form of those drills that count something. What takes how long is measured by `bench drills`, on a machine that does nothing else.
func TestNothingThatGoesWrongLosesAClick(t *testing.T) {
	restart := rollingRestart{clients: 2, rounds: 1, drain: 300 * time.Millisecond}
	f := start(t, 2, 3, "EDGE_DRAIN="+restart.drain.String())
	t.Run("slow clients and guesses", func(t *testing.T) { testSlow(t, f) })
	for _, d := range []drill{
		{name: "stampede", run: stampede{requests: 1000}.run},
		{name: "everything forgotten", run: forgetting{links: 200, clients: 4, calm: time.Second, settled: time.Second}.run},
		{name: "rolling restart", run: restart.run},
		{name: "Postgres stopped", run: outage{span: 4 * time.Second, clients: 2}.run}, // the last: the fleet needs a while after it
	} {
		t.Run(d.name, func(t *testing.T) {
			findings, err := d.run(t.Context(), f)
			if err != nil {
				t.Fatal(err)
			}
			for _, finding := range findings {
				t.Logf("%s: %s", finding.what, finding.figure)
				if !finding.kept && !finding.timed {
					t.Errorf("%s: %s, expected %s", finding.what, finding.figure, finding.bound)
				}
			}
		})
	}
}

// A drill that sees nothing would keep every bound.
func TestLostClicksAreSeen(t *testing.T) {
	f := start(t, 1, 1)
	_, keys, err := makeLinks(t.Context(), f, 1)
	if err != nil {
		t.Fatal(err)
	}
	clicks := newVisits()
	v := newVisitor(f.edges[0].Addr)
	clicks.click(v, keys[0].path)
	clicks.click(v, keys[0].path+"none")
	if err := f.edges[0].Kill(); err != nil {
		t.Fatal(err)
	}
	if died := dead(map[string]*stack.Node{"edge": f.edges[0], "control": f.controls[0]}); len(died) != 1 {
		t.Errorf("of an edge that was killed and a control that was not, these count as dead: %q", died)
	}
	clicks.click(v, keys[0].path) // on the connection that was cut
	clicks.click(v, keys[0].path) // nobody listens: to be asked again, so not lost
	if all, others := clicks.total(302); all != 3 || others != 2 || clicks.refused != 1 {
		t.Errorf("%d clicks, %d lost, %d refused of: %v", all, others, clicks.refused, clicks)
	}
	if f := none("nothing asked", 0, 0); f.kept {
		t.Error("nothing was asked, and that counts as kept")
	}
}
