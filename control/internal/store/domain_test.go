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
	domain, _, _, err := f.store.AddDomain(f.Context(), org.ID, host, false)
	if err != nil {
		f.Fatalf("add %s: %v", host, err)
	}
	return domain
}

func TestDomainsComeAndGo(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	org := f.organization(catalog.Scale)
	domain, token, change, err := f.store.AddDomain(t.Context(), org.ID, "go.acme.example", false)
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
	f.recorded("add", change, "d:go.acme.example")
	read, err := f.store.Domain(t.Context(), org.ID, domain.ID)
	if diff := cmp.Diff(store.OwnDomain{Domain: expected, Token: token}, read); diff != "" || err != nil {
		t.Errorf("read: %v (-expected +got):\n%s", err, diff)
	}

	verified, change, err := f.store.VerifyDomain(t.Context(), org.ID, domain.ID)
	if err != nil || verified.Status != catalog.DomainVerified || verified.Token != token {
		t.Errorf("verify: %+v, %v", verified, err)
	}
	f.recorded("verify", change, "d:go.acme.example")
	again, barrier, err := f.store.VerifyDomain(t.Context(), org.ID, domain.ID)
	if err != nil || barrier.XID <= change.XID || barrier.ID != 0 || again.Status != catalog.DomainVerified {
		t.Errorf("verify again: %+v, %+v, %v; expected no change, but a barrier after the one there was", again, barrier, err)
	}
	second := f.claim(org, "a.acme.example")
	all, err := f.store.Domains(t.Context(), org.ID)
	if err != nil || len(all) != 3 || !all[0].IsDefault || all[0].Host != "links.example" || all[0].Token != "" || all[1].ID != domain.ID || all[2].ID != second.ID {
		t.Errorf("Domains: %+v, %v; expected the default one first, then the oldest", all, err)
	}
	if same, change, err := f.store.VerifyDomain(t.Context(), org.ID, all[0].ID); err != nil || change.ID != 0 || !same.IsDefault {
		t.Errorf("verify the default domain: %+v, %+v, %v; expected no change", same, change, err)
	}

	l := f.create(org, `{"path": "x", "domainId": "`+domain.ID+`"}`)
	_, err = f.store.DeleteDomain(t.Context(), org.ID, domain.ID)
	expect(t, "delete a domain with links", err, store.ErrDomainInUse)
	_, err = f.store.DeleteDomain(t.Context(), org.ID, all[0].ID)
	expect(t, "delete the default domain", err, store.ErrDomainDefault)
	if _, err := f.store.DeleteLink(t.Context(), org.ID, l.ID); err != nil {
		t.Fatal(err)
	}
	change, err = f.store.DeleteDomain(t.Context(), org.ID, domain.ID)
	if err != nil {
		t.Fatal(err)
	}
	f.recorded("delete", change, "d:go.acme.example")
	_, err = f.store.DeleteDomain(t.Context(), org.ID, domain.ID)
	expect(t, "delete again", err, store.ErrDomainNotFound)
}

func TestHostBelongsToWhoProvedItFirst(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	owner, stranger, late := f.organization(catalog.Scale), f.organization(catalog.Scale), f.organization(catalog.Scale)
	const host = "go.acme.example"
	squatted := f.claim(stranger, host)
	owned := f.claim(owner, host)
	_, _, _, err := f.store.AddDomain(t.Context(), owner.ID, host, false)
	expect(t, "the same host again", err, store.ErrHostTaken)
	if _, _, err := f.store.VerifyDomain(t.Context(), owner.ID, owned.ID); err != nil {
		t.Fatalf("a stranger's claim keeps the owner away: %v", err)
	}
	_, _, err = f.store.VerifyDomain(t.Context(), stranger.ID, squatted.ID)
	expect(t, "verify a host of somebody else", err, store.ErrHostTaken)
	changes := one[int64](f, `select count(*) from changes`)
	for _, verified := range []bool{false, true} {
		_, _, _, err = f.store.AddDomain(t.Context(), late.ID, host, verified)
		expect(t, fmt.Sprintf("add a host of somebody else, verified: %t", verified), err, store.ErrHostTaken)
	}
	for _, base := range []string{linkBase, "http://Links.example:8080", "https://links.example/some/path"} {
		shared := store.New(open(t, f.database.ControlURL), base)
		_, _, _, err = shared.AddDomain(t.Context(), late.ID, "links.example", true)
		expect(t, "the shared host of "+base, err, store.ErrHostTaken)
	}
	if n := one[int64](f, `select count(*) from changes`); n != changes {
		t.Errorf("refused hosts made edges forget %d things", n-changes)
	}
	if _, err := f.store.DeleteDomain(t.Context(), owner.ID, owned.ID); err != nil {
		t.Fatal(err)
	}
	if _, _, err := f.store.VerifyDomain(t.Context(), stranger.ID, squatted.ID); err != nil {
		t.Errorf("a host that is free again: %v", err)
	}
}

func TestOneOfManyVerificationsGetsTheHost(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	var claims [8]catalog.Domain
	var orgs [8]catalog.Organization
	for i := range claims {
		orgs[i] = f.organization(catalog.Scale)
		claims[i] = f.claim(orgs[i], "go.acme.example")
	}
	verified := f.contest(len(claims), store.ErrHostTaken, func(i int) error {
		_, _, err := f.store.VerifyDomain(t.Context(), orgs[i].ID, claims[i].ID)
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
		_, _, _, err := f.store.AddDomain(t.Context(), org.ID, fmt.Sprintf("more%d.acme.example", i), false)
		return err
	})
	if added != 3 {
		t.Errorf("10 adds with room for 3: %d added", added)
	}
}
