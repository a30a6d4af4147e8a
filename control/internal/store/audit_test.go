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
	"deeplink/shared/testkit"
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

func TestEveryChangeHasOneAuditEntry(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ctx := t.Context()
	user := store.UserActor("user_1", netip.MustParseAddr("2001:db8::1"), "req-1")
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

	org, _, err := f.store.CreateOrganization(ctx, user, store.NewOrganization{Name: "Acme", OrgKey: "acme", Plan: ptr(catalog.Free)})
	did(err, `organization.create organization:%s {"plan": "free", "orgKey": "acme"}`, org.ID)
	_, _, err = f.store.CreateOrganization(ctx, user, store.NewOrganization{Name: "Acme", OrgKey: "acme"})
	refused(err, store.ErrOrgKeyTaken)

	_, _, err = f.store.CreateLink(ctx, user, org.ID, store.Unconditional, read(t, `{"path": "/a"}`))
	refused(err, store.ErrAppConfigMissing)
	config := catalog.AppConfig{FallbackURL: ptr("https://acme.example/?secret=1"), IOS: &catalog.IOSApp{Scheme: ptr("acme")}}
	_, err = f.store.SetAppConfig(ctx, user, org.ID, store.Unconditional, config)
	did(err, `appConfig.update appConfig:%s {"fields": ["fallbackUrl", "ios"]}`, org.ID)
	if _, err = f.store.SetAppConfig(ctx, user, org.ID, store.Unconditional, config); err != nil { // which changes nothing
		t.Fatal(err)
	}

	link, _, err := f.store.CreateLink(ctx, user, org.ID, store.Unconditional, read(t, `{"path": "/secret", "shortCode": "One"}`))
	did(err, `link.create link:%s {"shortCode": "One"}`, link.ID)
	_, _, err = f.store.CreateLink(ctx, user, org.ID, store.Unconditional, read(t, `{"path": "/a", "shortCode": "one"}`))
	refused(err, store.ErrShortCodeTaken)
	_, _, err = f.store.UpdateLink(ctx, user, org.ID, store.Unconditional, link.ID, readPatch(t, `{"path": "/secret2", "og": {"title": "t"}, "title": "x"}`))
	did(err, `link.update link:%s {"fields": ["og", "path", "title"], "shortCode": "One"}`, link.ID)
	_, _, err = f.store.UpdateLink(ctx, user, org.ID, store.Unconditional, link.ID, readPatch(t, `{"isActive": false, "shortCode": "Two"}`))
	did(err, `link.update link:%s {"fields": ["isActive", "shortCode"], "isActive": false, "shortCode": "Two"}`, link.ID)
	if _, _, err = f.store.UpdateLink(ctx, user, org.ID, store.Unconditional, link.ID, readPatch(t, `{"isActive": false}`)); err != nil { // which changes nothing
		t.Fatal(err)
	}
	_, _, err = f.store.UpdateLink(ctx, user, org.ID, store.Unconditional, org.ID, readPatch(t, `{"isActive": false}`))
	refused(err, store.ErrNotFound)
	_, err = f.store.DeleteLink(ctx, user, org.ID, store.Unconditional, link.ID)
	did(err, `link.delete link:%s {"shortCode": "Two"}`, link.ID)
	_, err = f.store.DeleteLink(ctx, user, org.ID, store.Unconditional, link.ID)
	refused(err, store.ErrNotFound)

	_, err = f.store.SetPlan(ctx, user, org.OrgKey, ptr(catalog.Scale))
	did(err, `plan.update organization:%s {"to": "scale", "from": "free"}`, org.ID)
	if _, err = f.store.SetPlan(ctx, user, org.OrgKey, ptr(catalog.Scale)); err != nil { // which changes nothing
		t.Fatal(err)
	}
	_, err = f.store.SetPlan(ctx, user, org.OrgKey, nil)
	did(err, `plan.update organization:%s {"to": null, "from": "scale"}`, org.ID)
	_, err = f.store.SetPlan(ctx, user, "none", nil)
	refused(err, store.ErrNotFound)
	key, err := f.store.ReplaceKey(ctx, user, org.ID, store.Unconditional, apikey.Client, time.Hour)
	did(err, `key.regenerate key:%s {"tier": "CLIENT", "displayKey": "%s", "graceSeconds": 3600}`, key.ID, key.DisplayKey)

	domain, token, _, err := f.store.AddDomain(ctx, user, org.ID, store.Unconditional, "go.acme.example", false)
	did(err, `domain.create domain:%s {"host": "go.acme.example", "status": "pending"}`, domain.ID)
	_, _, _, err = f.store.AddDomain(ctx, user, org.ID, store.Unconditional, "go.acme.example", false)
	refused(err, store.ErrHostTaken)
	_, _, err = f.store.VerifyDomain(ctx, user, org.ID, store.Unconditional, domain.ID, f.proofs(domain))
	did(err, `domain.verify domain:%s {"host": "go.acme.example", "status": "verified"}`, domain.ID)
	if _, _, err = f.store.VerifyDomain(ctx, user, org.ID, store.Unconditional, domain.ID, f.proofs(domain)); err != nil { // which changes nothing
		t.Fatal(err)
	}
	_, err = f.store.DeleteDomain(ctx, user, org.ID, store.Unconditional, domain.ID)
	did(err, `domain.delete domain:%s {"host": "go.acme.example", "status": "verified"}`, domain.ID)

	_, _, err = f.store.SetSuspended(ctx, user, org.OrgKey, true)
	did(err, `organization.suspend organization:%s {}`, org.ID)
	if _, _, err = f.store.SetSuspended(ctx, user, org.OrgKey, true); err != nil { // which changes nothing
		t.Fatal(err)
	}
	_, _, err = f.store.SetSuspended(ctx, user, org.OrgKey, false)
	did(err, `organization.resume organization:%s {}`, org.ID)

	if diff := cmp.Diff(expected, f.trail(org.ID)); diff != "" {
		t.Errorf("(-done +recorded):\n%s", diff)
	}
	if n := one[int64](f, `select count(*) from audit_log where actor_type = 'user' and actor_id = 'user_1' and actor_display_key is null
		and ip = '2001:db8::1' and request_id = 'req-1'`); n != int64(len(expected)) {
		t.Errorf("%d entries have the actor, the address and the request; expected all %d", n, len(expected))
	}
	text := one[string](f, `select string_agg(a::text, ' ') from audit_log a`)
	for _, secret := range []string{key.RawKey, token, "secret"} {
		if strings.Contains(text, secret) {
			t.Errorf("the trail contains %q:\n%s", secret, text)
		}
	}
	// The trail omits changes by the service itself.
	if _, err := f.store.SetPlan(ctx, testActor, org.OrgKey, ptr(catalog.Growth)); err != nil {
		t.Fatal(err)
	}
	if n := one[int64](f, `select count(*) from audit_log`); n != int64(len(expected)) {
		t.Errorf("%d entries after a change by the service, expected %d", n, len(expected))
	}
}

