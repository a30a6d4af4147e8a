// Package visitor clicks links over its own connections, detects how each of them ends, and counts the results.
package visitor

import (
	"bufio"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"

	"github.com/valyala/fasthttp"
)

// Line is one connection to an edge, established when needed and kept as long as the edge keeps it. Requests are buffered, sent together,
// and their responses received one by one. An error closes the connection.
type Line struct {
	Addr    string
	Timeout time.Duration // bounds connecting, and the time from sending to the last response

	Conn     net.Conn // nil unless connected
	in       *bufio.Reader
	out      []byte
	answered bool      // this connection has had a response
	asked    time.Time // when the last requests were sent
	before   time.Time // when those before them were sent

	Response fasthttp.Response // the last one received
}

// errRefused means that no connection was established, because nothing listened or the listener was closing. Only after this failure do
// clients retry on their own: no request was sent yet.
var errRefused = errors.New("connection refused")

// hungUp is the end of a connection before the first byte of a response. Its fields distinguish ends that a client must expect from others.
type hungUp struct {
	// first: the connection has had no response. A closing listener leaves connections that it never accepted to the kernel.
	first bool
	// after is the time since the previous request. A stopping edge keeps a connection for at least EDGE_DRAIN.
	after time.Duration
}

func (e hungUp) Error() string {
	if e.first {
		return "closed before the first response"
	}
	return "closed"
}

// Connect connects unless there is a connection.
func (l *Line) Connect() (err error) {
	if l.Conn != nil {
		return nil
	}
	if l.Conn, err = net.DialTimeout("tcp", l.Addr, l.Timeout); err != nil {
		l.Conn = nil
		if errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ECONNRESET) {
			err = errRefused
		}
		return err
	}
	if l.in == nil {
		l.in = bufio.NewReaderSize(nil, 4<<10)
	}
	l.in.Reset(l.Conn)
	l.answered = false
	return nil
}

// Put buffers a request for a path of host (the line's own when it is ""), which Send sends. Each comes from another client, or the edge
// would apply one rate limit to all.
func (l *Line) Put(host, path string) {
	if host == "" {
		host = l.Addr
	}
	l.out = fmt.Appendf(l.out, "GET %s HTTP/1.1\r\nHost: %s\r\nX-Forwarded-For: %s\r\n\r\n", path, host, Stranger())
}

// Send sends the buffered requests, on a line that is connected.
func (l *Line) Send() error {
	l.before, l.asked = l.asked, time.Now()
	out := l.out
	l.out = l.out[:0]
	if err := l.Conn.SetDeadline(l.asked.Add(l.Timeout)); err != nil {
		return l.failed(err)
	}
	if _, err := l.Conn.Write(out); err != nil {
		return l.failed(err)
	}
	return nil
}

// Receive reads the next response into response. If the edge closes the connection with it, later requests get none.
func (l *Line) Receive() error {
	if _, err := l.in.Peek(1); err != nil {
		return l.failed(err)
	}
	if err := l.Response.Read(l.in); err != nil {
		l.HangUp()
		return err
	}
	l.answered = true
	if l.Response.ConnectionClose() {
		l.HangUp()
	}
	return nil
}

// failed closes the connection after an error before the first byte of a response, and classifies the error.
func (l *Line) failed(err error) error {
	l.HangUp()
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return err
	}
	return hungUp{first: !l.answered, after: time.Since(l.before)}
}

// Connected returns whether there is a connection, as far as the last request showed.
func (l *Line) Connected() bool { return l.Conn != nil }

// HangUp closes the connection, if there is one.
func (l *Line) HangUp() {
	if l.Conn != nil {
		_ = l.Conn.Close() // no more data will be sent
		l.Conn = nil
	}
}

// Stranger returns another client address each time, with very few repetitions: edges and the portal limit the rate of each.
func Stranger() netip.Addr {
	n := rand.Uint32()
	return netip.AddrFrom4([4]byte{10, byte(n >> 16), byte(n >> 8), byte(n)})
}
