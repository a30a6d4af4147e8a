package api

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"deeplink/control/internal/store"
	"deeplink/control/internal/testenv"
	"deeplink/shared/apikey"
	"deeplink/shared/catalog"
	"deeplink/shared/ratelimit"
	"deeplink/shared/testkit"
)

// linkRoutes are the routes under /links with bodies that pass validation.
var linkRoutes = []struct{ method, path, body string }{
	{"POST", "/links", `{"path":"/a"}`},
	{"GET", "/links", ``},
	{"HEAD", "/links", ``},
	{"GET", "/links/00000000-0000-7000-8000-000000000000", ``},
	{"PATCH", "/links/00000000-0000-7000-8000-000000000000", `{}`},
	{"DELETE", "/links/00000000-0000-7000-8000-000000000000", ``},
	{"POST", "/links/bulk", `{"operations":[{"op":"delete","id":"00000000-0000-7000-8000-000000000000"}]}`},
	{"GET", "/links/external/sku-none", ``},
	{"PUT", "/links/external/sku-none", `{"path":"/a"}`},
	{"DELETE", "/links/external/sku-none", ``},
	{"GET", "/links/00000000-0000-7000-8000-000000000000/qr.svg", ``},
	{"GET", "/links/00000000-0000-7000-8000-000000000000/qr.png", ``},
	{"GET", "/analytics/clicks", ``},
	{"HEAD", "/analytics/clicks", ``},
	{"GET", "/analytics/clicks/raw", ``},
}

func TestEveryLinkRouteRequiresAServerKeyOfAPlanWithAPIAccess(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	good, suspended, free, starter, unplanned := w.Organization(catalog.Growth), w.Organization(catalog.Growth),
		w.Organization(catalog.Free), w.Organization(catalog.Starter), w.Organization(catalog.Growth)
	w.Exec(`update organizations set suspended = true where id = $1`, suspended.ID)
	w.Exec(`update organizations set plan = null where id = $1`, unplanned.ID)
	replaced := w.Organization(catalog.Growth)
	if _, err := w.Store.ReplaceKey(context.Background(), testenv.Actor, replaced.ID, store.Unconditional, apikey.Server, 0); err != nil {
		t.Fatal(err)
	}
	key := *good.ServerKey
	tampered := key[:20] + flip(key[20:21]) + key[21:]
	c := w.serve().client("")

	for _, test := range []struct {
		name          string
		authorization []string
		status        int
		code          string
	}{
		{"no header", nil, 401, ""},
		{"empty", []string{" "}, 401, ""},
		{"no scheme", []string{key}, 401, ""},
		{"another scheme", []string{"Basic " + key}, 401, ""},
		{"no token", []string{"Bearer "}, 401, ""},
		{"junk", []string{"Bearer junk"}, 401, ""},
		{"not the checksum", []string{"Bearer " + tampered}, 401, ""},
		{"well-formed and unknown", []string{"Bearer " + apikey.New(apikey.Server)}, 401, ""},
		{"more after the key", []string{"Bearer " + key + " x"}, 401, ""},
		{"two headers", []string{"Bearer " + key, "Bearer " + key}, 401, ""},
		{"replaced key", []string{"Bearer " + *replaced.ServerKey}, 401, ""},
		{"suspended organization", []string{"Bearer " + *suspended.ServerKey}, 401, ""},
		{"client key of a suspended organization", []string{"Bearer " + *suspended.ClientKey}, 401, ""},
		{"client key", []string{"Bearer " + *good.ClientKey}, 403, ""},
		{"no plan", []string{"Bearer " + *unplanned.ServerKey}, 402, "PLAN_NOT_SELECTED"},
		{"free plan", []string{"Bearer " + w.APIKey(free.ID, apikey.Server)}, 403, "FEATURE_NOT_AVAILABLE"},
		{"starter plan", []string{"Bearer " + w.APIKey(starter.ID, apikey.Server)}, 403, "FEATURE_NOT_AVAILABLE"},
		{"scheme in another case", []string{"bEARER " + key}, 0, ""},
		{"spaces before the key", []string{"Bearer   " + key}, 0, ""},
	} {
		for _, route := range linkRoutes {
			var headers []string
			for _, value := range test.authorization {
				headers = append(headers, "Authorization", value)
			}
			r := c.Do(route.method, route.path, route.body, headers...)
			if test.status == 0 {
				if r.Status == 401 || r.Status == 403 {
					t.Errorf("%s: %s %s: %s, expected to pass", test.name, route.method, route.path, r)
				}
				continue
			}
			if r.Status != test.status || route.method != "HEAD" && r.Code() != test.code {
				t.Errorf("%s: %s %s: %s, expected %d %q", test.name, route.method, route.path, r, test.status, test.code)
			}
			if challenge := r.Header.Get("WWW-Authenticate"); (challenge == "Bearer") != (test.status == 401) {
				t.Errorf("%s: %s %s: WWW-Authenticate %q with %d", test.name, route.method, route.path, challenge, r.Status)
			}
			if test.status == 401 && route.method != "HEAD" && r.Message() != "Missing or invalid credential." {
				t.Errorf("%s: message %q distinguishes causes of 401", test.name, r.Message())
			}
		}
	}
}

