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

// measure runs the workers on f. It leaves Redis stopped if that is the fault.
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
	background, stop := context.WithCancel(ctx)
	defer stop()
	var others, working errgroup.Group
	for _, w := range workers {
		for range c.Readers {
			others.Go(func() error { w.read(background); return nil })
		}
		working.Go(func() error { return w.work(ctx) })
	}
	switch c.Fault {
	case "redis":
		err = f.Redis.Kill()
	case "edge":
		others.Go(func() error { return stopEdges(background, f) })
	}
	err = errors.Join(err, working.Wait())
	stop()
	return outcome, errors.Join(err, others.Wait())
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

// worker changes the links of one organization, while its readers keep the current link hot.
type worker struct {
	tenant *fleet.Tenant
	row    *row
	round  round
	code   atomic.Pointer[string] // path of the link that the readers click
	edges  []*visitor.Visitor     // one per edge, for the reads after each change
}

func newWorker(t *fleet.Tenant, row *row) *worker {
	return &worker{tenant: t, row: row, edges: patientVisitors(t.Fleet)}
}

// patientVisitors returns one visitor per edge of f. Their timeout is much longer than an edge may be stopped.
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

// read clicks the current link on random edges. These responses are not checked: a change may be in progress.
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

// expect requests the link from every edge at once and counts unexpected responses.
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
				w.row.refused.Add(1) // no response, so not a stale one
				return nil
			}
			gotLocation := string(v.Response.Header.Peek("Location"))
			if gotStatus != status || location != "" && gotLocation != location {
				w.row.addStale(fmt.Sprintf("edge %d returned %d %s for %s, not %d %s", edge, gotStatus, gotLocation, code, status, location))
			}
			return nil
		})
	}
	return group.Wait()
}

// create creates a link and waits until every edge serves it.
func (w *worker) create(ctx context.Context) (id, code string, err error) {
	a, err := w.tenant.Call(ctx, "POST", "/links", fleet.Fields{"path": "/x", "fallbackUrl": fleet.Target(0)}, 201)
	if err != nil {
		return "", "", err
	}
	w.code.Store(&a.Link.ShortCode)
	return a.Link.ID, a.Link.ShortCode, w.expect(a.Link.ShortCode, 302, fleet.Target(0))
}

// change makes one API call that changes what edges serve, and records its latency.
func (w *worker) change(ctx context.Context, method, path string, body any) error {
	a, err := w.tenant.Call(ctx, method, path, body, 200)
	if err != nil {
		return err
	}
	w.row.add(a.Took, a.Propagation)
	return nil
}
