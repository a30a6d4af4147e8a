package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"

	"deeplink/control/internal/store"
	"deeplink/shared/apikey"
	"deeplink/shared/catalog"
	"deeplink/shared/ratelimit"
)

// sdkRoutes are the routes of decisions.md 7 with bodies that pass validation.
var sdkRoutes = []struct{ path, body string }{
	{"/sdk/session", `{"deviceId":"phone"}`},
	{"/sdk/identity", `{"deviceId":"phone","userId":"ann"}`},
	{"/sdk/identity/clear", `{"deviceId":"phone"}`},
	{"/sdk/events", `{"deviceId":"phone","events":[{"name":"open"}]}`},
}

func TestEverySDKRouteWantsAClientKeyOfAPlanThatHasThem(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	good, suspended, free, unplanned := w.organization(catalog.Growth), w.organization(catalog.Growth), w.organization(catalog.Free), w.organization(catalog.Growth)
	w.exec(`update organizations set suspended = true where id = $1`, suspended.ID)
	w.exec(`update organizations set plan = null where id = $1`, unplanned.ID)
	p := w.serve()
	for _, test := range []struct {
		name, key string
		status    int
		code      string
	}{
		{"no key", "", 401, ""},
		{"junk", "junk", 401, ""},
		{"unknown", apikey.New(apikey.Client), 401, ""},
		{"suspended", *suspended.ClientKey, 401, ""},
		{"server key", *good.ServerKey, 403, ""},
		{"no plan", *unplanned.ClientKey, 402, "PLAN_NOT_SELECTED"},
		{"free plan", w.key(free.ID, apikey.Client), 403, "FEATURE_NOT_AVAILABLE"},
		{"client key", *good.ClientKey, 200, ""},
	} {
		c := p.client(test.key)
		for _, route := range sdkRoutes {
			bodies := []string{route.body}
			if test.status != 200 {
				bodies = append(bodies, `{`) // nothing of the body is looked at before
			}
			for _, body := range bodies {
				if r := c.do("POST", route.path, body); r.status != test.status || r.code() != test.code {
					t.Errorf("%s: POST %s %s: %s, expected %d %q", test.name, route.path, body, r, test.status, test.code)
				} else if r.status >= 400 {
					checkEnvelope(t, test.name, r, route.path)
				}
			}
		}
	}
	for _, route := range sdkRoutes {
		if r := p.client(*good.ClientKey).do("GET", route.path, ""); r.status != 405 || r.header.Get("Allow") != "POST" {
			t.Errorf("GET %s: %s, expected 405", route.path, r)
		}
	}
}

// sdk sends what must be answered 200.
func sdk[T any](c *client, path, body string) T {
	c.t.Helper()
	r := c.patient("POST", path, body)
	if r.status != http.StatusOK {
		c.t.Fatalf("POST %s %.200s: %s, expected 200", path, body, r)
	}
	return into[T](c.t, r)
}

func TestSessionsAreTheSameOnBothControls(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	organization := w.organization(catalog.Scale)
	one, other := w.serve().client(*organization.ClientKey), w.serve().client(*organization.ClientKey)
	const body = `{"deviceId":"phone","platform":"ios"}`
	sessions := make([]openedSession, 50)
	burst(len(sessions), func(i int) reply {
		r := []*client{one, other}[i%2].do("POST", "/sdk/session", body)
		if r.status == http.StatusOK {
			sessions[i] = into[openedSession](t, r)
		}
		return r
	})
	for _, s := range sessions {
		if s.ID != sessions[0].ID || !s.IsFirst || s.DeviceID != "phone" || s.UserID != nil || s.Link != nil {
			t.Fatalf("%+v and %+v, expected one first session", s, sessions[0])
		}
	}
	sdk[identity](one, "/sdk/identity", `{"deviceId":"phone","userId":"ann"}`)
	w.exec(`update devices set session_active_at = now() - interval '31 minutes'`)
	later := sdk[openedSession](other, "/sdk/session", body)
	if later.ID == sessions[0].ID || later.IsFirst || *later.UserID != "ann" {
		t.Errorf("31 minutes later: %+v, expected another session, of ann", later)
	}
	if again := sdk[openedSession](one, "/sdk/session", body); again.ID != later.ID || again.IsFirst || again.StartedAt != later.StartedAt {
		t.Errorf("%+v on the other control, expected %+v", again, later)
	}
}

