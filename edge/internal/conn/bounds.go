package conn

import (
	"net"
	"net/netip"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"deeplink/shared/clientip"
	"deeplink/shared/ratelimit"
	"deeplink/shared/wire"
)

// Bounds limits the number of open connections: the total, and the number per client address, so that one client cannot take the
// connections of all others. Connections from trusted proxies belong to many clients, so only the total counts for them. Bounds is safe
// for concurrent use.
type Bounds struct {
	all            *wire.Gate
	perAddress     int
	proxies        clientip.Proxies
	mu             sync.Mutex
	open           map[ratelimit.Key]int // per address, without trusted proxies
	refusedAll     atomic.Int64
	refusedAddress atomic.Int64
}

// NewBounds returns bounds of total connections, of which one address may hold perAddress.
func NewBounds(total, perAddress int, proxies clientip.Proxies) *Bounds {
	return &Bounds{all: wire.NewGate(total), perAddress: perAddress, proxies: proxies, open: make(map[ratelimit.Key]int)}
}

// admit returns the connection to serve, which is counted until it is closed. If c exceeds a bound, admit sends a 503 with the error
// envelope, closes c and returns nil.
func (b *Bounds) admit(c net.Conn) *Conn {
	made := newConn(c)
	if peer, ok := peerOf(c); ok && !b.proxies.Contains(peer) {
		made.counted, made.address = true, clientip.Key(peer)
		if !b.enterAddress(made.address) {
			b.refusedAddress.Add(1)
			wire.Refuse(c, "Too many connections from this address. Retry with backoff.")
			return nil
		}
	}
	if !b.all.Admit(c) {
		b.refusedAll.Add(1)
		b.leaveAddress(made)
		return nil
	}
	made.bounds = b
	return made
}

// Client returns the rate-limit key of the peer. ok is false if the peer is a trusted proxy, or has no IP address.
func (c *Conn) Client() (client ratelimit.Key, ok bool) { return c.address, c.counted }

// leave stops counting a connection.
func (b *Bounds) leave(c *Conn) {
	b.leaveAddress(c)
	b.all.Leave()
}

func (b *Bounds) enterAddress(address ratelimit.Key) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.open[address] >= b.perAddress {
		return false
	}
	b.open[address]++
	return true
}

func (b *Bounds) leaveAddress(c *Conn) {
	if !c.counted {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.open[c.address]--; b.open[c.address] == 0 {
		delete(b.open, c.address)
	}
}

// peerOf returns the address of the other end of a TCP connection.
func peerOf(c net.Conn) (netip.Addr, bool) {
	tcp, ok := c.RemoteAddr().(*net.TCPAddr)
	if !ok {
		return netip.Addr{}, false
	}
	return tcp.AddrPort().Addr(), true
}

// Collectors returns the metrics. Register them once.
func (b *Bounds) Collectors() []prometheus.Collector {
	refused := func(bound string, n *atomic.Int64) prometheus.Collector {
		return prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "deeplink_edge_connections_refused_total", ConstLabels: prometheus.Labels{"bound": bound},
			Help: "Connections refused with 503 because of EDGE_MAX_CONNECTIONS (all) or EDGE_MAX_CONNECTIONS_PER_IP (address).",
		}, func() float64 { return float64(n.Load()) })
	}
	return []prometheus.Collector{
		refused("all", &b.refusedAll), refused("address", &b.refusedAddress),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "deeplink_edge_connections_max", Help: "How many connections this edge accepts on the public address (EDGE_MAX_CONNECTIONS).",
		}, func() float64 { return float64(b.all.Room()) }),
	}
}
