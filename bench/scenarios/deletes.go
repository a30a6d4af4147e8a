package scenarios

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"golang.org/x/sync/errgroup"

	"deeplink/bench/load"
	"deeplink/bench/result"
)

// How a delete can fail.
const (
	failedCall   = "call failed"
	failedClick  = "not served before"
	failedStale  = "served after the delete completed" // a stale response
	failedServed = "still served"                      // after --timeout
)

// deleteRound is a round of deletes, several workers at a time. It measures two times from the sending of a delete: until its response, and
// until the last edge first responds that the link is gone, which may be sooner.
type deleteRound struct {
	*loading
	mu             sync.Mutex
	answered, gone *tallied
}

// tallied is a round in progress.
type tallied struct {
	result.Round
	latencies *hdrhistogram.Histogram
}

func newTallied() *tallied {
	return &tallied{result.Round{Began: time.Now(), Statuses: map[int]int64{}, Failures: map[string]int64{}}, result.NewHistogram()}
}

func (t *tallied) answer(status int, took time.Duration) {
	t.Requests++
	t.Answers++
	t.Expected++ // any other status is a failure
	t.Statuses[status]++
	_ = t.latencies.RecordValue(int64(min(took, time.Minute))) // the histogram covers a minute
}

func (t *tallied) fail(how string) {
	t.Requests++
	t.Failures[how]++
}

func (t *tallied) finish(began time.Time) {
	t.Seconds = time.Since(began).Seconds()
	t.Latencies = result.Summary(t.latencies)
}

// deleteWorkers is how many workers create and delete links; more would not help, because the write limit of a key bounds the rate.
const deleteWorkers = 4

func (l *loading) deletes(ctx context.Context, name string) ([]part, error) {
	d := &deleteRound{loading: l, answered: newTallied(), gone: newTallied()}
	began := time.Now()
	var group errgroup.Group
	for worker := range deleteWorkers * len(l.backends) {
		group.Go(func() error { return d.work(ctx, worker, began.Add(l.span())) })
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	if d.answered.Requests == 0 {
		return nil, context.Cause(ctx)
	}
	for _, t := range []*tallied{d.answered, d.gone} {
		t.finish(began)
	}
	return []part{{name + ": completed", d.answered.Round}, {name + ": gone", d.gone.Round}}, nil
}

// work creates links and deletes them until the round is over.
func (d *deleteRound) work(ctx context.Context, worker int, until time.Time) error {
	b := d.backends[worker%len(d.backends)]
	askers := make([]*asker, len(d.edges))
	for i, edge := range d.edges {
		askers[i] = &asker{deleteRound: d, number: worker*len(d.edges) + i, edge: edge, line: load.NewLine(edge, d.config, d.Timeout)}
		defer askers[i].line.Close()
	}
	for time.Now().Before(until) && ctx.Err() == nil {
		link, err := b.make(ctx)
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		d.delete(ctx, b, link, askers)
	}
	return nil
}

// delete deletes a link that all edges have in memory, and waits until it is gone.
func (d *deleteRound) delete(ctx context.Context, b *backend, link ownLink, askers []*asker) {
	for _, a := range askers {
		if a.prepare(link.path); !a.ask(ctx).served() {
			d.note(func() { d.gone.fail(failedClick) })
		}
	}
	<-b.pace.C
	sent := time.Now()
	answered := make(chan struct{})
	var complete bool
	var group errgroup.Group
	for _, a := range askers {
		group.Go(func() error { a.untilGone(ctx, sent, answered, &complete); return nil })
	}
	// An interrupt ends the round after the delete in progress.
	response, err := b.callNow(context.WithoutCancel(ctx), http.MethodDelete, "/links/"+link.id, nil, http.StatusOK, nil)
	took := time.Since(sent)
	complete = err == nil && response.Header.Get("Deeplink-Propagation") != "pending"
	close(answered)
	_ = group.Wait() // the goroutines return no errors
	d.note(func() { d.judge(err, took, askers) })
}

func (d *deleteRound) note(what func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	what()
}

// judge records the result of one delete.
func (d *deleteRound) judge(err error, took time.Duration, askers []*asker) {
	if err != nil {
		d.answered.fail(failedCall)
		return
	}
	d.answered.answer(http.StatusOK, took)
	last := slices.MaxFunc(askers, func(a, b *asker) int { return int(a.took - b.took) })
	for _, a := range askers {
		if a.failure != "" {
			d.gone.fail(a.failure)
			return
		}
	}
	d.gone.answer(int(last.status), last.took)
}

// clickStatus is the status of an edge's response, 0 for none.
type clickStatus int

func (s clickStatus) served() bool { return s >= 200 && s < 400 }
func (s clickStatus) gone() bool   { return s == http.StatusNotFound || s == http.StatusGone }

// asker requests one link after the other from an edge.
type asker struct {
	*deleteRound
	number  int // shared by all askers: each request comes from another client, because an edge admits 500 per second of one
	edge    load.Target
	line    *load.Line
	request load.Source

	// The result for the last link.
	status  clickStatus
	took    time.Duration
	failure string
}

func (a *asker) prepare(path string) {
	request := a.click(load.DesktopAgent, nil)
	request.Path = path
	a.request = request.Source()(a.number, a.edge)
	a.status, a.took, a.failure = 0, 0, ""
}

func (a *asker) ask(ctx context.Context) clickStatus {
	status, err := a.line.Ask(context.WithoutCancel(ctx), a.request.Next())
	if err != nil {
		return 0
	}
	return clickStatus(status)
}

// untilGone requests the link periodically, and at once when the response to the delete arrives. complete is set before answered is closed.
func (a *asker) untilGone(ctx context.Context, sent time.Time, answered <-chan struct{}, complete *bool) {
	ticks := time.NewTicker(a.AskEvery)
	defer ticks.Stop()
	for waiting := answered; ; {
		after := waiting == nil
		a.status = a.ask(ctx)
		a.took = time.Since(sent)
		switch {
		case a.status.gone():
			return
		case after && *complete && a.status.served():
			a.failure = failedStale
			return
		case a.took > a.Timeout:
			a.failure = failedServed
			return
		}
		select {
		case <-waiting:
			waiting = nil
		case <-ticks.C:
		}
	}
}
