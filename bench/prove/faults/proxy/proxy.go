// Package proxy is a TCP link that can fail as networks do. It forwards between clients and one server on 127.0.0.1, and at any moment can
// delay, hang, cut or refuse connections. It never changes, reorders or loses data while a connection stays open: data held back by a hang
// is delivered when the hang ends, as TCP would.
package proxy

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

// Flow says what happens to the bytes of one direction. The zero Flow passes them through.
type Flow struct {
	// Delay holds back each byte for that long.
	Delay time.Duration
	// Hang moves no byte and keeps the connection open; it also holds back the end of stream.
	Hang bool
	// CutAfter resets a connection after that many bytes since the rules were set. 0: never.
	CutAfter int64
}

// Rules say what happens to a link. The zero Rules pass everything through.
type Rules struct {
	// Up is the direction to the server, Down the direction back.
	Up, Down Flow
	// Refuse rejects new connections and resets existing ones.
	Refuse bool
}

// dialTimeout bounds the connection to the server: on the same machine it succeeds at once or not at all.
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

// Listen returns a proxy on addr to the server at target, both host:port. The server need not run yet.
func Listen(addr, target string) (*Proxy, error) {
	p := &Proxy{addr: addr, target: target, changed: make(chan struct{}), links: make(map[*link]struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.listen(); err != nil {
		return nil, err
	}
	return p, nil
}

// Addr returns the address for clients. It never changes.
func (p *Proxy) Addr() string { return p.addr }

// Set replaces the rules, also for existing connections. Cut connections stay cut.
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

// SetTarget sends new connections to another server. Existing ones keep the old one.
func (p *Proxy) SetTarget(target string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = target
}

// Cut resets all existing connections.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut()
}

// Close resets all connections, and returns when all goroutines of the proxy have ended. No rule delays it.
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
		_ = p.listener.Close() // the client has disconnected
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
			time.Sleep(time.Millisecond) // out of descriptors: accept continues
			continue
		}
		p.group.Go(func() { p.serve(client) })
	}
}

// serve forwards one connection until both directions have ended.
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

// present returns the current rules, and the channel that is closed when they change.
func (p *Proxy) present() (Rules, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.rules, p.changed
}
