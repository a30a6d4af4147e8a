package store_test

import (
	"fmt"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"deeplink/control/internal/store"
	"deeplink/shared/catalog"
)

const contested = "go.acme.example"

var job = store.ServiceActor("domain transfers")

// waitingIsOver moves all transfers of the host back in time, so that the waiting period is over.
func (f fixture) waitingIsOver(host string) {
	f.exec(`update domain_transfers set started_at = started_at - $2::interval, completes_at = completes_at - $2::interval, check_at = now() where host = $1`,
		host, store.TransferPeriod)
}

// settle settles the host with a lookup that finds the records of the domains.
func (f fixture) settle(host string, records ...catalog.Domain) (moved bool) {
	f.Helper()
	moved, _, err := f.store.SettleHost(f.Context(), job, host, f.proofs(records...))
	if err != nil {
		f.Fatal(err)
	}
	return moved
}

// read returns the organization's domain.
func (f fixture) domain(org catalog.Organization, id string) store.OwnDomain {
	f.Helper()
	all, err := f.store.Domains(f.Context(), org.ID)
	if err != nil {
		f.Fatal(err)
	}
	for _, d := range all {
		if d.ID == id {
			one, err := f.store.Domain(f.Context(), org.ID, id)
			d.ReadAt = one.ReadAt
			if diff := cmp.Diff(d, one); diff != "" || err != nil {
				f.Errorf("the domain alone differs from that in the list: %v\n%s", err, diff)
			}
			return d
		}
	}
	f.Fatalf("no domain %s", id)
	return store.OwnDomain{}
}

// holders returns which of the domains are verified, by their position.
func (f fixture) holders(domains ...catalog.Domain) (verified []int) {
	for i, d := range domains {
		if one[bool](f, `select coalesce((select status = 'verified' from domains where id = $1), false)`, d.ID) {
			verified = append(verified, i)
		}
	}
	return verified
}

