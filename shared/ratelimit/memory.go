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
	// firstRing is the room a new key gets: most addresses send a few requests and never come back.
	firstRing = 4
	// evictionSample is how many keys are looked at to find the one that makes room.
	evictionSample = 16
)

// Memory counts one surface within this process. It is safe for concurrent use. At its worst it holds maxKeys times
// 8 × Limit bytes; a key that stays idle after a burst keeps its room until it is evicted.
type Memory struct {
	limit  int
	window int64 // nanoseconds
	base   time.Time
	seed   [2]uint64 // unknown outside, so that nobody can aim keys at one shard
	shards [shardCount]shard
}

// shard is a table of at most limit keys. Its size is one cache line, so that two locks never share one.
type shard struct {
	sync.Mutex
	slots map[Key]int32
	logs  []admissions
	limit int32
	hand  int32 // where the search for a key to evict goes on
	_     [16]byte
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
		m.shards[i].slots = make(map[Key]int32)
		m.shards[i].limit = int32(max(1, maxKeys/shardCount))
	}
	return m
}

// Take asks for one request of key at now, which must carry a monotonic reading; one before the last admitted time of
// the key counts as that time. It returns 0 when the request is admitted, and otherwise how long it is until one would
// be, if nothing else is sent.
func (m *Memory) Take(key Key, now time.Time) time.Duration {
	at := int64(now.Sub(m.base))
	s := m.shard(key)
	s.Lock()
	slot, known := s.slots[key]
	if !known {
		slot = s.place(key)
	}
	wait := s.logs[slot].take(at, m.window, m.limit)
	s.Unlock()
	return wait
}

// Wait returns what Take would, and counts nothing.
func (m *Memory) Wait(key Key, now time.Time) time.Duration {
	at := int64(now.Sub(m.base))
	s := m.shard(key)
	s.Lock()
	defer s.Unlock()
	slot, known := s.slots[key]
	if !known {
		return 0
	}
	_, wait := s.logs[slot].wait(at, m.window, m.limit)
	return time.Duration(wait)
}

func (m *Memory) shard(key Key) *shard {
	high, low := bits.Mul64(
		binary.LittleEndian.Uint64(key[:8])^m.seed[0],
		binary.LittleEndian.Uint64(key[8:])^m.seed[1],
	)
	return &m.shards[(high^low)%shardCount]
}

// place returns the slot of a key that has none yet.
func (s *shard) place(key Key) int32 {
	slot := int32(len(s.logs))
	if slot < s.limit {
		s.logs = append(s.logs, admissions{key: key, ring: make([]int64, firstRing)})
	} else {
		slot = s.victim()
		delete(s.slots, s.logs[slot].key)
		s.logs[slot].reset(key)
	}
	s.slots[key] = slot
	return slot
}

// victim goes round the table, so that over time every key is looked at.
func (s *shard) victim() int32 {
	idlest := s.hand
	for range min(evictionSample, s.limit) {
		candidate := s.hand
		s.hand = (s.hand + 1) % s.limit
		if s.logs[candidate].newest < s.logs[idlest].newest {
			idlest = candidate
		}
	}
	return idlest
}

// admissions are the admitted times of one key within its window, oldest first, in nanoseconds since the base.
type admissions struct {
	key    Key
	newest int64
	ring   []int64
	head   int // index of the oldest
	count  int
}

func (a *admissions) reset(key Key) {
	ring := a.ring
	if len(ring) > firstRing {
		ring = make([]int64, firstRing)
	}
	*a = admissions{key: key, ring: ring}
}

// wait forgets what is out of the window, and returns now as it counts and how long it is until there is room.
func (a *admissions) wait(now, window int64, limit int) (at, wait int64) {
	if a.count > 0 {
		// Callers read the clock before they get the lock, so times arrive slightly out of order.
		now = max(now, a.newest)
	}
	for a.count > 0 && a.ring[a.head]+window <= now {
		a.head = a.wrap(a.head + 1)
		a.count--
	}
	if a.count == limit {
		return now, a.ring[a.head] + window - now
	}
	return now, 0
}

func (a *admissions) take(now, window int64, limit int) time.Duration {
	now, wait := a.wait(now, window, limit)
	if wait > 0 {
		return time.Duration(wait)
	}
	if a.count == len(a.ring) {
		a.grow(limit)
	}
	a.ring[a.wrap(a.head+a.count)] = now
	a.count++
	a.newest = now
	return 0
}

// grow doubles a full ring, up to limit.
func (a *admissions) grow(limit int) {
	ring := make([]int64, min(2*len(a.ring), limit))
	copied := copy(ring, a.ring[a.head:])
	copy(ring[copied:], a.ring[:a.head])
	a.ring, a.head = ring, 0
}

func (a *admissions) wrap(index int) int {
	if index >= len(a.ring) {
		return index - len(a.ring)
	}
	return index
}
