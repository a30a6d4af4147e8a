package main

import (
	"math"
	"os"
	"testing"
)

func TestBoundsFollowFromTheMemory(t *testing.T) {
	t.Parallel()
	const mib, gib = 1 << 20, 1 << 30
	for _, test := range []struct {
		name          string
		set           options
		memory, files int64
		expected      options
	}{
		{"a container of 1 GiB", options{Connections: 16}, gib, math.MaxInt64,
			options{Connections: 16, CacheBytes: 256 * mib, MaxConnections: 32768, MaxConnectionsPerIP: 2048, RateLimitAddresses: 65536}},
		{"a container of 512 MiB", options{}, 512 * mib, math.MaxInt64,
			options{CacheBytes: 128 * mib, MaxConnections: 16384, MaxConnectionsPerIP: 1024, RateLimitAddresses: 32768}},
		{"a large machine", options{}, 256 * gib, math.MaxInt64,
			options{CacheBytes: 256 * mib, MaxConnections: 262144, MaxConnectionsPerIP: 16384, RateLimitAddresses: 262144}},
		{"hardly any memory", options{}, mib, math.MaxInt64,
			options{CacheBytes: mib, MaxConnections: 1024, MaxConnectionsPerIP: 64, RateLimitAddresses: 4096}},
		{"few open files", options{Connections: 16}, gib, 20000,
			options{Connections: 16, CacheBytes: 256 * mib, MaxConnections: 20000 - 128 - 16, MaxConnectionsPerIP: 1241, RateLimitAddresses: 65536}},
		{"a large cache leaves less for connections", options{CacheBytes: 640 * mib}, gib, math.MaxInt64,
			options{CacheBytes: 640 * mib, MaxConnections: 16384, MaxConnectionsPerIP: 1024, RateLimitAddresses: 65536}},
		{"a cache larger than the memory", options{CacheBytes: 2 * gib}, gib, math.MaxInt64,
			options{CacheBytes: 2 * gib, MaxConnections: 1024, MaxConnectionsPerIP: 64, RateLimitAddresses: 65536}},
		{"what is set wins", options{CacheBytes: 5 * mib, MaxConnections: 7, MaxConnectionsPerIP: 9, RateLimitAddresses: 11}, gib, 20000,
			options{CacheBytes: 5 * mib, MaxConnections: 7, MaxConnectionsPerIP: 9, RateLimitAddresses: 11}},
		{"an address follows the connections that are set", options{MaxConnections: 160}, gib, math.MaxInt64,
			options{CacheBytes: 256 * mib, MaxConnections: 160, MaxConnectionsPerIP: 10, RateLimitAddresses: 65536}},
		{"at least one connection for an address", options{MaxConnections: 3}, gib, math.MaxInt64,
			options{CacheBytes: 256 * mib, MaxConnections: 3, MaxConnectionsPerIP: 1, RateLimitAddresses: 65536}},
	} {
		got := test.set
		got.deriveBounds(test.memory, test.files)
		if got.CacheBytes != test.expected.CacheBytes || got.MaxConnections != test.expected.MaxConnections ||
			got.MaxConnectionsPerIP != test.expected.MaxConnectionsPerIP || got.RateLimitAddresses != test.expected.RateLimitAddresses {
			t.Errorf("%s: %d bytes of links, %d connections, %d of an address, %d addresses; expected %d, %d, %d, %d", test.name,
				got.CacheBytes, got.MaxConnections, got.MaxConnectionsPerIP, got.RateLimitAddresses,
				test.expected.CacheBytes, test.expected.MaxConnections, test.expected.MaxConnectionsPerIP, test.expected.RateLimitAddresses)
		}
	}
}

func TestAvailableMemoryIsTheSmallestBound(t *testing.T) {
	t.Parallel()
	const gib = 1 << 30
	for _, test := range []struct{ container, goLimit, machine, expected int64 }{
		{0, 0, 0, gib},
		{0, 0, 8 * gib, 8 * gib},
		{gib, 0, 8 * gib, gib},
		{8 * gib, 0, gib, gib},
		{0, 9 * gib, 64 * gib, 10 * gib}, // a tenth is for what the runtime does not count
		{2 * gib, 9 * gib, 64 * gib, 2 * gib},
	} {
		if got := memoryFor(test.container, test.goLimit, test.machine); got != test.expected {
			t.Errorf("container %d, GOMEMLIMIT %d, machine %d: %d, expected %d", test.container, test.goLimit, test.machine, got, test.expected)
		}
	}
	if got := memAvailable("MemTotal:       24580548 kB\nMemFree:        20003140 kB\nMemAvailable:   23001776 kB\n"); got != 23001776<<10 {
		t.Errorf("%d bytes are available, expected 23001776 KiB", got)
	}
	if text, err := os.ReadFile("/proc/meminfo"); err == nil && memAvailable(string(text)) <= 0 {
		t.Error("nothing was found in this system's meminfo")
	}
}
