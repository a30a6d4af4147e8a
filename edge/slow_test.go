package main

import (
	"io"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/valyala/fasthttp"

	"deeplink/edge/internal/clicks"
	"deeplink/edge/internal/conn"
)

// dateTicker starts a goroutine of fasthttp that never ends. Inside a synctest bubble the test would wait for it forever.
func dateTicker() { new(fasthttp.ResponseHeader).Header() }

// pipeListener accepts one connection, in memory.
type pipeListener struct {
	net.Listener
	end net.Conn
}

func (l pipeListener) Accept() (net.Conn, error) { return l.end, nil }

// serveConn serves a connection in memory. It returns the client's end and a channel that gets the time when the server closed it.
func serveConn(t *testing.T) (net.Conn, <-chan time.Time) {
	t.Helper()
	client, end := net.Pipe()
	s := newServer(&options{LinkBaseURL: base}, nil, nil, nil, new(clicks.Recorder), discard)
	accepted, err := conn.NewListener(pipeListener{end: end}, conn.NewBounds(1, 1, nil)).Accept()
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan time.Time, 1)
	go func() {
		_ = s.http.ServeConn(accepted)
		ended <- time.Now()
	}()
	return client, ended
}

const health = "GET /healthz HTTP/1.1\r\nHost: go.example.com\r\n\r\n"

func TestSlowClientsAreCutOff(t *testing.T) {
	dateTicker()
	for _, test := range []struct {
		name string
		// act is the client. It returns the response that it got.
		act      func(c net.Conn, aside *sync.WaitGroup) (answer, error)
		min, max time.Duration
		status   int // 0: no response
	}{
		{"a header that drips", func(c net.Conn, aside *sync.WaitGroup) (answer, error) {
			aside.Go(func() {
				for range 100 {
					if _, err := io.WriteString(c, "GET /healthz HTTP/1.1\r\nX: "); err != nil {
						return
					}
					time.Sleep(time.Second / 3)
				}
			})
			return readAnswer(c, "GET")
		}, readTimeout, readTimeout + conn.DeadlineSlack, 408},
		{"a body that drips", func(c net.Conn, aside *sync.WaitGroup) (answer, error) {
			aside.Go(func() {
				_, _ = io.WriteString(c, "POST /healthz HTTP/1.1\r\nHost: go.example.com\r\nContent-Length: 1000\r\n\r\n")
				for range 100 {
					if _, err := io.WriteString(c, "x"); err != nil {
						return
					}
					time.Sleep(time.Second / 3)
				}
			})
			return readAnswer(c, "POST")
		}, readTimeout, readTimeout + conn.DeadlineSlack, 408},
		{"no request", func(c net.Conn, _ *sync.WaitGroup) (answer, error) {
			return readAnswer(c, "GET")
		}, readTimeout, readTimeout + conn.DeadlineSlack, 0},
		{"no second request", func(c net.Conn, aside *sync.WaitGroup) (answer, error) {
			aside.Go(func() { io.WriteString(c, health) })
			return readAnswer(c, "GET")
		}, idleTimeout, idleTimeout + conn.DeadlineSlack, 200},
		{"a response that is not read", func(c net.Conn, _ *sync.WaitGroup) (answer, error) {
			_, err := io.WriteString(c, health)
			return answer{}, err
		}, writeTimeout, writeTimeout + conn.DeadlineSlack, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client, ended := serveConn(t)
				var aside sync.WaitGroup
				defer aside.Wait()
				defer client.Close()
				start := time.Now()
				a, err := test.act(client, &aside)
				if a.status != test.status || test.status != 0 && err != nil {
					t.Errorf("response %d %q, error %v, expected %d", a.status, a.body, err, test.status)
				}
				if took := (<-ended).Sub(start); took < test.min || took > test.max {
					t.Errorf("closed after %v, expected %v to %v", took, test.min, test.max)
				}
			})
		})
	}
}

// The same over a real socket: a header that drips gets 408 and the connection is closed.
func TestDrippingHeaderIsCutOffOverTCP(t *testing.T) {
	t.Parallel()
	e := startEdge(t, nil)
	c := e.dial(t)
	start := time.Now()
	go func() {
		for {
			if _, err := io.WriteString(c, "GET /healthz HTTP/1.1\r\nX: "); err != nil {
				return
			}
			time.Sleep(100 * time.Millisecond)
		}
	}()
	a, err := readAnswer(c, "GET")
	// The client continues to send, so the connection may end with a reset after the response.
	if a.status != 408 && err == nil {
		t.Errorf("status %d, expected 408", a.status)
	}
	if took := time.Since(start); took < readTimeout || took > readTimeout+conn.DeadlineSlack+2*time.Second {
		t.Errorf("closed after %v, expected %v and at most a second more", took, readTimeout)
	}
}
