package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"deeplink/bench/load"
	"deeplink/bench/result"
	"deeplink/bench/slow"
	"deeplink/deploy/stack"
)

// slowCommand holds slow connections to an edge and asks it for codes that no link has, while live links are clicked on.
type slowCommand struct {
	Slow        int           `default:"5000" help:"Slow connections."`
	Unknown     int           `default:"1000000" help:"Requests for unknown codes, each for another one."`
	UnknownRate float64       `default:"5000" help:"How many of them a second."`
	Rate        float64       `default:"1000" help:"Clicks on live links a second."`
	Links       int           `default:"100" help:"Live links."`
	Calm        time.Duration `default:"10s" help:"How long live links are clicked on before the rest begins."`
	Log         string        `help:"File for what the programs write." type:"path"`
}

// siegeRatio is how many times as long as before live links may take at the 99th percentile.
const siegeRatio = 2

// arrival is within what time the slow ones come: as long as an edge waits for most of them.
const arrival = 6 * time.Second

// besieged is what came of it.
type besieged struct {
	before, during result.Round
	arrived        slow.Arrived
	left           slow.Left
	died           []string
}

// Run prints a table. That a process died, or that a live link was not answered by its redirect, is an error; how long it took depends on
// the machine.
func (c slowCommand) Run(ctx context.Context) error {
	log, err := createLog(c.Log)
	if err != nil {
		return err
	}
	defer log.Close()
	b, err := c.run(ctx, log)
	if err != nil {
		return err
	}
	b.print(os.Stdout)
	if len(b.died) > 0 || lost(b.before) > 0 || lost(b.during) > 0 {
		return fmt.Errorf("%w: died: %v; live links not redirected: %d before, %d during", errBound, b.died, lost(b.before), lost(b.during))
	}
	return nil
}

func (c slowCommand) run(ctx context.Context, log io.Writer) (b besieged, err error) {
	f, err := launch(ctx, 1, 1, log)
	if err != nil {
		return b, err
	}
	defer func() { err = errors.Join(err, f.close(context.WithoutCancel(ctx))) }()
	_, keys, err := makeLinks(ctx, f, c.Links)
	if err != nil {
		return b, err
	}
	paths := make([]string, len(keys))
	for i, k := range keys {
		paths[i] = k.path
	}
	return c.besiege(ctx, f, load.NewKeys(paths...))
}

func (c slowCommand) besiege(ctx context.Context, f *fleet, keys *load.Keys) (b besieged, err error) {
	if err := warm(ctx, f.edges[0], keys, keys.Len()); err != nil {
		return b, err
	}
	target, err := load.ParseTarget(f.edges[0].URL())
	if err != nil {
		return b, err
	}
	click := func(span time.Duration) (result.Round, error) {
		return load.Run(ctx, load.Options{
			Targets: []load.Target{target}, Connections: 16, Rate: c.Rate, Warmup: time.Second, Duration: span,
			Source: load.Request{Paths: keys.InTurn(), Clients: 1 << 20}.Source(),
		})
	}
	if b.before, err = click(c.Calm); err != nil {
		return b, err
	}
	attack := slow.Attack{
		Edge: f.edges[0].Addr, Link: string(keys.At(0)), Slow: c.Slow, Arrival: arrival, Rate: c.UnknownRate,
		Span: time.Duration(float64(c.Unknown) / c.UnknownRate * float64(time.Second)),
	}
	attackers, err := startAttackers(ctx, f.dir, attack)
	if err != nil {
		return b, err
	}
	defer func() { err = errors.Join(err, attackers.stop()) }()
	if b.arrived, err = read[slow.Arrived](attackers); err != nil {
		return b, err
	}
	if b.during, err = click(attack.Span); err != nil {
		return b, err
	}
	b.left, err = read[slow.Left](attackers)
	b.died = dead(map[string]*stack.Node{"edge": f.edges[0], "control": f.controls[0]})
	return b, err
}

// dead returns the names of those that have ended, and how.
func dead(nodes map[string]*stack.Node) (died []string) {
	for name, node := range nodes {
		select {
		case <-node.Exited():
			died = append(died, name+": "+node.Exit())
		default:
		}
	}
	return died
}

// lost returns how many clicks were not redirected.
func lost(r result.Round) int64 { return r.Requests - r.Statuses[302] }

func (b besieged) print(out io.Writer) {
	fmt.Fprintln(out, "| | asked | not redirected | p50 ms | p99 ms |\n|---|--:|--:|--:|--:|")
	row := func(name string, r result.Round) {
		fmt.Fprintf(out, "| live links, %s | %d | %d | %.2f | %.2f |\n", name, r.Requests, lost(r), r.Latencies.P50/1000, r.Latencies.P99/1000)
	}
	row("before", b.before)
	row("during", b.during)
	fmt.Fprintf(out, "| during / before | | | %.2f | %.2f (expected ≤ %d) |\n", b.during.Latencies.P50/b.before.Latencies.P50,
		b.during.Latencies.P99/b.before.Latencies.P99, siegeRatio)
	died := "none"
	if len(b.died) > 0 {
		died = strings.Join(b.died, ", ")
	}
	fmt.Fprintf(out, "\nslow connections: %d at once, cut off %d times\nunknown codes: %d asked for, %.0f a second, statuses %v, failures %v\nprocesses that died: %s\n",
		b.arrived.Open, b.left.Cut, b.left.Guesses.Requests, b.left.Guesses.Rate(), b.left.Guesses.Statuses, b.left.Guesses.Failures, died)
}