func TestAuditEntryHasActorAndAddress(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	org := f.organization(catalog.Growth)
	key := store.KeyActor(store.Credential{KeyID: "0195514c-9a00-7000-8000-000000000001", DisplayKey: "svc_api_…abcd"}, netip.MustParseAddr("192.0.2.7"), "r")
	for _, actor := range []store.Actor{key, store.UserActor("", netip.Addr{}, ""), store.OperatorActor("root")} {
		if _, _, err := f.store.CreateLink(t.Context(), actor, org.ID, store.Unconditional, catalog.Link{Path: "x"}); err != nil {
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

func TestAuditLogIsPagedWithinItsBounds(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	org, other := f.organization(catalog.Growth), f.organization(catalog.Growth)
	start := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	// Two entries per second; the later one has the smaller id.
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
	newest := store.MaxAudited + 50 - 2 // of the last second, the entry with the greater id
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
			t.Errorf("%+v: %d of %d, starting with %s; expected %d of %d from %s", test.filter, n, total, first, test.n, test.total, test.first)
		}
	}
	if entries, total, err := f.store.AuditLog(t.Context(), other.ID, store.AuditFilter{Page: 1, Limit: 20}); err != nil || total != 0 || len(entries) != 0 {
		t.Errorf("another organization sees %v of %d, %v", entries, total, err)
	}
}

func TestAuditLogIsKeptFor400Days(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	org := f.organization(catalog.Growth)
	for _, age := range []string{"399 days 23 hours", "400 days 1 hour", "5 years"} {
		f.exec(`insert into audit_log (id, organization_id, at, actor_type, action, target_type, target_id, detail)
			values (gen_random_uuid(), $1, now() - $2::interval, 'user', 'link.create', 'link', gen_random_uuid(), '{}')`, org.ID, age)
	}
	var sweep store.Sweep
	if steps := f.purge(2, func(ctx context.Context) (store.Purged, error) { return f.store.PurgeAuditEntries(ctx, &sweep) }); sum(steps) != 2 {
		t.Errorf("steps of %v entries, expected 2", steps)
	}
	if purged, err := f.store.PurgeAuditLog(t.Context()); err != nil || purged != (store.Purged{Done: true}) {
		t.Errorf("%+v, %v; expected that nothing is left to delete", purged, err)
	}
	if left := one[string](f, `select string_agg(date_trunc('day', now() - at)::text, ',') from audit_log`); left != "399 days" {
		t.Errorf("left: %s, expected the entry of 399 days", left)
	}
}

// BenchmarkUpdateLink shows the cost of an audit entry.
func BenchmarkUpdateLink(b *testing.B) {
	database := testkit.NewDatabase(b)
	pool, err := pgxpool.New(context.Background(), database.ControlURL)
	if err != nil {
		b.Fatal(err)
	}
	defer pool.Close()
	s := store.New(pool, linkBase)
	org, _, err := s.CreateOrganization(b.Context(), testActor, store.NewOrganization{
		Name: "Acme", Plan: ptr(catalog.Growth), AppConfig: &catalog.AppConfig{FallbackURL: ptr("https://acme.example/")},
	})
	if err != nil {
		b.Fatal(err)
	}
	link, _, err := s.CreateLink(b.Context(), testActor, org.ID, store.Unconditional, catalog.Link{Path: "x"})
	if err != nil {
		b.Fatal(err)
	}
	patches := [2]catalog.Patch{readPatch(b, `{"path": "/a"}`), readPatch(b, `{"path": "/b"}`)}
	key := store.KeyActor(store.Credential{KeyID: link.ID, DisplayKey: "svc_api_…abcd"}, netip.MustParseAddr("192.0.2.7"), link.ID)
	for name, actor := range map[string]store.Actor{"unrecorded": testActor, "recorded": key} {
		b.Run(name, func(b *testing.B) {
			i := 0
			for b.Loop() {
				i++
				if _, _, err := s.UpdateLink(b.Context(), actor, org.ID, store.Unconditional, link.ID, patches[i%2]); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
