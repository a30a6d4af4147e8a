package store_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"deeplink/control/internal/store"
	"deeplink/shared/catalog"
	"deeplink/shared/feed"
)

const fullBody = `{
	"path": "/shoes?size=42#red", "shortCode": "Spring-Sale", "channel": "email",
	"utmSource": "news", "utmMedium": "mail", "utmCampaign": "spring", "utmTerm": "shoes", "utmContent": "top",
	"fallbackUrl": "https://shop.example/a?b=c", "title": "Spring 100%_\\", "tags": ["b", "a"],
	"og": {"title": "T", "description": "D\nE", "imageUrl": "https://shop.example/i.png"},
	"expiry": "9999-12-31T23:59:59.999Z", "templateId": "tpl", "isActive": false,
	"params": {"b": 1.50, "a": [1e400, "\u00e9<"], "b2": 12345678901234567890}
}`

func TestCreatedLinkIsReadBackUnchanged(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	org := f.organization(catalog.Growth)
	before := time.Now()
	created := f.create(org, fullBody)

	expected := read(t, fullBody)
	expected.ID, expected.CreatedAt, expected.UpdatedAt = created.ID, created.CreatedAt, created.UpdatedAt
	expected.OrganizationID, expected.Version = org.ID, 1
	expected.DomainID = one[string](f, `select id::text from domains where organization_id = $1 and host is null`, org.ID)
	expected.URL = linkBase + "/" + org.OrgKey + "/Spring-Sale"
	if diff := cmp.Diff(expected, created); diff != "" {
		t.Errorf("created (-expected +got):\n%s", diff)
	}
	if _, ok := catalog.ValidUUID(created.ID); !ok || created.ID[14] != '7' {
		t.Errorf("id %q, expected a UUIDv7", created.ID)
	}
	if created.CreatedAt.Before(before.Add(-time.Second)) || created.CreatedAt.After(time.Now().Add(time.Second)) {
		t.Errorf("createdAt %v, expected about %v", created.CreatedAt, before)
	}

	got, err := f.store.Link(t.Context(), org.ID, created.ID)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(toJSON(t, created), toJSON(t, got.Link)); diff != "" {
		t.Errorf("read (-created +got):\n%s", diff)
	}
	domain := catalog.Domain{ID: created.DomainID, Host: "links.example", IsDefault: true, Status: catalog.DomainVerified, CreatedAt: got.Domain.CreatedAt}
	if diff := cmp.Diff(domain, got.Domain); diff != "" || got.Domain.CreatedAt.IsZero() {
		t.Errorf("domain (-expected +got):\n%s", diff)
	}
}

func TestLinkWithOnlyAPathHasGeneratedCodeAndNulls(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	org := f.organization(catalog.Growth)
	created := f.create(org, `{"path": "x"}`)
	if len(created.ShortCode) != 8 || !created.IsActive {
		t.Errorf("got %+v, expected a code of 8 and active", created)
	}
	got, err := f.store.Link(t.Context(), org.ID, created.ID)
	if err != nil {
		t.Fatal(err)
	}
	expected := fmt.Sprintf(`{"id":%q,"organizationId":%q,"domainId":%q,"shortCode":%q,"url":%q,"externalId":null,"path":"x","channel":null,`+
		`"utmSource":null,"utmMedium":null,"utmCampaign":null,"utmTerm":null,"utmContent":null,"fallbackUrl":null,"og":null,"title":null,`+
		`"tags":null,"expiry":null,"templateId":null,"params":null,"isActive":true,"createdAt":%q,"updatedAt":%q}`,
		created.ID, org.ID, created.DomainID, created.ShortCode, linkBase+"/"+org.OrgKey+"/"+created.ShortCode,
		created.CreatedAt.Format(catalog.TimeFormat), created.UpdatedAt.Format(catalog.TimeFormat))
	if diff := cmp.Diff(expected, toJSON(t, got.Link)); diff != "" {
		t.Errorf("(-expected +got):\n%s", diff)
	}
}

