// Package conn holds the connections of the edge's public address. It promises that clients cannot take more connections, memory or
// time than they are given: connections are bounded in total and per address, an idle connection holds no buffer, and a deadline takes
// effect at most [DeadlineSlack] late. It does not read HTTP.
package conn

import (
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"deeplink/shared/ratelimit"
	"deeplink/shared/wire"
)

// MaxHeader bounds the header of a request, in bytes. The server has to refuse longer ones.
const MaxHeader = 8 << 10

// Conn is a connection whose deadlines are applied on the next Read or Write, and only if they have moved by more than DeadlineSlack.
// One goroutine at a time may read and write; any goroutine may call Close.
//
// While it waits for a request a connection holds no buffer. With ReduceMemoryUsage, fasthttp releases its own buffers and reads a
// single byte, which would cost one extra system call per request. So Conn waits until the socket is readable, reads as much as there
// is into a pooled buffer, and serves the following reads from it. Measured: an idle connection takes 10 KB instead of 24 KB.
type Conn struct {
	net.Conn
	raw         syscall.RawConn // nil if the connection is not a socket
	fill        func(fd uintptr) (done bool)
	ahead       *aheadBuffer // bytes read from the socket but not yet by the server; nil: none
	fillErr     error
	read, write deadline
	head        wire.Head
	bounds      *Bounds // the first Close leaves it; nil: the connection is not counted
	address     ratelimit.Key
	counted     bool // counted for its address
	closed      atomic.Bool
}

// aheadSize is the size of the read-ahead buffer, in bytes. Most requests are smaller.
const aheadSize = 4 << 10

type aheadBuffer struct {
	from, to int // the unread bytes
	bytes    [aheadSize]byte
}

var aheadBuffers = sync.Pool{New: func() any { return new(aheadBuffer) }}

func newConn(c net.Conn) *Conn {
	made := &Conn{Conn: c}
	if socket, ok := c.(syscall.Conn); ok {
		if raw, err := socket.SyscallConn(); err == nil {
			made.raw, made.fill = raw, made.readAhead
		}
	}
	return made
}

// Close closes the connection and makes room for another one.
func (c *Conn) Close() error {
	if c.bounds != nil && c.closed.CompareAndSwap(false, true) {
		c.bounds.leave(c)
	}
	return c.Conn.Close()
}

// Answered marks the current request as answered: the next bytes belong to another request.
func (c *Conn) Answered() { c.head.Answered() }

// Request returns the path and the request id of the current request, as far as they can be read from the bytes received so far.
func (c *Conn) Request() wire.Request { return c.head.Request() }

// SetDeadline sets both deadlines.
func (c *Conn) SetDeadline(t time.Time) error {
	c.read.wanted, c.write.wanted = t, t
	return nil
}

// SetReadDeadline sets the time after which Read fails. Read may fail up to DeadlineSlack later.
func (c *Conn) SetReadDeadline(t time.Time) error {
	c.read.wanted = t
	return nil
}

// SetWriteDeadline sets the time after which Write fails. Write may fail up to DeadlineSlack later.
func (c *Conn) SetWriteDeadline(t time.Time) error {
	c.write.wanted = t
	return nil
}

// Read implements net.Conn. A read of one byte is how fasthttp waits for the next request.
func (c *Conn) Read(b []byte) (int, error) {
	if c.ahead == nil {
		if err := c.read.apply(c.Conn.SetReadDeadline); err != nil {
			return 0, err
		}
		if len(b) > 1 {
			n, err := c.Conn.Read(b)
			c.head.Add(b[:n], MaxHeader)
			return n, err
		}
		if err := c.await(); err != nil {
			return 0, err
		}
	}
	n := copy(b, c.ahead.bytes[c.ahead.from:c.ahead.to])
	if c.ahead.from += n; c.ahead.from == c.ahead.to {
		aheadBuffers.Put(c.ahead)
		c.ahead = nil
	}
	return n, nil
}

// await waits until bytes arrive and reads them into c.ahead.
func (c *Conn) await() (err error) {
	c.head.Idle()
	if c.raw != nil {
		c.fillErr = nil
		if err = c.raw.Read(c.fill); err == nil {
			err = c.fillErr
		}
	} else {
		ahead := aheadBuffers.Get().(*aheadBuffer)
		ahead.from = 0
		if ahead.to, err = c.Conn.Read(ahead.bytes[:]); ahead.to > 0 {
			c.ahead, err = ahead, nil
		}
	}
	if err == nil {
		c.head.Add(c.ahead.bytes[:c.ahead.to], MaxHeader)
	}
	return err
}

// readAhead reads the bytes that the socket has. It returns false if there are none, so that the runtime waits and calls it again.
func (c *Conn) readAhead(fd uintptr) (done bool) {
	ahead := aheadBuffers.Get().(*aheadBuffer)
	for {
		n, err := syscall.Read(int(fd), ahead.bytes[:])
		switch {
		case err == syscall.EINTR:
			continue
		case n > 0:
			ahead.from, ahead.to = 0, n
			c.ahead = ahead
			return true
		case err == nil:
			c.fillErr = io.EOF
		case err == syscall.EAGAIN:
			aheadBuffers.Put(ahead)
			return false
		default:
			c.fillErr = os.NewSyscallError("read", err)
		}
		aheadBuffers.Put(ahead)
		return true
	}
}

// Write implements net.Conn.
func (c *Conn) Write(b []byte) (int, error) {
	if err := c.write.apply(c.Conn.SetWriteDeadline); err != nil {
		return 0, err
	}
	return c.Conn.Write(b)
}

// DeadlineSlack is how much later than requested a deadline may take effect. fasthttp moves three deadlines per request, which costs
// 8 to 10 % of the time of a request. A deadline that is within the slack stays as it is, so a busy connection moves two a second.
const DeadlineSlack = time.Second

// deadline is a requested deadline and the one that is set on the socket.
type deadline struct{ wanted, set time.Time }

// apply calls set unless the current deadline is good enough: not before the wanted one, and at most DeadlineSlack after it.
func (d *deadline) apply(set func(time.Time) error) error {
	if d.wanted.IsZero() == d.set.IsZero() {
		if late := d.set.Sub(d.wanted); 0 <= late && late <= DeadlineSlack {
			return nil
		}
	}
	next := d.wanted
	if !next.IsZero() {
		next = next.Add(DeadlineSlack)
	}
	d.set = next
	return set(next)
}
