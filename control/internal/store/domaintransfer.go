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
	// Incoming: the domain claims the host. Otherwise the domain has the host and is about to lose it.
	Incoming bool
	// CompletesAt is when the host moves, unless the TXT record of the owner is restored or that of the claim is removed before.
	StartedAt, CompletesAt catalog.Time
}

// Proofs is the result of one successful lookup of the TXT records of a host. A failed lookup proves nothing, not even that a record is
// missing, and has no Proofs.
type Proofs struct {
	// Tokens are the tokens in the records. It is empty if DNS answered that there is no such record.
	Tokens []string
	// At is a time of the database before the lookup.
	At time.Time
}

func (p Proofs) prove(c *claim) bool { return c.token != "" && slices.Contains(p.Tokens, c.token) }

// claim is a domain with a contested host: the verified one, one with a transfer, or the one that is being verified.
type claim struct {
	domainID, orgID, token string
	verified               bool
	// entitled: the organization is not suspended, and its plan has custom domains.
	entitled bool
	// transfer may be nil.
	transfer *transferRow
}

// transferRow is a row of domain_transfers.
type transferRow struct {
	// ownerID is the domain that was verified when the waiting period started. It is empty if that domain has been deleted.
	ownerID                string
	startedAt, completesAt time.Time
}

// transferEnd is why a transfer ended without a move. The values are those of the audit trail.
type transferEnd string

const (
	ownerProved   transferEnd = "ownerProved"   // the TXT record of the owner is present
	claimUnproven transferEnd = "claimUnproven" // the TXT record of the claim is missing
	claimUnfit    transferEnd = "claimUnfit"    // the claiming organization is suspended, or its plan has no custom domains
	claimDeleted  transferEnd = "claimDeleted"  // the claiming organization deleted its domain
	hostMoved     transferEnd = "hostMoved"     // another organization got the host
)

// settlement is the decision about a contested host.
type settlement struct {
	// owner is the present owner. It is nil if the host is free.
	owner *claim
	ended []endedTransfer
	// started are the claims whose waiting periods start now: a new claim, and claims that waited for a former owner.
	started []*claim
	// winner gets the host now. It is nil if the host does not move.
	winner *claim
	// refused: the claim that is being verified is proved, but another organization has the host and its domain is proved, too.
	refused bool
}

type endedTransfer struct {
	*claim
	reason transferEnd
}

// settle decides about a contested host. claims are in the order in which they were proved. claimantID is the pending domain that is being
// verified; it is empty for a background job.
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
		// The lookup is older than the proof of this claim, so it says nothing about it.
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
