// Package speed is `bench speed`: redirects a second on one core, in rounds of turns, and then latencies at one rate (latency.go). field.go has
// the contenders, the edge and what it is compared with; wrk.go is the load generator, with its requests from wrk.lua.
package speed

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"time"

	"deeplink/bench/baseline"
	"deeplink/bench/figures"
	"deeplink/bench/fleet"
	"deeplink/bench/result"
)

// Command measures redirects a second on one core: the edge and what it is compared with, in turn.
type Command struct {
	Rounds   int           `default:"5" help:"How often each contender has its turn."`
	Duration time.Duration `default:"10s" help:"How long a turn is, in whole seconds."`
	Links    int           `default:"1000000" help:"How many links the edge has in memory."`
	Only     []string      `help:"Contenders to measure, as the table names them without what they are asked for; semicolons between." sep:";"`
	Latency  bool          `help:"Then ask the edge and nginx in its place for one rate, 0.4 of what nginx took, and compare their latencies."`
	JSON     string        `name:"json" type:"path" help:"File for the results."`
	Log      string        `type:"path" help:"File for what the programs write."`
}

// warmUp is how long a contender is asked before its turn counts.
const warmUp = time.Second

// Run prints the tables.
func (c Command) Run(ctx context.Context) (err error) {
	if err := c.check(); err != nil {
		return err
	}
	for _, name := range []string{"nginx", "wrk", "taskset"} {
		if _, err := baseline.Find(name); err != nil {
			return err
		}
	}
	log, err := fleet.CreateLog(c.Log)
	if err != nil {
		return err
	}
	defer log.Close()
	f, err := openField(ctx, c.Links, log)
	defer func() { err = errors.Join(err, f.Close(context.WithoutCancel(ctx))) }()
	if err != nil {
		return err
	}
	file := &result.File{Command: os.Args[1:], Began: time.Now().UTC(), Machine: result.ThisMachine()}
	w, err := newWrk(f.Dir, fleet.OnCore(fleet.ClientCore))
	if err != nil {
		return err
	}
	report, err := c.measure(ctx, f, w, file)
	if err != nil {
		return err
	}
	if c.Latency {
		if err := c.latency(ctx, f, report); err != nil {
			return err
		}
	}
	report.print(os.Stdout)
	if c.JSON != "" {
		return file.Write(c.JSON)
	}
	return nil
}

func (c Command) check() error {
	switch {
	case c.Rounds < 1 || c.Duration < time.Second || c.Duration%time.Second != 0 || c.Links < 1:
		return errors.New("there must be a round, a second and a link at least, and no fraction of a second")
	case c.Latency && len(c.Only) > 0 && (!slices.Contains(c.Only, theEdge) || !slices.Contains(c.Only, sameJobNginx)):
		return errNoRate
	}
	return nil
}

// measure gives every contender its turns: all of them in each round, every time in another order, so that whatever the machine does
// beside happens to all.
func (c Command) measure(ctx context.Context, f *field, w wrk, file *result.File) (*report, error) {
	contenders := slices.DeleteFunc(slices.Clone(f.contenders), func(has contender) bool {
		return len(c.Only) > 0 && !slices.Contains(c.Only, has.name)
	})
	if len(contenders) == 0 {
		return nil, fmt.Errorf("no contender is called %s", strings.Join(c.Only, " or "))
	}
	report := &report{file: file}
	for _, has := range contenders {
		file.Series = append(file.Series, result.Series{Contender: has.name, Scenario: has.scenario})
	}
	report.busy = make([][]float64, len(contenders))
	before, err := fleet.Metric(ctx, f.Edges[0].Admin, fleet.EdgeLoads)
	if err != nil {
		return nil, err
	}
	bar := figures.Bar(c.Rounds*len(contenders), "turns", os.Stderr)
	for range c.Rounds {
		for _, i := range rand.Perm(len(contenders)) {
			round, busy, err := contenders[i].turn(ctx, w, c.Duration)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", contenders[i].name, err)
			}
			file.Series[i].Rounds = append(file.Series[i].Rounds, round)
			report.busy[i] = append(report.busy[i], busy)
			_ = bar.Add(1) // a terminal that cannot be written to changes nothing
		}
	}
	_ = bar.Finish()
	after, err := fleet.Metric(ctx, f.Edges[0].Admin, fleet.EdgeLoads)
	report.loads = after - before
	return report, err
}

// turn measures a contender once.
func (c contender) turn(ctx context.Context, w wrk, span time.Duration) (round result.Round, busy float64, err error) {
	if err := w.prepare(c.keys); err != nil {
		return round, 0, err
	}
	if _, _, err := w.run(ctx, c.addr, warmUp); err != nil {
		return round, 0, err
	}
	before, err := fleet.ProcessorTimeOf(c.pid)
	if err != nil {
		return round, 0, err
	}
	if round, busy, err = w.run(ctx, c.addr, span); err != nil {
		return round, 0, err
	}
	after, err := fleet.ProcessorTimeOf(c.pid)
	round.CPU = float64((after - before).Microseconds()) / float64(round.Answers)
	return round, busy, err
}
