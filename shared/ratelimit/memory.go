package ratelimit

import (
	"encoding/binary"
	"math/bits"
	"math/rand/v2"
	"sync"
	"time"
)

const (
	shardCount = 256
	// evictionSample is how many keys are looked at to find the one that makes room.
	evictionSample = 16
)

// Memory counts one surface within this process. It is safe for concurrent use. At its worst it holds maxKeys times
// 8 × Limit bytes; a key that stays idle after a burst keeps its room until it is evicted.
//
// What a request costs is the memory that has to come from afar. A key that sends little has all that is known of it in one
// cache line, found without a pointer.
type Memory struct {
	limit  int
	window int64 // nanoseconds
	base   time.Time
	seed   [2]uint64 // unknown outside, so that nobody can aim keys at one shard
	shards [shardCount]shard
}

// shard is a part of the keys under a lock of its own. Its size is two cache lines, so that two locks never share one.
type shard struct {
	sync.Mutex
	table
	limit int   // of keys
	hand  int   // where the search for a key to evict goes on
	rings rings // of the keys that have more times than a cell holds
	_     [8]byte
}

// NewMemory returns an empty table for about maxKeys keys, spread evenly over 256 shards. When a shard is full, a new
// key takes the place of the one longest idle among 16: of one with nothing left in its window, if there is any.
func NewMemory(surface Surface, maxKeys int) *Memory {
	m := &Memory{
		limit:  surface.Limit,
		window: int64(surface.Window),
		base:   time.Now(),
		seed:   [2]uint64{rand.Uint64(), rand.Uint64()},
	}
	for i := range m.shards {
		m.shards[i].table.seed = m.seed
		m.shards[i].limit = max(1, maxKeys/shardCount)
	}
	return m
}

// Take asks for one request of key at now, which must carry a monotonic reading; one before the last admitted time of
// the key counts as that time. It returns 0 when the request is admitted, and otherwise how long it is until one would
// be, if nothing else is sent.
func (m *Memory) Take(key Key, now time.Time) time.Duration {
	at := int64(now.Sub(m.base))
	hash := hashOf(key, m.seed)
	s := m.shard(hash)
	s.Lock()
	c := s.find(key, hash)
	if c == nil {
		c = s.place(key, hash)
	}
	wait := s.take(c, at, m.window, m.limit)
	s.Unlock()
	return time.Duration(wait)
}

// Wait returns what Take would, and counts nothing.
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

// place returns the cell of a key that has none yet.
func (s *shard) place(key Key, hash uint64) *cell {
	if s.used == s.limit {
		victim := s.victim()
		s.rings.giveBack(s.cells[victim].ring)
		s.remove(victim)
	}
	return s.add(key, hash)
}

// victim goes round the table, so that over time every key is looked at.
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

// take admits a request at now, or returns how long it is until there is room.
func (s *shard) take(c *cell, now, window int64, limit int) int64 {
	times := s.times(c)
	now, wait := c.wait(times, now, window, limit)
	if wait > 0 {
		return wait
	}
	if int(c.count) == len(times) {
		times = s.grow(c, times, limit)
	}
	times[wrap(int(c.head)+int(c.count), len(times))] = now
	c.count++
	return 0
}

// times is the ring of admitted times of a key.
func (s *shard) times(c *cell) []int64 {
	if c.ring == inCell {
		return c.own[:]
	}
	return s.rings.of(c.ring)
}

// grow gives a key with a full ring one of at least twice the size, up to limit.
func (s *shard) grow(c *cell, times []int64, limit int) []int64 {
	ring := make([]int64, max(len(times)+1, min(2*len(times), limit)))
	copied := copy(ring, times[c.head:])
	copy(ring[copied:], times[:c.head])
	c.head = 0
	if c.ring == inCell {
		c.ring = s.rings.take()
	}
	s.rings.set(c.ring, ring)
	return ring
}

// rings are the larger rings of a shard, by number from 1 on.
type rings struct {
	all    [][]int64
	unused []int32
}

func (r *rings) of(n int32) []int64        { return r.all[n-1] }
func (r *rings) set(n int32, ring []int64) { r.all[n-1] = ring }

// take returns the number of a ring that is nobody's.
func (r *rings) take() int32 {
	if last := len(r.unused) - 1; last >= 0 {
		n := r.unused[last]
		r.unused = r.unused[:last]
		return n
	}
	r.all = append(r.all, nil)
	return int32(len(r.all))
}

// giveBack forgets a ring; inCell is none.
func (r *rings) giveBack(n int32) {
	if n != inCell {
		r.all[n-1] = nil
		r.unused = append(r.unused, n)
	}
}
