package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"

	"deeplink/control/internal/decode"
	"deeplink/control/internal/store"
	"deeplink/control/internal/testenv"
	"deeplink/shared/apikey"
	"deeplink/shared/catalog"
	"deeplink/shared/ratelimit"
)

// sdkRoutes are the routes under /sdk with bodies that pass validation.
var sdkRoutes = []struct{ path, body string }{
	{"/sdk/session", `{"deviceId":"phone"}`},
	{"/sdk/identity", `{"deviceId":"phone","userId":"ann"}`},
	{"/sdk/identity/clear", `{"deviceId":"phone"}`},
	{"/sdk/events", `{"deviceId":"phone","events":[{"name":"open"}]}`},
}

func TestEverySDKRouteRequiresAClientKeyOfAPlanWithAPIAccess(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	good, suspended, free, unplanned := w.Organization(catalog.Growth), w.Organization(catalog.Growth), w.Organization(catalog.Free), w.Organization(catalog.Growth)
	w.Exec(`update organizations set suspended = true where id = $1`, suspended.ID)
	w.Exec(`update organizations set plan = null where id = $1`, unplanned.ID)
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
		{"free plan", w.APIKey(free.ID, apikey.Client), 403, "FEATURE_NOT_AVAILABLE"},
		{"client key", *good.ClientKey, 200, ""},
	} {
		c := p.client(test.key)
		for _, route := range sdkRoutes {
			bodies := []string{route.body}
			if test.status != 200 {
				bodies = append(bodies, `{`) // the body is not checked before
			}
			for _, body := range bodies {
				if r := c.Do("POST", route.path, body); r.Status != test.status || r.Code() != test.code {
					t.Errorf("%s: POST %s %s: %s, expected %d %q", test.name, route.path, body, r, test.status, test.code)
				} else if r.Status >= 400 {
					testenv.CheckEnvelope(t, test.name, r, route.path)
				}
			}
		}
	}
	for _, route := range sdkRoutes {
		if r := p.client(*good.ClientKey).Do("GET", route.path, ""); r.Status != 405 || r.Header.Get("Allow") != "POST" {
			t.Errorf("GET %s: %s, expected 405", route.path, r)
		}
	}
}

// sdk sends a request that must return 200.
func sdk[T any](c *client, path, body string) T {
	c.T.Helper()
	r := c.patient("POST", path, body)
	if r.Status != http.StatusOK {
		c.T.Fatalf("POST %s %.200s: %s, expected 200", path, body, r)
	}
	return testenv.DecodeReply[T](c.T, r)
}

func TestSessionsAreTheSameOnBothControls(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	organization := w.Organization(catalog.Scale)
	one, other := w.serve().client(*organization.ClientKey), w.serve().client(*organization.ClientKey)
	const body = `{"deviceId":"phone","platform":"ios"}`
	sessions := make([]sessionResponse, 50)
	burst(len(sessions), func(i int) reply {
		r := []*client{one, other}[i%2].Do("POST", "/sdk/session", body)
		if r.Status == http.StatusOK {
			sessions[i] = testenv.DecodeReply[sessionResponse](t, r)
		}
		return r
	})
	for _, s := range sessions {
		if s.ID != sessions[0].ID || !s.IsFirst || s.DeviceID != "phone" || s.UserID != nil || s.Link != nil {
			t.Fatalf("%+v and %+v, expected one first session", s, sessions[0])
		}
	}
	sdk[identityResponse](one, "/sdk/identity", `{"deviceId":"phone","userId":"ann"}`)
	w.Exec(`update devices set session_active_at = now() - interval '31 minutes'`)
	later := sdk[sessionResponse](other, "/sdk/session", body)
	if later.ID == sessions[0].ID || later.IsFirst || *later.UserID != "ann" {
		t.Errorf("31 minutes later: %+v, expected another session, of ann", later)
	}
	if again := sdk[sessionResponse](one, "/sdk/session", body); again.ID != later.ID || again.IsFirst || again.StartedAt != later.StartedAt {
		t.Errorf("%+v on the other control, expected %+v", again, later)
	}
}

