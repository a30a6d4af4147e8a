package ratelimit

// ringOverhead is the memory of a ring beside its times, in bytes.
const ringOverhead = 64

// ring holds the admitted times of a key that has more than its cell can hold.
type ring struct {
	key   Key
	times []int64
}

func ringBytesFor(times int) int { return 8*times + ringOverhead }

// rings are the rings of a shard, by number from 1 on. The zero value is empty.
type rings struct {
	all    []ring
	unused []int32
	bytes  int // of all rings in use
}

// of returns the times of ring n.
func (r *rings) of(n int32) []int64 { return r.all[n-1].times }

// add returns the number of a new ring for key, with room for the given number of times.
func (r *rings) add(key Key, times int) int32 {
	r.bytes += ringBytesFor(times)
	made := ring{key, make([]int64, times)}
	if last := len(r.unused) - 1; last >= 0 {
		n := r.unused[last]
		r.unused = r.unused[:last]
		r.all[n-1] = made
		return n
	}
	r.all = append(r.all, made)
	return int32(len(r.all))
}

// release frees ring n; inCell is no ring.
func (r *rings) release(n int32) {
	if n == inCell {
		return
	}
	r.bytes -= ringBytesFor(len(r.all[n-1].times))
	r.all[n-1] = ring{}
	r.unused = append(r.unused, n)
	if len(r.unused) == len(r.all) {
		r.all, r.unused = nil, nil
	}
}

// grow gives a key with a full ring one of up to twice the size, at most the limit.
func (s *shard) grow(c *cell, times []int64, now int64, m *Memory) []int64 {
	size := max(len(times)+1, min(2*len(times), m.limit))
	s.makeRoom(c, ringBytesFor(size), now, m)
	n := s.rings.add(c.key, size)
	larger := s.rings.of(n)
	copied := copy(larger, times[c.head:])
	copy(larger[copied:], times[:c.head])
	s.rings.release(c.ring)
	c.head, c.ring = 0, n
	return larger
}

// makeRoom releases rings until the shard has room for the given number of bytes: first unneeded rings, then rings of other keys, the longest
// idle of a sample first. Such a key loses its count. This bounds memory in every case; it needs more keys at their limit within one
// window than a process can serve.
func (s *shard) makeRoom(c *cell, bytes int, now int64, m *Memory) {
	if s.rings.bytes+bytes <= m.ringRoom {
		return
	}
	s.shrink(now, m)
	for s.rings.bytes+bytes > m.ringRoom {
		victim := s.idlestRing(c)
		if victim == nil {
			return // the ring of this key alone: NewMemory leaves room for it
		}
		s.rings.release(victim.ring)
		victim.ring, victim.head, victim.count = inCell, 0, 0
	}
}

// idlestRing returns the longest idle of a sample of cells with rings, other than c, or nil.
func (s *shard) idlestRing(c *cell) (idlest *cell) {
	seen, oldest := 0, int64(0)
	for i := range s.rings.all {
		r := &s.rings.all[i]
		if r.times == nil || r.key == c.key {
			continue
		}
		of := s.find(r.key, hashOf(r.key, s.seed))
		if newest := of.newest(r.times); idlest == nil || newest < oldest {
			idlest, oldest = of, newest
		}
		if seen++; seen == evictionSample {
			break
		}
	}
	return idlest
}

// shrink releases the rings of keys whose times within the window fit into their cells again.
func (s *shard) shrink(now int64, m *Memory) {
	for i := range s.rings.all {
		r := s.rings.all[i]
		if r.times == nil {
			continue
		}
		c := s.find(r.key, hashOf(r.key, s.seed))
		c.wait(r.times, now, m.window, m.limit)
		if c.count > ownTimes {
			continue
		}
		for at := range int(c.count) {
			c.own[at] = r.times[wrap(int(c.head)+at, len(r.times))]
		}
		s.rings.release(c.ring)
		c.head, c.ring = 0, inCell
		if s.rings.all == nil {
			return
		}
	}
}
