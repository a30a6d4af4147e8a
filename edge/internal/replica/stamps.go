package replica

import (
	"hash/maphash"
	"strings"
	"sync/atomic"
	"unsafe"

	"deeplink/edge/internal/prefetch"
	"deeplink/shared/feed"
)

// Tags share counters. A bump of one tag also voids the entries of the other tags on its stripe, which costs loads and is never wrong.
const (
	// scopeStripes is the number of counters for organizations and domains: 512 KiB.
	scopeStripes = 1 << 16
	// keyStripes is the number of counters for keys, which change all the time: 2 MiB. With a million cached links four links share a
	// stripe. With 1<<16 stripes it would be sixteen, and 100 changes a second would send one click in a hundred to Postgres.
	keyStripes = 1 << 18
)

// stamps holds a counter per tag (striped) and the epoch, which every entry depends on. An entry carries the values that the counters of
// its tags had before its row was read. It must not be served after one of them has moved.
type stamps struct {
	seed  maphash.Seed // the seed of the hashes of keys
	epoch atomic.Uint64
	keys  [keyStripes]atomic.Uint64
	// scopes are the counters of organizations and domains. They are separate from keys, so that an edited link voids only the few links
	// on its stripe, and never all links of an organization.
	scopes [scopeStripes]atomic.Uint64
}

// version is what an entry depends on: the stripes of its counters, and the sum of the values that they and the epoch had. Counters only
// grow, and no counter can grow so often that the sum wraps. So equal sums mean that none of them has moved.
type version struct {
	sum                              uint64
	organizationStripe, domainStripe uint16
	keyStripe                        uint32
}

func newStamps(seed maphash.Seed) *stamps { return &stamps{seed: seed} }

// scopeStripe returns the stripe of an organization or a domain. It depends on the name only: on the shared host the two have the same
// name, and share a counter and thus a cache line.
func (s *stamps) scopeStripe(tag string) uint16 {
	_, name, _ := strings.Cut(tag, ":")
	return uint16(maphash.String(s.seed, name) % scopeStripes)
}

// keyStripe returns the stripe of a key with this hash. So a lookup has it before it has found the entry.
func keyStripe(hash uint64) uint32 { return uint32(hash % keyStripes) }

// prefetch starts to read the counter of a key with this hash.
func (s *stamps) prefetch(hash uint64) {
	prefetch.Line(uintptr(unsafe.Pointer(&s.keys[keyStripe(hash)])))
}

// bump voids every entry that depends on tag.
func (s *stamps) bump(tag string) {
	if tag == feed.Everything {
		s.epoch.Add(1)
		return
	}
	s.counter(tag).Add(1)
}

// counter returns the counter of a tag.
func (s *stamps) counter(tag string) *atomic.Uint64 {
	if feed.IsKeyTag(tag) {
		_, key, _ := strings.Cut(tag, ":")
		return &s.keys[keyStripe(maphash.String(s.seed, key))]
	}
	return &s.scopes[s.scopeStripe(tag)]
}

// read returns the current version of a key. A load must call it before it reads the row.
func (s *stamps) read(orgKey, domain, key string) version {
	v := version{
		organizationStripe: s.scopeStripe(feed.OrganizationTag(orgKey)),
		domainStripe:       s.scopeStripe(feed.DomainTag(domain)),
		keyStripe:          keyStripe(maphash.String(s.seed, key)),
	}
	v.sum = s.sum(v.keyStripe, v.domainStripe, v.organizationStripe)
	return v
}

// sum adds up the counters of these stripes and the epoch.
func (s *stamps) sum(key uint32, domain, organization uint16) uint64 {
	return s.epoch.Load() + s.keys[key].Load() + s.scopes[domain].Load() + s.scopes[organization].Load()
}

// current reports whether no counter of the entry has moved since its version was read.
func (s *stamps) current(e entry) bool {
	return s.sum(e.keyStripe(), e.domainStripe(), e.organizationStripe()) == e.sum()
}
