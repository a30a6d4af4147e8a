package main

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"deeplink/shared/wire"
)

// maxConnections bounds the connections of the API. Each takes two buffers and a goroutine, and a backend needs few.
const maxConnections = 64 << 10

// enveloped is a listener on whose connections net/http's own refusals leave as the envelope of interface.md 7. net/http
// answers a request that it can't parse by itself, in text/plain and before any handler runs; there is no hook for it. Whom there is no
// room for is answered by the envelope, too.
type enveloped struct {
	net.Listener
	gate *wire.Gate
}

// Accept waits for the next connection.
func (l enveloped) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		tcp, ok := c.(*net.TCPConn)
		if err != nil || !ok {
			return c, err
		}
		if l.gate.Admit(tcp) {
			return &envelopedConn{TCPConn: tcp, gate: l.gate}, nil
		}
	}
}

// envelopedConn keeps what net/http looks for in a connection beside net.Conn: CloseWrite and ReadFrom.
type envelopedConn struct {
	*net.TCPConn
	gate *wire.Gate // left by the first Close
	left sync.Once

	mu   sync.Mutex // net/http reads while it writes
	head wire.Head
}

// Close closes the connection and leaves its place to another one.
func (c *envelopedConn) Close() error {
	c.left.Do(c.gate.Leave)
	return c.TCPConn.Close()
}

// Read reads and remembers how the request began.
func (c *envelopedConn) Read(b []byte) (int, error) {
	n, err := c.TCPConn.Read(b)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.head.Add(b[:n], maxHeader)
	return n, err
}

// request returns what is known of the request that was read last.
func (c *envelopedConn) request() wire.Request {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.head.Request()
}

// Write sends b, or an envelope in its place when b is a refusal by net/http. Each of those is one Write.
func (c *envelopedConn) Write(b []byte) (int, error) {
	if status, message, refused := parseRefusal(b); refused {
		if _, err := c.TCPConn.Write(wire.Refusal(status, message, c.request(), time.Now())); err != nil {
			return 0, err
		}
		return len(b), nil
	}
	if !bytes.HasPrefix(b, interim) {
		c.mu.Lock()
		c.head.Answered()
		c.mu.Unlock()
	}
	return c.TCPConn.Write(b)
}

// connectionKey is under what the context of a request has its connection.
type connectionKey struct{}

// withConnection is for http.Server.ConnContext.
func withConnection(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connectionKey{}, c)
}

// sent returns what is known of how a request came: nothing of one that came together with the one before it.
func sent(r *http.Request) wire.Request {
	if c, ok := r.Context().Value(connectionKey{}).(*envelopedConn); ok {
		return c.request()
	}
	return wire.Request{}
}

// checkLength refuses a request whose end others may see elsewhere (RFC 9112, 6.1). net/http drops a Content-Length beside
// Transfer-Encoding, and Transfer-Encoding of HTTP/1.0, without a word, so they are looked for in what was read. Where nothing is known of
// that, it is enough that the connection ends: a proxy that sees another end would take the rest of the body for the next request.
func checkLength(x *exchange, r *http.Request) error {
	encoded, old := len(r.TransferEncoding) > 0, !r.ProtoAtLeast(1, 1)
	if !encoded && !old {
		return nil
	}
	x.Header().Set("Connection", "close")
	switch came := sent(r); {
	case encoded && came.Length:
		return errTwoLengths
	case old && came.Encoding:
		return errOldEncoding
	}
	return nil
}

var (
	// refusalHeaders are net/http's errorHeaders (net/http/server.go): no answer of a handler has these and no others.
	refusalHeaders = []byte("\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n")
	// expectationFailed begins the answer to an Expect header other than 100-continue. No handler uses this status.
	expectationFailed = []byte("HTTP/1.1 417 Expectation Failed\r\n")
	statusLine        = []byte("HTTP/1.1 ")
	interim           = []byte("HTTP/1.1 100 ")
)

// parseRefusal reports whether b is a refusal written by net/http itself, and the status and cause it names. message is
// empty when the cause is the status itself.
func parseRefusal(b []byte) (status int, message string, refused bool) {
	if bytes.HasPrefix(b, expectationFailed) {
		return http.StatusExpectationFailed, "", true
	}
	rest, ok := bytes.CutPrefix(b, statusLine)
	if !ok {
		return 0, "", false
	}
	line, _, _ := bytes.Cut(rest, []byte("\r\n"))
	if !bytes.HasPrefix(rest[len(line):], refusalHeaders) || len(line) < 3 {
		return 0, "", false
	}
	status, err := strconv.Atoi(string(line[:3]))
	if err != nil || status < 400 {
		return 0, "", false
	}
	_, cause, _ := bytes.Cut(line, []byte(": "))
	return status, string(cause), true
}