func TestHostMovesToTheClaimantWhileTheOwnersRecordIsMissing(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	owner, claimant := f.organization(catalog.Scale), f.organization(catalog.Scale)
	owned := f.owned(owner, contested)
	kept := f.create(owner, `{"path": "/old", "shortCode": "sale", "domainId": "`+owned.ID+`"}`)
	f.exec(`delete from changes`)
	claimed := f.claim(claimant, contested)
	f.create(claimant, `{"path": "/new", "shortCode": "sale", "domainId": "`+claimed.ID+`"}`)

	if d := f.verify(claimant, claimed.ID, f.proofs()); d.Transfer != nil || d.Status != catalog.DomainPending {
		t.Errorf("without a record: %+v, expected no transfer", d)
	}
	user := store.UserActor("user_1", netip.MustParseAddr("2001:db8::1"), "req-1")
	before := time.Now()
	d, change, err := f.store.VerifyDomain(t.Context(), user, claimant.ID, store.Unconditional, claimed.ID, f.proofs(claimed))
	if err != nil || d.Status != catalog.DomainPending || d.Transfer == nil || !d.Transfer.Incoming || change.ID != 0 {
		t.Fatalf("with a record: %+v, %+v, %v; expected a new transfer, and no change for edges", d, change, err)
	}
	if wait := d.Transfer.CompletesAt.Sub(before); wait < store.TransferPeriod-time.Minute || wait > store.TransferPeriod+time.Minute {
		t.Errorf("it completes after %v, expected 7 days", wait)
	}
	expected := &store.Transfer{StartedAt: d.Transfer.StartedAt, CompletesAt: d.Transfer.CompletesAt}
	if diff := cmp.Diff(expected, f.domain(owner, owned.ID).Transfer); diff != "" {
		t.Errorf("the owner's view (-expected +got):\n%s", diff)
	}
	if again := f.verify(claimant, claimed.ID, f.proofs(claimed)); again.Transfer == nil || again.Transfer.CompletesAt != d.Transfer.CompletesAt {
		t.Errorf("verified again: %+v, expected the same date", again.Transfer)
	}
	if f.settle(contested, claimed) || len(f.holders(owned)) != 1 {
		t.Error("the host moved before the waiting period was over")
	}

	f.waitingIsOver(contested)
	moved, change, err := f.store.SettleHost(t.Context(), job, contested, f.proofs(claimed))
	if err != nil || !moved {
		t.Fatalf("after the waiting period: %t, %v; expected that the host moves", moved, err)
	}
	f.recorded("move", change, "d:"+contested)
	got, lost := f.domain(claimant, claimed.ID), f.domain(owner, owned.ID)
	if got.Status != catalog.DomainVerified || got.Transfer != nil || got.LostAt != nil {
		t.Errorf("the new owner: %+v, expected a verified domain", got)
	}
	if lost.Status != catalog.DomainPending || lost.Transfer != nil || lost.LostAt == nil || lost.LostAt.Before(before) {
		t.Errorf("the former owner: %+v, expected a pending domain that says when it was lost", lost)
	}
	place := store.ShortURLRef{Host: contested, Code: "sale"}
	_, err = f.store.ResolvedLink(t.Context(), owner.ID, place)
	expect(t, "the former owner's link", err, store.ErrNotFound)
	if l, err := f.store.ResolvedLink(t.Context(), claimant.ID, place); err != nil || l.Path != "/new" {
		t.Errorf("the new owner's link: %+v, %v", l, err)
	}
	if l, err := f.store.Link(t.Context(), owner.ID, kept.ID); err != nil || l.Domain.Status != catalog.DomainPending {
		t.Errorf("the former owner's link: %+v, %v; expected that it is kept", l, err)
	}
	if f.settle(contested, owned, claimed) {
		t.Error("the host moved again")
	}
	for org, expected := range map[string][]string{
		claimant.ID: {
			`domainTransfer.start domain:` + claimed.ID + ` {"host": "go.acme.example", "direction": "in", "completesAt": "` + d.Transfer.CompletesAt.Format(catalog.TimeFormat) + `"}`,
			`domainTransfer.complete domain:` + claimed.ID + ` {"host": "go.acme.example", "direction": "in"}`,
		},
		owner.ID: {
			`domainTransfer.start domain:` + owned.ID + ` {"host": "go.acme.example", "direction": "out", "completesAt": "` + d.Transfer.CompletesAt.Format(catalog.TimeFormat) + `"}`,
			`domainTransfer.complete domain:` + owned.ID + ` {"host": "go.acme.example", "direction": "out"}`,
		},
	} {
		if diff := cmp.Diff(expected, f.trail(org)); diff != "" {
			t.Errorf("audit trail (-expected +got):\n%s", diff)
		}
	}
	if n := one[int64](f, `select count(*) from audit_log where organization_id = $1 and (actor_type <> 'service' or actor_id <> 'domain transfers' or ip is not null or request_id is not null)`, owner.ID); n != 0 {
		t.Error("the former owner can see the actor of the claim")
	}

	// The same in the other direction: the former owner proves the host again.
	if d := f.verify(owner, owned.ID, f.proofs(owned)); d.Transfer == nil || !d.Transfer.Incoming {
		t.Errorf("the former owner proves the host: %+v, expected a transfer", d)
	}
	f.waitingIsOver(contested)
	// A call of the former owner at the end of the period also moves the host.
	d, change, err = f.store.VerifyDomain(t.Context(), user, owner.ID, store.Unconditional, owned.ID, f.proofs(owned))
	if err != nil || d.Status != catalog.DomainVerified || d.LostAt != nil {
		t.Errorf("after the waiting period: %+v, %v; expected that the host moves back", d, err)
	}
	f.recorded("move back", change, "d:"+contested)
	if l, err := f.store.ResolvedLink(t.Context(), owner.ID, place); err != nil || l.ID != kept.ID {
		t.Errorf("its link: %+v, %v; expected that it resolves again", l, err)
	}
}

