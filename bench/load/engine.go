package load

import (
	"context"
	"math"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"deeplink/bench/result"
)

// engine is one round. Its times are nanoseconds since base, on the monotonic clock.
type engine struct {
	Options
	base  time.Time
	began time.Time // the counted part
	start int64     // due time of the first request
	from  int64     // requests due from then on count
	// until is when the last request is due, or ctx ended; at end, nothing more is sent or awaited.
	until, end  atomic.Int64
	backlog     atomic.Int64 // the maximum in the counted part
	interrupted atomic.Bool  // ctx ended
	tickets     atomic.Int64 // counted requests of a closed loop with a fixed number of requests
	connections []*connection
}

func newEngine(options Options) *engine {
	e := &engine{Options: options, base: time.Now()}
	for number := range e.Connections {
		e.connections = append(e.connections, newConnection(e, number))
	}
	return e
}

func (e *engine) now() int64 { return int64(time.Since(e.base)) }

// due returns the due time of the n-th request of an open loop.
func (e *engine) due(n int64) int64 {
	return e.start + int64(math.Ceil(float64(n)*float64(time.Second)/e.Rate))
}

// connect establishes all connections.
func (e *engine) connect(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(64) // more at once would overflow the backlog of a listener
	for _, c := range e.connections {
		group.Go(func() error { return c.connect(ctx) })
	}
	err := group.Wait()
	if err != nil {
		for _, c := range e.connections {
			c.hangUp()
		}
	}
	return err
}

func (e *engine) run(ctx context.Context) {
	e.start = e.now()
	e.from = e.start + int64(e.Warmup)
	e.began = time.Now().Add(e.Warmup)
	span := e.Duration
	if e.Requests > 0 && e.Rate > 0 {
		span = time.Duration(float64(e.Requests) / e.Rate * float64(time.Second))
	}
	e.until.Store(e.from + int64(span))
	e.end.Store(e.until.Load() + int64(e.Timeout))

	// Requests in progress do not end with ctx at once, which would count them as failures, but at e.end.
	asking, giveUp := context.WithCancel(context.WithoutCancel(ctx))
	defer giveUp()
	var sending, watching errgroup.Group
	for _, c := range e.connections {
		sending.Go(func() error { c.run(asking); return nil })
	}
	if e.Rate > 0 {
		sending.Go(e.pace)
	}
	done := make(chan struct{})
	watching.Go(func() error { e.watch(ctx, done, giveUp); return nil })
	_ = sending.Wait() // the goroutines return no errors
	close(done)
	_ = watching.Wait()
}

// interruptPatience is how long to wait for responses once ctx has ended.
const interruptPatience = time.Second

// watch gives up requests that take too long, measures the backlog, reports progress, and ends the round when ctx ends. stop cancels
// connection attempts.
func (e *engine) watch(ctx context.Context, done <-chan struct{}, stop func()) {
	ticks := time.NewTicker(10 * time.Millisecond)
	defer ticks.Stop()
	ended := ctx.Done()
	for tick := 0; ; tick++ {
		select {
		case <-done:
			e.report()
			return
		case <-ended:
			ended = nil
			e.interrupt()
		case <-ticks.C:
		}
		e.noteBacklog()
		if e.giveUp() {
			stop()
		}
		if tick%10 == 0 {
			e.report()
		}
	}
}

func (e *engine) interrupt() {
	now := e.now()
	e.interrupted.Store(true)
	e.stopBefore(now)
	e.end.Store(min(e.end.Load(), now+int64(interruptPatience)))
	for _, c := range e.connections {
		c.alarm()
	}
}

// stopBefore moves the end of the round forward to that time.
func (e *engine) stopBefore(at int64) {
	for until := e.until.Load(); at < until && !e.until.CompareAndSwap(until, at); until = e.until.Load() {
	}
}

// giveUp gives up the requests that take too long. At the end of the round it gives up all of them and returns true.
func (e *engine) giveUp() bool {
	now := e.now()
	before, over := now-int64(e.Timeout), now >= e.end.Load()
	if over {
		before = now
	}
	for _, c := range e.connections {
		c.giveUp(before)
	}
	return over
}

func (e *engine) noteBacklog() {
	if e.now() < e.from {
		return
	}
	if backlog := e.behind(); backlog > e.backlog.Load() {
		e.backlog.Store(backlog)
	}
}

// behind returns how many requests are due but not sent.
func (e *engine) behind() int64 {
	if e.Rate == 0 {
		return 0
	}
	now := min(e.now(), e.until.Load())
	due := int64(float64(now-e.start) * e.Rate / float64(time.Second))
	return max(0, due-e.sent())
}

func (e *engine) sent() (sent int64) {
	for _, c := range e.connections {
		sent += c.sent.Load()
	}
	return sent
}

func (e *engine) report() {
	if e.Progress == nil {
		return
	}
	now := min(e.now(), e.until.Load())
	p := Progress{Warming: now < e.from, Elapsed: time.Duration(now - e.start), Sent: e.sent(), Backlog: e.behind()}
	if !p.Warming {
		p.Elapsed = time.Duration(now - e.from)
	}
	e.Progress(p)
}

// result adds up the tallies of the connections, which have ended.
func (e *engine) result() result.Round {
	round := result.Round{Began: e.began, Statuses: map[int]int64{}, Failures: map[string]int64{}, Wanted: e.Rate, Backlog: e.backlog.Load()}
	all, refused, last := result.NewHistogram(), result.NewHistogram(), e.until.Load()
	for _, c := range e.connections {
		t := &c.tally
		round.Requests += t.requests
		round.Answers += t.responses
		round.Expected += t.expected
		round.Late += t.late
		round.Overslept += t.overslept
		last = max(last, t.lastSent)
		for status, n := range t.statuses {
			if n > 0 {
				round.Statuses[status] += n
			}
		}
		for failure, n := range t.failures {
			round.Failures[failure] += n
		}
		all.Merge(t.latencies)
		if t.refused != nil {
			refused.Merge(t.refused)
		}
	}
	round.Seconds = time.Duration(max(0, last-e.from)).Seconds()
	round.Latencies = result.Summary(all)
	if refused.TotalCount() > 0 {
		summary := result.Summary(refused)
		round.Refused = &summary
	}
	return round
}
