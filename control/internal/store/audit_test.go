package store_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgxpool"

	"deeplink/control/internal/store"
	"deeplink/shared/apikey"
	"deeplink/shared/catalog"
	"deeplink/shared/testdb"
)

// trail returns the organization's audit trail, the oldest first, as "action type:target detail".
func (f fixture) trail(orgID string) (all []string) {
	f.Helper()
	entries, _, err := f.store.AuditLog(f.Context(), orgID, store.AuditFilter{Page: 1, Limit: 100})
	if err != nil {
		f.Fatal(err)
	}
	for _, e := range entries {
		all = append([]string{fmt.Sprintf("%s %s:%s %s", e.Action, e.Target.Type, e.Target.ID, e.Detail)}, all...)
	}
	return all
}

func TestEveryChangeIsInTheTrailOnce(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ctx := t.Context()
	by := f.store.By(store.Actor{Type: store.ActorUser, ID: "user_1", Address: netip.MustParseAddr("2001:db8::1"), RequestID: "req-1"})
	var expected []string
	did := func(err error, format string, arguments ...any) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", format, err)
		}
		expected = append(expected, fmt.Sprintf(format, arguments...))
	}
	refused := func(err, because error) {
		t.Helper()
		expect(t, "a change that is refused", err, because)
	}

	org, _, err := by.CreateOrganization(ctx, store.NewOrganization{Name: "Acme", OrgKey: "acme", Plan: ptr(catalog.Free)})
	did(err, `organization.create organization:%s {"plan": "free", "orgKey": "acme"}`, org.ID)
	_, _, err = by.CreateOrganization(ctx, store.NewOrganization{Name: "Acme", OrgKey: "acme"})
	refused(err, store.ErrOrgKeyTaken)

	_, _, err = by.CreateLink(ctx, org.Organization, read(t, `{"path": "/a"}`))
	refused(err, store.ErrAppConfigMissing)
	config := catalog.AppConfig{FallbackURL: ptr("https://acme.example/?secret=1"), IOS: &catalog.IOSApp{Scheme: ptr("acme")}}
	_, err = by.SetAppConfig(ctx, org.ID, config)
	did(err, `appConfig.update appConfig:%s {"fields": ["fallbackUrl", "ios"]}`, org.ID)
	if _, err = by.SetAppConfig(ctx, org.ID, config); err != nil { // which changes nothing
		t.Fatal(err)
	}

	link, _, err := by.CreateLink(ctx, org.Organization, read(t, `{"path": "/secret", "shortCode": "One"}`))
	did(err, `link.create link:%s {"shortCode": "One"}`, link.ID)
	_, _, err = by.CreateLink(ctx, org.Organization, read(t, `{"path": "/a", "shortCode": "one"}`))
	refused(err, store.ErrShortCodeTaken)
	_, _, err = by.UpdateLink(ctx, org.ID, link.ID, readPatch(t, `{"path": "/secret2", "og": {"title": "t"}, "title": "x"}`))
	did(err, `link.update link:%s {"fields": ["og", "path", "title"], "shortCode": "One"}`, link.ID)
	_, _, err = by.UpdateLink(ctx, org.ID, link.ID, readPatch(t, `{"isActive": false, "shortCode": "Two"}`))
	did(err, `link.update link:%s {"fields": ["isActive", "shortCode"], "isActive": false, "shortCode": "Two"}`, link.ID)
	if _, _, err = by.UpdateLink(ctx, org.ID, link.ID, readPatch(t, `{"isActive": false}`)); err != nil { // which changes nothing
		t.Fatal(err)
	}
	_, _, err = by.UpdateLink(ctx, org.ID, org.ID, readPatch(t, `{"isActive": false}`))
	refused(err, store.ErrNotFound)
	_, err = by.DeleteLink(ctx, org.ID, link.ID)
	did(err, `link.delete link:%s {"shortCode": "Two"}`, link.ID)
	_, err = by.DeleteLink(ctx, org.ID, link.ID)
	refused(err, store.ErrNotFound)

	_, err = by.SetPlan(ctx, org.OrgKey, ptr(catalog.Scale))
	did(err, `plan.update organization:%s {"to": "scale", "from": "free"}`, org.ID)
	if _, err = by.SetPlan(ctx, org.OrgKey, ptr(catalog.Scale)); err != nil { // which changes nothing
		t.Fatal(err)
	}
	_, err = by.SetPlan(ctx, org.OrgKey, nil)
	did(err, `plan.update organization:%s {"to": null, "from": "scale"}`, org.ID)
	_, err = by.SetPlan(ctx, "none", nil)
	refused(err, store.ErrNotFound)
	key, err := by.ReplaceKey(ctx, org.ID, apikey.Client, time.Hour)
	did(err, `key.regenerate key:%s {"tier": "CLIENT", "displayKey": "%s", "graceSeconds": 3600}`, key.ID, key.DisplayKey)

	domain, token, _, err := by.AddDomain(ctx, org.ID, "go.acme.example", false)
	did(err, `domain.create domain:%s {"host": "go.acme.example", "status": "pending"}`, domain.ID)
	_, _, _, err = by.AddDomain(ctx, org.ID, "go.acme.example", false)
	refused(err, store.ErrHostTaken)
	_, _, err = by.VerifyDomain(ctx, org.ID, domain.ID)
	did(err, `domain.verify domain:%s {"host": "go.acme.example", "status": "verified"}`, domain.ID)
	if _, _, err = by.VerifyDomain(ctx, org.ID, domain.ID); err != nil { // which changes nothing
		t.Fatal(err)
	}
	_, err = by.DeleteDomain(ctx, org.ID, domain.ID)
	did(err, `domain.delete domain:%s {"host": "go.acme.example", "status": "verified"}`, domain.ID)

	_, _, err = by.SetSuspended(ctx, org.OrgKey, true)
	did(err, `organization.suspend organization:%s {}`, org.ID)
	if _, _, err = by.SetSuspended(ctx, org.OrgKey, true); err != nil { // which changes nothing
		t.Fatal(err)
	}
	_, _, err = by.SetSuspended(ctx, org.OrgKey, false)
	did(err, `organization.resume organization:%s {}`, org.ID)

	if diff := cmp.Diff(expected, f.trail(org.ID)); diff != "" {
		t.Errorf("(-done +recorded):\n%s", diff)
	}
	if n := one[int64](f, `select count(*) from audit_log where actor_type = 'user' and actor_id = 'user_1' and actor_display_key is null
		and ip = '2001:db8::1' and request_id = 'req-1'`); n != int64(len(expected)) {
		t.Errorf("%d entries name who, from where and in which request; expected all %d", n, len(expected))
	}
	text := one[string](f, `select string_agg(a::text, ' ') from audit_log a`)
	for _, secret := range []string{key.RawKey, token, "secret"} {
		if strings.Contains(text, secret) {
			t.Errorf("the trail holds %q:\n%s", secret, text)
		}
	}
	// The service itself leaves no trace.
	if _, err := f.store.SetPlan(ctx, org.OrgKey, ptr(catalog.Growth)); err != nil {
		t.Fatal(err)
	}
	if n := one[int64](f, `select count(*) from audit_log`); n != int64(len(expected)) {
		t.Errorf("%d entries after a change by nobody, expected %d", n, len(expected))
	}
}

