package ratelimit

import (
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// link is a network between a limiter and Redis, whose responses a test delays, holds back or loses.
type link struct {
	t        *testing.T
	listener net.Listener
	redis    string
	late     atomic.Int64 // nanoseconds by which each response is late

	mu    sync.Mutex
	conns map[*linkedConn]bool
}

// linkedConn is one connection through a link.
type linkedConn struct {
	client, server net.Conn
	requests       atomic.Int64  // bytes that the client sent
	held           chan struct{} // closed: responses pass
	release        func()
}

func newLink(t *testing.T, redis string) *link {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &link{t: t, listener: listener, redis: redis, conns: map[*linkedConn]bool{}}
	var accepting sync.WaitGroup
	accepting.Go(l.accept)
	t.Cleanup(func() {
		listener.Close()
		l.cut()
		accepting.Wait()
	})
	return l
}

func (l *link) accept() {
	var open sync.WaitGroup
	defer open.Wait()
	for {
		client, err := l.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", l.redis)
		if err != nil {
			client.Close()
			continue
		}
		c := &linkedConn{client: client, server: server}
		c.pass()
		l.mu.Lock()
		l.conns[c] = true
		l.mu.Unlock()
		open.Go(func() { c.forward() })
		open.Go(func() { c.back(l) })
	}
}

// forward passes what the client sends.
func (c *linkedConn) forward() {
	defer c.server.Close()
	buffer := make([]byte, 1<<16)
	for {
		n, err := c.client.Read(buffer)
		c.requests.Add(int64(n))
		if _, wrong := c.server.Write(buffer[:n]); err != nil || wrong != nil {
			return
		}
	}
}

// back passes what Redis responds, late, and not while it is held back.
func (c *linkedConn) back(l *link) {
	defer c.client.Close()
	buffer := make([]byte, 1<<16)
	for {
		n, err := c.server.Read(buffer)
		time.Sleep(time.Duration(l.late.Load()))
		l.mu.Lock()
		held := c.held
		l.mu.Unlock()
		<-held
		if _, wrong := c.client.Write(buffer[:n]); err != nil || wrong != nil {
			return
		}
	}
}

func (c *linkedConn) pass() {
	c.held, c.release = make(chan struct{}), func() {}
	close(c.held)
}

// hold keeps back the responses on all connections that there are, until release.
func (l *link) hold() (all []*linkedConn, release func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	held := make(chan struct{})
	for c := range l.conns {
		c.held = held
		all = append(all, c)
	}
	release = sync.OnceFunc(func() { close(held) })
	l.t.Cleanup(release)
	return all, release
}

// cut ends all connections that there are, as the crash of a primary does.
func (l *link) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.conns {
		c.client.Close()
		c.server.Close()
	}
	clear(l.conns)
}

// limiter returns one whose requests to Redis go through the link, on so many connections.
func (l *link) limiter(connections int, surfaces ...Surface) (*Limiter, *Redis) {
	l.t.Helper()
	client, err := Open("redis://"+l.listener.Addr().String(), connections)
	if err != nil {
		l.t.Fatal(err)
	}
	redis := NewRedis(client, "limit:")
	limiter := New(redis, surfaces...)
	l.t.Cleanup(func() {
		client.Close()
		limiter.Wait()
	})
	return limiter, redis
}

// connected waits until all connections of a client are there, so that none of what follows goes over a new one.
func (l *link) connected(n int) {
	l.t.Helper()
	within(l.t, func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return len(l.conns) == n
	}, fmt.Sprintf("%d connections to Redis", n))
}
