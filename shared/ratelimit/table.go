package ratelimit

// ownTimes is the number of admitted times that a cell itself holds: most addresses send only a few requests.
const ownTimes = 5

// What a cell's ring is when it is not the number of one.
const (
	free   int32 = 0  // the cell is unused
	inCell int32 = -1 // the times are in the cell
)

// cellBytes is the size of a cell.
const cellBytes = 64

// cell is what is known of one key: its admitted times within the window, oldest first, in nanoseconds since the base. It is one
// cache line.
type cell struct {
	key         Key
	ring        int32
	head, count uint16 // where in the ring the oldest is, and how many there are
	own         [ownTimes]int64
}

// newest returns the last admitted time, or 0.
func (c *cell) newest(times []int64) int64 {
	if c.count == 0 {
		return 0
	}
	return times[wrap(int(c.head)+int(c.count)-1, len(times))]
}

// wait drops the times outside the window. It returns the effective now and the time until the next request would be admitted.
func (c *cell) wait(times []int64, now, window int64, limit int) (at, wait int64) {
	if c.count > 0 {
		// Callers read the clock before they get the lock, so times arrive slightly out of order.
		now = max(now, c.newest(times))
	}
	for c.count > 0 && times[c.head]+window <= now {
		c.head = uint16(wrap(int(c.head)+1, len(times)))
		c.count--
	}
	if int(c.count) == limit {
		return now, times[c.head] + window - now
	}
	return now, 0
}

// wrap takes an index behind the end of a ring back to its begin.
func wrap(index, size int) int {
	if index >= size {
		return index - size
	}
	return index
}

// table finds cells by key: open addressing, linear probing, at most half full (Knuth, The Art of Computer Programming, 6.4). Pointers
// to its cells hold until the next add or remove.
type table struct {
	cells []cell // a power of two
	used  int
	seed  [2]uint64
}

const firstCells = 8

// find returns the cell of a key, or nil.
func (t *table) find(key Key, hash uint64) *cell {
	if t.used == 0 {
		return nil
	}
	for at := t.home(hash); t.cells[at].ring != free; at = t.next(at) {
		if t.cells[at].key == key {
			return &t.cells[at]
		}
	}
	return nil
}

// add gives a cell to a key that has none.
func (t *table) add(key Key, hash uint64) *cell {
	if 2*(t.used+1) > len(t.cells) {
		t.double()
	}
	t.used++
	c := t.room(hash)
	*c = cell{key: key, ring: inCell}
	return c
}

// room returns the first free cell for a hash.
func (t *table) room(hash uint64) *cell {
	at := t.home(hash)
	for t.cells[at].ring != free {
		at = t.next(at)
	}
	return &t.cells[at]
}

func (t *table) double() {
	old := t.cells
	t.cells = make([]cell, max(firstCells, 2*len(old)))
	for _, c := range old {
		if c.ring != free {
			*t.room(hashOf(c.key, t.seed)) = c
		}
	}
}

// remove frees the cell at hole and moves up the cells behind it that a search would no longer reach.
func (t *table) remove(hole int) {
	t.used--
	for at := t.next(hole); t.cells[at].ring != free; at = t.next(at) {
		home := t.home(hashOf(t.cells[at].key, t.seed))
		if t.distance(home, at) >= t.distance(hole, at) {
			t.cells[hole], hole = t.cells[at], at
		}
	}
	t.cells[hole] = cell{}
}

func (t *table) home(hash uint64) int         { return int(hash/shardCount) & (len(t.cells) - 1) }
func (t *table) next(at int) int              { return (at + 1) & (len(t.cells) - 1) }
func (t *table) distance(from, until int) int { return (until - from) & (len(t.cells) - 1) }