func TestTransferEndsWithoutAMove(t *testing.T) {
	t.Parallel()
	user := store.UserActor("user_1", netip.Addr{}, "req-1")
	for _, test := range []struct {
		name, reason string
		end          func(f fixture, owner, claimant catalog.Organization, owned, claimed catalog.Domain)
	}{
		{"the job finds the record of the owner", "ownerProved", func(f fixture, _, _ catalog.Organization, owned, claimed catalog.Domain) {
			f.settle(contested, owned, claimed)
		}},
		{"the owner has its record looked up", "ownerProved", func(f fixture, owner, _ catalog.Organization, owned, claimed catalog.Domain) {
			if d := f.verifyBy(user, owner, owned.ID, f.proofs(owned, claimed)); d.Status != catalog.DomainVerified || d.Transfer != nil {
				f.Errorf("%+v, expected a verified domain without a transfer", d)
			}
		}},
		{"a lookup of the claimant finds the record of the owner", "ownerProved", func(f fixture, _, claimant catalog.Organization, owned, claimed catalog.Domain) {
			_, _, err := f.store.VerifyDomain(f.Context(), user, claimant.ID, store.Unconditional, claimed.ID, f.proofs(owned, claimed))
			expect(f.T, "verify", err, store.ErrHostOwned)
		}},
		{"the record of the claim is missing", "claimUnproven", func(f fixture, _, _ catalog.Organization, _, _ catalog.Domain) { f.settle(contested) }},
		{"the claimant is suspended", "claimUnfit", func(f fixture, _, claimant catalog.Organization, _, claimed catalog.Domain) {
			f.exec(`update organizations set suspended = true where id = $1`, claimant.ID)
			f.settle(contested, claimed)
		}},
		{"the claimant's plan has no custom domains", "claimUnfit", func(f fixture, _, claimant catalog.Organization, _, claimed catalog.Domain) {
			f.exec(`update organizations set plan = 'growth' where id = $1`, claimant.ID)
			f.settle(contested, claimed)
		}},
		{"the claimant deletes its domain", "claimDeleted", func(f fixture, _, claimant catalog.Organization, _, claimed catalog.Domain) {
			f.exec(`delete from links where domain_id = $1`, claimed.ID)
			if _, err := f.store.DeleteDomain(f.Context(), user, claimant.ID, store.Unconditional, claimed.ID); err != nil {
				f.Error(err)
			}
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			owner, claimant := f.organization(catalog.Scale), f.organization(catalog.Scale)
			owned, claimed := f.owned(owner, contested), f.claim(claimant, contested)
			f.verify(claimant, claimed.ID, f.proofs(claimed))
			f.waitingIsOver(contested)
			proofs := f.proofs(claimed)
			told := func() int64 {
				return one[int64](f, `select count(*) from changes where 'd:' || $1 = any (tags)`, contested)
			}
			before := told()
			test.end(f, owner, claimant, owned, claimed)
			if n := one[int64](f, `select count(*) from domain_transfers`); n != 0 || len(f.holders(owned)) != 1 || f.domain(owner, owned.ID).Transfer != nil {
				t.Errorf("%d transfers, the owner has the host: %t; expected no transfer", n, len(f.holders(owned)) == 1)
			}
			if n := told(); n != before {
				t.Errorf("%d changes for edges, expected none", n-before)
			}
			expected := `domainTransfer.cancel domain:` + owned.ID + ` {"host": "go.acme.example", "reason": "` + test.reason + `", "direction": "out"}`
			if trail := f.trail(owner.ID); len(trail) == 0 || trail[len(trail)-1] != expected {
				t.Errorf("audit trail of the owner: %q, expected it to end with %q", trail, expected)
			}
			// With the records as before, the next proof starts a new waiting period.
			f.exec(`update organizations set suspended = false, plan = 'scale'`)
			proofs.At = f.proofs().At
			if moved, _, err := f.store.SettleHost(t.Context(), job, contested, proofs); moved || err != nil {
				t.Errorf("%t, %v: the host moved to a claim whose transfer has ended", moved, err)
			}
		})
	}
}

