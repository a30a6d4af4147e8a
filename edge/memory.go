package main

import (
	"fmt"
	"math"
	"os"
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

// Clients decide how much of three things an edge holds: cached links, addresses that the rate limit counts, and connections. Each has a
// bound. By default the bounds follow from the memory available to the process, so that no client can make it run out of memory. In a
// container of 1 GiB they are 256 MiB of links, 65,536 addresses (at most 48 MiB) and 32,768 connections (about 10 KiB each while idle,
// 13 KiB while a client is slow).
const (
	// assumedMemory is used if the available memory is unknown.
	assumedMemory = 1 << 30
	// cacheShare: links may take one part in this many of the memory.
	cacheShare = 4
	// maxDefaultCache bounds the default size of the cache: its bookkeeping grows with the bound, not with the number of links.
	maxDefaultCache = 256 << 20
	// memoryPerConnection is the memory, after that for links, that must be available for each connection: what a slow client makes the
	// edge hold, and the kernel's part.
	memoryPerConnection = 24 << 10
	// minConnections and maxDefaultConnections bound the default number of connections.
	minConnections, maxDefaultConnections = 1024, 256 << 10
	// addressShare: one client address may hold one in this many of all connections. That is far more than the people behind one NAT
	// need, and so few that one client cannot take the connections of all others.
	addressShare = 16
	// memoryPerClient is the memory that must be available for each counted address: 21 times what it takes.
	memoryPerClient = 16 << 10
	// minClients and maxDefaultClients bound the default number of addresses.
	minClients, maxDefaultClients = 4 << 10, 256 << 10
	// otherFiles is how many descriptors an edge needs in addition to those of clients and lookups, with room to spare.
	otherFiles = 128
)

// deriveBounds sets the bounds that were not configured, for a process that may use this much memory, in bytes, and this many open files.
func (c *options) deriveBounds(memory, files int64) {
	if c.CacheBytes == 0 {
		c.CacheBytes = max(minCacheBytes, min(maxDefaultCache, memory/cacheShare))
	}
	if c.MaxConnections == 0 {
		most := min(maxDefaultConnections, files-otherFiles-int64(c.Connections))
		c.MaxConnections = int(max(minConnections, min(most, (memory-c.CacheBytes)/memoryPerConnection)))
	}
	if c.MaxConnectionsPerIP == 0 {
		c.MaxConnectionsPerIP = max(1, c.MaxConnections/addressShare)
	}
	if c.RateLimitAddresses == 0 {
		c.RateLimitAddresses = int(max(minClients, min(maxDefaultClients, memory/memoryPerClient)))
	}
}

// memoryFor returns how much memory a process may use: the smallest of the container's limit, the memory that GOMEMLIMIT stands for, and
// the machine's available memory. 0 means that a bound does not exist.
func memoryFor(container, goLimit, machine int64) int64 {
	memory := int64(math.MaxInt64)
	// GOMEMLIMIT is 10 % below what the process may use: see setMemoryLimit.
	for _, bound := range []int64{container, goLimit / 9 * 10, machine} {
		if bound > 0 {
			memory = min(memory, bound)
		}
	}
	if memory == math.MaxInt64 {
		return assumedMemory
	}
	return memory
}

// availableMemory returns how much memory this process may use.
func availableMemory() int64 {
	var goLimit int64
	// Without the variable, the limit may be the one that setMemoryLimit derived from the container's limit.
	if _, set := os.LookupEnv("GOMEMLIMIT"); set {
		if goLimit = debug.SetMemoryLimit(-1); goLimit == math.MaxInt64 {
			goLimit = 0 // off
		}
	}
	meminfo, _ := os.ReadFile("/proc/meminfo") // if it cannot be read, the machine's memory is unknown
	return memoryFor(containerMemory(), goLimit, memAvailable(string(meminfo)))
}

// containerMemory returns the memory limit of the process's cgroup, version 1 or 2, or 0 if there is none.
func containerMemory() int64 {
	limit, err := memlimit.FromCgroup()
	if err != nil || limit > math.MaxInt64 {
		return 0 // no limit, or no cgroup
	}
	return int64(limit)
}

// memAvailable returns MemAvailable of /proc/meminfo (proc_meminfo(5)) in bytes: how much memory processes may use before the system has
// to swap. It returns 0 if the text has no such line.
func memAvailable(meminfo string) int64 {
	for line := range strings.Lines(meminfo) {
		var kib int64
		if _, err := fmt.Sscanf(line, "MemAvailable: %d kB", &kib); err == nil {
			return kib << 10
		}
	}
	return 0
}

// setMemoryLimit sets the runtime's memory limit 10 % below the container's limit; the rest is for memory that the runtime does not
// count. If GOMEMLIMIT is set, it wins. Only main calls it, because the limit applies to the whole process.
func setMemoryLimit(container int64) {
	if _, set := os.LookupEnv("GOMEMLIMIT"); !set && container > 0 {
		debug.SetMemoryLimit(container / 10 * 9)
	}
}

// openFiles returns how many files this process may have open.
func openFiles() int64 {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil || limit.Cur > math.MaxInt64 {
		return math.MaxInt64
	}
	return int64(limit.Cur)
}