func TestIdentityIsToldAndCleared(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.serve()
	c, foreign := p.client(*w.organization(catalog.Scale).ClientKey), p.client(*w.organization(catalog.Scale).ClientKey)
	none := identity{DeviceID: "phone"}
	ann := identity{"phone", new("ann")}
	for i, step := range []struct {
		c        *client
		path     string
		body     string
		expected identity
	}{
		{c, "/sdk/identity/clear", `{"deviceId":"phone"}`, none}, // unknown
		{c, "/sdk/identity", `{"deviceId":"phone","userId":"ann","traits":{"a":1}}`, ann},
		{foreign, "/sdk/identity", `{"deviceId":"phone","userId":"bob"}`, identity{"phone", new("bob")}},
		{foreign, "/sdk/identity/clear", `{"deviceId":"phone"}`, none},
	} {
		if diff := cmp.Diff(step.expected, sdk[identity](step.c, step.path, step.body)); diff != "" {
			t.Errorf("step %d (-expected +got):\n%s", i, diff)
		}
	}
	if s := sdk[openedSession](c, "/sdk/session", `{"deviceId":"phone"}`); s.UserID == nil || *s.UserID != "ann" {
		t.Errorf("%+v, expected ann: what another organization says of its device is its own", s)
	}
	sdk[identity](c, "/sdk/identity/clear", `{"deviceId":"phone"}`)
	if s := sdk[openedSession](c, "/sdk/session", `{"deviceId":"phone"}`); s.UserID != nil {
		t.Errorf("%+v, expected nobody", s)
	}
}

func TestOpenedURLResolvesByTheRulesOfAnEdge(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	organization, foreign := w.organization(catalog.Scale), w.organization(catalog.Scale)
	custom, _, _, err := w.store.AddDomain(t.Context(), organization.ID, "go.acme.example", true)
	if err != nil {
		t.Fatal(err)
	}
	pending, _, _, err := w.store.AddDomain(t.Context(), organization.ID, "new.acme.example", false)
	if err != nil {
		t.Fatal(err)
	}
	p := w.serve("--edge-extra-hosts=go2.example.com,GO3.example.com")
	server, theirs := p.client(*organization.ServerKey), p.client(*foreign.ServerKey)
	link := server.created(`{"path":"/a","shortCode":"Sale_1","title":"internal","params":{"a":1.0},"expiry":"2999-01-01T00:00:00Z"}`)
	onCustom := server.created(`{"path":"/b","shortCode":"custom","domainId":"` + custom.ID + `"}`)
	server.created(`{"path":"/c","shortCode":"pending","domainId":"` + pending.ID + `"}`)
	server.created(`{"path":"/d","shortCode":"expired","expiry":"2020-01-01T00:00:00Z"}`)
	server.created(`{"path":"/e","shortCode":"inactive","isActive":false}`)
	theirs.created(`{"path":"/f","shortCode":"Sale_1"}`)
	shared := testLinkBase + "/" + organization.OrgKey

	key := *organization.ClientKey
	for i, test := range []struct {
		opened   string
		expected *catalog.Link
	}{
		{link.URL, &link},
		{link.URL + "?mt=abc&utm_source=x#fragment", &link},
		{link.URL + "#%zz", &link},
		{"\n " + link.URL + "\t", &link},
		{strings.ToUpper(testLinkBase) + "/" + strings.ToUpper(organization.OrgKey) + "/SALE_1", &link},
		{strings.Replace(link.URL, "https:", "http:", 1), &link},
		{strings.Replace(link.URL, "example.com", "example.com:8443", 1), &link},
		{strings.Replace(link.URL, "example.com", "example.com.", 1), &link},
		{"https://go2.example.com/" + organization.OrgKey + "/sale_1", &link},
		{"https://go3.example.com/" + organization.OrgKey + "/sale_1", &link},
		{"http://localhost:8080/" + organization.OrgKey + "/sale_1", &link},
		{"http://127.0.0.1/" + organization.OrgKey + "/sale_1", &link},
		{"http://[::1]:8080/" + organization.OrgKey + "/sale_1", &link},
		{"https://go.acme.example/custom", &onCustom},
		{"https://GO.Acme.Example:443/CUSTOM?x=1", &onCustom},
		{"https://go.acme.example/" + organization.OrgKey + "/custom", nil},
		{"https://go.acme.example/sale_1", nil}, // a link lives on its own domain alone
		{shared + "/custom", nil},
		{"https://new.acme.example/pending", nil},
		{"https://other.example/" + organization.OrgKey + "/sale_1", nil},
		{shared + "/expired", nil},
		{shared + "/inactive", nil},
		{shared + "/nothing", nil},
		{testLinkBase + "/" + foreign.OrgKey + "/sale_1", nil},
		{shared + "/sale_1/", nil},
		{shared + "/sale_1/data", nil},
		{shared + "//sale_1", nil},
		{shared + "/sale%5f1", nil},
		{shared + "/../" + organization.OrgKey + "/sale_1", nil},
		{"https://user@go.example.com/" + organization.OrgKey + "/sale_1", nil},
		{"deeplinkdemo://products/42", nil},
		{"https://go.example.com", nil},
		{"https://%ff.example/custom", nil},
		{"https:///custom", nil},
		{"https:custom", nil},
		{"/" + organization.OrgKey + "/sale_1", nil},
		{"%zz", nil},
		{"not a URL", nil},
		{"", nil},
	} {
		if i%30 == 0 {
			key = w.key(organization.ID, apikey.Client)
		}
		body, err := json.Marshal(map[string]string{"deviceId": "phone", "openedUrl": test.opened})
		if err != nil {
			t.Fatal(err)
		}
		got := sdk[openedSession](p.client(key), "/sdk/session", string(body)).Link
		var expected *catalog.PublicLink
		if test.expected != nil {
			public := test.expected.Public()
			expected = &public
		}
		if diff := cmp.Diff(expected, got); diff != "" {
			t.Errorf("opened by %q: link (-expected +got):\n%s", test.opened, diff)
		}
	}
	// The first link of a session stays.
	var opened string
	if err := w.pool.QueryRow(t.Context(), `select link_id from sessions`).Scan(&opened); err != nil || opened != link.ID {
		t.Errorf("the session was opened by %s, %v; expected %s", opened, err, link.ID)
	}
}

