package main

import (
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/valyala/fasthttp"

	"deeplink/shared/wire"
)

// dateTicker starts a goroutine of fasthttp's that never ends, which no bubble of synctest's could wait for.
func dateTicker() { new(fasthttp.ResponseHeader).Header() }

// serveConn serves a connection in memory and returns the client's end of it, and a channel on which its end is told.
func serveConn(t *testing.T) (net.Conn, *moves, <-chan time.Time) {
	t.Helper()
	client, end := net.Pipe()
	counted := &moves{Conn: end}
	s := newServer(&options{LinkBaseURL: base}, nil, nil, nil, discard)
	ended := make(chan time.Time, 1)
	go func() {
		_ = s.http.ServeConn(&conn{Conn: counted})
		ended <- time.Now()
	}()
	return client, counted, ended
}

// moves counts the deadlines that are really moved.
type moves struct {
	net.Conn
	read, write atomic.Int64
}

func (m *moves) SetReadDeadline(t time.Time) error {
	m.read.Add(1)
	return m.Conn.SetReadDeadline(t)
}

func (m *moves) SetWriteDeadline(t time.Time) error {
	m.write.Add(1)
	return m.Conn.SetWriteDeadline(t)
}

const health = "GET /healthz HTTP/1.1\r\nHost: go.example.com\r\n\r\n"

func TestSlowClientsAreCutOff(t *testing.T) {
	dateTicker()
	for _, test := range []struct {
		name string
		// act does what the client does and returns what it was told.
		act      func(c net.Conn, aside *sync.WaitGroup) (answer, error)
		min, max time.Duration
		status   int // 0: none
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
		}, readTimeout, readTimeout + deadlineSlack, 408},
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
		}, readTimeout, readTimeout + deadlineSlack, 408},
		{"a connection on which nothing is sent", func(c net.Conn, _ *sync.WaitGroup) (answer, error) {
			return readAnswer(c, "GET")
		}, readTimeout, readTimeout + deadlineSlack, 0},
		{"a connection left open after an answer", func(c net.Conn, aside *sync.WaitGroup) (answer, error) {
			aside.Go(func() { io.WriteString(c, health) })
			return readAnswer(c, "GET")
		}, idleTimeout, idleTimeout + deadlineSlack, 200},
		{"an answer that is not read", func(c net.Conn, _ *sync.WaitGroup) (answer, error) {
			_, err := io.WriteString(c, health)
			return answer{}, err
		}, writeTimeout, writeTimeout + deadlineSlack, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client, _, ended := serveConn(t)
				var aside sync.WaitGroup
				defer aside.Wait()
				defer client.Close()
				began := time.Now()
				a, err := test.act(client, &aside)
				if a.status != test.status || test.status != 0 && err != nil {
					t.Errorf("told %d %q and %v, expected %d", a.status, a.body, err, test.status)
				}
				if took := (<-ended).Sub(began); took < test.min || took > test.max {
					t.Errorf("cut off after %v, expected %v to %v", took, test.min, test.max)
				}
			})
		})
	}
}

func TestBusyConnectionHardlyMovesItsDeadlines(t *testing.T) {
	dateTicker()
	synctest.Test(t, func(t *testing.T) {
		client, moved, ended := serveConn(t)
		buf := make([]byte, 4096)
		const requests, pause = 1000, 10 * time.Millisecond
		for range requests {
			if _, err := io.WriteString(client, health); err != nil {
				t.Fatal(err)
			}
			n, err := client.Read(buf)
			if err != nil || !strings.HasSuffix(string(buf[:n]), `{"status":"ok"}`) {
				t.Fatalf("answer %q, %v", buf[:n], err)
			}
			time.Sleep(pause)
		}
		client.Close()
		<-ended
		// One a second each, and a second one for reading at the first request.
		seconds := int64(requests * pause / time.Second)
		if read, write := moved.read.Load(), moved.write.Load(); read > seconds+2 || write > seconds+1 {
			t.Errorf("%d requests in %d seconds moved the deadlines %d and %d times", requests, seconds, read, write)
		}
	})
}

// The same over a real socket: a header that drips is answered by 408 and cut.
func TestDrippingHeaderIsCutOffOverTCP(t *testing.T) {
	t.Parallel()
	e := startEdge(t, nil)
	c := e.dial(t)
	began := time.Now()
	go func() {
		for {
			if _, err := io.WriteString(c, "GET /healthz HTTP/1.1\r\nX: "); err != nil {
				return
			}
			time.Sleep(100 * time.Millisecond)
		}
	}()
	a, err := readAnswer(c, "GET")
	// After the answer the connection may end by a reset, for the client goes on.
	if a.status != 408 && err == nil {
		t.Errorf("status %d, expected 408", a.status)
	}
	if took := time.Since(began); took < readTimeout || took > readTimeout+deadlineSlack+2*time.Second {
		t.Errorf("cut off after %v, expected %v and at most a second more", took, readTimeout)
	}
}

// failing is a listener that lacks something for a while.
type failing struct {
	net.Listener
	errs []error
}

func (f *failing) Accept() (net.Conn, error) {
	if len(f.errs) > 0 {
		err := f.errs[0]
		f.errs = f.errs[1:]
		return nil, &net.OpError{Op: "accept", Net: "tcp", Err: err}
	}
	server, client := net.Pipe()
	client.Close()
	return server, nil
}

func TestListenerOutlivesLackOfDescriptors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ln := &listener{gate: wire.NewGate(1), Listener: &failing{errs: []error{syscall.EMFILE, syscall.ENFILE, syscall.ECONNABORTED, syscall.ENOBUFS}}}
		began := time.Now()
		c, err := ln.Accept()
		if err != nil {
			t.Fatal(err)
		}
		c.Close()
		if took := time.Since(began); took != 75*time.Millisecond {
			t.Errorf("waited %v, expected 5+10+20+40 ms", took)
		}
		ln = &listener{gate: wire.NewGate(1), Listener: &failing{errs: []error{syscall.EINVAL}}}
		if _, err := ln.Accept(); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("error %v, expected that of the listener", err)
		}
	})
}