func TestIdentityIsSetAndCleared(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	p := w.serve()
	c, foreign := p.client(*w.Organization(catalog.Scale).ClientKey), p.client(*w.Organization(catalog.Scale).ClientKey)
	none := identityResponse{DeviceID: "phone"}
	ann := identityResponse{"phone", new("ann")}
	for i, step := range []struct {
		c        *client
		path     string
		body     string
		expected identityResponse
	}{
		{c, "/sdk/identity/clear", `{"deviceId":"phone"}`, none}, // unknown
		{c, "/sdk/identity", `{"deviceId":"phone","userId":"ann","traits":{"a":1}}`, ann},
		{foreign, "/sdk/identity", `{"deviceId":"phone","userId":"bob"}`, identityResponse{"phone", new("bob")}},
		{foreign, "/sdk/identity/clear", `{"deviceId":"phone"}`, none},
	} {
		if diff := cmp.Diff(step.expected, sdk[identityResponse](step.c, step.path, step.body)); diff != "" {
			t.Errorf("step %d (-expected +got):\n%s", i, diff)
		}
	}
	if s := sdk[sessionResponse](c, "/sdk/session", `{"deviceId":"phone"}`); s.UserID == nil || *s.UserID != "ann" {
		t.Errorf("%+v, expected ann: calls of another organization concern only its own device", s)
	}
	sdk[identityResponse](c, "/sdk/identity/clear", `{"deviceId":"phone"}`)
	if s := sdk[sessionResponse](c, "/sdk/session", `{"deviceId":"phone"}`); s.UserID != nil {
		t.Errorf("%+v, expected no user", s)
	}
}

func TestOpenedURLResolvesByTheRulesOfAnEdge(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	organization, foreign := w.Organization(catalog.Scale), w.Organization(catalog.Scale)
	custom, _, _, err := w.Store.AddDomain(t.Context(), testenv.Actor, organization.ID, store.Unconditional, "go.acme.example", true)
	if err != nil {
		t.Fatal(err)
	}
	pending, _, _, err := w.Store.AddDomain(t.Context(), testenv.Actor, organization.ID, store.Unconditional, "new.acme.example", false)
	if err != nil {
		t.Fatal(err)
	}
	p := w.serve(withExtraHosts("go2.example.com", "go3.example.com"))
	server, theirs := p.client(*organization.ServerKey), p.client(*foreign.ServerKey)
	link := server.CreateLink(`{"path":"/a","shortCode":"Sale_1","title":"internal","params":{"a":1.0},"expiry":"2999-01-01T00:00:00Z"}`)
	onCustom := server.CreateLink(`{"path":"/b","shortCode":"custom","domainId":"` + custom.ID + `"}`)
	server.CreateLink(`{"path":"/c","shortCode":"pending","domainId":"` + pending.ID + `"}`)
	server.CreateLink(`{"path":"/d","shortCode":"expired","expiry":"2020-01-01T00:00:00Z"}`)
	server.CreateLink(`{"path":"/e","shortCode":"inactive","isActive":false}`)
	theirs.CreateLink(`{"path":"/f","shortCode":"Sale_1"}`)
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
		{"https://go.acme.example/sale_1", nil}, // a link resolves only on its own domain
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
			key = w.APIKey(organization.ID, apikey.Client)
		}
		body, err := json.Marshal(map[string]string{"deviceId": "phone", "openedUrl": test.opened})
		if err != nil {
			t.Fatal(err)
		}
		got := sdk[sessionResponse](p.client(key), "/sdk/session", string(body)).Link
		var expected *catalog.PublicLink
		if test.expected != nil {
			public := test.expected.Public()
			expected = &public
		}
		if diff := cmp.Diff(expected, got); diff != "" {
			t.Errorf("opened by %q: link (-expected +got):\n%s", test.opened, diff)
		}
	}
	// The first link of a session remains.
	var opened string
	if err := w.Pool.QueryRow(t.Context(), `select link_id from sessions`).Scan(&opened); err != nil || opened != link.ID {
		t.Errorf("the session was opened by %s, %v; expected %s", opened, err, link.ID)
	}
}

