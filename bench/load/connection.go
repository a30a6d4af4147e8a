package load

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"deeplink/bench/result"
)

// connection sends requests on one connection, which it reestablishes after a failure. One goroutine calls all methods except giveUp.
type connection struct {
	*engine
	number    int64
	target    Target
	source    Source
	wake      chan struct{} // for the pacer: a request may be due
	responses responseReader
	tally     tally

	mu    sync.Mutex // held to change conn, and to use it from another goroutine
	conn  net.Conn
	asked atomic.Int64 // when the request in progress was sent, idle or givenUp
	sent  atomic.Int64 // requests, including those of the warm-up
}

const (
	idle    = -1
	givenUp = -2
)

// tally holds the results of the counted requests.
type tally struct {
	requests, responses, expected, late, overslept, lastSent int64

	statuses  [600]int64
	failures  map[string]int64
	latencies *hdrhistogram.Histogram // latencies of expected statuses
	refused   *hdrhistogram.Histogram // latencies of all others, nil if there were none
}

// lateAfter is how long after its due time a request counts as late. Timers and the scheduler take less on a dedicated core.
const lateAfter = int64(time.Millisecond)

func newConnection(e *engine, number int) *connection {
	c := &connection{
		engine: e, number: int64(number), target: e.Targets[number%len(e.Targets)], wake: make(chan struct{}, 1),
		tally: tally{failures: map[string]int64{}, latencies: result.NewHistogram()},
	}
	c.source = e.Source(number, c.target)
	c.responses = responseReader{fill: func(to []byte) (int, error) { return c.conn.Read(to) }, buffer: make([]byte, bufferSize)}
	c.asked.Store(idle)
	return c
}

// run sends requests until the round is over.
func (c *connection) run(ctx context.Context) {
	defer c.hangUp()
	for turn := int64(0); ; turn++ {
		due, counted, ok := c.await(turn)
		if !ok {
			return
		}
		c.sent.Add(1)
		status, failure := c.ask(ctx, c.source.Next())
		if counted {
			c.count(due, status, failure)
		}
		if failure == FailedConnect && c.Rate == 0 {
			pause(ctx, 10*time.Millisecond)
		}
	}
}

// await returns when a request was due, once it may be sent, and whether it counts. ok is false when none is left.
func (c *connection) await(turn int64) (due int64, counted, ok bool) {
	if c.Rate == 0 {
		now := c.now()
		if c.Requests == 0 || now < c.from {
			until := c.until.Load()
			return now, now >= c.from && now < until, now < until
		}
		if c.tickets.Add(1) > c.Requests {
			c.stopBefore(c.now())
			return 0, false, false
		}
		// Not until: another connection that found no ticket left may already have moved it.
		return now, true, now < c.from+int64(c.Duration) && !c.interrupted.Load()
	}
	due = c.due(turn*int64(c.Connections) + c.number)
	for free := false; ; free = true {
		now, until := c.now(), c.until.Load()
		if due >= until {
			return due, false, false
		}
		if now >= c.end.Load() {
			c.abandon(turn, until)
			return due, false, false
		}
		if now >= due {
			c.noteSent(due, now, free)
			return due, due >= c.from, true
		}
		<-c.wake
	}
}

// noteSent records that a request of an open loop is being sent. free: its connection waited for it.
func (c *connection) noteSent(due, now int64, free bool) {
	if due < c.from {
		return
	}
	c.tally.lastSent = now
	if now-due > lateAfter {
		c.tally.late++
		if free {
			c.tally.overslept++
		}
	}
}

// abandon counts the requests from turn on that were due before until.
func (c *connection) abandon(turn, until int64) {
	for ; ; turn++ {
		due := c.due(turn*int64(c.Connections) + c.number)
		if due >= until {
			return
		}
		if due >= c.from {
			c.tally.requests++
			c.tally.failures[FailedUnsent]++
		}
	}
}

func (c *connection) count(due int64, status int, failure string) {
	t := &c.tally
	t.requests++
	if failure != "" {
		t.failures[failure]++
		return
	}
	t.responses++
	t.statuses[status]++
	// The timeout is below the histogram's range, but a request may have been due long before it was sent.
	latency := min(c.now()-due, int64(longest))
	if c.Expected == nil || c.Expected(status) {
		t.expected++
		_ = t.latencies.RecordValue(latency)
		return
	}
	if t.refused == nil {
		t.refused = result.NewHistogram()
	}
	_ = t.refused.RecordValue(latency)
}

// ask sends a request and reads its response. failure names the failure, or is "".
func (c *connection) ask(ctx context.Context, request []byte) (status int, failure string) {
	if c.conn == nil {
		if c.connect(ctx) != nil {
			return 0, FailedConnect
		}
	}
	asked := c.now()
	c.asked.Store(asked)
	a, err := c.roundTrip(request)
	if !c.asked.CompareAndSwap(asked, idle) {
		c.asked.Store(idle)
		c.hangUp()
		return 0, FailedTimeout
	}
	if err != nil {
		c.hangUp()
		return 0, failureOf(err)
	}
	if a.last {
		c.hangUp()
	}
	return a.status, ""
}

func (c *connection) roundTrip(request []byte) (response, error) {
	if c.responses.left() {
		return response{}, malformed("data after the response")
	}
	if _, err := c.conn.Write(request); err != nil {
		return response{}, err
	}
	return c.responses.read(request[0] == 'H')
}

func failureOf(err error) string {
	var bad malformed
	if errors.As(err, &bad) {
		return FailedMalformed
	}
	return FailedClosed
}

func (c *connection) connect(ctx context.Context) error {
	conn, err := c.target.dial(ctx, c.TLS, c.Timeout)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.conn = conn
	c.responses.reset()
	return nil
}

func (c *connection) hangUp() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conn != nil {
		_ = c.conn.Close() // no more data will be sent
		c.conn = nil
	}
}

// giveUp makes a request fail that has been in progress since before the given time.
func (c *connection) giveUp(before int64) {
	asked := c.asked.Load()
	if asked == idle || asked == givenUp || asked > before {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.asked.CompareAndSwap(asked, givenUp) {
		_ = c.conn.SetDeadline(time.Unix(1, 0)) // fails only on a closed connection, which is equivalent
	}
}

// pause reports false if ctx ended meanwhile.
func pause(ctx context.Context, span time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(span):
		return true
	}
}
