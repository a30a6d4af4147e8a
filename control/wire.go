package main

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"time"

	"deeplink/shared/envelope"
	"deeplink/shared/requestid"
)

// enveloped is a listener on whose connections net/http's own refusals leave as the envelope of interface.md 7. net/http
// answers a request that it can't parse by itself, in text/plain and before any handler runs; there is no hook for it.
type enveloped struct{ net.Listener }

// Accept waits for the next connection.
func (l enveloped) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if tcp, ok := c.(*net.TCPConn); ok && err == nil {
		return envelopedConn{tcp}, nil
	}
	return c, err
}

// envelopedConn keeps what net/http looks for in a connection beside net.Conn: CloseWrite and ReadFrom.
type envelopedConn struct{ *net.TCPConn }

// Write sends b, or an envelope in its place when b is a refusal by net/http. Each of those is one Write.
func (c envelopedConn) Write(b []byte) (int, error) {
	status, message, refused := parseRefusal(b)
	if !refused {
		return c.TCPConn.Write(b)
	}
	if _, err := c.TCPConn.Write(envelopedRefusal(status, message, time.Now())); err != nil {
		return 0, err
	}
	return len(b), nil
}

var (
	// refusalHeaders are net/http's errorHeaders (net/http/server.go): no answer of a handler has these and no others.
	refusalHeaders = []byte("\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n")
	// expectationFailed begins the answer to an Expect header other than 100-continue. No handler uses this status.
	expectationFailed = []byte("HTTP/1.1 417 Expectation Failed\r\n")
	statusLine        = []byte("HTTP/1.1 ")
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

// envelopedRefusal is a whole answer which ends the connection. A request that can't be parsed has no path to name and no
// request id that could be trusted to be the client's.
func envelopedRefusal(status int, message string, now time.Time) []byte {
	if message == "" {
		message = http.StatusText(status)
	}
	body := envelope.New(status, message, "", "", now).JSON()
	var answer bytes.Buffer
	fmt.Fprintf(&answer, "HTTP/1.1 %d %s\r\nCache-Control: no-store\r\nConnection: close\r\nContent-Length: %d\r\n"+
		"Content-Type: %s\r\nDate: %s\r\n%s: %s\r\nX-Content-Type-Options: nosniff\r\n%s: %s\r\n\r\n",
		status, http.StatusText(status), len(body), envelope.ContentType, now.UTC().Format(http.TimeFormat),
		versionHeader, version, requestid.Header, requestid.New())
	answer.Write(body)
	return answer.Bytes()
}
