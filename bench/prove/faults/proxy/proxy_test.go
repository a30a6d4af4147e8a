package proxy

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"deeplink/shared/devservers"
)

const (
	patient = 10 * time.Second
	// quiet is how long no byte may arrive.
	quiet = 150 * time.Millisecond
)

// echo is a server that sends its name on each connection and then repeats what it receives.
func echo(t *testing.T, name string) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				if _, err := io.WriteString(conn, name); err == nil {
					_, _ = io.Copy(conn, conn)
				}
			}()
		}
	}()
	return listener.Addr().String()
}

func listen(t *testing.T, target string) *Proxy {
	t.Helper()
	addr, err := devservers.FreeAddr()
	if err != nil {
		t.Fatal(err)
	}
	p, err := Listen(addr, target)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

func dial(t *testing.T, p *Proxy) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

func set(t *testing.T, p *Proxy, rules Rules) {
	t.Helper()
	if err := p.Set(rules); err != nil {
		t.Fatal(err)
	}
}

func send(t *testing.T, conn net.Conn, what string) {
	t.Helper()
	if _, err := io.WriteString(conn, what); err != nil {
		t.Fatalf("send %q: %v", what, err)
	}
}

func hears(t *testing.T, conn net.Conn, expected string) {
	t.Helper()
	got := make([]byte, len(expected))
	_ = conn.SetReadDeadline(time.Now().Add(patient))
	if n, err := io.ReadFull(conn, got); err != nil || string(got) != expected {
		t.Fatalf("received %q, %v, expected %q", got[:n], err, expected)
	}
}

func hearsNothing(t *testing.T, conn net.Conn) {
	t.Helper()
	_ = conn.SetReadDeadline(time.Now().Add(quiet))
	got := make([]byte, 100)
	if n, err := conn.Read(got); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("received %q, %v, expected nothing", got[:n], err)
	}
}

func isReset(t *testing.T, conn net.Conn) {
	t.Helper()
	_ = conn.SetReadDeadline(time.Now().Add(patient))
	if n, err := conn.Read(make([]byte, 100)); !errors.Is(err, syscall.ECONNRESET) {
		t.Fatalf("received %d bytes and %v, expected a reset", n, err)
	}
}

func TestBytesPassInBothDirectionsToTheEnd(t *testing.T) {
	t.Parallel()
	conn := dial(t, listen(t, echo(t, "a")))
	hears(t, conn, "a")
	much := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	go func() {
		_, _ = conn.Write(much)
		_ = conn.(*net.TCPConn).CloseWrite()
	}()
	_ = conn.SetReadDeadline(time.Now().Add(patient))
	if got, err := io.ReadAll(conn); err != nil || !bytes.Equal(got, much) {
		t.Errorf("of %d bytes %d came back, %v", len(much), len(got), err)
	}
}

func TestDelayedBytesArriveLateAndInOrder(t *testing.T) {
	t.Parallel()
	// Serial delays take twice the bound; a machine that stalls for two seconds takes half of it.
	const (
		delay  = 200 * time.Millisecond
		pieces = 50
		bound  = pieces / 2 * delay
	)
	for name, rules := range map[string]Rules{"up": {Up: Flow{Delay: delay}}, "down": {Down: Flow{Delay: delay}}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := listen(t, echo(t, "a"))
			conn := dial(t, p)
			hears(t, conn, "a")
			set(t, p, rules)
			began := time.Now()
			for range pieces {
				send(t, conn, "x")
				time.Sleep(time.Millisecond) // separates the pieces
			}
			hears(t, conn, "x")
			if took := time.Since(began); took < delay {
				t.Errorf("the first arrived after %v, expected %v", took, delay)
			}
			hears(t, conn, strings.Repeat("x", pieces-1))
			if took := time.Since(began); took > bound {
				t.Errorf("all arrived after %v, expected not much more than %v: the delays add up", took, delay)
			}
		})
	}
}

func TestHungLinkKeepsItsConnectionsAndItsBytes(t *testing.T) {
	t.Parallel()
	for name, rules := range map[string]Rules{
		"up": {Up: Flow{Hang: true}}, "down": {Down: Flow{Hang: true}}, "both": {Up: Flow{Hang: true}, Down: Flow{Hang: true}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := listen(t, echo(t, "a"))
			conn := dial(t, p)
			hears(t, conn, "a")
			set(t, p, rules)
			send(t, conn, "held")
			hearsNothing(t, conn)
			fresh := dial(t, p)
			if rules.Down.Hang {
				hearsNothing(t, fresh)
			}
			set(t, p, Rules{})
			hears(t, conn, "held")
			hears(t, fresh, "a")
		})
	}
}

func TestOneWayHangLetsTheOtherWayPass(t *testing.T) {
	t.Parallel()
	p := listen(t, echo(t, "a"))
	set(t, p, Rules{Up: Flow{Hang: true}})
	hears(t, dial(t, p), "a")
}

func TestCutComesAfterTheExactNumberOfBytes(t *testing.T) {
	t.Parallel()
	p := listen(t, echo(t, "a"))
	conn := dial(t, p)
	hears(t, conn, "a")
	send(t, conn, "before")
	hears(t, conn, "before")
	set(t, p, Rules{Down: Flow{CutAfter: 4}})
	send(t, conn, "123")
	hears(t, conn, "123")
	send(t, conn, "456")
	hears(t, conn, "4")
	isReset(t, conn)
	// Each connection has its own count.
	fresh := dial(t, p)
	hears(t, fresh, "a")
	send(t, fresh, "123")
	hears(t, fresh, "123")
	isReset(t, fresh)
}

func TestRefusedLinkRefusesConnections(t *testing.T) {
	t.Parallel()
	p := listen(t, echo(t, "a"))
	conn := dial(t, p)
	hears(t, conn, "a")
	set(t, p, Rules{Refuse: true})
	isReset(t, conn)
	if conn, err := net.Dial("tcp", p.Addr()); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("a connection to a refusing link: %v, %v", conn, err)
	}
	set(t, p, Rules{})
	hears(t, dial(t, p), "a")
}

func TestNewTargetAppliesToNewConnections(t *testing.T) {
	t.Parallel()
	p := listen(t, echo(t, "a"))
	old := dial(t, p)
	hears(t, old, "a")
	p.SetTarget(echo(t, "b"))
	hears(t, dial(t, p), "b")
	send(t, old, "still")
	hears(t, old, "still")
	p.Cut()
	isReset(t, old)
	hears(t, dial(t, p), "b")
}

func TestMissingServerResetsConnections(t *testing.T) {
	t.Parallel()
	addr, err := devservers.FreeAddr()
	if err != nil {
		t.Fatal(err)
	}
	p := listen(t, addr)
	conn, err := net.Dial("tcp", p.Addr())
	if err == nil {
		t.Cleanup(func() { conn.Close() })
		_, err = conn.Read(make([]byte, 1))
	}
	if !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("%v, expected a reset", err)
	}
}

func TestCloseDoesNotWaitForAHang(t *testing.T) {
	t.Parallel()
	p := listen(t, echo(t, "a"))
	conn := dial(t, p)
	hears(t, conn, "a")
	set(t, p, Rules{Up: Flow{Hang: true, Delay: time.Hour}, Down: Flow{Hang: true}})
	send(t, conn, "held")
	closed := make(chan struct{})
	go func() { p.Close(); close(closed) }()
	select {
	case <-closed:
	case <-time.After(patient):
		t.Fatal("Close waits")
	}
	isReset(t, conn)
	if err := p.Set(Rules{}); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Set after Close: %v", err)
	}
}