func TestEarliestClaimGetsTheHost(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	owner, first, second, third := f.organization(catalog.Scale), f.organization(catalog.Scale), f.organization(catalog.Scale), f.organization(catalog.Scale)
	// The claim that is proved first is the one that was added last.
	owned, c, b, a := f.owned(owner, contested), f.claim(third, contested), f.claim(second, contested), f.claim(first, contested)
	f.verify(first, a.ID, f.proofs(a))
	f.exec(`update domain_transfers set started_at = started_at - interval '2 days', completes_at = completes_at - interval '2 days'`)
	f.verify(second, b.ID, f.proofs(a, b))
	if seen := f.domain(owner, owned.ID).Transfer; seen == nil || seen.CompletesAt != f.domain(first, a.ID).Transfer.CompletesAt {
		t.Errorf("the owner sees %+v, expected the earliest transfer", seen)
	}
	// A lookup says nothing about a claim that was proved after it.
	proofs := f.proofs(a, b)
	f.verify(third, c.ID, f.proofs(a, b, c))
	if _, _, err := f.store.SettleHost(t.Context(), job, contested, proofs); err != nil || f.domain(third, c.ID).Transfer == nil {
		t.Errorf("%v; a lookup before the proof ended the transfer", err)
	}
	f.waitingIsOver(contested)
	if !f.settle(contested, a, b, c) {
		t.Error("the host did not move")
	}
	if diff := cmp.Diff([]int{1}, f.holders(owned, a, b, c)); diff != "" || one[int64](f, `select count(*) from domain_transfers`) != 0 {
		t.Errorf("owners of the host (-expected +got):\n%s\nexpected that the other claims waited for the former owner", diff)
	}
	_, _, err := f.store.VerifyDomain(t.Context(), testActor, second.ID, store.Unconditional, b.ID, f.proofs(a, b))
	expect(t, "another claim", err, store.ErrHostOwned)
}

func TestTransferFollowsTheOwnerOfTheHost(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	owner, other, claimant, late := f.organization(catalog.Scale), f.organization(catalog.Scale), f.organization(catalog.Scale), f.organization(catalog.Scale)
	owned, claimed, stranger := f.owned(owner, contested), f.claim(claimant, contested), f.claim(late, contested)
	f.verify(claimant, claimed.ID, f.proofs(claimed))
	f.waitingIsOver(contested)
	if _, err := f.store.DeleteDomain(t.Context(), testActor, owner.ID, store.Unconditional, owned.ID); err != nil {
		t.Fatal(err)
	}
	if due, err := f.store.DueHosts(t.Context(), 10); err != nil || len(due) != 1 || due[0].Host != contested {
		t.Errorf("%+v, %v; expected a lookup as soon as the host is free", due, err)
	}
	// Another organization gets the host from an operator. The claim has waited for the former owner.
	next := f.owned(other, contested)
	if f.settle(contested, claimed) || len(f.holders(next)) != 1 {
		t.Error("the host moved before the new owner's waiting period was over")
	}
	if seen := f.domain(other, next.ID).Transfer; seen == nil || time.Until(seen.CompletesAt.Time) < store.TransferPeriod-time.Minute {
		t.Errorf("the new owner sees %+v, expected a waiting period of 7 days", seen)
	}
	f.exec(`delete from domains where id = $1`, next.ID)
	// A free host goes to the claim that was proved first, without a waiting period.
	_, _, err := f.store.VerifyDomain(t.Context(), testActor, late.ID, store.Unconditional, stranger.ID, f.proofs(claimed, stranger))
	expect(t, "a later claim to a free host", err, store.ErrHostOwned)
	if diff := cmp.Diff([]int{0}, f.holders(claimed, stranger)); diff != "" {
		t.Errorf("owners of the host (-expected +got):\n%s", diff)
	}
}