// TestSDKLimitsArePerKey uses up both limits of a key. The window is a minute, so the test sends everything once. Not parallel: Redis must
// answer each request in time.
func TestSDKLimitsArePerKey(t *testing.T) {
	w := newTestEnv(t)
	organization := w.Organization(catalog.Scale)
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
		one := p.client(w.APIKey(organization.ID, apikey.Client)) // sooner than the other one's minute ends
		if timely(t, time.Minute, []*process{p}, func() {
			// Invalid requests count too, and are cheapest.
			sessions = counts(70, 5, func(i int) reply { return one.Do("POST", sdkRoutes[i%3].path, `{}`) })
			events = counts(610, 10, func(int) reply { return one.Do("POST", "/sdk/events", `{}`) })
			refused = []reply{one.Do("POST", "/sdk/session", `{}`), one.Do("POST", "/sdk/events", `{}`)}
		}) {
			break
		}
		if attempt == patience {
			t.Fatal("this machine never sent a minute's requests in time")
		}
	}
	if sessions[400] != 60 || sessions[429] != 10 {
		t.Errorf("70 calls about sessions and identities: %v, expected 60 and 10 refused", sessions)
	}
	if events[400] != 600 || events[429] != 10 {
		t.Errorf("610 batches: %v, expected 600 and 10 rejected", events)
	}
	for _, r := range refused {
		checkRefusal(t, r)
	}
	if r := p.client(w.APIKey(organization.ID, apikey.Client)).Do("POST", "/sdk/session", sdkRoutes[0].body); r.Status != http.StatusOK {
		t.Errorf("with another key: %s, expected 200", r)
	}
}

// A request over the rate limit of its key gets 429, whatever its plan and body.
func TestSDKLimitComesAfterTheTierAndBeforeThePlan(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	organization, free, unplanned := w.Organization(catalog.Growth), w.Organization(catalog.Free), w.Organization(catalog.Growth)
	w.Exec(`update organizations set plan = null where id = $1`, unplanned.ID)
	keys := map[string]string{"no plan": *unplanned.ClientKey, "free plan": w.APIKey(free.ID, apikey.Client), "client key": *organization.ClientKey}
	w.useUpLimits(ratelimit.SDKSession, ratelimit.SDKEvents)
	p := w.serve()
	for _, route := range sdkRoutes {
		for name, key := range keys {
			// On a busy machine, a slow Redis may not have counted every request yet.
			await(t, "429 to "+name+" on "+route.path, func() error {
				if r := p.client(key).Do("POST", route.path, `{`); r.Status != http.StatusTooManyRequests {
					return fmt.Errorf("%s", r)
				}
				return nil
			})
		}
		if r := p.client(*organization.ServerKey).Do("POST", route.path, `{`); r.Status != http.StatusForbidden {
			t.Errorf("%s with a server key: %s, expected 403", route.path, r)
		}
	}
}

// useUpLimits uses up the SDK limits of all keys for a window.
func (w *testEnv) useUpLimits(surfaces ...ratelimit.Surface) {
	w.T.Helper()
	options, err := redis.ParseURL(w.Redis.URL())
	if err != nil {
		w.T.Fatal(err)
	}
	client := redis.NewClient(options)
	defer client.Close()
	rows, _ := w.Pool.Query(w.T.Context(), `select replace(id::text, '-', '') from api_keys`)
	keys, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		w.T.Fatal(err)
	}
	now := client.Time(w.T.Context()).Val().UnixMicro()
	for _, surface := range surfaces {
		times := slices.Repeat([]any{now}, surface.Limit)
		for _, key := range keys {
			if err := client.RPush(w.T.Context(), limitPrefix+surface.Name+":"+key, times...).Err(); err != nil {
				w.T.Fatal(err)
			}
		}
	}
}