func flip(s string) string {
	if s == "x" {
		return "y"
	}
	return "x"
}

func TestKeyInItsGraceWorksAndThenStops(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	organization := w.Organization(catalog.Growth)
	old := *organization.ServerKey
	p := w.serve()
	fresh := w.APIKey(organization.ID, apikey.Server) // keeps the old key for an hour
	for _, key := range []string{old, fresh} {
		if r := p.client(key).Do("GET", "/links", ""); r.Status != http.StatusOK {
			t.Errorf("%s, expected both keys to work", r)
		}
	}
	w.Exec(`update api_keys set valid_until = now() where valid_until is not null`)
	if r := p.client(old).Do("GET", "/links", ""); r.Status != http.StatusUnauthorized {
		t.Errorf("%s, expected 401 after the grace period", r)
	}
}

// Each request has two faults: the response must be for the one that control checks first.
func TestRequestsAreCheckedInTheDocumentedOrder(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	p := w.serve()
	server := func(o store.CreatedOrganization) *client { return p.client(*o.ServerKey) }

	suspended := w.Organization(catalog.Growth)
	w.Exec(`update organizations set suspended = true, plan = null where id = $1`, suspended.ID)
	unplanned := w.Organization(catalog.Growth)
	w.Exec(`update organizations set plan = null where id = $1`, unplanned.ID)
	featureless := w.Organization(catalog.Growth)
	w.Exec(`update organizations set plan = 'free' where id = $1`, featureless.ID)
	unregistered := w.Organization(catalog.Growth)
	w.Exec(`delete from app_configs where organization_id = $1`, unregistered.ID)
	full := w.Organization(catalog.Growth)
	server(full).CreateLink(`{"path":"/a","shortCode":"taken"}`)
	w.Exec(`update link_usage set links = 50000 where organization_id = $1`, full.ID)
	fullAndUnregistered := w.Organization(catalog.Growth)
	w.Exec(`delete from app_configs where organization_id = $1`, fullAndUnregistered.ID)
	w.Exec(`update link_usage set links = 50000 where organization_id = $1`, fullAndUnregistered.ID)

	const foreignDomain = `"domainId":"00000000-0000-7000-8000-000000000000"`
	for _, test := range []struct {
		name         string
		c            *client
		method, path string
		body         string
		status       int
		code         string
	}{
		{"suspension before tier", p.client(*suspended.ClientKey), "GET", "/links", ``, 401, ""},
		{"suspension before plan", server(suspended), "GET", "/links", ``, 401, ""},
		{"tier before plan", p.client(*unplanned.ClientKey), "GET", "/links", ``, 403, ""},
		{"tier before feature", p.client(*featureless.ClientKey), "GET", "/links", ``, 403, ""},
		{"plan before validation", server(unplanned), "POST", "/links", `{}`, 402, "PLAN_NOT_SELECTED"},
		{"plan before a malformed id", server(unplanned), "GET", "/links/42", ``, 402, "PLAN_NOT_SELECTED"},
		{"plan before broken JSON", server(unplanned), "POST", "/links", `{`, 402, "PLAN_NOT_SELECTED"},
		{"feature before validation", server(featureless), "POST", "/links", `{}`, 403, "FEATURE_NOT_AVAILABLE"},
		{"feature before not found", server(featureless), "DELETE", "/links/00000000-0000-7000-8000-000000000000", ``, 403, "FEATURE_NOT_AVAILABLE"},
		{"validation before app config", server(unregistered), "POST", "/links", `{"path":""}`, 400, ""},
		{"app config before domain", server(unregistered), "POST", "/links", `{"path":"/a",` + foreignDomain + `}`, 428, "APP_CONFIG_REQUIRED"},
		{"app config before quota", server(fullAndUnregistered), "POST", "/links", `{"path":"/a"}`, 428, "APP_CONFIG_REQUIRED"},
		{"domain before quota", server(full), "POST", "/links", `{"path":"/a",` + foreignDomain + `}`, 404, ""},
		{"quota before conflict", server(full), "POST", "/links", `{"path":"/a","shortCode":"taken"}`, 402, "QUOTA_EXCEEDED"},
		{"a malformed id before its body", server(full), "PATCH", "/links/42", `{`, 400, ""},
	} {
		if r := test.c.Do(test.method, test.path, test.body); r.Status != test.status || r.Code() != test.code {
			t.Errorf("%s: %s, expected %d %q", test.name, r, test.status, test.code)
		}
	}
	quota := server(full).Do("POST", "/links", `{"path":"/a"}`)
	if !strings.Contains(string(quota.Body), `"quota":"links"`) {
		t.Errorf("%s, expected quota links", quota)
	}
	feature := server(featureless).Do("GET", "/links", "")
	if !strings.Contains(string(feature.Body), `"feature":"api_access"`) {
		t.Errorf("%s, expected feature api_access", feature)
	}

	// Tier before the rate limit, the rate limit before plan and validation: send more requests than the limit allows.
	foreign := p.client(*featureless.ClientKey)
	for range 20 {
		if counts, _ := burst(10, func(int) reply { return foreign.Do("POST", "/links", `{`) }); counts[http.StatusForbidden] != 10 {
			t.Fatalf("a client key beyond the limit: %v, expected 403 always", counts)
		}
	}
	limited := server(unplanned)
	await(t, "a 429", func() error {
		w.useUpLimits(ratelimit.LinkWrites)
		counts, _ := burst(10, func(int) reply { return limited.Do("POST", "/links", `{`) })
		if counts[http.StatusTooManyRequests] == 0 {
			return fmt.Errorf("%v", counts)
		}
		if counts[http.StatusTooManyRequests]+counts[http.StatusPaymentRequired] != 10 {
			t.Errorf("a key without a plan beyond the limit: %v, expected 429 and 402", counts)
		}
		return nil
	})
}

func TestJunkKeysCostNoQuery(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	// No Postgres listens at this address, so every query fails with 503.
	w.DB = &testkit.Database{ControlURL: "postgres://none@127.0.0.1:1/none"}
	p := w.serve()
	await(t, "the API", func() error {
		_, err := p.client("").Try("GET", "/healthz", "")
		return err
	})
	if r := p.client("svc_api_junk").Do("GET", "/links", ""); r.Status != http.StatusUnauthorized {
		t.Errorf("%s, expected 401 without a query", r)
	}
	r := p.client(apikey.New(apikey.Server)).Do("GET", "/links", "")
	if r.Status != http.StatusServiceUnavailable {
		t.Errorf("%s, expected 503: Postgres is down", r)
	}
	if !strings.Contains(p.Log.String(), r.Header.Get("X-Request-Id")) || strings.Contains(string(r.Body), "127.0.0.1") {
		t.Errorf("%s, expected the cause only in the log:\n%s", r, p.Log)
	}
}
