// Package drills is `prove drills`: each drill (a file) makes one thing go wrong and compares its cost with its bound.
package drills

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"deeplink/bench/prove/figures"
	"deeplink/bench/prove/fleet"
	"deeplink/bench/prove/proof"
)

// Command makes one thing go wrong at a time and compares its cost with its bound.
type Command struct {
	Only []string `help:"Names of the drills to run. Default: all."`
}

// drill is one thing that goes wrong on a private fleet with three edges and two controls.
type drill struct {
	name         string
	edgeSettings []string
	run          func(ctx context.Context, f *fleet.Fleet) ([]figures.Finding, error)
}

// drills returns all drills. PROOFS.md has figures at these sizes; tests use smaller ones.
func drills() []drill {
	restart := rollingRestart{clients: 8, rounds: 3, drain: time.Second}
	return []drill{
		{name: "deletes", run: deletes{alive: 1000, hung: 200, restarted: 200}.run},
		{name: "rolling restart", edgeSettings: []string{"EDGE_DRAIN=" + restart.drain.String()}, run: restart.run},
		{name: "Postgres stopped", run: outage{span: 30 * time.Second, clients: 4}.run},
		{name: "stampede", run: stampede{requests: 10_000}.run},
		{name: "everything forgotten", run: forgetting{links: 5_000, clients: 16, calm: 5 * time.Second, settled: 5 * time.Second}.run},
		{name: "locked organization", run: lockedOrganization(3, 30*time.Second, 30*time.Second).run},
		{name: "locked device", run: lockedDevice(3, 30*time.Second, 30*time.Second).run},
		{name: "long lists", run: longLists{links: 150_000, clients: 100, calm: 10 * time.Second, span: 20 * time.Second,
			neighbours: neighbours{tenants: 2, every: 50 * time.Millisecond, calls: listers}}.run},
		{name: "made-up keys", run: kidFlood{perSecond: 1000, span: 30 * time.Second}.run},
	}
}

// Run prints a table. A bound that was exceeded is an error.
func (c Command) Run(ctx context.Context, out *proof.Output) error {
	fmt.Fprintln(out, "| drill | what | figure | bound | kept |\n|---|---|--:|--:|---|")
	broken := 0
	for _, d := range drills() {
		if len(c.Only) > 0 && !slices.Contains(c.Only, d.name) {
			continue
		}
		findings, err := d.do(ctx, out.Log)
		for _, f := range findings {
			kept := "yes"
			if !f.Kept {
				kept = "**no**"
				broken++
			}
			fmt.Fprintf(out, "| %s | %s | %s | %s | %s |\n", d.name, f.What, f.Figure, f.Bound, kept)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", d.name, err)
		}
	}
	if broken > 0 {
		return fmt.Errorf("%w: %d", figures.ErrBound, broken)
	}
	return nil
}

// do runs the drill on a new fleet.
func (d drill) do(ctx context.Context, log io.Writer) (findings []figures.Finding, err error) {
	f, err := fleet.Launch(ctx, 2, 3, log, d.edgeSettings...)
	if err != nil {
		return nil, err
	}
	findings, err = d.run(ctx, f)
	return findings, errors.Join(err, f.Close(context.WithoutCancel(ctx)))
}
