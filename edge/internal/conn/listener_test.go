package conn

import (
	"errors"
	"io"
	"net"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

func dial(t *testing.T, addr string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func TestClosedListenerStillReturnsQueuedConnections(t *testing.T) {
	t.Parallel()
	ln, err := Listen("127.0.0.1:0", boundsOf(100))
	if err != nil {
		t.Fatal(err)
	}
	const clients = 50
	waiting := make([]net.Conn, clients)
	for i := range waiting {
		waiting[i] = dial(t, ln.Addr().String())
	}
	if err := ln.Close(); err != nil {
		t.Fatal(err)
	}
	for range clients {
		c, err := ln.Accept()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(c, "x"); err != nil {
			t.Error(err)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
	for i, c := range waiting {
		if err := c.SetDeadline(time.Now().Add(bound)); err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(c); err != nil || string(got) != "x" {
			t.Errorf("client %d received %q, %v", i, got, err)
		}
	}
	if _, err := ln.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("after the last: %v, expected net.ErrClosed", err)
	}
	if c, err := net.Dial("tcp", ln.Addr().String()); err == nil {
		_ = c.Close()
		t.Error("still listening")
	}
}

func TestConnectionOverTheBoundGets503Envelope(t *testing.T) {
	t.Parallel()
	addr := serve(t, boundsOf(2))
	statusOf := func(c net.Conn) int {
		t.Helper()
		status, err := head(c)
		if err != nil {
			return 0
		}
		return status
	}
	first, second := dial(t, addr), dial(t, addr)
	if statusOf(first) != 200 || statusOf(second) != 200 {
		t.Fatal("two connections must be served")
	}
	checkRefused(t, "the third", dial(t, addr))
	if statusOf(first) != 200 {
		t.Error("a connection within the bound gets no response any more")
	}
	_ = second.Close()
	until(t, "there is room after one connection was closed", func() bool { return statusOf(dial(t, addr)) == 200 })
}

// failing is a listener whose first calls of Accept fail.
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

func TestListenerRetriesAfterTemporaryErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ln := NewListener(&failing{errs: []error{syscall.EMFILE, syscall.ENFILE, syscall.ECONNABORTED, syscall.ENOBUFS}}, boundsOf(1))
		start := time.Now()
		c, err := ln.Accept()
		if err != nil {
			t.Fatal(err)
		}
		c.Close()
		if took := time.Since(start); took != 75*time.Millisecond {
			t.Errorf("waited %v, expected 5+10+20+40 ms", took)
		}
		ln = NewListener(&failing{errs: []error{syscall.EINVAL}}, boundsOf(1))
		if _, err := ln.Accept(); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("error %v, expected the one of the inner listener", err)
		}
	})
}