// TestSDKLimitsArePerKey uses up both limits of a key. A window is a minute, so nothing of it is repeated.
// TestSDKLimitsArePerKey is not parallel: Redis has to answer about each request in time.
func TestSDKLimitsArePerKey(t *testing.T) {
	w := newWorld(t)
	organization := w.organization(catalog.Scale)
	p := w.serve()
	counts := func(n, workers int, send func(i int) reply) map[int]int {
		total := make(map[int]int)
		for i := 0; i < n; i += workers {
			part, _ := burst(workers, func(j int) reply { return send(i + j) })
			for status, m := range part {
				total[status] += m
			}
		}
		return total
	}
	var sessions, events map[int]int
	var refused []reply
	for attempt := 1; ; attempt++ {
		one := p.client(w.key(organization.ID, apikey.Client)) // sooner there than the minute of another is over
		if timely(t, time.Minute, []*process{p}, func() {
			// Bad requests count too, and cost the least.
			sessions = counts(70, 5, func(i int) reply { return one.do("POST", sdkRoutes[i%3].path, `{}`) })
			events = counts(610, 10, func(int) reply { return one.do("POST", "/sdk/events", `{}`) })
			refused = []reply{one.do("POST", "/sdk/session", `{}`), one.do("POST", "/sdk/events", `{}`)}
		}) {
			break
		}
		if attempt == patience {
			t.Fatal("this machine never counted a minute's requests in time")
		}
	}
	if sessions[400] != 60 || sessions[429] != 10 {
		t.Errorf("70 calls about sessions and identities: %v, expected 60 and 10 refused", sessions)
	}
	if events[400] != 600 || events[429] != 10 {
		t.Errorf("610 batches: %v, expected 600 and 10 refused", events)
	}
	for _, r := range refused {
		checkRefusal(t, r)
	}
	if r := p.client(w.key(organization.ID, apikey.Client)).do("POST", "/sdk/session", sdkRoutes[0].body); r.status != http.StatusOK {
		t.Errorf("with another key: %s, expected 200", r)
	}
}

// The order of checks of decisions.md 5: a key that has used up its limit hears nothing else of its plan, and nothing of its body.
func TestSDKLimitComesAfterTheTierAndBeforeThePlan(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	organization, free, unplanned := w.organization(catalog.Growth), w.organization(catalog.Free), w.organization(catalog.Growth)
	w.exec(`update organizations set plan = null where id = $1`, unplanned.ID)
	keys := map[string]string{"no plan": *unplanned.ClientKey, "free plan": w.key(free.ID, apikey.Client), "client key": *organization.ClientKey}
	w.useUpLimits(ratelimit.SDKSession, ratelimit.SDKEvents)
	p := w.serve()
	for _, route := range sdkRoutes {
		for name, key := range keys {
			// A Redis that takes its time on a busy machine knows no more of the limit than it is told.
			await(t, "429 to "+name+" on "+route.path, func() error {
				if r := p.client(key).do("POST", route.path, `{`); r.status != http.StatusTooManyRequests {
					return fmt.Errorf("%s", r)
				}
				return nil
			})
		}
		if r := p.client(*organization.ServerKey).do("POST", route.path, `{`); r.status != http.StatusForbidden {
			t.Errorf("%s with a server key: %s, expected 403", route.path, r)
		}
	}
}

