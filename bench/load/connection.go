package load

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
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

	mu     sync.Mutex // held to change conn, and by others to use it
	conn   net.Conn
	raw    syscall.RawConn // nil for TLS
	asked  atomic.Int64    // when a request was sent that is under way, idle or givenUp
	sent   atomic.Int64    // requests, with those of the warm-up
	socket socket
}

const (
	idle    = -1
	givenUp = -2
)

// tally is what came of the counted requests.
type tally struct {
	requests, answers, late, overslept, lastSent int64

	statuses  [600]int64
	failures  map[string]int64
	latencies *hdrhistogram.Histogram
}

// lateAfter is how long after it was due a request is late. Timers and the scheduler take less on a core of its own.
const lateAfter = int64(time.Millisecond)

func newConnection(e *engine, number int) *connection {
	c := &connection{
		engine: e, number: int64(number), target: e.Targets[number%len(e.Targets)], wake: make(chan struct{}, 1),
		tally: tally{failures: map[string]int64{}, latencies: result.NewHistogram()},
	}
	c.source = e.Source(number, c.target)
	c.answers = answers{fill: c.fill, buffer: make([]byte, bufferSize)}
	c.asked.Store(idle)
	c.socket.ready = c.socket.step
	return c
}

// run sends requests until the round is over.
func (c *connection) run(ctx context.Context) {
	defer c.hangUp()
	for turn := int64(0); ; turn++ {
		due, ok := c.await(turn)
		if !ok {
			return
		}
		c.sent.Add(1)
		status, failure := c.ask(ctx, c.source.Next())
		c.count(due, status, failure)
		if failure == FailedConnect && c.Rate == 0 {
			pause(ctx, 10*time.Millisecond)
		}
	}
}

// await returns when a request may be sent, and when it was due. ok is false when there is none any more.
func (c *connection) await(turn int64) (due int64, ok bool) {
	if c.Rate == 0 {
		now := c.now()
		return now, now < c.until.Load()
	}
	due = c.due(turn*int64(c.Connections) + c.number)
	for free := false; ; free = true {
		now, until := c.now(), c.until.Load()
		if due >= until {
			return due, false
		}
		if now >= c.end.Load() {
			c.abandon(turn, until)
			return due, false
		}
		if now >= due {
			c.noteSent(due, now, free)
			return due, true
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
	if due < c.from || due >= c.until.Load() {
		return
	}
	t := &c.tally
	t.requests++
	if failure != "" {
		t.failures[failure]++
		return
	}
	t.answers++
	t.statuses[status]++
	// The time-out is below what the histogram holds, but a request may have been due long before it was sent.
	_ = t.latencies.RecordValue(min(c.now()-due, int64(longest)))
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
	if c.raw != nil {
		c.socket.request = request // sent by the first read
	} else if _, err := c.conn.Write(request); err != nil {
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
	c.conn, c.raw = conn, nil
	if tcp, ok := conn.(*net.TCPConn); ok {
		c.raw, err = tcp.SyscallConn()
	}
	c.socket.conn, c.socket.raw = c.conn, c.raw
	c.answers.reset()
	return err
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

func (c *connection) fill(to []byte, first bool) (int, error) {
	if c.raw == nil {
		return c.conn.Read(to)
	}
	return c.socket.read(to, first)
}

// socket sends a request and reads the begin of its answer in one step, three system calls of the four that net.Conn takes: that one
// would try to read at once, and right after the request there never is anything. The order matters: RawConn.Read forgets what was
// ready, then the request is sent, then it waits, so an answer that is fast wakes it all the same.
type socket struct {
	conn    net.Conn
	raw     syscall.RawConn
	request []byte // to be sent with the next read
	to      []byte
	n       int
	err     error
	ready   func(fd uintptr) bool // step, made a value once, or each read would allocate it
}

func (s *socket) read(to []byte, first bool) (int, error) {
	if !first {
		s.request = nil
	}
	s.to, s.n, s.err = to, 0, nil
	if err := s.raw.Read(s.ready); err != nil {
		return 0, err
	}
	if s.err == nil && s.n == 0 {
		return 0, io.EOF
	}
	return s.n, s.err
}

// step reports whether the read is over. Else it is called again when there is something to be read.
func (s *socket) step(fd uintptr) bool {
	if len(s.request) > 0 {
		s.err = s.send(int(fd))
		return s.err != nil
	}
	for {
		s.n, s.err = syscall.Read(int(fd), s.to)
		switch s.err {
		case syscall.EINTR:
		case syscall.EAGAIN:
			s.err = nil
			return false
		default:
			s.n = max(s.n, 0)
			return true
		}
	}
}

func (s *socket) send(fd int) error {
	request := s.request
	s.request = nil
	n, err := syscall.Write(fd, request)
	switch {
	case err == syscall.EAGAIN || err == syscall.EINTR:
		n = 0
	case err != nil:
		return err
	}
	if n < len(request) { // its size is that of a body that is sent in pieces
		_, err = s.conn.Write(request[n:])
		return err
	}
	return nil
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
