// Package attack is slow and guessing clients. A slow client sends just enough to keep its connection open, and reconnects when the server
// closes it.
package attack

import (
	"context"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// pace is the mean pause of a client before it sends more; dialTimeout bounds a connection attempt.
const (
	pace        = time.Second
	dialTimeout = 10 * time.Second
)

// Crowd is a number of slow clients. Its counters may be read while it runs.
type Crowd struct {
	// Open is the number of connections, Cut how many the server has closed, and Refused how many could not be established.
	Open, Cut, Refused atomic.Int64
	// Clients is how many clients have connected at least once.
	Clients atomic.Int64

	clients sync.WaitGroup
}

// kind is how a client is slow: what it sends first, and then repeatedly. It never reads a response.
type kind struct{ begin, more string }

var kinds = []kind{
	{"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: ", "x"},
	{"POST /match HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 10000\r\n\r\n", " "},
	{strings.Repeat("GET /robots.txt HTTP/1.1\r\nHost: localhost\r\n\r\n", 20), ""},
	{"", ""},
}

// Hold starts n clients that hold connections to addr until ctx ends; Wait waits for their end. Their starts are spread over arrival, so
// that clients whose connections time out do not all reconnect at the same moment.
func Hold(ctx context.Context, addr string, n int, arrival time.Duration) *Crowd {
	c := new(Crowd)
	for i := range n {
		c.clients.Go(func() {
			sleep(ctx, arrival*time.Duration(i)/time.Duration(n))
			c.stay(ctx, addr, kinds[i%len(kinds)])
		})
	}
	return c
}

// Wait waits until all clients have ended.
func (c *Crowd) Wait() { c.clients.Wait() }

func (c *Crowd) stay(ctx context.Context, addr string, k kind) {
	for first := true; ctx.Err() == nil; {
		dialer := net.Dialer{Timeout: dialTimeout}
		conn, err := dialer.DialContext(ctx, "tcp", addr)
		if err != nil {
			if ctx.Err() == nil {
				c.Refused.Add(1)
				sleep(ctx, pace)
			}
			continue
		}
		if first {
			c.Clients.Add(1)
			first = false
		}
		c.Open.Add(1)
		c.drip(ctx, conn, k)
		c.Open.Add(-1)
		if ctx.Err() == nil {
			c.Cut.Add(1)
		}
	}
}

// drip sends a little at a time until the server or ctx ends the connection, and closes it.
func (c *Crowd) drip(ctx context.Context, conn net.Conn, k kind) {
	defer conn.Close()
	if _, err := io.WriteString(conn, k.begin); err != nil {
		return
	}
	for ctx.Err() == nil {
		if _, err := io.WriteString(conn, k.more); err != nil || hungUp(conn) {
			return
		}
		// The pause is random: with equal pauses, clients that were delayed together would stay in step forever.
		sleep(ctx, pace/2+rand.N(pace))
	}
}

// hungUp reports whether the server has closed the connection. It does not wait.
func hungUp(conn net.Conn) bool {
	raw, err := conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		return true
	}
	return isClosed(raw)
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
