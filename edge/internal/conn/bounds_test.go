package conn

import (
	"fmt"
	"net"
	"net/netip"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"deeplink/shared/clientip"
)

// boundsOf returns bounds of n connections. One address may hold all of them.
func boundsOf(n int) *Bounds { return NewBounds(n, n, nil) }

// dialFrom opens a connection from an address of the loopback network.
func dialFrom(t *testing.T, from, addr string) net.Conn {
	t.Helper()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	c, err := dialer.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func TestConnectionsOfOneAddressAreBounded(t *testing.T) {
	t.Parallel()
	bounds := NewBounds(8, 2, clientip.Proxies{netip.MustParsePrefix("127.0.0.9/32")})
	addr := serve(t, bounds)
	isServed := func(c net.Conn) bool {
		status, err := head(c)
		return err == nil && status == 200
	}
	var one []net.Conn
	for range 2 {
		one = append(one, dialFrom(t, "127.0.0.2", addr))
	}
	for i, c := range one {
		if !isServed(c) {
			t.Fatalf("connection %d of an address is not served", i+1)
		}
	}
	checkRefused(t, "the third connection of an address", dialFrom(t, "127.0.0.2", addr))
	other := dialFrom(t, "127.0.0.3", addr)
	if !isServed(other) {
		t.Error("another address is not served")
	}
	// A proxy's connections belong to many clients, so only the total counts for it.
	for i := range 5 {
		if !isServed(dialFrom(t, "127.0.0.9", addr)) {
			t.Errorf("connection %d of a trusted proxy is not served", i+1)
		}
	}
	checkRefused(t, "a connection over the total", dialFrom(t, "127.0.0.9", addr))
	checkRefused(t, "a connection over the total, from an address without any", dialFrom(t, "127.0.0.4", addr))
	if got := collected(t, bounds, "deeplink_edge_connections_refused_total"); got != `{address: 1, all: 2}` {
		t.Errorf("refused: %s, expected {address: 1, all: 2}", got)
	}
	_ = one[0].Close()
	until(t, "the address may connect again", func() bool { return isServed(dialFrom(t, "127.0.0.2", addr)) })
	_ = other.Close()
	until(t, "an address without connections is removed from the map", func() bool {
		bounds.mu.Lock()
		defer bounds.mu.Unlock()
		return len(bounds.open) == 1 // 127.0.0.2
	})
}

// collected returns the values of a counter, by label.
func collected(t *testing.T, bounds *Bounds, name string) string {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(bounds.Collectors()...)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	text := ""
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, metric := range family.GetMetric() {
			if text != "" {
				text += ", "
			}
			text += fmt.Sprintf("%s: %v", metric.GetLabel()[0].GetValue(), metric.GetCounter().GetValue())
		}
	}
	return "{" + text + "}"
}
