package replica

import (
	"hash/maphash"
	"sync/atomic"

	"deeplink/shared/feed"
)

// stripes is how many counters the tags of keys share, and as many those of organizations and domains. Two tags on one stripe void each
// other's entries, which costs a load, never the truth. 65,536 counters are 512 KiB.
const stripes = 1 << 16

type counters [stripes]atomic.Uint64

// stamps counts what was made to be forgotten. An entry carries the counters of its tags as they stood before its row was
// asked for, and is worth nothing from the moment one of them has moved.
type stamps struct {
	seed  maphash.Seed
	epoch atomic.Uint64
	keys  counters
	// scopes are those of organizations and domains. They are apart from keys, which change all the time: a link that is edited voids
	// the few that share its stripe, and never all links of an organization.
	scopes counters
}

// marks are the counters an entry depends on: where they are and what they were.
type marks struct {
	epoch, organization, domain, key            uint64
	organizationStripe, domainStripe, keyStripe uint16
}

func newStamps() *stamps { return &stamps{seed: maphash.MakeSeed()} }

func (s *stamps) stripe(tag string) uint16 { return uint16(maphash.String(s.seed, tag)) }

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
		return &s.keys[s.stripe(tag)]
	}
	return &s.scopes[s.stripe(tag)]
}

// read returns the present marks. Whoever fills an entry must call it before asking for the row.
func (s *stamps) read(orgKey, domain, key string) marks {
	m := marks{
		organizationStripe: s.stripe(feed.OrganizationTag(orgKey)),
		domainStripe:       s.stripe(feed.DomainTag(domain)),
		keyStripe:          s.stripe(feed.KeyTag(key)),
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
