// Package proxy is a TCP link that can be broken in the ways in which networks break. It forwards between clients and one
// server on 127.0.0.1, and at any moment can slow, stop, cut or refuse what passes. Nothing it forwards is changed, reordered
// or lost while its connection stays open: what a hang holds back is delivered when the hang ends, as TCP would.
package proxy

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

// Flow says what happens to the bytes of one direction. The zero Flow lets them pass.
type Flow struct {
	// Delay holds back each byte for so long.
	Delay time.Duration
	// Hang moves no byte and keeps the connection open; its end is not passed on either.
	Hang bool
	// CutAfter resets a connection once so many bytes have passed since the rules were set. 0: never.
	CutAfter int64
}

// Rules say what happens to a link. The zero Rules let everything pass.
type Rules struct {
	// Up is the way to the server, Down the way back.
	Up, Down Flow
	// Refuse lets no new connection come about, and resets those that are there.
	Refuse bool
}

// dialTimeout bounds the connection to the server: on this machine it is made at once or not at all.
const dialTimeout = time.Second

// Proxy is one link. Its methods are safe for concurrent use; Close must be the last.
type Proxy struct {
	addr  string
	group sync.WaitGroup

	mu       sync.Mutex
	target   string
	rules    Rules
	changed  chan struct{} // closed when the rules change
	listener net.Listener  // nil while connections are refused
	links    map[*link]struct{}
	closed   bool
}

// Listen returns a proxy on addr to the server at target, both host:port. The server need not be there yet.
func Listen(addr, target string) (*Proxy, error) {
	p := &Proxy{addr: addr, target: target, changed: make(chan struct{}), links: make(map[*link]struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.listen(); err != nil {
		return nil, err
	}
	return p, nil
}

// Addr returns the address that clients connect to. It stays the same.
func (p *Proxy) Addr() string { return p.addr }

// Set replaces the rules, for the connections that are there as well. Connections that were cut stay so.
func (p *Proxy) Set(rules Rules) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return net.ErrClosed
	}
	p.rules = rules
	close(p.changed)
	p.changed = make(chan struct{})
	if rules.Refuse {
		p.stopListening()
		p.cut()
		return nil
	}
	return p.listen()
}

// SetTarget leads new connections to another server. Those that are there go on with the old one.
func (p *Proxy) SetTarget(target string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = target
}

// Cut resets all connections that are there.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut()
}

// Close resets all connections, and returns when nothing of the proxy runs any more. No rule can hold it up.
func (p *Proxy) Close() {
	p.mu.Lock()
	p.closed = true
	p.stopListening()
	p.cut()
	p.mu.Unlock()
	p.group.Wait()
}

func (p *Proxy) listen() error {
	if p.listener != nil {
		return nil
	}
	listener, err := net.Listen("tcp", p.addr)
	if err != nil {
		return fmt.Errorf("proxy to %s: %w", p.target, err)
	}
	p.listener = listener
	p.group.Go(func() { p.accept(listener) })
	return nil
}

func (p *Proxy) stopListening() {
	if p.listener != nil {
		_ = p.listener.Close() // it has no more to say
		p.listener = nil
	}
}

func (p *Proxy) cut() {
	for l := range p.links {
		l.reset()
	}
}

func (p *Proxy) accept(listener net.Listener) {
	for {
		client, err := listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(time.Millisecond) // out of descriptors: there will be others
			continue
		}
		p.group.Go(func() { p.serve(client) })
	}
}

// serve forwards one connection until it has ended in both directions.
func (p *Proxy) serve(client net.Conn) {
	p.mu.Lock()
	target := p.target
	p.mu.Unlock()
	server, err := net.DialTimeout("tcp", target, dialTimeout)
	if err != nil {
		reset(client)
		return
	}
	l := &link{client: client, server: server, broken: make(chan struct{})}
	if !p.add(l) {
		l.reset()
		return
	}
	defer p.remove(l)
	var ways sync.WaitGroup
	ways.Go(func() { p.forward(l, client, server, func(r Rules) Flow { return r.Up }) })
	ways.Go(func() { p.forward(l, server, client, func(r Rules) Flow { return r.Down }) })
	ways.Wait()
	l.close()
}

func (p *Proxy) add(l *link) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.rules.Refuse {
		return false
	}
	p.links[l] = struct{}{}
	return true
}

func (p *Proxy) remove(l *link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.links, l)
}

// present returns the rules, and what is closed when they are no longer these.
func (p *Proxy) present() (Rules, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.rules, p.changed
}