func TestLinkOnACustomDomainHasItsURL(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	org := f.organization(catalog.Scale)
	domain, _, _, err := f.store.AddDomain(t.Context(), testActor, org.ID, store.Unconditional, "go.acme.example", true)
	if err != nil {
		t.Fatal(err)
	}
	created := f.create(org, `{"path": "x", "shortCode": "Sale", "domainId": "`+domain.ID+`"}`)
	got, err := f.store.Link(t.Context(), org.ID, created.ID)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(domain, got.Domain); diff != "" {
		t.Errorf("domain (-added +got):\n%s", diff)
	}
	moved, change, err := f.store.UpdateLink(t.Context(), testActor, org.ID, store.Unconditional, created.ID, readPatch(t, `{"domainId": null}`))
	if err != nil {
		t.Fatal(err)
	}
	for what, urls := range map[string][2]string{
		"created": {created.URL, "https://go.acme.example/Sale"},
		"read":    {got.URL, "https://go.acme.example/Sale"},
		"moved":   {moved.URL, linkBase + "/" + org.OrgKey + "/Sale"},
	} {
		if urls[0] != urls[1] {
			t.Errorf("%s: url %s, expected %s", what, urls[0], urls[1])
		}
	}
	f.recorded("move", change, "k:"+org.OrgKey+"/sale", "k:go.acme.example/sale")
}

func TestChangesOfALinkNameItsTags(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	org := f.organization(catalog.Growth)
	tag := func(code string) string { return "k:" + org.OrgKey + "/" + code }

	created, change, err := f.store.CreateLink(t.Context(), testActor, org.ID, store.Unconditional, read(t, `{"path": "x", "shortCode": "One"}`))
	if err != nil {
		t.Fatal(err)
	}
	f.recorded("create", change, tag("one"))
	steps := []struct {
		patch string
		tags  []string
	}{
		{`{"isActive": false}`, []string{tag("one")}},
		{`{"shortCode": "Two"}`, []string{tag("one"), tag("two")}},
		{`{"shortCode": "TWO"}`, []string{tag("two")}},
		{`{"params": {"a": 1}}`, []string{tag("two")}},
		{`{"og": {"title": "x"}}`, []string{tag("two")}},
	}
	for _, step := range steps {
		_, change, err = f.store.UpdateLink(t.Context(), testActor, org.ID, store.Unconditional, created.ID, readPatch(t, step.patch))
		if err != nil {
			t.Fatalf("%s: %v", step.patch, err)
		}
		f.recorded(step.patch, change, step.tags...)
	}

	last := change
	for _, patch := range []string{`{}`, `{"shortCode": "TWO"}`, `{"title": "only for people"}`, `{"tags": ["a"], "templateId": "t"}`} {
		_, change, err = f.store.UpdateLink(t.Context(), testActor, org.ID, store.Unconditional, created.ID, readPatch(t, patch))
		if err != nil {
			t.Fatalf("%s: %v", patch, err)
		}
		if diff := cmp.Diff(last, change); diff != "" {
			t.Errorf("%s: (-the last served change +got):\n%s", patch, diff)
		}
	}

	change, err = f.store.DeleteLink(t.Context(), testActor, org.ID, store.Unconditional, created.ID)
	if err != nil {
		t.Fatal(err)
	}
	f.recorded("delete", change, tag("two"))
	gone, err := f.store.Deleted(t.Context(), org.ID, created.ID)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(change, gone); diff != "" {
		t.Errorf("deleted (-the change of the delete +got):\n%s", diff)
	}
}

// recorded checks that the change has the tags and is the last row of changes.
func (f fixture) recorded(what string, got feed.Change, tags ...string) {
	f.Helper()
	slices.Sort(tags)
	slices.Sort(got.Tags)
	expected := feed.Change{
		ID:   one[int64](f, `select max(id) from changes`),
		XID:  one[uint64](f, `select xid from changes order by id desc limit 1`),
		Tags: tags,
	}
	if diff := cmp.Diff(expected, got); diff != "" {
		f.Errorf("%s: change (-expected +got):\n%s", what, diff)
	}
}

