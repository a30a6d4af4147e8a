package store_test

import (
	"errors"
	"fmt"
	"testing"

	"deeplink/control/internal/store"
	"deeplink/shared/catalog"
)

func TestExportIsOneSnapshot(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	org := f.organization(catalog.Scale)
	f.exec(`insert into links (id, organization_id, domain_id, short_code, path, created_at)
		select gen_random_uuid(), $1, d.id, 'code-' || i, '/a', now() - i % 7 * interval '1 day' from domains d, generate_series(1, 2500) i where d.organization_id = $1`, org.ID)
	pages, seen, last := 0, make(map[string]bool), ""
	err := f.store.ExportLinks(t.Context(), org.ID, func(links []catalog.LinkWithDomain) error {
		if pages++; pages == 1 {
			// Changes between two pages must not be visible in the second one.
			if _, err := f.admin.Exec(t.Context(), `delete from links where short_code like 'code-1%'`); err != nil {
				return err
			}
			if _, err := f.admin.Exec(t.Context(), `update links set path = '/b', created_at = now() + interval '1 day'`); err != nil {
				return err
			}
		}
		for _, l := range links {
			order := l.CreatedAt.Format(catalog.TimeFormat) + l.ID
			if seen[l.ID] || order <= last || l.Path != "/a" {
				// Not Fatal: the export would keep its connection.
				return fmt.Errorf("%+v after %s, expected each link once as it was, the oldest first", l, last)
			}
			seen[l.ID], last = true, order
		}
		return nil
	})
	if err != nil || len(seen) != 2500 || pages != 3 {
		t.Errorf("%d links on %d pages, %v; expected 2,500 on 3", len(seen), pages, err)
	}
	stop := errors.New("stop")
	expect(t, "a page that fails", f.store.ExportLinks(t.Context(), org.ID, func([]catalog.LinkWithDomain) error { return stop }), stop)
}

func TestImportIsAtomic(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	org := f.organization(catalog.Free)
	domain := one[string](f, `select id::text from domains where organization_id = $1`, org.ID)
	wanted := func(code, domainID string) store.ImportedLink {
		l := read(t, `{"path":"/a","shortCode":"`+code+`"}`)
		l.DomainID = domainID
		return store.ImportedLink{Link: l}
	}
	operator := store.OperatorActor("ann")
	_, err := f.store.ImportLinks(t.Context(), operator, org.ID, []store.ImportedLink{wanted("one", domain), wanted("two", "00000000-0000-4000-8000-000000000000")})
	expect(t, "a deleted domain", err, store.ErrDomainNotFound)
	f.exec(`alter table audit_log add check (detail->>'shortCode' <> 'two')`)
	if _, err := f.store.ImportLinks(t.Context(), operator, org.ID, []store.ImportedLink{wanted("one", domain), wanted("two", domain)}); err == nil {
		t.Error("links were imported without their audit entries")
	}
	if n := one[int64](f, `select count(*) from links`); n != 0 {
		t.Errorf("%d links exist, expected none", n)
	}
	outcomes, err := f.store.ImportLinks(t.Context(), operator, org.ID, []store.ImportedLink{wanted("one", domain), wanted("ONE", domain), wanted("one", domain)})
	if err != nil || outcomes[0] != store.ImportCreated || outcomes[1] != store.ImportTaken || outcomes[2] != store.ImportUnchanged {
		t.Errorf("%v, %v", outcomes, err)
	}
	if tags := one[string](f, `select string_agg(array_to_string(tags, ','), ' ') from changes where 'k:' || $1 || '/one' = any (tags)`, org.OrgKey); tags == "" {
		t.Error("no change was recorded for edges")
	}
}
