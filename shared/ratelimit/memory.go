package ratelimit

import (
	"encoding/binary"
	"math/bits"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

const (
	shardCount = 256
	// evictionSample is the number of keys that are compared to find one to evict.
	evictionSample = 16
)

// Memory counts one surface within this process. It is safe for concurrent use. It takes at most [MemoryPerKey] bytes for each of its
// keys, or 32 MiB if that is more. A key that has sent many requests has a ring for their times, which is released when the key has been
// idle for a window.
//
// Cache misses dominate the cost of a request. The state of a key with few requests fits into one cache line, which is found without
// following a pointer.
type Memory struct {
	limit    int
	window   int64 // nanoseconds
	ringRoom int   // bytes of rings in a shard
	base     time.Time
	seed     [2]uint64 // secret, so that clients cannot choose keys of one shard
	sweeping atomic.Bool
	shards   [shardCount]shard
}

// shard is a part of the keys with its own lock. Its size is two cache lines, so that two locks never share a line.
type shard struct {
	sync.Mutex
	table
	limit int   // of keys
	hand  int   // where the next search for a key to evict starts
	rings rings // of the keys that have more times than a cell holds
}

const (
	// MemoryPerKey bounds what a key takes of memory, on average and in bytes: its cell in a table that is a quarter full at least, and
	// its share of the rings.
	MemoryPerKey = 4*cellBytes + ringsPerKey
	// ringsPerKey is the average ring: 64 times. A ring of the resolution limit has 500, but a key has one only within a window after a
	// burst, and no process serves as many requests in a window.
	ringsPerKey = 512
	// minRings is for how many full rings a shard has room in any case.
	minRings = 16
	// minSweep keeps short windows from making the sweep a constant load.
	minSweep = time.Second
)

// NewMemory returns an empty table for about maxKeys keys, spread evenly over 256 shards. When a shard is full, a new
// key takes the place of the one longest idle among 16: of one with nothing left in its window, if there is any.
func NewMemory(surface Surface, maxKeys int) *Memory {
	perShard := max(1, maxKeys/shardCount)
	m := &Memory{
		limit:    surface.Limit,
		window:   int64(surface.Window),
		ringRoom: max(perShard*ringsPerKey, minRings*ringBytesFor(surface.Limit)),
		base:     time.Now(),
		seed:     [2]uint64{rand.Uint64(), rand.Uint64()},
	}
	for i := range m.shards {
		m.shards[i].table.seed = m.seed
		m.shards[i].limit = perShard
	}
	return m
}

// Take counts one request of key at now, which must carry a monotonic reading. A time before the last admitted one of the key counts as
// that time. Take returns 0 if the request is admitted, otherwise the time until the next request would be admitted.
func (m *Memory) Take(key Key, now time.Time) time.Duration {
	at := int64(now.Sub(m.base))
	hash := hashOf(key, m.seed)
	s := m.shard(hash)
	s.Lock()
	c := s.find(key, hash)
	if c == nil {
		c = s.place(key, hash)
	}
	wait, grew := s.take(c, at, m)
	s.Unlock()
	if grew {
		m.scheduleSweep()
	}
	return time.Duration(wait)
}

// scheduleSweep schedules the release of unneeded rings, one window from now. There is no sweep while no key has a ring.
func (m *Memory) scheduleSweep() {
	if !m.sweeping.Load() && m.sweeping.CompareAndSwap(false, true) {
		time.AfterFunc(max(time.Duration(m.window), minSweep), m.sweep)
	}
}

func (m *Memory) sweep() {
	// This comes first, so that a ring added to a shard after the loop has passed it schedules the next sweep.
	m.sweeping.Store(false)
	left := false
	for i := range m.shards {
		s := &m.shards[i]
		s.Lock()
		if s.rings.bytes > 0 {
			s.shrink(int64(time.Since(m.base)), m)
			left = left || s.rings.bytes > 0
		}
		s.Unlock()
	}
	if left {
		m.scheduleSweep()
	}
}

// Wait returns the result of Take without counting a request.
func (m *Memory) Wait(key Key, now time.Time) time.Duration {
	at := int64(now.Sub(m.base))
	hash := hashOf(key, m.seed)
	s := m.shard(hash)
	s.Lock()
	defer s.Unlock()
	c := s.find(key, hash)
	if c == nil {
		return 0
	}
	_, wait := c.wait(s.times(c), at, m.window, m.limit)
	return time.Duration(wait)
}

func (m *Memory) shard(hash uint64) *shard { return &m.shards[hash%shardCount] }

// hashOf spreads keys over shards by its low bits and over their cells by the others.
func hashOf(key Key, seed [2]uint64) uint64 {
	high, low := bits.Mul64(
		binary.LittleEndian.Uint64(key[:8])^seed[0],
		binary.LittleEndian.Uint64(key[8:])^seed[1],
	)
	return high ^ low
}

// place returns a new cell for a key.
func (s *shard) place(key Key, hash uint64) *cell {
	if s.used == s.limit {
		victim := s.victim()
		s.rings.release(s.cells[victim].ring)
		s.remove(victim)
	}
	return s.add(key, hash)
}

// victim walks around the table, so that over time it considers every key.
func (s *shard) victim() int {
	idlest, idle := -1, int64(0)
	for seen := 0; seen < min(evictionSample, s.used); {
		at := s.hand
		s.hand = (s.hand + 1) % len(s.cells)
		if c := &s.cells[at]; c.ring != free {
			seen++
			if newest := c.newest(s.times(c)); idlest < 0 || newest < idle {
				idlest, idle = at, newest
			}
		}
	}
	return idlest
}

// take admits a request at now, or returns how long it is until there is room. grew says that the key got a larger ring.
func (s *shard) take(c *cell, now int64, m *Memory) (wait int64, grew bool) {
	times := s.times(c)
	now, wait = c.wait(times, now, m.window, m.limit)
	if wait > 0 {
		return wait, false
	}
	if int(c.count) == len(times) {
		times, grew = s.grow(c, times, now, m), true
	}
	times[wrap(int(c.head)+int(c.count), len(times))] = now
	c.count++
	return 0, grew
}

// times is the ring of admitted times of a key.
func (s *shard) times(c *cell) []int64 {
	if c.ring == inCell {
		return c.own[:]
	}
	return s.rings.of(c.ring)
}