func TestPatchWritesOnlyChangedFields(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	org := f.organization(catalog.Growth)
	created := f.create(org, fullBody)
	version := func() int64 { return one[int64](f, `select version from links`) }

	same, _, err := f.store.UpdateLink(t.Context(), testActor, org.ID, store.Unconditional, created.ID, readPatch(t, fullBody))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(toJSON(t, created), toJSON(t, same)); diff != "" || version() != 1 {
		t.Errorf("a patch that repeats the link made version %d (-before +after):\n%s", version(), diff)
	}

	patch := `{"og": {"title": null}, "tags": null, "expiry": null, "params": null, "fallbackUrl": null, "isActive": null}`
	changed, _, err := f.store.UpdateLink(t.Context(), testActor, org.ID, store.Unconditional, created.ID, readPatch(t, patch))
	if err != nil {
		t.Fatal(err)
	}
	expected := created
	expected.OG = &catalog.OpenGraph{Description: ptr("D\nE"), ImageURL: ptr("https://shop.example/i.png")}
	expected.Tags, expected.Expiry, expected.Params, expected.FallbackURL, expected.IsActive = nil, nil, nil, nil, true
	expected.UpdatedAt = changed.UpdatedAt
	if diff := cmp.Diff(toJSON(t, expected), toJSON(t, changed)); diff != "" || version() != 2 {
		t.Errorf("%s made version %d (-expected +got):\n%s", patch, version(), diff)
	}
	if changed.UpdatedAt.Before(created.UpdatedAt.Time) {
		t.Errorf("updatedAt went from %v to %v", created.UpdatedAt, changed.UpdatedAt)
	}
}

func TestCreateReturnsTheFirstErrorInDocumentedOrder(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	org := f.organization(catalog.Free)
	const body = `{"path": "x", "shortCode": "taken"}`
	const foreign = `{"path": "x", "shortCode": "taken", "domainId": "00000000-0000-4000-8000-000000000000"}`
	f.create(org, body)
	for i := range 49 {
		f.create(org, fmt.Sprintf(`{"path": "x", "shortCode": "c%d"}`, i))
	}
	// At first every check fails; each step fixes the reported one.
	unmet := errors.New("unmet")
	_, _, err := f.store.CreateLink(t.Context(), testActor, org.ID, func(catalog.Organization) error { return unmet }, read(t, foreign))
	expect(t, "a create whose requirement is not met", err, unmet)
	f.exec(`delete from app_configs`)
	f.refused(org, foreign, store.ErrAppConfigMissing)
	f.exec(`insert into app_configs (organization_id, html_error_pages) values ($1, true)`, org.ID)
	f.refused(org, foreign, store.ErrAppConfigMissing)
	f.exec(`update app_configs set ios_scheme = 'acme'`)
	f.refused(org, foreign, store.ErrDomainNotFound)
	f.refused(org, body, store.ErrQuotaExceeded)
	f.exec(`update organizations set plan = 'starter' where id = $1`, org.ID)
	f.refused(org, body, store.ErrShortCodeTaken)
	f.refused(org, `{"path": "x", "shortCode": "TAKEN"}`, store.ErrShortCodeTaken)
	if n := one[int64](f, `select count(*) from links`); n != 50 {
		t.Errorf("%d links after rejected creates, expected 50", n)
	}
	f.exec(`update organizations set plan = null where id = $1`, org.ID)
	f.refused(org, body, store.ErrQuotaExceeded)
}

func (f fixture) refused(org catalog.Organization, body string, expected error) {
	f.Helper()
	_, change, err := f.store.CreateLink(f.Context(), testActor, org.ID, store.Unconditional, read(f.T, body))
	expect(f, "create "+body, err, expected)
	if change.ID != 0 || change.XID != 0 {
		f.Errorf("create %s: refused with a change %+v", body, change)
	}
}

