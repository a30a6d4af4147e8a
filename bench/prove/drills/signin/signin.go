// Package signin is `prove drills signin`: sessions of the console over eight hours of renewals, over kills of the control that renews, over a
// rotation of their encryption keys, and one sign-in link that many people confirm at the same time.
package signin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"deeplink/bench/prove/figures"
	"deeplink/bench/prove/fleet"
	"deeplink/bench/prove/proof"
)

// Command runs the drills with sizes of their own.
type Command struct {
	Only          []string `help:"Names of the drills to run. Default: all."`
	Renewals      int      `default:"480" help:"Renewals in a row: 480 are eight hours of tokens that live for 60 s."`
	Sessions      int      `default:"16" help:"Sessions that must survive the rotation of the keys."`
	Confirmations int      `default:"200" help:"Concurrent confirmations of one sign-in link."`
}

// drill is one of them, on a fleet of its own that has no control yet.
type drill struct {
	name string
	run  func(ctx context.Context, f *fleet.Fleet) ([]figures.Finding, error)
}

func (c Command) drills() []drill {
	return []drill{
		{"renewals", renewals{n: c.Renewals}.run},
		{"kills", kills{}.run},
		{"keys", rotation{sessions: c.Sessions}.run},
		{"link", confirmations{n: c.Confirmations}.run},
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
	f, err := fleet.Launch(ctx, 0, 0, log)
	if err != nil {
		return nil, err
	}
	findings, err = d.run(ctx, f)
	return findings, errors.Join(err, f.Close(context.WithoutCancel(ctx)))
}
