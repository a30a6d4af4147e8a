package replica

import (
	"hash/maphash"
	"sync/atomic"

	"deeplink/shared/feed"
)

// stripes is how many counters all tags share. Two tags on one stripe void each other's entries, which costs a load, never
// the truth. 65,536 counters are 512 KiB.
const stripes = 1 << 16

// stamps counts what was made to be forgotten. An entry carries the counters of its tags as they stood before its row was
// asked for, and is worth nothing from the moment one of them has moved.
type stamps struct {
	seed  maphash.Seed
	epoch atomic.Uint64
	tags  [stripes]atomic.Uint64
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
	s.tags[s.stripe(tag)].Add(1)
}

// read returns the present marks. Whoever fills an entry must call it before asking for the row.
func (s *stamps) read(orgKey, domain, key string) marks {
	m := marks{
		organizationStripe: s.stripe(feed.OrganizationTag(orgKey)),
		domainStripe:       s.stripe(feed.DomainTag(domain)),
		keyStripe:          s.stripe(feed.KeyTag(key)),
	}
	m.epoch = s.epoch.Load()
	m.organization = s.tags[m.organizationStripe].Load()
	m.domain = s.tags[m.domainStripe].Load()
	m.key = s.tags[m.keyStripe].Load()
	return m
}

// current reports whether nothing the entry depends on has been bumped since its marks were read.
func (s *stamps) current(e entry) bool {
	return s.epoch.Load() == e.epoch() &&
		s.tags[e.keyStripe()].Load() == e.key() &&
		s.tags[e.domainStripe()].Load() == e.domain() &&
		s.tags[e.organizationStripe()].Load() == e.organization()
}
