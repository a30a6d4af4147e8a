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

// connection asks on one connection, made again when it fails. Its own goroutine does all of it but giveUp.
type connection struct {
	*engine
	number  int64
	target  Target
	source  Source
	wake    chan struct{} // of the pacer: a request may be due
	answers answers
	tally   tally

	mu    sync.Mutex // held to change conn, and by others to use it
	conn  net.Conn
	asked atomic.Int64 // when a request was sent that is under way, idle or givenUp
	sent  atomic.Int64 // requests, with those of the warm-up
}

const (
	idle    = -1
	givenUp = -2
)

// tally is what came of the counted requests.
type tally struct {
	requests, answers, expected, late, overslept, lastSent int64

	statuses  [600]int64
	failures  map[string]int64
	latencies *hdrhistogram.Histogram // of expected statuses
	refused   *hdrhistogram.Histogram // of all others, nil if there were none
}

// lateAfter is how long after it was due a request is late. Timers and the scheduler take less on a core of its own.
const lateAfter = int64(time.Millisecond)

func newConnection(e *engine, number int) *connection {
	c := &connection{
		engine: e, number: int64(number), target: e.Targets[number%len(e.Targets)], wake: make(chan struct{}, 1),
		tally: tally{failures: map[string]int64{}, latencies: result.NewHistogram()},
	}
	c.source = e.Source(number, c.target)
	c.answers = answers{fill: func(to []byte) (int, error) { return c.conn.Read(to) }, buffer: make([]byte, bufferSize)}
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
		// Not until: another connection that found no ticket left may have moved it before now.
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

// noteSent notes that a request of an open loop is sent now. free: its connection waited for it.
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
	t.answers++
	t.statuses[status]++
	// The timeout is below what the histogram holds, but a request may have been due long before it was sent.
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

// ask sends a request and reads its answer. failure is how it failed, or "".
func (c *connection) ask(ctx context.Context, request []byte) (status int, failure string) {
	if c.conn == nil {
		if c.connect(ctx) != nil {
			return 0, FailedConnect
		}
	}
	asked := c.now()
	c.asked.Store(asked)
	a, err := c.exchange(request)
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

func (c *connection) exchange(request []byte) (answer, error) {
	if c.answers.left() {
		return answer{}, malformed("more than was asked for")
	}
	if _, err := c.conn.Write(request); err != nil {
		return answer{}, err
	}
	return c.answers.read(request[0] == 'H')
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
	c.answers.reset()
	return nil
}

func (c *connection) hangUp() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conn != nil {
		_ = c.conn.Close() // nothing is left to be said on it
		c.conn = nil
	}
}

// giveUp makes a request fail that is under way since before the time given.
func (c *connection) giveUp(before int64) {
	asked := c.asked.Load()
	if asked == idle || asked == givenUp || asked > before {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.asked.CompareAndSwap(asked, givenUp) {
		_ = c.conn.SetDeadline(time.Unix(1, 0)) // fails only on a connection that is closed, which is as good
	}
}

// pause returns false when ctx ended meanwhile.
func pause(ctx context.Context, span time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(span):
		return true
	}
}
