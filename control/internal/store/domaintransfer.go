package store

import (
	"slices"
	"time"

	"deeplink/shared/catalog"
)

// TransferPeriod is how long the owner of a host has to restore its TXT record before the host moves to the organization that proved it.
const TransferPeriod = 7 * 24 * time.Hour

// Transfer is the waiting period before a host changes its owner.
type Transfer struct {
	// Incoming: the domain claims the host. Otherwise it has the host and is about to lose it.
	Incoming bool
	// CompletesAt is when the host moves, unless the TXT record of the owner is back by then or that of the claim is gone.
	StartedAt, CompletesAt catalog.Time
}

// Proofs are what one lookup of the TXT records of a host found. A lookup that failed proves nothing, not even that a record is gone, and
// has no Proofs.
type Proofs struct {
	// Tokens are those in the records. It is empty when DNS answered that there is no such record.
	Tokens []string
	// At is a time of the database from before the lookup.
	At time.Time
}

func (p Proofs) prove(c *claim) bool { return c.token != "" && slices.Contains(p.Tokens, c.token) }

// claim is a domain with a contested host: the verified one, one with a transfer, or the one that is being verified.
type claim struct {
	domainID, orgID, token string
	verified               bool
	// entitled: the organization is not suspended, and its plan has custom domains.
	entitled bool
	// transfer is nil when there is none.
	transfer *transferRow
}

// transferRow is a row of domain_transfers.
type transferRow struct {
	// ownerID is the domain that was verified when the waiting period started. It is empty when that domain has been deleted.
	ownerID                string
	startedAt, completesAt time.Time
}

// transferEnd is why a transfer ended without a move. The values are those of the audit trail.
type transferEnd string

const (
	ownerProved   transferEnd = "ownerProved"   // the TXT record of the owner is there
	claimUnproven transferEnd = "claimUnproven" // the TXT record of the claim is gone
	claimUnfit    transferEnd = "claimUnfit"    // the claiming organization is suspended, or its plan has no custom domains
	claimDeleted  transferEnd = "claimDeleted"  // the claiming organization deleted its domain
	hostMoved     transferEnd = "hostMoved"     // another organization got the host
)

// settlement is what becomes of a contested host.
type settlement struct {
	// owner has the host before. It is nil when the host is free.
	owner *claim
	ended []endedTransfer
	// started wait from now on: a new claim, and claims that waited for a former owner.
	started []*claim
	// winner gets the host now. It is nil when the host stays where it is.
	winner *claim
	// refused: the claim that is being verified is proved, and another organization that is proved has the host.
	refused bool
}

type endedTransfer struct {
	*claim
	reason transferEnd
}

// settle decides what becomes of a contested host. claims are in the order in which they were proved. claimantID names the pending domain
// that is being verified; it is empty when a background job looks.
func settle(claims []claim, claimantID string, proofs Proofs, now time.Time) (s settlement) {
	var claimant *claim
	var waiting []*claim
	for i := range claims {
		c := &claims[i]
		switch {
		case c.verified:
			s.owner = c
		case c.domainID == claimantID && proofs.prove(c):
			claimant = c
		}
		// The lookup says nothing about a claim that was proved after it.
		if !c.verified && c.transfer != nil && !c.transfer.startedAt.After(proofs.At) {
			waiting = append(waiting, c)
		}
	}
	if s.owner != nil && proofs.prove(s.owner) {
		for _, c := range waiting {
			s.ended = append(s.ended, endedTransfer{c, ownerProved})
		}
		s.refused = claimant != nil
		return s
	}
	var proved []*claim
	for _, c := range waiting {
		switch {
		case !proofs.prove(c):
			s.ended = append(s.ended, endedTransfer{c, claimUnproven})
		case !c.entitled:
			s.ended = append(s.ended, endedTransfer{c, claimUnfit})
		default:
			proved = append(proved, c)
		}
	}
	for _, c := range proved {
		if s.owner == nil || c.transfer.ownerID == s.owner.domainID && !c.transfer.completesAt.After(now) {
			s.winner = c
			break
		}
	}
	if s.winner == nil && s.owner == nil {
		s.winner = claimant
	}
	if s.winner != nil {
		for _, c := range proved {
			if c != s.winner {
				s.ended = append(s.ended, endedTransfer{c, hostMoved})
			}
		}
		s.refused = claimant != nil && claimant != s.winner
		return s
	}
	for _, c := range proved {
		if c.transfer.ownerID != s.owner.domainID {
			s.started = append(s.started, c)
		}
	}
	if claimant != nil && claimant.transfer == nil {
		s.started = append(s.started, claimant)
	}
	return s
}
