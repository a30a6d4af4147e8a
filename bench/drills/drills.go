// Package drills is `bench drills`: one thing goes wrong at a time, a file for each, and what that costs is set beside its bound.
package drills

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"deeplink/bench/figures"
	"deeplink/bench/fleet"
)

// Command makes one thing go wrong at a time, on purpose, and compares what it costs with what is promised.
type Command struct {
	Only []string `help:"Names of the drills to run. Default: all."`
	Log  string   `help:"File for what the programs write." type:"path"`
}

// drill is one thing that goes wrong on a fleet of its own, with three edges and two controls.
type drill struct {
	name         string
	edgeSettings []string
	run          func(ctx context.Context, f *fleet.Fleet) ([]figures.Finding, error)
}

// drills are all there are. The scale of each is what the README's table was measured with; tests run smaller ones.
func drills() []drill {
	restart := rollingRestart{clients: 8, rounds: 3, drain: time.Second}
	return []drill{
		{name: "deletes", run: deletes{alive: 1000, hung: 200, restarted: 200}.run},
		{name: "rolling restart", edgeSettings: []string{"EDGE_DRAIN=" + restart.drain.String()}, run: restart.run},
		{name: "Postgres stopped", run: outage{span: 30 * time.Second, clients: 4}.run},
		{name: "stampede", run: stampede{requests: 10_000}.run},
		{name: "everything forgotten", run: forgetting{links: 5_000, clients: 16, calm: 5 * time.Second, settled: 5 * time.Second}.run},
		{name: "made-up keys", run: kidFlood{perSecond: 1000, span: 30 * time.Second}.run},
	}
}

// Run prints a table. A bound that was not kept is an error.
func (c Command) Run(ctx context.Context) error {
	log, err := fleet.CreateLog(c.Log)
	if err != nil {
		return err
	}
	defer log.Close()
	fmt.Println("| drill | what | figure | bound | kept |\n|---|---|--:|--:|---|")
	broken := 0
	for _, d := range drills() {
		if len(c.Only) > 0 && !slices.Contains(c.Only, d.name) {
			continue
		}
		findings, err := d.do(ctx, log)
		for _, f := range findings {
			kept := "yes"
			if !f.Kept {
				kept = "**no**"
				broken++
			}
			fmt.Printf("| %s | %s | %s | %s | %s |\n", d.name, f.What, f.Figure, f.Bound, kept)
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

// do runs the drill on a fleet of its own.
func (d drill) do(ctx context.Context, log io.Writer) (findings []figures.Finding, err error) {
	f, err := fleet.Launch(ctx, 2, 3, log, d.edgeSettings...)
	if err != nil {
		return nil, err
	}
	findings, err = d.run(ctx, f)
	return findings, errors.Join(err, f.Close(context.WithoutCancel(ctx)))
}