func TestChangeThatCannotBeRecordedDoesNotHappen(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	org := f.organization(catalog.Growth)
	nobody := f.store.By(store.Actor{Type: "nobody"}). // which the database refuses
								Telling(func(r store.Recorded) { t.Errorf("told of %+v", r) })
	if _, _, err := nobody.CreateLink(t.Context(), org, catalog.Link{Path: "x"}); err == nil {
		t.Error("a link was made")
	}
	l := f.create(org, `{"path": "x"}`)
	if _, _, err := nobody.UpdateLink(t.Context(), org.ID, l.ID, readPatch(t, `{"path": "y"}`)); err == nil {
		t.Error("a link was changed")
	}
	if n := one[int64](f, `select count(*) from links where path = 'x'`); n != 1 {
		t.Errorf("%d links as they were, expected 1", n)
	}
}

func TestTrailSaysByWhomAndFromWhere(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	org := f.organization(catalog.Growth)
	credential := store.Actor{Type: store.ActorKey, ID: "0195514c-9a00-7000-8000-000000000001", DisplayKey: "svc_api_…abcd", Address: netip.MustParseAddr("192.0.2.7"), RequestID: "r"}
	for _, actor := range []store.Actor{credential, {Type: store.ActorUser}, {Type: store.ActorOperator, ID: "root"}} {
		if _, _, err := f.store.By(actor).CreateLink(t.Context(), org, catalog.Link{Path: "x"}); err != nil {
			t.Fatal(err)
		}
	}
	entries, total, err := f.store.AuditLog(t.Context(), org.ID, store.AuditFilter{Page: 1, Limit: 10})
	if err != nil || total != 3 || len(entries) != 3 {
		t.Fatalf("%d of %d entries, %v; expected 3", len(entries), total, err)
	}
	for i, expected := range []string{
		`{"actor":{"type":"operator","id":"root","displayKey":null},"ip":null,"requestId":null}`,
		`{"actor":{"type":"user","id":null,"displayKey":null},"ip":null,"requestId":null}`,
		`{"actor":{"type":"key","id":"0195514c-9a00-7000-8000-000000000001","displayKey":"svc_api_…abcd"},"ip":"192.0.2.7","requestId":"r"}`,
	} {
		e := entries[i]
		got := toJSON(t, struct {
			Actor     store.AuditActor `json:"actor"`
			IP        *netip.Addr      `json:"ip"`
			RequestID *string          `json:"requestId"`
		}{e.Actor, e.IP, e.RequestID})
		if got != expected || time.Since(e.At.Time) > time.Minute || !json.Valid(e.Detail) {
			t.Errorf("entry %d: %s at %v with %s, expected %s now", i, got, e.At, e.Detail, expected)
		}
	}
}

