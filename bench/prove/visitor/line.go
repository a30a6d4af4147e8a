// Package visitor clicks on links over connections of its own, notices how each of them ends, and counts what came of it.
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

// Line is one connection to an edge, made when it is needed and kept for as long as the edge keeps it. Requests are put on it, sent
// together, and their answers received one by one. What fails hangs up.
type Line struct {
	Addr    string
	Timeout time.Duration // of connecting, and from sending to the last answer

	Conn     net.Conn // nil unless connected
	in       *bufio.Reader
	out      []byte
	answered bool      // at least once on this connection
	asked    time.Time // when the last requests were sent
	before   time.Time // when those before them were

	Response fasthttp.Response // the last one received
}

// errRefused means that no connection was established, because nothing listened or the listener was closing. That is the one failure after which
// clients ask again without being told: nothing was asked yet.
var errRefused = errors.New("connection refused")

// hungUp is the end of a connection in place of an answer of which not one byte came. What is said of it tells the ends that a client
// has to be ready for from those that it has not.
type hungUp struct {
	// first: the connection has had no response. A closing listener leaves connections that it never accepted to the kernel.
	first bool
	// after is how long after the request before it was seen. For less than EDGE_DRAIN an edge that stops does not hang up.
	after time.Duration
}

func (e hungUp) Error() string {
	if e.first {
		return "hung up on before the first answer"
	}
	return "hung up on"
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

// Put puts a request for a path of host, the line's own when it is "", to those that send sends. Each comes from another client, or
// the edge would count them as one.
func (l *Line) Put(host, path string) {
	if host == "" {
		host = l.Addr
	}
	l.out = fmt.Appendf(l.out, "GET %s HTTP/1.1\r\nHost: %s\r\nX-Forwarded-For: %s\r\n\r\n", path, host, Stranger())
}

// Send sends what was put, on a line that is connected.
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

// Receive reads the next answer into response. When the edge closes the connection with it, later requests were not heard.
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

// failed hangs up after an error before the first byte of an answer, and says what it means.
func (l *Line) failed(err error) error {
	l.HangUp()
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return err
	}
	return hungUp{first: !l.answered, after: time.Since(l.before)}
}

// Connected returns whether there is a connection, as far as the last request told.
func (l *Line) Connected() bool { return l.Conn != nil }

// HangUp ends the connection, if there is one.
func (l *Line) HangUp() {
	if l.Conn != nil {
		_ = l.Conn.Close() // nothing is left to be said on it
		l.Conn = nil
	}
}

// Stranger is the address of another client each time, as good as always: edges and the portal limit what each may ask for.
func Stranger() netip.Addr {
	n := rand.Uint32()
	return netip.AddrFrom4([4]byte{10, byte(n >> 16), byte(n >> 8), byte(n)})
}
