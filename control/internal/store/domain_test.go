package store_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"deeplink/control/internal/store"
	"deeplink/shared/catalog"
)

// claim adds a pending domain.
func (f fixture) claim(org catalog.Organization, host string) catalog.Domain {
	f.Helper()
	domain, _, _, err := f.store.AddDomain(f.Context(), testActor, org.ID, store.Unconditional, host, false)
	if err != nil {
		f.Fatalf("add %s: %v", host, err)
	}
	return domain
}

// owned adds a verified domain without a lookup.
func (f fixture) owned(org catalog.Organization, host string) catalog.Domain {
	f.Helper()
	domain, _, _, err := f.store.AddDomain(f.Context(), testActor, org.ID, store.Unconditional, host, true)
	if err != nil {
		f.Fatalf("add %s: %v", host, err)
	}
	return domain
}

// proofs are those of a lookup at the current time that finds the records of the domains.
func (f fixture) proofs(domains ...catalog.Domain) (p store.Proofs) {
	f.Helper()
	for _, d := range domains {
		p.Tokens = append(p.Tokens, one[string](f, `select verification_token from domains where id = $1`, d.ID))
	}
	var err error
	if p.At, err = f.store.Clock(f.Context()); err != nil {
		f.Fatal(err)
	}
	return p
}

func (f fixture) verify(org catalog.Organization, id string, proofs store.Proofs) store.OwnDomain {
	f.Helper()
	return f.verifyBy(testActor, org, id, proofs)
}

func (f fixture) verifyBy(actor store.Actor, org catalog.Organization, id string, proofs store.Proofs) store.OwnDomain {
	f.Helper()
	d, _, err := f.store.VerifyDomain(f.Context(), actor, org.ID, store.Unconditional, id, proofs)
	if err != nil {
		f.Fatalf("verify %s: %v", id, err)
	}
	return d
}

func TestDomainsAreAddedListedAndDeleted(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	org := f.organization(catalog.Scale)
	domain, token, change, err := f.store.AddDomain(t.Context(), testActor, org.ID, store.Unconditional, "go.acme.example", false)
	if err != nil {
		t.Fatal(err)
	}
	expected := catalog.Domain{ID: domain.ID, Host: "go.acme.example", IsCustom: true, Status: catalog.DomainPending, CreatedAt: domain.CreatedAt}
	if diff := cmp.Diff(expected, domain); diff != "" {
		t.Errorf("domain (-expected +got):\n%s", diff)
	}
	if stored := one[string](f, `select verification_token from domains where id = $1`, domain.ID); len(token) < 26 || stored != token {
		t.Errorf("token %q, stored %q", token, stored)
	}
	if change.XID == 0 || change.ID != 0 {
		t.Errorf("add: %+v, expected a change that affects no edge: they serve verified domains only", change)
	}
	read, err := f.store.Domain(t.Context(), org.ID, domain.ID)
	if diff := cmp.Diff(store.OwnDomain{Domain: expected, Token: token, ReadAt: read.ReadAt}, read); diff != "" || err != nil {
		t.Errorf("read: %v (-expected +got):\n%s", err, diff)
	}

	verified, change, err := f.store.VerifyDomain(t.Context(), testActor, org.ID, store.Unconditional, domain.ID, f.proofs(domain))
	if err != nil || verified.Status != catalog.DomainVerified || verified.Token != token {
		t.Errorf("verify: %+v, %v", verified, err)
	}
	f.recorded("verify", change, "d:go.acme.example")
	again, barrier, err := f.store.VerifyDomain(t.Context(), testActor, org.ID, store.Unconditional, domain.ID, store.Proofs{})
	if err != nil || barrier.XID <= change.XID || barrier.ID != 0 || again.Status != catalog.DomainVerified {
		t.Errorf("verify again: %+v, %+v, %v; expected no change, but a barrier after the earlier one", again, barrier, err)
	}
	second := f.claim(org, "a.acme.example")
	all, err := f.store.Domains(t.Context(), org.ID)
	if err != nil || len(all) != 3 || !all[0].IsDefault || all[0].Host != "links.example" || all[0].Token != "" || all[1].ID != domain.ID || all[2].ID != second.ID {
		t.Errorf("Domains: %+v, %v; expected the default one first, then the oldest", all, err)
	}
	if same, change, err := f.store.VerifyDomain(t.Context(), testActor, org.ID, store.Unconditional, all[0].ID, store.Proofs{}); err != nil || change.ID != 0 || !same.IsDefault {
		t.Errorf("verify the default domain: %+v, %+v, %v; expected no change", same, change, err)
	}

	l := f.create(org, `{"path": "x", "domainId": "`+domain.ID+`"}`)
	_, err = f.store.DeleteDomain(t.Context(), testActor, org.ID, store.Unconditional, domain.ID)
	expect(t, "delete a domain with links", err, store.ErrDomainInUse)
	_, err = f.store.DeleteDomain(t.Context(), testActor, org.ID, store.Unconditional, all[0].ID)
	expect(t, "delete the default domain", err, store.ErrDomainDefault)
	if _, err := f.store.DeleteLink(t.Context(), testActor, org.ID, store.Unconditional, l.ID); err != nil {
		t.Fatal(err)
	}
	change, err = f.store.DeleteDomain(t.Context(), testActor, org.ID, store.Unconditional, domain.ID)
	if err != nil {
		t.Fatal(err)
	}
	f.recorded("delete", change, "d:go.acme.example")
	_, err = f.store.DeleteDomain(t.Context(), testActor, org.ID, store.Unconditional, domain.ID)
	expect(t, "delete again", err, store.ErrDomainNotFound)
}

