package clicks

import (
	"crypto/sha256"
	"encoding/binary"
	"hash/maphash"
	"math/rand/v2"
	"sync/atomic"

	"deeplink/shared/click"
)

const (
	cacheSlots = 1 << 10
	// maxCached bounds the values that are cached, in bytes: at most half a megabyte per cache.
	maxCached = 512
	// sampleRate: one in this many values that were not cached is stored. So frequent ones get in, and one that occurs once rarely costs
	// an allocation.
	sampleRate = 16
)

// cache keeps what follows from the most frequent values of a header, one per slot. It is safe for concurrent use.
type cache struct {
	referrers bool // otherwise User-Agents
	slots     [cacheSlots]atomic.Pointer[derived]
}

// derived is what follows from the value of a header. All but ref is immutable once it is in the cache.
type derived struct {
	value  string
	facts  click.Facts
	digest uint64 // the first 8 bytes of the SHA-256 of a User-Agent
	text   []byte // as it is stored
	hash   uint64 // of text
	// ref is the use of a segment, modulo 1<<32, and the reference of the text in it.
	ref atomic.Uint64
}

// get returns what follows from a value, or nil if it is not cached.
func (c *cache) get(value []byte) *derived {
	hit := c.slots[maphash.Bytes(textSeed, value)%cacheSlots].Load()
	if hit != nil && hit.value == string(value) {
		return hit
	}
	return nil
}

// read derives what follows from a value that is not cached. The text of into is valid only as long as the value and its former text.
func (c *cache) read(into *derived, value []byte) {
	c.derive(into, value)
	if len(value) <= maxCached && rand.Uint32()%sampleRate == 0 {
		kept := &derived{value: string(value)}
		c.derive(kept, []byte(kept.value))
		kept.text = append([]byte(nil), kept.text...)
		c.slots[maphash.Bytes(textSeed, value)%cacheSlots].Store(kept)
	}
}

func (c *cache) derive(into *derived, value []byte) {
	if c.referrers {
		readReferrer(into, value)
	} else {
		readAgent(into, value)
	}
}

// reference returns the reference of the text in a segment, 0 if the segment has no room for it. use is the use of the segment that was
// read before.
func (d *derived) reference(s *segment, use uint64) uint32 {
	if ref := d.ref.Load(); ref>>32 == use&(1<<32-1) && use != 0 {
		return uint32(ref)
	}
	ref := s.reference(d.text, d.hash)
	if ref != 0 {
		d.ref.Store(use<<32 | uint64(ref))
	}
	return ref
}

// readAgent derives the facts of a User-Agent. The facts are those of the whole header; only its start is stored.
func readAgent(into *derived, value []byte) {
	sum := sha256.Sum256(value)
	into.digest = binary.LittleEndian.Uint64(sum[:])
	into.facts = click.Read(value)
	into.text = value[:min(len(value), click.MaxAgent)]
	into.hash = maphash.Bytes(textSeed, into.text)
	into.ref.Store(0)
}

// readReferrer derives the host of a Referer.
func readReferrer(into *derived, value []byte) {
	into.text = click.AppendReferrer(into.text[:0], value)
	into.hash = maphash.Bytes(textSeed, into.text)
	into.ref.Store(0)
}
