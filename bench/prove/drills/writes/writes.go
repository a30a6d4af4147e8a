// Package writes is `prove drills writes`: writes of links that are repeated through a network that loses half of everything, in bulk, and
// while a list is walked.
package writes

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

// Command runs the drills with sizes of their own.
type Command struct {
	Only    []string      `help:"Names of the drills to run. Default: all."`
	Clients int           `default:"1000" help:"Clients that repeat their writes, each with its own key."`
	Writes  int           `default:"5" help:"Writes of each client, at least."`
	Kill    time.Duration `default:"5s" help:"Time between two kills of a control."`
	Links   int           `default:"1000000" help:"Links of the list that is walked."`
	Rounds  int           `default:"10" help:"Bulk requests of 1,000 creates, and rounds of the comparison with bare pgx."`
	Span    time.Duration `default:"2s" help:"Length of such a round."`
}

// drill is one of them, on a fleet of its own with two controls and two edges.
type drill struct {
	name string
	run  func(ctx context.Context, f *fleet.Fleet) ([]figures.Finding, error)
}

func (c Command) drills() []drill {
	return []drill{
		{"retries", retries{clients: c.Clients, writes: c.Writes, organizations: 20, killEvery: c.Kill}.run},
		{"bulk", bulk{rounds: c.Rounds}.run},
		{"walk", walk{links: c.Links}.run},
		{"bare pgx", ratio{rounds: c.Rounds, organizations: 60, span: c.Span}.run},
	}
}

// Run prints a table. A bound that was not kept is an error.
func (c Command) Run(ctx context.Context, out *proof.Output) error {
	fmt.Fprintln(out, "| drill | what | figure | bound | kept |\n|---|---|--:|--:|---|")
	var all []figures.Finding
	for _, d := range c.drills() {
		if len(c.Only) > 0 && !slices.Contains(c.Only, d.name) {
			continue
		}
		findings, err := d.do(ctx, out.Log)
		all = append(all, findings...)
		for _, f := range findings {
			kept := "yes"
			if !f.Kept {
				kept = "**no**"
			}
			fmt.Fprintf(out, "| %s | %s | %s | %s | %s |\n", d.name, f.What, f.Figure, f.Bound, kept)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", d.name, err)
		}
	}
	return figures.Unkept(all)
}

func (d drill) do(ctx context.Context, log io.Writer) (findings []figures.Finding, err error) {
	f, err := fleet.Launch(ctx, 2, 2, log)
	if err != nil {
		return nil, err
	}
	findings, err = d.run(ctx, f)
	return findings, errors.Join(err, f.Close(context.WithoutCancel(ctx)))
}
