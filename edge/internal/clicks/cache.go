package clicks

import (
	"crypto/sha256"
	"encoding/binary"
	"hash/maphash"
	"math/rand/v2"
	"sync/atomic"

	"deeplink/shared/agent"
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

// cache keeps what follows from the most frequent values of a header, one per slot: a few hundred User-Agents send nearly all clicks. It is
// safe for concurrent use.
type cache struct {
	of    subject
	slots [cacheSlots]atomic.Pointer[Value]
}

// subject is the header of which a cache has values, and what for.
type subject uint8

const (
	agentsToServe  subject = iota // User-Agents, without what is needed only to record clicks
	agentsToRecord                // User-Agents
	referrers
)

// Value is what follows from the value of a header. All but brands and ref is immutable once it is in the cache.
type Value struct {
	value  string
	parsed agent.Parsed
	// evidence is what the User-Agent alone says.
	evidence click.Evidence
	facts    click.Facts
	digest   uint64 // the first 8 bytes of the SHA-256 of a User-Agent
	text     []byte // as it is stored
	hash     uint64 // of text
	// brands is a header Sec-CH-UA that came with this User-Agent and is no evidence: clients with one User-Agent send few others. It is nil
	// if the value is not cached. As a field of its own, and not a pointer, it would move every value that is not cached to the heap.
	brands *atomic.Pointer[string]
	// ref is the use of a segment, modulo 1<<32, and the reference of the text in it.
	ref atomic.Uint64
}

// Client returns what a client with this User-Agent and this header Sec-CH-UA-Platform is.
func (v *Value) Client(platformHint []byte) agent.Agent { return v.parsed.With(platformHint) }

// Agent returns what follows from a User-Agent. If it is not cached, the result is in fresh, and valid as long as userAgent is.
func (r *Recorder) Agent(userAgent []byte, fresh *Value) *Value {
	if hit := r.agents.get(userAgent); hit != nil {
		return hit
	}
	r.agents.read(fresh, userAgent)
	return fresh
}

// get returns what follows from a value, or nil if it is not cached.
func (c *cache) get(value []byte) *Value {
	hit := c.slots[maphash.Bytes(textSeed, value)%cacheSlots].Load()
	if hit != nil && hit.value == string(value) {
		return hit
	}
	return nil
}

// read derives what follows from a value that is not cached. The text of into is valid only as long as the value and its former text.
func (c *cache) read(into *Value, value []byte) {
	c.derive(into, value)
	if len(value) <= maxCached && rand.Uint32()%sampleRate == 0 {
		kept := &Value{value: string(value), brands: new(atomic.Pointer[string])}
		c.derive(kept, []byte(kept.value))
		kept.text = append([]byte(nil), kept.text...)
		c.slots[maphash.Bytes(textSeed, value)%cacheSlots].Store(kept)
	}
}

func (c *cache) derive(into *Value, value []byte) {
	if c.of == referrers {
		readReferrer(into, value)
		return
	}
	into.parsed = agent.Read(value)
	if c.of == agentsToRecord {
		readAgent(into, value)
	}
}

// reference returns the reference of the text in a segment, 0 if the segment has no room for it. use is the use of the segment that was
// read before.
func (v *Value) reference(s *segment, use uint64) uint32 {
	if ref := v.ref.Load(); ref>>32 == use&(1<<32-1) && use != 0 {
		return uint32(ref)
	}
	ref := s.reference(v.text, v.hash)
	if ref != 0 {
		v.ref.Store(use<<32 | uint64(ref))
	}
	return ref
}

// readAgent derives the facts of a User-Agent. The facts are those of the whole header; only its start is stored.
func readAgent(into *Value, value []byte) {
	sum := sha256.Sum256(value)
	into.digest = binary.LittleEndian.Uint64(sum[:])
	into.facts = click.Read(value)
	into.evidence = 0
	if into.parsed.With(nil).Platform == agent.Bot {
		into.evidence |= click.EvidenceBotPage
	}
	if isBlank(value) {
		into.evidence |= click.EvidenceNoAgent
	}
	into.text = value[:min(len(value), click.MaxAgent)]
	into.hash = maphash.Bytes(textSeed, into.text)
	into.ref.Store(0)
}

// brandHint is [click.BrandHint], which reads the header more slowly.
func (v *Value) brandHint(brands []byte) click.Evidence {
	if len(brands) == 0 {
		return 0
	}
	if v.brands != nil {
		if known := v.brands.Load(); known != nil && *known == string(brands) {
			return 0
		}
	}
	evidence := click.BrandHint(brands)
	if evidence == 0 && v.brands != nil && len(brands) <= maxCached && rand.Uint32()%sampleRate == 0 {
		known := string(brands)
		v.brands.Store(&known)
	}
	return evidence
}

// readReferrer derives the host of a Referer.
func readReferrer(into *Value, value []byte) {
	into.text = click.AppendReferrer(into.text[:0], value)
	into.hash = maphash.Bytes(textSeed, into.text)
	into.ref.Store(0)
}

func isBlank(value []byte) bool {
	for _, c := range value {
		if c != ' ' && c != '\t' {
			return false
		}
	}
	return true
}