// useUpLimits leaves no key that there is anything of the surfaces for a window.
func (w *world) useUpLimits(surfaces ...ratelimit.Surface) {
	w.t.Helper()
	options, err := redis.ParseURL(w.redis.URL())
	if err != nil {
		w.t.Fatal(err)
	}
	client := redis.NewClient(options)
	defer client.Close()
	rows, _ := w.pool.Query(w.t.Context(), `select replace(id::text, '-', '') from api_keys`)
	keys, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		w.t.Fatal(err)
	}
	now := client.Time(w.t.Context()).Val().UnixMicro()
	for _, surface := range surfaces {
		times := slices.Repeat([]any{now}, surface.Limit)
		for _, key := range keys {
			if err := client.RPush(w.t.Context(), limitPrefix+surface.Name+":"+key, times...).Err(); err != nil {
				w.t.Fatal(err)
			}
		}
	}
}

// Phones that wait for each other, or for Postgres, keep nobody waiting who edits links.
func TestWaitingPhonesKeepNoLinkWaiting(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	organization := w.organization(catalog.Scale)
	p := w.serve()
	phone, server := p.client(*organization.ClientKey), p.client(*organization.ServerKey)
	sdk[openedSession](phone, "/sdk/session", sdkRoutes[0].body)
	lock, err := w.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Rollback(t.Context())
	if _, err := lock.Exec(t.Context(), `select from devices for update`); err != nil {
		t.Fatal(err)
	}
	var answered atomic.Int32
	var phones sync.WaitGroup
	for range 20 {
		phones.Go(func() {
			phone.try("POST", "/sdk/session", sdkRoutes[0].body)
			answered.Add(1)
		})
	}
	await(t, "phones to wait", func() error {
		var waiting int
		err := w.pool.QueryRow(t.Context(), `select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`).Scan(&waiting)
		if err != nil || waiting < phoneConnections {
			return fmt.Errorf("%d do, %v", waiting, err)
		}
		return nil
	})
	if r := server.do("GET", "/links", ""); r.status != http.StatusOK || answered.Load() > 0 {
		t.Errorf("GET /links: %s after %d phones were answered, expected 200 before", r, answered.Load())
	}
	if err := lock.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	phones.Wait()
}

// sdkSpecimens exercise every operation of the SDK, and every documented status that can be had from outside.
func sdkSpecimens(w *world, p *process) (all []specimen) {
	organization, unplanned := w.organization(catalog.Scale), w.organization(catalog.Scale)
	w.exec(`update organizations set plan = null where id = $1`, unplanned.ID)
	link := p.client(*organization.ServerKey).created(fullLink)
	c := p.client(*organization.ClientKey)
	plain := []string{"Content-Type", "", "Content-Type", "text/plain"}
	event := `{"id":"` + nowhere + `","name":"purchase","timestamp":"2030-01-01T00:00:00Z","linkId":"` + link.ID + `","revenue":1.5,"currency":"EUR","properties":{"a":1}}`
	for i, operation := range []string{"openSession", "identify", "clearIdentity", "recordEvents"} {
		path, good := sdkRoutes[i].path, sdkRoutes[i].body
		all = append(all, specimen{operation, c, path, good, 200, nil}, specimen{operation, c, path, `{"deviceId":1}`, 400, nil},
			specimen{operation, p.client(""), path, good, 401, nil}, specimen{operation, p.client(*unplanned.ClientKey), path, good, 402, nil},
			specimen{operation, p.client(*organization.ServerKey), path, good, 403, nil},
			specimen{operation, c, path, repeat(" ", maxBody+1), 413, nil}, specimen{operation, c, path, good, 415, plain})
	}
	return append(all,
		specimen{"identify", c, "/sdk/identity", `{"deviceId":"phone","userId":"ann","traits":{"plan":"pro"}}`, 200, nil},
		specimen{"openSession", c, "/sdk/session", `{"deviceId":"phone","platform":"ios","model":null,"openedUrl":"` + link.URL + `"}`, 200, nil},
		specimen{"recordEvents", c, "/sdk/events", `{"deviceId":"phone","sessionId":"` + nowhere + `","events":[` + event + `,` + event + `]}`, 200, nil},
	)
}

// report sends a batch that must be taken.
func (c *client) report(body string) receipt {
	c.t.Helper()
	return sdk[receipt](c, "/sdk/events", body)
}

// storedEvents returns all events of the organization as text, in the order of their names.
func (w *world) storedEvents(o store.CreatedOrganization) (all []string) {
	w.t.Helper()
	rows, err := w.pool.Query(w.t.Context(), `select concat_ws(' ', name, device_id, user_id, session_id, link_id, revenue, currency, properties) from events
		where organization_id = $1 order by name`, o.ID)
	if err != nil {
		w.t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var text string
		if err := rows.Scan(&text); err != nil {
			w.t.Fatal(err)
		}
		all = append(all, text)
	}
	return all
}
