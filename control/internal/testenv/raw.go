package testenv

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"deeplink/shared/envelope"
)

// CheckEnvelope fails the test unless a reply is an error envelope, as every error of every route.
func CheckEnvelope(t *testing.T, request string, r Reply, path string) {
	t.Helper()
	e := DecodeReply[envelope.Envelope](t, r)
	if r.Header.Get("Content-Type") != "application/json" || e.StatusCode != r.Status || e.Error != http.StatusText(r.Status) || e.Message == "" || e.Path != path {
		t.Errorf("%s: %s, expected an envelope of %d for %s", request, r, r.Status, path)
	}
	at, err := time.Parse("2006-01-02T15:04:05.000Z", e.Timestamp)
	if err != nil || time.Since(at) > time.Minute || time.Until(at) > time.Minute {
		t.Errorf("%s: timestamp %q (%v), expected now in UTC with milliseconds", request, e.Timestamp, err)
	}
	if r.Header.Get("X-Request-Id") == "" || r.Header.Get("Deeplink-Version") != "1" {
		t.Errorf("%s: %v, expected X-Request-Id and Deeplink-Version", request, r.Header)
	}
	if (e.Message == "Validation failed") != (len(e.Details) > 0) {
		t.Errorf("%s: %s, expected details on failed validation and only there", request, r)
	}
	for _, detail := range e.Details {
		if detail.Message == "" {
			t.Errorf("%s: %s, expected a message in each entry", request, r)
		}
	}
}

// ExchangeRaw sends bytes and reads replies until the server closes the connection, or until it has read n.
func ExchangeRaw(t *testing.T, p *Control, request string, n int) []Reply {
	t.Helper()
	conn, err := net.DialTimeout("tcp", strings.TrimPrefix(p.Base, "http://"), 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(20 * time.Second))
	// The server may answer and close before it has read everything.
	go io.WriteString(conn, request)
	reader := bufio.NewReader(conn)
	var replies []Reply
	for range n {
		response, err := http.ReadResponse(reader, nil)
		if err != nil {
			break
		}
		body, err := io.ReadAll(response.Body)
		if err != nil {
			t.Errorf("%.200q: %v after %q", request, err, body)
		}
		replies = append(replies, Reply{Status: response.StatusCode, Header: response.Header, Body: body})
		if response.Close {
			break
		}
	}
	return replies
}

// SendAndHangUp sends a request on a connection of its own and does not wait for its response. cut closes the connection.
func (c *Client) SendAndHangUp(method, path, body string) (cut func()) {
	c.T.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(c.Base, "http://"))
	if err != nil {
		c.T.Fatal(err)
	}
	c.T.Cleanup(func() { conn.Close() })
	from := "10.255.255.254"
	if c.From != nil {
		from = c.From()
	}
	_, err = fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: control\r\nAuthorization: Bearer %s\r\nX-Forwarded-For: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
		method, path, c.Key, from, len(body), body)
	if err != nil {
		c.T.Fatal(err)
	}
	return func() { conn.Close() }
}

// AwaitHungUp waits until the kernel has closed connections of n clients to this control.
func (p *Control) AwaitHungUp(n int) {
	p.T.Helper()
	const closeWait = "08" // Linux, include/net/tcp_states.h
	_, port, err := net.SplitHostPort(strings.TrimPrefix(p.Base, "http://"))
	if err != nil {
		p.T.Fatal(err)
	}
	number, err := strconv.Atoi(port)
	if err != nil {
		p.T.Fatal(err)
	}
	local := fmt.Sprintf("0100007F:%04X", number)
	Await(p.T, fmt.Sprintf("%d connections that clients closed", n), func() error {
		table, err := os.ReadFile("/proc/self/net/tcp")
		if err != nil {
			return err
		}
		closed := 0
		for line := range strings.Lines(string(table)) {
			if fields := strings.Fields(line); len(fields) > 3 && fields[1] == local && fields[3] == closeWait {
				closed++
			}
		}
		if closed < n {
			return fmt.Errorf("%d are", closed)
		}
		return nil
	})
}
