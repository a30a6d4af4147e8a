package replica

import (
	"fmt"
	"hash/maphash"
	"testing"

	"deeplink/shared/feed"
)

// TestBumpOfAnyTagVoidsTheEntry bumps one of the four tags at a time.
func TestBumpOfAnyTagVoidsTheEntry(t *testing.T) {
	t.Parallel()
	const name = "go.acme.example/code"
	for _, tag := range []string{feed.Everything, feed.OrganizationTag("acme"), feed.DomainTag("go.acme.example"), feed.KeyTag(name)} {
		s := newStamps(maphash.MakeSeed())
		e := newEntry(s.read("acme", "go.acme.example", name), name, []byte("value"))
		if !s.current(e) {
			t.Fatal("an entry is void although nothing was bumped")
		}
		if s.bump(tag); s.current(e) {
			t.Errorf("the entry is still valid after a bump of %s", tag)
		}
	}
}

// TestBumpsOfKeysDoNotVoidOrganizations bumps so many keys that each stripe of a scope would have moved if it contained keys.
func TestBumpsOfKeysDoNotVoidOrganizations(t *testing.T) {
	t.Parallel()
	s := newStamps(maphash.MakeSeed())
	before := s.read("acme", "acme", "acme/code")
	for i := range 20 * scopeStripes {
		s.bump(feed.KeyTag(fmt.Sprintf("other/%d", i)))
	}
	after := s.read("acme", "acme", "acme/code")
	if own := s.keys[before.keyStripe].Load(); after.sum-before.sum != own {
		t.Errorf("the sum grew by %d, and the counter of the key's own stripe by %d: bumps of keys voided an organization or a domain", after.sum-before.sum, own)
	}
}
