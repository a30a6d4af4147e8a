// Package siege is `bench slow`: it attacks an edge by patience (package slow) and by guessing, beside live links.
package siege

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"deeplink/bench/figures"
	"deeplink/bench/fleet"
	"deeplink/bench/load"
	"deeplink/bench/result"
	"deeplink/bench/siege/slow"
	"deeplink/bench/visitor"
	"deeplink/deploy/stack"
)

// Command holds slow connections to an edge and asks it for codes that no link has, while live links are clicked on.
type Command struct {
	Rounds      int           `default:"20" help:"How often the attack comes, each time after a calm: what it costs is the median of the rounds."`
	Slow        int           `default:"5000" help:"Slow connections."`
	Unknown     int           `default:"1000000" help:"Requests for unknown codes in all rounds, each for another one."`
	UnknownRate float64       `default:"5000" help:"How many of them a second."`
	Rate        float64       `default:"1000" help:"Clicks on live links a second."`
	Links       int           `default:"100" help:"Live links."`
	Calm        time.Duration `default:"10s" help:"How long live links are clicked on before each attack."`
	Log         string        `help:"File for what the programs write." type:"path"`
}

const (
	// siegeRatio is how many times as long as before live links may take at the 99th percentile.
	siegeRatio = 2
	// arrival is within what time the slow ones come: as long as an edge waits for most of them.
	arrival = 6 * time.Second
	// departure is how long after an attack the next calm begins.
	departure = 3 * time.Second
)

// besieged is what came of it, by rounds.
type besieged struct {
	before, during result.Series
	arrived        []slow.Arrived
	left           []slow.Left
	died           []string
}

// Run prints a table. That a process died, or that a live link was not answered by its redirect, is an error; how long it took depends on
// the machine.
func (c Command) Run(ctx context.Context) error {
	log, err := fleet.CreateLog(c.Log)
	if err != nil {
		return err
	}
	defer log.Close()
	b, err := c.run(ctx, log)
	if err != nil {
		return err
	}
	b.print(os.Stdout)
	if len(b.died) > 0 || lost(b.before)+lost(b.during) > 0 {
		return fmt.Errorf("%w: died: %v; live links not redirected: %d before, %d during", figures.ErrBound, b.died, lost(b.before), lost(b.during))
	}
	return nil
}

func (c Command) run(ctx context.Context, log io.Writer) (b besieged, err error) {
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

func (c Command) besiege(ctx context.Context, f *fleet.Fleet, keys *load.Keys) (b besieged, err error) {
	if err := visitor.Warm(ctx, f.Edges[0], keys, keys.Len()); err != nil {
		return b, err
	}
	attack := slow.Attack{
		Edge: f.Edges[0].Addr, Link: string(keys.At(0)), Slow: c.Slow, Arrival: arrival, Rate: c.UnknownRate,
		Span: time.Duration(float64(c.Unknown) / float64(c.Rounds) / c.UnknownRate * float64(time.Second)),
	}
	for i := range c.Rounds {
		if i > 0 && !fleet.Pause(ctx, departure) {
			return b, ctx.Err()
		}
		if err := c.round(ctx, f, keys, attack, &b); err != nil {
			return b, err
		}
	}
	b.died = fleet.Dead(map[string]*stack.Node{"edge": f.Edges[0], "control": f.Controls[0]})
	return b, nil
}

// round adds to b a calm and an attack.
func (c Command) round(ctx context.Context, f *fleet.Fleet, keys *load.Keys, attack slow.Attack, b *besieged) (err error) {
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
	attackers, err := startAttackers(ctx, f.Dir, attack)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, attackers.stop()) }()
	arrived, err := read[slow.Arrived](attackers)
	if err != nil {
		return err
	}
	b.arrived = append(b.arrived, arrived)
	if err := click(&b.during, attack.Span); err != nil {
		return err
	}
	left, err := read[slow.Left](attackers)
	b.left = append(b.left, left)
	return err
}

// lost returns how many clicks were not redirected.
func lost(s result.Series) (clicks int64) {
	for _, r := range s.Rounds {
		clicks += r.Requests - r.Statuses[302]
	}
	return clicks
}

func (b besieged) print(out io.Writer) {
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
		"unknown codes: %d asked for, statuses %v, failures %v\nprocesses that died: %s\n",
		times, siegeRatio, live, lost(b.before)+lost(b.during), codes, answers, failures, died)
}