func TestTrailIsPagedWithinItsBounds(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	org, other := f.organization(catalog.Growth), f.organization(catalog.Growth)
	start := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	// Two entries of each second, the id of the later one being the smaller.
	f.exec(`insert into audit_log (id, organization_id, at, actor_type, action, target_type, target_id, detail)
		select case n % 2 when 0 then gen_random_uuid() else '00000000-0000-7000-8000-000000000000' end, $1,
		       $2::timestamptz + n / 2 * interval '1 second', 'user', 'link.create', 'link', gen_random_uuid(), to_jsonb(n)
		from generate_series(0, $3::int - 1) n`, org.ID, start, store.MaxAudited+50)
	list := func(filter store.AuditFilter) (first string, n int, total int64) {
		t.Helper()
		entries, total, err := f.store.AuditLog(t.Context(), org.ID, filter)
		if err != nil || entries == nil {
			t.Fatalf("%+v: %v, %v", filter, entries, err)
		}
		if len(entries) > 0 {
			first = string(entries[0].Detail)
		}
		return first, len(entries), total
	}
	at := func(second int) *time.Time { return ptr(start.Add(time.Duration(second) * time.Second)) }
	newest := store.MaxAudited + 50 - 2 // of the last second, the one with the greater id
	for _, test := range []struct {
		filter store.AuditFilter
		first  string
		n      int
		total  int64
	}{
		{store.AuditFilter{Page: 1, Limit: 20}, fmt.Sprint(newest), 20, store.MaxAudited},
		{store.AuditFilter{Page: 2, Limit: 20}, fmt.Sprint(newest - 20), 20, store.MaxAudited},
		{store.AuditFilter{Page: store.MaxAudited / 20, Limit: 20}, fmt.Sprint(newest - store.MaxAudited + 20), 20, store.MaxAudited},
		{store.AuditFilter{Page: 143, Limit: 70}, fmt.Sprint(newest - 142*70), store.MaxAudited - 142*70, store.MaxAudited},
		{store.AuditFilter{Page: store.MaxAudited/20 + 1, Limit: 20}, "", 0, store.MaxAudited},
		{store.AuditFilter{Page: 1<<53 - 1, Limit: 100}, "", 0, store.MaxAudited},
		{store.AuditFilter{Page: 1, Limit: 20, Since: at(3), Until: at(5)}, "8", 4, 4},
		{store.AuditFilter{Page: 1, Limit: 3, Until: at(2)}, "2", 3, 4},
		{store.AuditFilter{Page: 1, Limit: 20, Since: at(1 << 20)}, "", 0, 0},
	} {
		if first, n, total := list(test.filter); first != test.first || n != test.n || total != test.total {
			t.Errorf("%+v: %d of %d, beginning with %s; expected %d of %d from %s", test.filter, n, total, first, test.n, test.total, test.first)
		}
	}
	if entries, total, err := f.store.AuditLog(t.Context(), other.ID, store.AuditFilter{Page: 1, Limit: 20}); err != nil || total != 0 || len(entries) != 0 {
		t.Errorf("another organization sees %v of %d, %v", entries, total, err)
	}
}

func TestTrailIsKeptFor400Days(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	org := f.organization(catalog.Growth)
	for _, age := range []string{"399 days 23 hours", "400 days 1 hour", "5 years"} {
		f.exec(`insert into audit_log (id, organization_id, at, actor_type, action, target_type, target_id, detail)
			values (gen_random_uuid(), $1, now() - $2::interval, 'user', 'link.create', 'link', gen_random_uuid(), '{}')`, org.ID, age)
	}
	for range 2 {
		if err := f.store.PurgeAuditLog(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if left := one[string](f, `select string_agg(date_trunc('day', now() - at)::text, ',') from audit_log`); left != "399 days" {
		t.Errorf("left: %s, expected the one of 399 days", left)
	}
}

// BenchmarkUpdateLink shows what the trail costs a write.
func BenchmarkUpdateLink(b *testing.B) {
	database := testdb.New(b)
	pool, err := pgxpool.New(context.Background(), database.ControlURL)
	if err != nil {
		b.Fatal(err)
	}
	defer pool.Close()
	unrecorded := store.New(pool, linkBase)
	org, _, err := unrecorded.CreateOrganization(b.Context(), store.NewOrganization{
		Name: "Acme", Plan: ptr(catalog.Growth), AppConfig: &catalog.AppConfig{FallbackURL: ptr("https://acme.example/")},
	})
	if err != nil {
		b.Fatal(err)
	}
	link, _, err := unrecorded.CreateLink(b.Context(), org.Organization, catalog.Link{Path: "x"})
	if err != nil {
		b.Fatal(err)
	}
	patches := [2]catalog.Patch{readPatch(b, `{"path": "/a"}`), readPatch(b, `{"path": "/b"}`)}
	actor := store.Actor{Type: store.ActorKey, ID: link.ID, DisplayKey: "svc_api_…abcd", Address: netip.MustParseAddr("192.0.2.7"), RequestID: link.ID}
	for name, s := range map[string]*store.Store{"unrecorded": unrecorded, "recorded": unrecorded.By(actor)} {
		b.Run(name, func(b *testing.B) {
			i := 0
			for b.Loop() {
				i++
				if _, _, err := s.UpdateLink(b.Context(), org.ID, link.ID, patches[i%2]); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
