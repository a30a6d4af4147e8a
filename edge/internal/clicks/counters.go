package clicks

import (
	"encoding/binary"
	"math"
	"runtime"
	"sync/atomic"
	"unsafe"

	"github.com/google/uuid"
	"golang.org/x/sys/unix"

	"deeplink/shared/click"
)

// quarter is the length of the intervals by which clicks are counted, in milliseconds.
const quarter = 15 * 60 * 1000

// counters count clicks while no segment is free: a mapped file with two generations. One counts; the other is empty or being shipped.
type counters struct {
	*segment
	generations [2]*generation
}

// generation is a hash table in a half of the file. Its header:
//
//	0  epoch        uint64: numbers the generations of a log, 0: never used
//	8  first        int64: the time of the first click, in milliseconds
//	16 used         uint32: 1 if it has counted a click
//	20 made         uint32: number of entries that are complete
//
// The header of the first one has, in addition, what helps to find out what is missing of a damaged log:
//
//	64  opened       uint64: number of segments that took records
//	128 last entries 2 × 64 bytes: copies of the last entry of the journal, written in turn
//
// An entry has 64 bytes:
//
//	0  state        uint32: 0 empty, 1 being made, 2 complete
//	4  outcome, class, 0, 0
//	8  link         16 bytes, zero if none
//	24 organization key, 4 zeros
//	32 quarter      int64, milliseconds since 1970
//	40 clicks       uint64
//	48 check        uint64, of the bytes 4 to 40
type generation struct {
	data []byte
	// ordinary is the number of entries for links; the rest is for organizations.
	entries, ordinary int
	users             atomic.Int64 // requests that are counting
}

const (
	entryEmpty    = 0
	entryMaking   = 1
	entryComplete = 2
	// organizationShare: one entry in this many counts clicks of organizations without a link.
	organizationShare = 8
	// counterProbes bounds the search for an entry of a link, organizationProbes that for an entry of an organization. The second is the last
	// resort, and covers the whole table if EDGE_CLICKS_BYTES is small.
	counterProbes, organizationProbes = 64, 4096

	openedOffset, entriesOffset = 64, 128
)

// countersSize rounds a size to two generations of whole pages.
func countersSize(size int) int { return size / 2 / pageSize * 2 * pageSize }

func openCounters(path string, size int) (*counters, error) {
	size = countersSize(size)
	s, err := mapSegment(path, size)
	if err != nil {
		return nil, err
	}
	c := &counters{segment: s}
	for i := range c.generations {
		data := s.data[i*size/2 : (i+1)*size/2]
		entries := (len(data) - pageSize) / slotSize
		c.generations[i] = &generation{data: data, entries: entries, ordinary: entries - entries/organizationShare}
	}
	return c, nil
}

func (g *generation) epoch() uint64     { return atomic.LoadUint64((*uint64)(unsafe.Pointer(&g.data[0]))) }
func (g *generation) setEpoch(e uint64) { atomic.StoreUint64((*uint64)(unsafe.Pointer(&g.data[0])), e) }
func (g *generation) first() *int64     { return (*int64)(unsafe.Pointer(&g.data[8])) }
func (g *generation) used() *uint32     { return (*uint32)(unsafe.Pointer(&g.data[16])) }
func (g *generation) made() *uint32     { return (*uint32)(unsafe.Pointer(&g.data[20])) }
func (g *generation) isUsed() bool      { return atomic.LoadUint32(g.used()) != 0 }

// reset empties the generation and gives it its epoch.
func (g *generation) reset(epoch uint64) {
	if g.isUsed() { // otherwise it is empty
		clear(g.data[pageSize:])
	}
	atomic.StoreUint32(g.used(), 0)
	atomic.StoreUint32(g.made(), 0)
	atomic.StoreInt64(g.first(), math.MaxInt64)
	g.setEpoch(epoch)
}

func (g *generation) entry(i int) []byte { return g.data[pageSize+i*slotSize:][:slotSize] }

// add counts one click at a time in milliseconds. It returns false if there is no entry left, neither for the link nor for its
// organization.
func (g *generation) add(c *record, class click.Class, at int64) bool {
	for {
		first := atomic.LoadInt64(g.first())
		if first <= at || atomic.CompareAndSwapInt64(g.first(), first, at) {
			break
		}
	}
	atomic.StoreUint32(g.used(), 1)
	of := at - at%quarter
	if g.increment(0, g.ordinary, counterProbes, c.outcome, class, &c.link, c.orgKey, of) {
		return true
	}
	return g.increment(g.ordinary, g.entries, organizationProbes, c.outcome, class, new([16]byte), c.orgKey, of)
}

