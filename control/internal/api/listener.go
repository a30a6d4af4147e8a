package api

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

// maxConnections bounds the connections of the API. Each needs two buffers and a goroutine, and a backend needs few connections.
const maxConnections = 64 << 10

// errorRewritingListener returns connections that replace the error responses of net/http by error envelopes. net/http writes errors in text/plain
// before any handler runs, and has no hook for them: for a malformed request line or header (400), headers over the limit (431), an unsupported
// Transfer-Encoding (501), an unsupported version (505), and an unknown Expect (417). Every error on every route must be an envelope. Connections
// over the limit also get the error envelope.
type errorRewritingListener struct {
	net.Listener
	gate *wire.Gate
}

// Listen returns l with errors of net/http as envelopes, and at most maxConnections connections.
func Listen(l net.Listener) net.Listener {
	return errorRewritingListener{l, wire.NewGate(maxConnections)}
}

// Accept waits for the next connection.
func (l errorRewritingListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		tcp, ok := c.(*net.TCPConn)
		if err != nil || !ok {
			return c, err
		}
		if l.gate.Admit(tcp) {
			return &errorRewritingConn{TCPConn: tcp, gate: l.gate}, nil
		}
	}
}

// errorRewritingConn embeds *net.TCPConn, so that net/http finds CloseWrite and ReadFrom.
type errorRewritingConn struct {
	*net.TCPConn
	gate *wire.Gate // the first Close leaves it
	left sync.Once

	mu   sync.Mutex // net/http reads while it writes
	head wire.Head
}

// Close closes the connection and makes room for another one.
func (c *errorRewritingConn) Close() error {
	c.left.Do(c.gate.Leave)
	return c.TCPConn.Close()
}

// Read reads, and keeps the start of the request.
func (c *errorRewritingConn) Read(b []byte) (int, error) {
	n, err := c.TCPConn.Read(b)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.head.Add(b[:n], maxHeader)
	return n, err
}

// request returns the known parts of the last request.
func (c *errorRewritingConn) request() wire.Request {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.head.Request()
}

// Write sends b, or an envelope instead when b is an error of net/http, which writes each of its errors with one Write.
func (c *errorRewritingConn) Write(b []byte) (int, error) {
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

// connectionKey is the key of the connection in the context of a request.
type connectionKey struct{}

// withConnection adds the connection to its context. It is for http.Server.ConnContext.
func withConnection(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connectionKey{}, c)
}

// sent returns the known parts of the request as they were sent. Nothing is known of a request that arrived together with the one before.
func sent(r *http.Request) wire.Request {
	if c, ok := r.Context().Value(connectionKey{}).(*errorRewritingConn); ok {
		return c.request()
	}
	return wire.Request{}
}

// checkLength returns an error for a request whose end a proxy may see elsewhere (RFC 9112, 6.1). net/http silently drops a Content-Length next
// to Transfer-Encoding, and Transfer-Encoding in HTTP/1.0, so checkLength looks for them in the bytes that were read. When those are unknown, closing
// the connection is enough: what a proxy would take for the next request is not read.
func checkLength(x *requestState, r *http.Request) error {
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
	// refusalHeaders are the errorHeaders of net/http (net/http/server.go). No response of a handler has exactly these.
	refusalHeaders = []byte("\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n")
	// expectationFailed is the start of the response to an Expect header other than 100-continue. No handler uses this status.
	expectationFailed = []byte("HTTP/1.1 417 Expectation Failed\r\n")
	statusLine        = []byte("HTTP/1.1 ")
	interim           = []byte("HTTP/1.1 100 ")
)

// parseRefusal reports whether b is an error response of net/http, and returns its status and cause. message is empty when the cause is only the
// status.
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
