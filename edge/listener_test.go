package main

import (
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"deeplink/shared/wire"
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

func TestConnectionsBeyondTheBoundAreToldSo(t *testing.T) {
	t.Parallel()
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ln := &listener{Listener: inner, gate: wire.NewGate(2)}
	s := newServer(&options{LinkBaseURL: base}, nil, nil, nil, discard)
	served := make(chan error, 1)
	go func() { served <- s.http.Serve(ln) }()
	t.Cleanup(func() {
		_ = ln.Close()
		<-served
	})
	ask := func(c net.Conn) int {
		t.Helper()
		a, err := askHead(c, "/healthz")
		if err != nil {
			return 0
		}
		return a.status
	}
	first, second := dial(t, inner.Addr().String()), dial(t, inner.Addr().String())
	if ask(first) != 200 || ask(second) != 200 {
		t.Fatal("there is room for two")
	}
	third := dial(t, inner.Addr().String())
	a, err := readAnswer(third, "GET")
	if err != nil || a.status != 503 || !a.last {
		t.Fatalf("the third: %+v, %v; expected 503 and the end", a, err)
	}
	checkEnvelope(t, a, "")
	if ask(first) != 200 {
		t.Error("one that is connected is not answered any more")
	}
	_ = second.Close()
	until(t, "there is room after one has left", func() bool { return ask(dial(t, inner.Addr().String())) == 200 })
}