// At the last moment the owner restores its record and requests a lookup, while controls that found it missing settle the host.
func TestEndOfATransferIsDecidedOnce(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	kept := 0
	for round := range 10 {
		host := fmt.Sprintf("host%d.acme.example", round)
		owner, claimant := f.organization(catalog.Scale), f.organization(catalog.Scale)
		owned, claimed := f.owned(owner, host), f.claim(claimant, host)
		f.verify(claimant, claimed.ID, f.proofs(claimed))
		f.waitingIsOver(host)
		gone, back := f.proofs(claimed), f.proofs(owned, claimed)
		var group sync.WaitGroup
		var moves [4]bool
		var last store.OwnDomain
		for i := range moves {
			group.Go(func() {
				var err error
				if moves[i], _, err = f.store.SettleHost(t.Context(), job, host, gone); err != nil {
					t.Error(err)
				}
			})
		}
		group.Go(func() {
			var err error
			if last, _, err = f.store.VerifyDomain(t.Context(), testActor, owner.ID, store.Unconditional, owned.ID, back); err != nil && err != store.ErrHostOwned {
				t.Error(err)
			}
		})
		group.Wait()
		moved := 0
		for _, m := range moves {
			if m {
				moved++
			}
		}
		holders := f.holders(owned, claimed)
		switch {
		case moved == 1 && cmp.Equal(holders, []int{1}) && last.Status != catalog.DomainVerified:
		case moved == 0 && cmp.Equal(holders, []int{0}) && last.Status == catalog.DomainVerified:
			kept++
		default:
			t.Errorf("%d moves, the owners are %v, the response to the owner was %q; expected one owner, and the matching response", moved, holders, last.Status)
		}
		if n := one[int64](f, `select count(*) from domain_transfers where host = $1`, host); n != 0 {
			t.Errorf("%d transfers are left", n)
		}
	}
	t.Logf("the owner kept the host %d times of 10", kept)
}

func TestDueHostIsCheckedByOneControl(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	owner := f.organization(catalog.Scale)
	for i := range 20 {
		host := fmt.Sprintf("host%d.acme.example", i)
		f.owned(owner, host)
		first, second := f.organization(catalog.Scale), f.organization(catalog.Scale)
		a, b := f.claim(first, host), f.claim(second, host)
		f.verify(first, a.ID, f.proofs(a, b))
		f.verify(second, b.ID, f.proofs(a, b))
	}
	if due, err := f.store.DueHosts(t.Context(), 100); err != nil || len(due) != 0 {
		t.Errorf("%v, %v; expected nothing to be due at once", due, err)
	}
	f.exec(`update domain_transfers set check_at = now() - interval '1 minute'`)
	var mu sync.Mutex
	taken := make(map[string]int)
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for {
				due, err := f.store.DueHosts(t.Context(), 6)
				if err != nil {
					t.Error(err)
				}
				if len(due) == 0 || err != nil {
					return
				}
				mu.Lock()
				for _, host := range due {
					taken[host.Host]++
				}
				mu.Unlock()
			}
		})
	}
	group.Wait()
	// Two transfers of one host may be in two batches.
	for host, n := range taken {
		if n > 2 {
			t.Errorf("%s was taken %d times", host, n)
		}
	}
	if n := one[int64](f, `select count(*) from domain_transfers where check_at > now() + interval '50 minutes' and check_at <= now() + interval '1 hour'`); len(taken) != 20 || n != 40 {
		t.Errorf("%d hosts were taken, %d of 40 transfers are due again in an hour", len(taken), n)
	}
	// The last lookup is at the end of the waiting period; then lookups repeat every few minutes until DNS responds.
	f.exec(`update domain_transfers set check_at = now(), completes_at = case when host = 'host1.acme.example' then now() + interval '5 minutes' else now() - interval '1 minute' end`)
	if due, err := f.store.DueHosts(t.Context(), 100); err != nil || len(due) != 20 {
		t.Errorf("%d hosts, %v; expected 20", len(due), err)
	}
	if n := one[int64](f, `select count(*) from domain_transfers where case when host = 'host1.acme.example' then check_at = completes_at else check_at between now() + interval '9 minutes' and now() + interval '11 minutes' end`); n != 40 {
		t.Errorf("%d of 40 transfers have the right time of their next lookup", n)
	}
}
