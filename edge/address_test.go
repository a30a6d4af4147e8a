package main

import (
	"context"
	"net"
	"testing"
)

func TestAddressDefaultsToTheListeningAddress(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ set, ip, expected string }{
		{"", "127.0.0.1", "127.0.0.1:8123"},
		{"", "10.0.0.1", "10.0.0.1:8123"},
		{"", "fd00::1", "[fd00::1]:8123"},
		{"", "0.0.0.0", ":8123"},
		{"", "::", ":8123"},
		{"edge-1.internal:80", "0.0.0.0", "edge-1.internal:80"},
		{"edge-1.internal:80", "127.0.0.1", "edge-1.internal:80"},
	} {
		listening := &net.TCPAddr{IP: net.ParseIP(test.ip), Port: 8123}
		if got := (&options{Advertise: test.set}).address(listening); got != test.expected {
			t.Errorf("set %q, listening on %v: %q, expected %q", test.set, listening, got, test.expected)
		}
	}
}

func TestEdgeRegistersItsAddress(t *testing.T) {
	t.Parallel()
	for set, expected := range map[string]string{"": "", "edge-1.internal:80": "edge-1.internal:80"} {
		t.Run(set, func(t *testing.T) {
			t.Parallel()
			e := startEdge(t, func(c *options) { c.Advertise = set })
			if expected == "" {
				expected = e.addr
			}
			var address string
			if err := e.owner.QueryRow(context.Background(), `select address from edges where slot = $1`, e.addr).Scan(&address); err != nil || address != expected {
				t.Errorf("registered at %q, %v; expected %s", address, err, expected)
			}
		})
	}
}