// increment counts in an entry between two numbers.
func (g *generation) increment(from, to, probes int, outcome click.Outcome, class click.Class, link *[16]byte, orgKey [4]byte, quarter int64) bool {
	le := binary.LittleEndian
	w0 := uint64(outcome) | uint64(class)<<8
	l0, l1, org := le.Uint64(link[:8]), le.Uint64(link[8:]), uint64(le.Uint32(orgKey[:]))
	check := fold(fold(1, w0, l0, l1), org, uint64(quarter), 1)
	size := uint64(to - from)
	for probe := range min(uint64(probes), size) {
		e := g.entry(from + int((check+probe)%size))
		state := (*uint32)(unsafe.Pointer(&e[0]))
		if atomic.LoadUint32(state) == entryEmpty && atomic.CompareAndSwapUint32(state, entryEmpty, entryMaking) {
			le.PutUint32(e[4:], uint32(w0))
			copy(e[8:], link[:])
			le.PutUint64(e[24:], org)
			le.PutUint64(e[32:], uint64(quarter))
			le.PutUint64(e[48:], check)
			atomic.StoreUint32(state, entryComplete)
			atomic.AddUint32(g.made(), 1)
		}
		for atomic.LoadUint32(state) == entryMaking {
			runtime.Gosched() // another request is about to complete it
		}
		if le.Uint64(e[48:]) == check && le.Uint64(e[8:]) == l0 && le.Uint64(e[16:]) == l1 && le.Uint64(e[24:]) == org &&
			le.Uint64(e[32:]) == uint64(quarter) && le.Uint32(e[4:]) == uint32(w0) {
			atomic.AddUint64((*uint64)(unsafe.Pointer(&e[40:][0])), 1)
			return true
		}
	}
	return false
}

// count is a number of clicks that have no records.
type count struct {
	outcome click.Outcome
	class   click.Class
	orgKey  [4]byte
	link    uuid.UUID // zero: none
	quarter int64     // milliseconds since 1970
}

// read adds the counts of the entries between two numbers to into, and returns the number of these entries. It skips entries that a killed
// process has not completed.
func (g *generation) read(into map[count]int64, from, to int) (entries int) {
	le := binary.LittleEndian
	for i := from; i < min(to, g.entries); i++ {
		e := g.entry(i)
		n := le.Uint64(e[40:])
		if le.Uint32(e) != entryComplete {
			continue
		}
		c := count{outcome: click.Outcome(e[4]), class: click.Class(e[5]), quarter: int64(le.Uint64(e[32:]))}
		copy(c.link[:], e[8:24])
		copy(c.orgKey[:], e[24:28])
		if le.Uint64(e[48:]) != fold(fold(1, uint64(e[4])|uint64(e[5])<<8, le.Uint64(e[8:]), le.Uint64(e[16:])), le.Uint64(e[24:]), uint64(c.quarter), 1) {
			continue
		}
		entries++
		if n > 0 {
			into[c] += int64(n)
		}
	}
	return entries
}

// inOrder returns the generations, the older one first.
func (c *counters) inOrder() [2]*generation {
	g := c.generations
	if g[0].epoch() > g[1].epoch() {
		g[0], g[1] = g[1], g[0]
	}
	return g
}

// opened returns the number of segments that took records.
func (c *counters) opened() *uint64 { return (*uint64)(unsafe.Pointer(&c.data[openedOffset])) }

// keepEntry keeps a copy of the last entry of the journal.
func (c *counters) keepEntry(b boundary) {
	copy(c.data[entriesOffset+int(b.sequence)%2*boundarySize:], b.append(nil))
}

// lastEntry returns the last entry that was kept.
func (c *counters) lastEntry() (last boundary, ok bool) {
	for turn := range 2 {
		if b, valid := readBoundary(c.data[entriesOffset+turn*boundarySize:]); valid && (!ok || b.sequence > last.sequence) {
			last, ok = b, true
		}
	}
	return last, ok
}

// sync writes a generation to the disk.
func (c *counters) sync() error {
	if c.file == nil {
		return nil
	}
	return unix.Msync(c.data, unix.MS_SYNC)
}
