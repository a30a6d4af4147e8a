// Package soak is `prove soak`: it sends requests to one edge for a long time while links are edited (editor.go), and looks for what
// grows (report.go).
package soak

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"deeplink/bench/fill"
	"deeplink/bench/load"
	"deeplink/bench/prove/fleet"
	"deeplink/bench/prove/proof"
	"deeplink/bench/prove/scale"
	"deeplink/bench/prove/visitor"
	"deeplink/bench/result"
)

// Command runs one edge at most of its capacity for a long time, while links are edited, and looks for what grows.
type Command struct {
	Duration time.Duration `default:"30m" help:"Length of the run, a multiple of --span."`
	Span     time.Duration `default:"1m" help:"Time per row of the table."`
	Links    int           `default:"1000000" help:"Number of links in the memory of the edge."`
	Share    float64       `default:"0.8" help:"Share of the highest rate of the edge, measured with the writes, to send."`
	Writes   float64       `default:"100" help:"Links created, edited and deleted per second; half of these are edits of the most popular links."`
	JSON     string        `name:"json" type:"path" help:"File for the percentiles of each span."`
}

const (
	// connections send the requests, clients are the addresses they send: fewer than an edge counts separately.
	connections, clients = 64, 50_000
	// saturation is how long the highest rate of the edge is measured.
	saturation = 15 * time.Second
	// writesPerEditor leaves 40 ms for each write, one after the other.
	writesPerEditor = 25
)

// Run prints a line per span, and then the result of each promise.
func (c Command) Run(ctx context.Context, out *proof.Output) (err error) {
	if c.Span < time.Second || c.Duration < 2*c.Span || c.Links < 1 || c.Share <= 0 || c.Share >= 1 || c.Writes <= 0 {
		return errors.New("there must be at least two spans of a second, one link and one write, and the share must be between 0 and 1")
	}
	s, err := scale.Open(ctx, c.Links, out.Log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close(context.WithoutCancel(ctx))) }()
	soak, err := c.prepare(ctx, s)
	if err != nil {
		return err
	}
	file := &result.File{Command: os.Args[1:], Began: time.Now().UTC(), Machine: result.ThisMachine()}
	report, err := soak.run(ctx)
	if err != nil {
		return err
	}
	file.Series = []result.Series{{Contender: "edge", Scenario: "soak", Rounds: report.rounds()}}
	if c.JSON != "" {
		err = file.Write(c.JSON)
	}
	return errors.Join(err, report.judge(out))
}

// soak is a prepared run.
type soak struct {
	Command
	edge    *scale.Edge
	control string // address of its metrics
	target  load.Target
	keys    *load.Keys
	editors []*editor
}

// prepare starts the edge on its own core, fills it, and creates the links that are edited: the most popular ones.
func (c Command) prepare(ctx context.Context, s *scale.Sized) (*soak, error) {
	k := &soak{Command: c, control: s.Controls[0].Admin}
	var popular []string
	for range 1 + int(c.Writes/writesPerEditor) {
		e, err := newEditor(ctx, s.Fleet)
		if err != nil {
			return nil, err
		}
		k.editors, popular = append(k.editors, e), append(popular, e.paths()...)
	}
	others, err := fill.ReadKeys(filepath.Join(s.Dir, "keys"))
	if err != nil {
		return nil, err
	}
	k.keys = load.NewKeys(append(popular, others...)...)
	if k.edge, err = s.AddEdge(ctx, k.keys.Len(), 1); err != nil {
		return nil, err
	}
	if err := visitor.Warm(ctx, k.edge.Node, k.keys, k.keys.Len()); err != nil {
		return nil, err
	}
	if err := errors.Join(fleet.Pin(k.edge.PID()), load.Pin(fleet.ClientCore)); err != nil {
		return nil, err
	}
	k.target, err = load.ParseTarget(k.edge.URL())
	return k, err
}

// ask does one round.
func (k *soak) ask(ctx context.Context, rate float64, span time.Duration) (result.Round, error) {
	return load.Run(ctx, load.Options{
		Targets: []load.Target{k.target}, Connections: connections, Rate: rate, Duration: span,
		Source: load.Request{
			Paths: k.keys.Skewed(1.05), Clients: clients,
			Header: []string{"User-Agent: " + load.DesktopAgent, "Accept: text/html,*/*;q=0.8", "Accept-Encoding: gzip, deflate, br"},
		}.Source(),
	})
}

// run measures the highest rate of the edge while links are edited, and then sends its share of that rate, span after span.
func (k *soak) run(ctx context.Context) (*report, error) {
	editing, stop := context.WithCancel(ctx)
	defer stop()
	for _, e := range k.editors {
		e.start(editing, k.Writes/float64(len(k.editors)))
	}
	most, err := k.ask(ctx, 0, saturation)
	if err != nil {
		return nil, err
	}
	report := newReport(k, most.Rate(), os.Stdout)
	if err := report.begin(ctx); err != nil {
		return nil, err
	}
	for range int(k.Duration / k.Span) {
		round, err := k.ask(ctx, k.Share*most.Rate(), k.Span)
		if err == nil {
			err = report.add(ctx, round)
		}
		if err != nil {
			return nil, err
		}
	}
	stop()
	for _, e := range k.editors {
		if err := e.wait(); err != nil {
			return nil, fmt.Errorf("edit links: %w", err)
		}
	}
	return report, nil
}
