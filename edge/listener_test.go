package main

import (
	"errors"
	"io"
	"net"
	"testing"
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

func TestClosedListenerStillAcceptsWhoWaited(t *testing.T) {
	t.Parallel()
	ln, err := listen("127.0.0.1:0")
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
			t.Errorf("client %d was told %q, %v", i, got, err)
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
