// Package freshness is `prove faults freshness`: it changes links and requests them from every edge as soon as each change has completed.
package freshness

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync/atomic"
	"syscall"
	"time"

	"deeplink/bench/prove/proof"

	"golang.org/x/sync/errgroup"

	"deeplink/bench/prove/fleet"
	"deeplink/bench/prove/visitor"
)

// Command shows the promise in its simplest form: change a link, wait for the response, request the link from every edge.
type Command struct {
	Rounds   int    `help:"Rounds of each kind of change." default:"2000"`
	Controls int    `help:"Number of controls." default:"2"`
	Edges    int    `help:"Number of edges." default:"2"`
	Workers  int    `help:"Workers for each kind of change, each with its own organization." default:"4"`
	Readers  int    `help:"Readers per worker that keep its link cached on every edge, about 200 clicks per second each." default:"1"`
	Fault    string `help:"Fault during the run: none, redis (killed before the first change), or edge (stopped for 3 s every 10 s)." enum:"none,redis,edge" default:"none"`
}

// Run prints a table of the changes, the latency of their calls and the number of stale responses. A stale response is an error.
func (c Command) Run(ctx context.Context, out *proof.Output) error {
	f, err := fleet.Launch(ctx, c.Controls, c.Edges, out.Log)
	if err != nil {
		return err
	}
	report, err := c.measure(ctx, f)
	if err := errors.Join(err, f.Close(context.WithoutCancel(ctx))); err != nil {
		return err
	}
	report.print(out)
	if stale := report.stale(); stale > 0 {
		return fmt.Errorf("%d stale responses", stale)
	}
	return nil
}

// measure lets the workers work on f. It leaves Redis dead when that is the fault.
func (c Command) measure(ctx context.Context, f *fleet.Fleet) (_ *report, err error) {
	outcome := &report{fault: c.Fault}
	var workers []*worker
	for _, kind := range kinds {
		row := &row{name: kind.name}
		row.left.Store(int64(c.Rounds))
		outcome.rows = append(outcome.rows, row)
		for range c.Workers {
			t, err := f.NewTenant(ctx)
			if err != nil {
				return nil, err
			}
			w := newWorker(t, row)
			w.round = kind.rounds()
			defer w.hangUp()
			workers = append(workers, w)
		}
	}
	beside, stop := context.WithCancel(ctx)
	defer stop()
	var besides, working errgroup.Group
	for _, w := range workers {
		for range c.Readers {
			besides.Go(func() error { w.read(beside); return nil })
		}
		working.Go(func() error { return w.work(ctx) })
	}
	switch c.Fault {
	case "redis":
		err = f.Redis.Kill()
	case "edge":
		besides.Go(func() error { return stopEdges(beside, f) })
	}
	err = errors.Join(err, working.Wait())
	stop()
	return outcome, errors.Join(err, besides.Wait())
}

// stopEdges stops one edge after the other for 3 s, every 10 s, until ctx ends.
func stopEdges(ctx context.Context, f *fleet.Fleet) error {
	for i := 0; fleet.Pause(ctx, 300*time.Millisecond); i++ {
		edge := f.Edges[i%len(f.Edges)]
		if err := edge.Signal(syscall.SIGSTOP); err != nil {
			return err
		}
		fleet.Pause(ctx, 3*time.Second)
		if err := edge.Signal(syscall.SIGCONT); err != nil {
			return err
		}
		fleet.Pause(ctx, 6700*time.Millisecond)
	}
	return nil
}

// worker changes the links of one organization, while its readers keep the present one hot.
type worker struct {
	tenant *fleet.Tenant
	row    *row
	round  round
	code   atomic.Pointer[string] // of the link that the readers click
	edges  []*visitor.Visitor     // of every edge one, who ask after each change
}

func newWorker(t *fleet.Tenant, row *row) *worker {
	return &worker{tenant: t, row: row, edges: patientVisitors(t.Fleet)}
}

// patientVisitors are one of each edge of f. They wait as long as an edge may be stopped, and much longer.
func patientVisitors(f *fleet.Fleet) (visitors []*visitor.Visitor) {
	for _, addr := range f.EdgeAddrs() {
		v := visitor.New(addr)
		v.Timeout = fleet.Client.Timeout
		visitors = append(visitors, v)
	}
	return visitors
}

func (w *worker) hangUp() {
	for _, v := range w.edges {
		v.HangUp()
	}
}

func (w *worker) work(ctx context.Context) error {
	for w.row.left.Add(-1) >= 0 {
		if err := w.round(ctx, w); err != nil {
			return fmt.Errorf("%s: %w", w.row.name, err)
		}
	}
	return nil
}

// read clicks the present link on edges at random. What an edge answers here is not judged: a change may be under way.
func (w *worker) read(ctx context.Context) {
	visitors := patientVisitors(w.tenant.Fleet)
	for fleet.Pause(ctx, 2*time.Millisecond+rand.N(6*time.Millisecond)) {
		if code := w.code.Load(); code != nil {
			if _, err := visitors[rand.N(len(visitors))].Click(w.path(*code)); err == nil {
				w.row.reads.Add(1)
			}
		}
	}
	for _, v := range visitors {
		v.HangUp()
	}
}

func (w *worker) path(code string) string { return "/" + w.tenant.OrgKey + "/" + code }

// expect asks every edge at once and counts those whose answer is not the one wanted.
func (w *worker) expect(code string, status int, location string) error {
	var group errgroup.Group
	for edge, v := range w.edges {
		group.Go(func() error {
			gotStatus, err := v.Click(w.path(code))
			if err != nil {
				return fmt.Errorf("edge %d: %w", edge, err)
			}
			w.row.asked.Add(1)
			if gotStatus == http.StatusServiceUnavailable {
				w.row.refused.Add(1) // not an answer, so not a stale one
				return nil
			}
			gotLocation := string(v.Response.Header.Peek("Location"))
			if gotStatus != status || location != "" && gotLocation != location {
				w.row.addStale(fmt.Sprintf("edge %d answered %d %s for %s, not %d %s", edge, gotStatus, gotLocation, code, status, location))
			}
			return nil
		})
	}
	return group.Wait()
}

// create makes a link and sees it served by every edge.
func (w *worker) create(ctx context.Context) (id, code string, err error) {
	a, err := w.tenant.Call(ctx, "POST", "/links", fleet.Fields{"path": "/x", "fallbackUrl": fleet.Target(0)}, 201)
	if err != nil {
		return "", "", err
	}
	w.code.Store(&a.Link.ShortCode)
	return a.Link.ID, a.Link.ShortCode, w.expect(a.Link.ShortCode, 302, fleet.Target(0))
}

// change makes one call that changes what edges serve, and notes how long it took.
func (w *worker) change(ctx context.Context, method, path string, body any) error {
	a, err := w.tenant.Call(ctx, method, path, body, 200)
	if err != nil {
		return err
	}
	w.row.add(a.Took, a.Propagation)
	return nil
}
