package store_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"

	"deeplink/control/internal/store"
	"deeplink/shared/catalog"
)

func TestListFilters(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	org := f.organization(catalog.Scale)
	custom, _, _, err := f.store.AddDomain(t.Context(), testActor, org.ID, store.Unconditional, "go.acme.example", false)
	if err != nil {
		t.Fatal(err)
	}
	f.create(org, `{"path": "/sale", "shortCode": "one", "title": "Half off", "tags": ["a", "b"], "channel": "email"}`)
	f.create(org, `{"path": "/x", "shortCode": "two", "title": "50% off", "tags": ["b"], "channel": "sms", "isActive": false}`)
	f.create(org, `{"path": "/y_z", "shortCode": "three", "tags": ["B"], "domainId": "`+custom.ID+`"}`)
	f.create(org, `{"path": "/yaz", "shortCode": "Sale-4"}`)
	f.create(f.organization(catalog.Growth), `{"path": "/sale", "shortCode": "foreign", "tags": ["a"], "channel": "email"}`)
	shared := one[string](f, `select id::text from domains where organization_id = $1 and host is null`, org.ID)

	for _, c := range []struct {
		filter   store.LinkFilter
		expected []string
	}{
		{store.LinkFilter{}, []string{"Sale-4", "three", "two", "one"}},
		{store.LinkFilter{IsActive: ptr(true)}, []string{"Sale-4", "three", "one"}},
		{store.LinkFilter{IsActive: ptr(false)}, []string{"two"}},
		{store.LinkFilter{Search: "SALE"}, []string{"Sale-4", "one"}},
		{store.LinkFilter{Search: "off"}, []string{"two", "one"}},
		{store.LinkFilter{Search: "0%"}, []string{"two"}},
		{store.LinkFilter{Search: "%"}, []string{"two"}},
		{store.LinkFilter{Search: "y_z"}, []string{"three"}},
		{store.LinkFilter{Search: `\`}, nil},
		{store.LinkFilter{Tag: "b"}, []string{"two", "one"}},
		{store.LinkFilter{Tag: "c"}, nil},
		{store.LinkFilter{Channel: "email"}, []string{"one"}},
		{store.LinkFilter{DomainID: custom.ID}, []string{"three"}},
		{store.LinkFilter{DomainID: shared}, []string{"Sale-4", "two", "one"}},
		{store.LinkFilter{DomainID: org.ID}, nil},
		{store.LinkFilter{Tag: "b", IsActive: ptr(true), Search: "half", Channel: "email", DomainID: shared}, []string{"one"}},
		{store.LinkFilter{Tag: "b", IsActive: ptr(true), Search: "half", Channel: "sms"}, nil},
	} {
		c.filter.Page, c.filter.Limit = 1, 10
		links, total, err := f.store.Links(t.Context(), org.ID, c.filter)
		if err != nil {
			t.Fatalf("%+v: %v", c.filter, err)
		}
		if links == nil {
			t.Errorf("%+v: links is nil, expected an empty list", c.filter)
		}
		if got := codes(links); !slices.Equal(got, c.expected) || total != int64(len(c.expected)) {
			t.Errorf("%+v: got %v and total %d, expected %v", c.filter, got, total, c.expected)
		}
		for _, l := range links {
			if expected := l.DomainID == custom.ID; l.Domain.IsCustom != expected || l.Domain.ID != l.DomainID {
				t.Errorf("%s: domain %+v, expected that of %s", l.ShortCode, l.Domain, l.DomainID)
			}
		}
	}
}

func codes(links []catalog.LinkWithDomain) (codes []string) {
	for _, l := range links {
		codes = append(codes, l.ShortCode)
	}
	return codes
}

func TestPagesHoldEveryLinkOnceNewestFirst(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	org := f.organization(catalog.Growth)
	var expected []string
	for i := range 25 {
		expected = append(expected, f.create(org, fmt.Sprintf(`{"path": "path", "shortCode": "c%d"}`, i)).ShortCode)
	}
	slices.Reverse(expected)
	// Created at the same moment: the id decides.
	f.exec(`update links set created_at = '2030-01-01Z' where short_code in ('c3', 'c4', 'c5')`)
	tied := []string{"c5", "c4", "c3"}
	expected = append(tied, slices.DeleteFunc(expected, func(c string) bool { return slices.Contains(tied, c) })...)

	for _, limit := range []int{1, 7, 25, 100} {
		for _, filter := range []store.LinkFilter{{}, {Search: "c"}, {Search: "path"}} {
			var got []string
			for page := 1; ; page++ {
				filter.Page, filter.Limit = page, limit
				links, total, err := f.store.Links(t.Context(), org.ID, filter)
				if err != nil {
					t.Fatal(err)
				}
				if total != 25 {
					t.Errorf("%+v: total %d, expected 25", filter, total)
				}
				if len(links) == 0 {
					break
				}
				got = append(got, codes(links)...)
			}
			if diff := cmp.Diff(expected, got); diff != "" {
				t.Errorf("pages of %d, search %q (-expected +got):\n%s", limit, filter.Search, diff)
			}
		}
	}
	for _, page := range []int{26, math.MaxInt32, math.MaxInt64/100 + 2, math.MaxInt64} {
		links, total, err := f.store.Links(t.Context(), org.ID, store.LinkFilter{Page: page, Limit: 100})
		if err != nil || len(links) != 0 || total != 25 {
			t.Errorf("page %d: %d links, total %d, %v; expected none of 25", page, len(links), total, err)
		}
	}
}

func TestOtherOrganizationsAreNeitherReadNorChanged(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	org, other := f.organization(catalog.Scale), f.organization(catalog.Scale)
	l := f.create(other, `{"path": "x", "shortCode": "theirs"}`)
	domain, _, _, err := f.store.AddDomain(t.Context(), testActor, other.ID, store.Unconditional, "theirs.example", true)
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	_, err = f.store.Link(ctx, org.ID, l.ID)
	expect(t, "Link", err, store.ErrNotFound)
	_, _, err = f.store.UpdateLink(ctx, testActor, org.ID, store.Unconditional, l.ID, readPatch(t, `{"isActive": false}`))
	expect(t, "UpdateLink", err, store.ErrNotFound)
	_, err = f.store.DeleteLink(ctx, testActor, org.ID, store.Unconditional, l.ID)
	expect(t, "DeleteLink", err, store.ErrNotFound)
	_, err = f.store.DeleteDomain(ctx, testActor, org.ID, store.Unconditional, domain.ID)
	expect(t, "DeleteDomain", err, store.ErrDomainNotFound)
	_, err = f.store.Domain(ctx, org.ID, domain.ID)
	expect(t, "Domain", err, store.ErrDomainNotFound)
	_, _, err = f.store.VerifyDomain(ctx, testActor, org.ID, store.Unconditional, domain.ID, store.Proofs{})
	expect(t, "VerifyDomain", err, store.ErrDomainNotFound)
	_, _, err = f.store.CreateLink(ctx, testActor, org.ID, store.Unconditional, catalog.Link{Path: "x", DomainID: domain.ID})
	expect(t, "CreateLink on their domain", err, store.ErrDomainNotFound)
	links, total, err := f.store.Links(ctx, org.ID, store.LinkFilter{Page: 1, Limit: 10})
	if err != nil || len(links) != 0 || total != 0 {
		t.Errorf("Links: %v, total %d, %v; expected none", links, total, err)
	}

	f.create(org, `{"path": "x", "shortCode": "theirs"}`)
	got, err := f.store.Link(ctx, other.ID, l.ID)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(toJSON(t, l), toJSON(t, got.Link)); diff != "" {
		t.Errorf("their link (-before +after):\n%s", diff)
	}

	if _, err := f.store.DeleteLink(ctx, testActor, other.ID, store.Unconditional, l.ID); err != nil {
		t.Fatal(err)
	}
	gone, err := f.store.Deleted(ctx, org.ID, l.ID)
	if err != nil || gone.XID != 0 {
		t.Errorf("Deleted: %+v, %v; expected nothing of theirs", gone, err)
	}
}

// The lists of one organization wait at its first row until the others have completed.
func TestLongListsOfOneOrganizationDoNotDelayOthers(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	heavy, other := f.organization(catalog.Growth), f.organization(catalog.Growth)
	for _, org := range []catalog.Organization{heavy, other} {
		f.create(org, `{"path": "x"}`)
	}
	const gate = 4711
	f.exec(fmt.Sprintf(`
		create function slow_for(organization uuid) returns boolean language plpgsql as $$
		begin
			if organization = '%s' then perform pg_advisory_xact_lock_shared(%d); end if;
			return true;
		end $$`, heavy.ID, gate))
	f.exec(`create policy slow on links using (slow_for(organization_id))`)
	f.exec(`alter table links enable row level security`)
	held, err := f.admin.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer held.Rollback(t.Context())
	if _, err := held.Exec(t.Context(), `select pg_advisory_xact_lock($1)`, gate); err != nil {
		t.Fatal(err)
	}
	active := true
	filters := []store.LinkFilter{{Page: 1, Limit: 1, Search: "x"}, {Page: 1, Limit: 1, IsActive: &active}}
	list := func(ctx context.Context, org catalog.Organization, i int) error {
		links, total, err := f.store.Links(ctx, org.ID, filters[i%len(filters)])
		if err == nil && (len(links) != 1 || total != 1) {
			err = fmt.Errorf("%d links of %d, expected the one", len(links), total)
		}
		return err
	}
	var lists errgroup.Group
	for i := range 20 { // more than there are connections
		lists.Go(func() error { return list(t.Context(), heavy, i) })
	}
	await(t, "a list to wait at its first row", func() bool {
		return one[int64](f, `select count(*) from pg_locks where locktype = 'advisory' and not granted and database = (select oid from pg_database where datname = current_database())`) > 0
	})
	patient, cancelPatient := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancelPatient()
	for i := range filters {
		if err := list(patient, other, i); err != nil {
			t.Errorf("a list of another organization: %v", err)
		}
	}
	if _, err := f.store.Point(patient); err != nil {
		t.Errorf("another call: %v", err)
	}
	impatient, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	expect(t, "one more list of the first organization", list(impatient, heavy, 0), store.ErrUnavailable)
	if err := held.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := lists.Wait(); err != nil {
		t.Error(err)
	}
}

// TestSearchAmongManyLinksFindsAllMatches: with many links, a search looks up its rarest word, if one is rare.
func TestSearchAmongManyLinksFindsAllMatches(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	org, other := f.organization(catalog.Enterprise), f.organization(catalog.Enterprise)
	const n = 12_000
	for _, o := range []string{org.ID, other.ID} {
		f.exec(`insert into links (id, organization_id, domain_id, short_code, path, title)
			select gen_random_uuid(), $1, (select id from domains where organization_id = $1 and host is null), 'Code_' || i, '/offers/summer-sale-' || i,
			       case when i % 3 > 0 then 'Summer Sale, number ' || i end
			from generate_series(1, $2::int) i`, o, n)
	}
	small := f.organization(catalog.Enterprise)
	f.exec(`update links set channel = 'brand', path = path || '/brandnew' where organization_id = $1`, other.ID)
	for _, row := range []struct{ org, search, word string }{
		{org.ID, "Summer Sale, number 4711", "4711"},
		{org.ID, "/offers/summer-sale-4711", "4711"},
		{org.ID, "Summer Sale", ""},                 // each link has both
		{org.ID, "4711", ""},                        // only one word
		{org.ID, "brandnew 4711", "4711"},           // a word of half of the other organization's links
		{org.ID, "somewhere else 471199", "471199"}, // no link has any of them, whichever are sampled
		{org.ID, "number 12", ""},                   // not in the trigram index
		{org.ID, "ΣΟΦΟΣ number", ""},
		{org.ID, "число number", "число"},
		{org.ID, "", ""},
		{small.ID, "Summer Sale, number 4711", ""},
	} {
		if word, err := f.store.RareWord(t.Context(), row.org, row.search); err != nil || word != row.word {
			t.Errorf("%q looks up %q, %v; expected %q", row.search, word, err, row.word)
		}
	}
	for _, search := range []string{
		"Summer Sale, number 4711", "sUMMER sALE, NUMBER 4711", "Sale, number 471", "/offers/summer-sale-117", "mer-sale-117", "code_117", "code-117",
		"number 1_7", "sale, number 99%", "number 4711, none", "Sale number", "summer-sale", "offers/none-4711", "r 4711", "4711 ", " ", "number 13000", `sale\4711`,
	} {
		expected := int64(0)
		for i := 1; i <= n; i++ {
			text := fmt.Sprintf("code_%d\n/offers/summer-sale-%d", i, i)
			if i%3 > 0 {
				text += fmt.Sprintf("\nsummer sale, number %d", i)
			}
			if strings.Contains(text, strings.ToLower(search)) {
				expected++
			}
		}
		links, total, err := f.store.Links(t.Context(), org.ID, store.LinkFilter{Page: 1, Limit: 100, Search: search})
		if err != nil {
			t.Fatalf("%q: %v", search, err)
		}
		if total != expected || int64(len(links)) != min(expected, 100) {
			t.Errorf("%q: %d links of %d, expected %d", search, len(links), total, expected)
		}
		for _, l := range links {
			if l.OrganizationID != org.ID {
				t.Errorf("%q: a link of another organization", search)
			}
		}
	}
}

func TestFlushSearchIndexesEmptiesThePendingList(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.exec(`create extension pgstattuple`)
	f.exec(`alter table links set (autovacuum_enabled = false)`) // autovacuum flushes the list, too
	org := f.organization(catalog.Growth)
	f.create(org, `{"path": "x", "tags": ["a"]}`)
	for _, index := range []string{"links_text", "links_tags"} {
		pending := func() int64 {
			return one[int64](f, `select pending_tuples from pgstatginindex($1::text::regclass)`, index)
		}
		if before := pending(); before == 0 {
			t.Errorf("%s: no pending entries after a create", index)
		}
		if err := f.store.FlushSearchIndexes(t.Context()); err != nil {
			t.Fatal(err)
		}
		if after := pending(); after != 0 {
			t.Errorf("%s: %d pending entries after the flush", index, after)
		}
		f.create(org, `{"path": "y", "tags": ["b"]}`)
	}
}