func TestCodeOfADeletedLinkCanBeUsedAgain(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	org := f.organization(catalog.Growth)
	created := f.create(org, `{"path": "x", "shortCode": "again"}`)
	if _, err := f.store.DeleteLink(t.Context(), testActor, org.ID, store.Unconditional, created.ID); err != nil {
		t.Fatal(err)
	}
	f.create(org, `{"path": "x", "shortCode": "Again"}`)
	_, err := f.store.Link(t.Context(), org.ID, created.ID)
	expect(t, "read a deleted link", err, store.ErrNotFound)
	_, err = f.store.DeleteLink(t.Context(), testActor, org.ID, store.Unconditional, created.ID)
	expect(t, "delete a deleted link", err, store.ErrNotFound)
	_, _, err = f.store.UpdateLink(t.Context(), testActor, org.ID, store.Unconditional, created.ID, readPatch(t, `{}`))
	expect(t, "patch a deleted link", err, store.ErrNotFound)
}

func TestPatchToATakenCodeOrForeignDomainIsRejected(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	org, other := f.organization(catalog.Growth), f.organization(catalog.Growth)
	foreign := one[string](f, `select id::text from domains where organization_id = $1`, other.ID)
	f.create(org, `{"path": "x", "shortCode": "one"}`)
	two := f.create(org, `{"path": "x", "shortCode": "two"}`)
	for patch, expected := range map[string]error{
		`{"shortCode": "ONE"}`:            store.ErrShortCodeTaken,
		`{"domainId": "` + foreign + `"}`: store.ErrDomainNotFound,
		`{"domainId": "` + org.ID + `"}`:  store.ErrDomainNotFound,
	} {
		_, _, err := f.store.UpdateLink(t.Context(), testActor, org.ID, store.Unconditional, two.ID, readPatch(t, patch))
		expect(t, patch, err, expected)
	}
	got, err := f.store.Link(t.Context(), org.ID, two.ID)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(toJSON(t, two), toJSON(t, got.Link)); diff != "" {
		t.Errorf("after rejected patches (-before +after):\n%s", diff)
	}
}

func TestDeleteOldLinksDeletesOnlyThoseOfTheOrganization(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	org, other := f.organization(catalog.Growth), f.organization(catalog.Growth)
	for _, o := range []catalog.Organization{org, other} {
		for _, code := range []string{"old", "older", "young"} {
			f.create(o, `{"path": "x", "shortCode": "`+code+`"}`)
		}
	}
	f.exec(`update links set created_at = now() - interval '6 minutes' where short_code like 'old%'`)
	deleted, change, err := f.store.DeleteOldLinks(t.Context(), testActor, org.ID, 5*time.Minute)
	if err != nil || deleted != 2 {
		t.Errorf("deleted %d, %v; expected 2", deleted, err)
	}
	slices.Sort(change.Tags)
	if expected := []string{"k:" + org.OrgKey + "/old", "k:" + org.OrgKey + "/older"}; !slices.Equal(change.Tags, expected) {
		t.Errorf("tags %v, expected %v", change.Tags, expected)
	}
	if left := one[string](f, `select string_agg(short_code, ',') from links where organization_id = $1`, org.ID); left != "young" {
		t.Errorf("left: %s, expected young", left)
	}
	if left := one[int64](f, `select count(*) from links where organization_id = $1`, other.ID); left != 3 {
		t.Errorf("%d links of another organization are left, expected 3", left)
	}
	if deleted, _, err = f.store.DeleteOldLinks(t.Context(), testActor, org.ID, 5*time.Minute); err != nil || deleted != 0 {
		t.Errorf("second call: deleted %d, %v; expected 0", deleted, err)
	}
	_, _, err = f.store.DeleteOldLinks(t.Context(), testActor, "00000000-0000-7000-8000-000000000000", 0)
	expect(t, "old links of no organization", err, store.ErrNotFound)
}
