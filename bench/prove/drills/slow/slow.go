// Package slow is `prove drills slow`: it holds slow connections to an edge and guesses codes (package attack) while live links are
// requested.
package slow

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"deeplink/bench/load"
	"deeplink/bench/prove/drills/slow/attack"
	"deeplink/bench/prove/figures"
	"deeplink/bench/prove/fleet"
	"deeplink/bench/prove/proof"
	"deeplink/bench/prove/visitor"
	"deeplink/bench/result"
	"deeplink/deploy/stack"
)

// Command holds slow connections to an edge and requests unknown codes, while live links are requested.
type Command struct {
	Rounds      int           `default:"20" help:"Number of rounds, each a calm and an attack; the result is their median."`
	Slow        int           `default:"5000" help:"Number of slow connections."`
	Unknown     int           `default:"1000000" help:"Requests for unknown codes in all rounds together, each for a different one."`
	UnknownRate float64       `default:"5000" help:"Requests for unknown codes per second."`
	Rate        float64       `default:"1000" help:"Clicks on live links per second."`
	Links       int           `default:"100" help:"Number of live links."`
	Calm        time.Duration `default:"10s" help:"Length of the calm before each attack."`
}

const (
	// slowRatio is how many times as long as before clicks on live links may take at the 99th percentile.
	slowRatio = 2
	// arrival is the time in which the slow clients connect: as long as an edge waits for most of them.
	arrival = 6 * time.Second
	// departure is the pause between an attack and the next calm.
	departure = 3 * time.Second
)

// outcome is the result, by rounds.
type outcome struct {
	before, during result.Series
	arrived        []attack.Arrived
	left           []attack.Left
	died           []string
}

// Run prints a table. A process that died or a click without a redirect is an error. The latency is not, because it depends on the machine.
func (c Command) Run(ctx context.Context, out *proof.Output) error {
	b, err := c.run(ctx, out.Log)
	if err != nil {
		return err
	}
	b.print(out)
	if len(b.died) > 0 || lost(b.before)+lost(b.during) > 0 {
		return fmt.Errorf("%w: died: %v; live links not redirected: %d before, %d during", figures.ErrBound, b.died, lost(b.before), lost(b.during))
	}
	return nil
}

func (c Command) run(ctx context.Context, log io.Writer) (b outcome, err error) {
	f, err := fleet.Launch(ctx, 1, 1, log)
	if err != nil {
		return b, err
	}
	defer func() { err = errors.Join(err, f.Close(context.WithoutCancel(ctx))) }()
	_, keys, err := fleet.MakeLinks(ctx, f, c.Links)
	if err != nil {
		return b, err
	}
	paths := make([]string, len(keys))
	for i, k := range keys {
		paths[i] = k.Path
	}
	return c.besiege(ctx, f, load.NewKeys(paths...))
}

func (c Command) besiege(ctx context.Context, f *fleet.Fleet, keys *load.Keys) (b outcome, err error) {
	if err := visitor.Warm(ctx, f.Edges[0], keys, keys.Len()); err != nil {
		return b, err
	}
	plan := attack.Attack{
		Edge: f.Edges[0].Addr, Link: string(keys.At(0)), Slow: c.Slow, Arrival: arrival, Rate: c.UnknownRate,
		Span: time.Duration(float64(c.Unknown) / float64(c.Rounds) / c.UnknownRate * float64(time.Second)),
	}
	for i := range c.Rounds {
		if i > 0 && !fleet.Pause(ctx, departure) {
			return b, ctx.Err()
		}
		if err := c.round(ctx, f, keys, plan, &b); err != nil {
			return b, err
		}
	}
	b.died = fleet.Dead(map[string]*stack.Node{"edge": f.Edges[0], "control": f.Controls[0]})
	return b, nil
}

// round adds a calm and an attack to b.
func (c Command) round(ctx context.Context, f *fleet.Fleet, keys *load.Keys, plan attack.Attack, b *outcome) (err error) {
	target, err := load.ParseTarget(f.Edges[0].URL())
	if err != nil {
		return err
	}
	click := func(to *result.Series, span time.Duration) error {
		clicked, err := load.Run(ctx, load.Options{
			Targets: []load.Target{target}, Connections: 16, Rate: c.Rate, Warmup: time.Second, Duration: span,
			Source: load.Request{Paths: keys.InTurn(), Clients: 1 << 20}.Source(),
		})
		to.Rounds = append(to.Rounds, clicked)
		return err
	}
	if err := click(&b.before, c.Calm); err != nil {
		return err
	}
	attackers, err := startAttackers(ctx, f.Dir, plan)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, attackers.stop()) }()
	arrived, err := read[attack.Arrived](attackers)
	if err != nil {
		return err
	}
	b.arrived = append(b.arrived, arrived)
	if err := click(&b.during, plan.Span); err != nil {
		return err
	}
	left, err := read[attack.Left](attackers)
	b.left = append(b.left, left)
	return err
}

// lost returns how many clicks got no redirect.
func lost(s result.Series) (clicks int64) {
	for _, r := range s.Rounds {
		clicks += r.Requests - r.Statuses[302]
	}
	return clicks
}

func (b outcome) print(out io.Writer) {
	p50 := func(r result.Round) float64 { return r.Latencies.P50 / 1000 }
	p99 := func(r result.Round) float64 { return r.Latencies.P99 / 1000 }
	half, _ := b.during.Against(b.before, p50)
	tail, times := b.during.Against(b.before, p99)
	fmt.Fprintln(out, "| round | slow connections | cut off | unknown codes | a second | p50 ms before | during | times | p99 ms before | during | times |\n"+
		"|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|")
	var live, codes int64
	answers := map[int]int64{}
	failures := map[string]int64{}
	for i, during := range b.during.Rounds {
		before, guesses := b.before.Rounds[i], b.left[i].Guesses
		fmt.Fprintf(out, "| %d | %d | %d | %d | %.0f | %.2f | %.2f | %.2f | %.2f | %.2f | %.2f |\n", i+1, b.arrived[i].Open, b.left[i].Cut,
			guesses.Requests, guesses.Rate(), p50(before), p50(during), half[i], p99(before), p99(during), tail[i])
		live += before.Requests + during.Requests
		codes += guesses.Requests
		for status, n := range guesses.Statuses {
			answers[status] += n
		}
		for failure, n := range guesses.Failures {
			failures[failure] += n
		}
	}
	died := "none"
	if len(b.died) > 0 {
		died = strings.Join(b.died, ", ")
	}
	fmt.Fprintf(out, "\np99 of live links during / before, median of the rounds: %.2f (expected ≤ %d)\nlive links: %d clicks, %d not redirected\n"+
		"unknown codes: %d requested, statuses %v, failures %v\nprocesses that died: %s\n",
		times, slowRatio, live, lost(b.before)+lost(b.during), codes, answers, failures, died)
}