func TestWaitingPhonesHoldUpNoEditorOfLinks(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	organization := w.Organization(catalog.Scale)
	p := w.serve()
	phone, server := p.client(*organization.ClientKey), p.client(*organization.ServerKey)
	sdk[sessionResponse](phone, "/sdk/session", sdkRoutes[0].body)
	unlock := w.Hold(`select from devices for update`)
	wait := p.Pending(20, func(int) reply { return phone.Do("POST", "/sdk/session", sdkRoutes[0].body) })
	w.Blocked()
	if r := server.Do("GET", "/links", ""); r.Status != http.StatusOK {
		t.Errorf("GET /links: %s, expected 200", r)
	}
	unlock()
	for _, r := range wait() {
		if r.Status != http.StatusOK {
			t.Errorf("a delayed phone: %s, expected 200", r)
		}
	}
}

// sdkTestCases cover every operation of the SDK, and every documented status that a client can provoke.
func sdkTestCases(w *testEnv, p *process) (all []testCase) {
	organization, unplanned := w.Organization(catalog.Scale), w.Organization(catalog.Scale)
	w.Exec(`update organizations set plan = null where id = $1`, unplanned.ID)
	link := p.client(*organization.ServerKey).CreateLink(fullLink)
	c := p.client(*organization.ClientKey)
	plain := []string{"Content-Type", "", "Content-Type", "text/plain"}
	event := `{"id":"` + nowhere + `","name":"purchase","timestamp":"2030-01-01T00:00:00Z","linkId":"` + link.ID + `","revenue":1.5,"currency":"EUR","properties":{"a":1}}`
	for i, operation := range []string{"openSession", "identify", "clearIdentity", "recordEvents"} {
		path, good := sdkRoutes[i].path, sdkRoutes[i].body
		all = append(all, testCase{operation, c, path, good, 200, nil}, testCase{operation, c, path, `{"deviceId":1}`, 400, nil},
			testCase{operation, p.client(""), path, good, 401, nil}, testCase{operation, p.client(*unplanned.ClientKey), path, good, 402, nil},
			testCase{operation, p.client(*organization.ServerKey), path, good, 403, nil},
			testCase{operation, c, path, repeat(" ", decode.MaxBody+1), 413, nil}, testCase{operation, c, path, good, 415, plain})
	}
	return append(all,
		testCase{"identify", c, "/sdk/identity", `{"deviceId":"phone","userId":"ann","traits":{"plan":"pro"}}`, 200, nil},
		testCase{"openSession", c, "/sdk/session", `{"deviceId":"phone","platform":"ios","model":null,"openedUrl":"` + link.URL + `"}`, 200, nil},
		testCase{"recordEvents", c, "/sdk/events", `{"deviceId":"phone","sessionId":"` + nowhere + `","events":[` + event + `,` + event + `]}`, 200, nil},
	)
}

// report sends a batch that must be accepted.
func (c *client) report(body string) eventsResponse {
	c.T.Helper()
	return sdk[eventsResponse](c, "/sdk/events", body)
}

// storedEvents returns all events of the organization as text, ordered by name.
func (w *testEnv) storedEvents(o store.CreatedOrganization) (all []string) {
	w.T.Helper()
	rows, err := w.Pool.Query(w.T.Context(), `select concat_ws(' ', name, device_id, user_id, session_id, link_id, revenue, currency, properties) from events
		where organization_id = $1 order by name`, o.ID)
	if err != nil {
		w.T.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var text string
		if err := rows.Scan(&text); err != nil {
			w.T.Fatal(err)
		}
		all = append(all, text)
	}
	return all
}
