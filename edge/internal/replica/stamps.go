package replica

import (
	"hash/maphash"
	"sync/atomic"

	"deeplink/shared/feed"
)

// Tags share counters. Two on one stripe void each other's entries, which costs a load, never the truth.
const (
	// scopeStripes are those of organizations and domains: 512 KiB.
	scopeStripes = 1 << 16
	// keyStripes are those of keys, which change all the time: 2 MiB. With a million links in memory four share a stripe; with as few
	// stripes as above it would be sixteen, and 100 changes a second would send one click in a hundred to Postgres.
	keyStripes = 1 << 18
)

// stamps counts what was made to be forgotten. An entry carries the counters of its tags as they stood before its row was
// asked for, and is worth nothing from the moment one of them has moved.
type stamps struct {
	seed  maphash.Seed
	epoch atomic.Uint64
	keys  [keyStripes]atomic.Uint64
	// scopes are those of organizations and domains. They are apart from keys: a link that is edited voids the few that share its stripe,
	// and never all links of an organization.
	scopes [scopeStripes]atomic.Uint64
}

// marks are the counters an entry depends on: where they are and what they were.
type marks struct {
	epoch, organization, domain, key uint64
	organizationStripe, domainStripe uint16
	keyStripe                        uint32
}

func newStamps() *stamps { return &stamps{seed: maphash.MakeSeed()} }

func (s *stamps) scopeStripe(tag string) uint16 {
	return uint16(maphash.String(s.seed, tag) % scopeStripes)
}
func (s *stamps) keyStripe(tag string) uint32 {
	return uint32(maphash.String(s.seed, tag) % keyStripes)
}

// bump voids every entry that depends on tag.
func (s *stamps) bump(tag string) {
	if tag == feed.Everything {
		s.epoch.Add(1)
		return
	}
	s.counter(tag).Add(1)
}

// counter returns that of a tag.
func (s *stamps) counter(tag string) *atomic.Uint64 {
	if feed.IsKeyTag(tag) {
		return &s.keys[s.keyStripe(tag)]
	}
	return &s.scopes[s.scopeStripe(tag)]
}

// read returns the present marks. Whoever fills an entry must call it before asking for the row.
func (s *stamps) read(orgKey, domain, key string) marks {
	m := marks{
		organizationStripe: s.scopeStripe(feed.OrganizationTag(orgKey)),
		domainStripe:       s.scopeStripe(feed.DomainTag(domain)),
		keyStripe:          s.keyStripe(feed.KeyTag(key)),
	}
	m.epoch = s.epoch.Load()
	m.organization = s.scopes[m.organizationStripe].Load()
	m.domain = s.scopes[m.domainStripe].Load()
	m.key = s.keys[m.keyStripe].Load()
	return m
}

// current reports whether nothing the entry depends on has been bumped since its marks were read.
func (s *stamps) current(e entry) bool {
	return s.epoch.Load() == e.epoch() &&
		s.keys[e.keyStripe()].Load() == e.key() &&
		s.scopes[e.domainStripe()].Load() == e.domain() &&
		s.scopes[e.organizationStripe()].Load() == e.organization()
}