func TestHostBelongsToTheFirstOrganizationThatProvesIt(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	owner, stranger, late := f.organization(catalog.Scale), f.organization(catalog.Scale), f.organization(catalog.Scale)
	const host = "go.acme.example"
	squatted := f.claim(stranger, host)
	owned := f.claim(owner, host)
	_, _, _, err := f.store.AddDomain(t.Context(), testActor, owner.ID, store.Unconditional, host, false)
	expect(t, "the same host again", err, store.ErrHostTaken)
	if _, _, err := f.store.VerifyDomain(t.Context(), testActor, owner.ID, store.Unconditional, owned.ID, f.proofs(owned)); err != nil {
		t.Fatalf("another organization's claim blocks the owner: %v", err)
	}
	_, _, err = f.store.VerifyDomain(t.Context(), testActor, stranger.ID, store.Unconditional, squatted.ID, f.proofs(owned, squatted))
	expect(t, "verify a host whose owner's record is present, too", err, store.ErrHostOwned)
	changes := one[int64](f, `select count(*) from changes`)
	_, _, _, err = f.store.AddDomain(t.Context(), testActor, late.ID, store.Unconditional, host, true)
	expect(t, "add a host that another organization has verified", err, store.ErrHostTaken)
	if _, err := f.store.DeleteDomain(t.Context(), testActor, late.ID, store.Unconditional, f.claim(late, host).ID); err != nil {
		t.Errorf("delete a claim: %v", err)
	}
	for _, base := range []string{linkBase, "http://Links.example:8080", "https://links.example/some/path", "https://links.example."} {
		shared := store.New(open(t, f.database.ControlURL), base, "old.example")
		_, _, _, err = shared.AddDomain(t.Context(), testActor, late.ID, store.Unconditional, "links.example", true)
		expect(t, "the shared host of "+base, err, store.ErrHostTaken)
		_, _, _, err = shared.AddDomain(t.Context(), testActor, late.ID, store.Unconditional, "old.example", true)
		expect(t, "another name of the shared host", err, store.ErrHostTaken)
	}
	if n := one[int64](f, `select count(*) from changes`); n != changes {
		t.Errorf("rejected hosts and claims recorded %d changes for edges", n-changes)
	}
	if _, err := f.store.DeleteDomain(t.Context(), testActor, owner.ID, store.Unconditional, owned.ID); err != nil {
		t.Fatal(err)
	}
	if _, _, err := f.store.VerifyDomain(t.Context(), testActor, stranger.ID, store.Unconditional, squatted.ID, f.proofs(squatted)); err != nil {
		t.Errorf("a host that is free again: %v", err)
	}
}

func TestOneOfConcurrentVerificationsGetsTheHost(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	var claims [8]catalog.Domain
	var orgs [8]catalog.Organization
	for i := range claims {
		orgs[i] = f.organization(catalog.Scale)
		claims[i] = f.claim(orgs[i], "go.acme.example")
	}
	proofs := f.proofs(claims[:]...)
	verified := f.contest(len(claims), store.ErrHostOwned, func(i int) error {
		_, _, err := f.store.VerifyDomain(t.Context(), testActor, orgs[i].ID, store.Unconditional, claims[i].ID, proofs)
		return err
	})
	if n := one[int64](f, `select count(*) from domains where host is not null and status = 'verified'`); verified != 1 || n != 1 {
		t.Errorf("%d verifications succeeded, %d organizations have the host; expected one", verified, n)
	}
}

func TestNumberOfDomainsHoldsExactlyUnderConcurrentAdds(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	org := f.organization(catalog.Scale)
	f.exec(`insert into domains (id, organization_id, host, status) select gen_random_uuid(), $1, 'h' || n || '.acme.example', 'pending' from generate_series(1, $2::int) n`,
		org.ID, store.MaxDomains-3)
	added := f.contest(10, store.ErrDomainQuota, func(i int) error {
		_, _, _, err := f.store.AddDomain(t.Context(), testActor, org.ID, store.Unconditional, fmt.Sprintf("more%d.acme.example", i), false)
		return err
	})
	if added != 3 {
		t.Errorf("10 adds with room for 3: %d added", added)
	}
}
