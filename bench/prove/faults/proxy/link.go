package proxy

import (
	"net"
	"sync"
	"time"
)

// link is one connection through a proxy.
type link struct {
	client, server net.Conn
	once           sync.Once
	broken         chan struct{} // closed with a reset
}

// reset ends the connection at once, with an error at both ends.
func (l *link) reset() { l.end(reset) }

// close ends a finished connection. Data on its way still arrives.
func (l *link) close() { l.end(func(conn net.Conn) { _ = conn.Close() }) }

func (l *link) end(how func(net.Conn)) {
	l.once.Do(func() {
		close(l.broken)
		how(l.client)
		how(l.server)
	})
}

func reset(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // fails only on a closed connection
	}
	_ = conn.Close()
}

const (
	// largestPiece bounds one read, mostPieces the pieces on their way: a slow link has a high latency, but not a low throughput.
	largestPiece = 32 << 10
	mostPieces   = 64
)

// piece is the data of one read, and its time. No bytes: end of stream.
type piece struct {
	bytes []byte
	read  time.Time
}

// forward moves the bytes of one direction until end of stream, which it passes on, or until the link breaks.
func (p *Proxy) forward(l *link, from, to net.Conn, direction func(Rules) Flow) {
	pieces := make(chan piece, mostPieces)
	var reading sync.WaitGroup
	defer reading.Wait()
	reading.Go(func() { l.read(from, pieces) })

	way := way{proxy: p, link: l, direction: direction}
	for {
		select {
		case next := <-pieces:
			allowed, cut := way.pass(next)
			if len(allowed) > 0 {
				if _, err := to.Write(allowed); err != nil {
					cut = true
				}
			}
			if cut {
				l.reset()
				return
			}
			if len(next.bytes) == 0 {
				if tcp, ok := to.(*net.TCPConn); ok {
					_ = tcp.CloseWrite() // fails only on a closed connection
				}
				return
			}
		case <-l.broken:
			return
		}
	}
}

func (l *link) read(from net.Conn, pieces chan<- piece) {
	for {
		buffer := make([]byte, largestPiece)
		n, err := from.Read(buffer)
		for _, next := range []piece{{buffer[:n], time.Now()}, {nil, time.Now()}} {
			if last := next.bytes == nil; last && err == nil || !last && n == 0 {
				continue
			}
			select {
			case pieces <- next:
			case <-l.broken:
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// way is one direction of one link.
type way struct {
	proxy     *Proxy
	link      *link
	direction func(Rules) Flow

	under  <-chan struct{} // identifies the rules under which passed was counted
	passed int64
}

// pass waits until a piece may continue. It returns how many of its bytes may, and whether the link is then cut.
func (w *way) pass(next piece) (allowed []byte, cut bool) {
	for {
		rules, changed := w.proxy.present()
		flow := w.direction(rules)
		if changed != w.under {
			w.under, w.passed = changed, 0
		}
		var due <-chan time.Time
		left := time.Until(next.read.Add(flow.Delay))
		switch {
		case flow.Hang:
		case left > 0:
			timer := time.NewTimer(left)
			defer timer.Stop()
			due = timer.C
		default:
			w.passed += int64(len(next.bytes))
			if over := w.passed - flow.CutAfter; flow.CutAfter > 0 && over >= 0 {
				return next.bytes[:int64(len(next.bytes))-over], true
			}
			return next.bytes, false
		}
		select {
		case <-due:
		case <-changed:
		case <-w.link.broken:
			return nil, true
		}
	}
}
