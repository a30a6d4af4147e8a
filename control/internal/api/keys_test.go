package api

import (
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"deeplink/control/internal/decode"
	"deeplink/control/internal/store"
	"deeplink/control/internal/testenv"
	"deeplink/shared/apikey"
	"deeplink/shared/catalog"
	"deeplink/shared/clientip"
	"deeplink/shared/ratelimit"
)

// newKeyReply is the response to a regeneration, as a client reads it from the JSON.
type newKeyReply struct {
	Tier, RawKey, Prefix, DisplayKey string
	CreatedAt                        time.Time
}

// regenerate creates a new server key, which must succeed, and returns it.
func (c *client) regenerate(body string) string {
	c.T.Helper()
	r := c.Do("POST", "/portal/api-keys/SERVER/regenerate", body)
	if r.Status != http.StatusOK {
		c.T.Fatalf("regenerate %s: %s, expected 200", body, r)
	}
	return testenv.DecodeReply[newKeyReply](c.T, r).RawKey
}

// accept checks that every control accepts the keys, or none of them.
func accept(t *testing.T, when string, controls []*process, accepted bool, keys ...string) {
	t.Helper()
	expected := http.StatusUnauthorized
	if accepted {
		expected = http.StatusOK
	}
	for i, control := range controls {
		for _, key := range keys {
			if r := control.client(key).Do("GET", "/links", ""); r.Status != expected {
				t.Errorf("%s: control %d: %s with a key, expected %d", when, i, r, expected)
			}
		}
	}
}

func TestRegeneratedKeyReplacesTheOldOneOnEveryControl(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	p := w.provider()
	o := w.Tenant(catalog.Growth)
	controls := []*process{p.serve(), p.serve()}
	c := p.as(controls[0], o, "admin")

	accept(t, "at first", controls, true, *o.ServerKey)
	answer := c.Do("POST", "/portal/api-keys/SERVER/regenerate", "")
	second := testenv.DecodeReply[newKeyReply](t, answer)
	if tier, ok := apikey.Parse(second.RawKey); answer.Status != http.StatusOK || !ok || tier != apikey.Server || second.Tier != "SERVER" || second.Prefix != "svc_api_" ||
		second.DisplayKey != apikey.Display(second.RawKey) || time.Since(second.CreatedAt) > time.Minute {
		t.Errorf("%s, expected 200 and a server key", answer)
	}
	accept(t, "without grace, the old key", controls, false, *o.ServerKey)
	accept(t, "without grace, the new key", controls, true, second.RawKey)

	third := c.regenerate(`{"graceSeconds":3600}`)
	accept(t, "within the grace", controls, true, second.RawKey, third)
	fourth := c.regenerate(`{"graceSeconds":604800}`)
	accept(t, "the oldest of three", controls, false, second.RawKey)
	accept(t, "the two newest", controls, true, third, fourth)
	fifth := c.regenerate(`{"graceSeconds":2}`)
	ended := time.Now().Add(2 * time.Second)
	if r := controls[1].client(fourth).Do("GET", "/links", ""); r.Status != http.StatusOK && time.Now().Before(ended) {
		t.Errorf("within a grace of 2 s: %s, expected 200", r)
	}
	time.Sleep(time.Until(ended))
	accept(t, "after the grace", controls, false, third, fourth)
	accept(t, "after the grace, the new key", controls, true, fifth)
	if r := c.Do("POST", "/portal/api-keys/CLIENT/regenerate", `{}`); testenv.DecodeReply[newKeyReply](t, r).Prefix != "svc_sdk_" {
		t.Errorf("%s, expected a client key", r)
	}
	accept(t, "after a new client key", controls, true, fifth)
}

func TestKeysAreListedMaskedOrLocked(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	p := w.provider()
	control := p.serve()
	growth, free, never := w.Tenant(catalog.Growth), w.Tenant(catalog.Free), w.Tenant(catalog.Free)
	list := func(o store.CreatedOrganization) string {
		t.Helper()
		r := p.as(control, o, "admin").Do("GET", "/portal/api-keys", "")
		if r.Status != http.StatusOK {
			t.Fatalf("%s, expected 200", r)
		}
		return strings.TrimSpace(string(r.Body))
	}
	listing := func(client, server string) string {
		return fmt.Sprintf(`{"sdkKey":{"prefix":"svc_sdk_","displayKey":%q},"serverKey":{"prefix":"svc_api_","displayKey":%q},"locked":false}`, client, server)
	}
	if got, expected := list(growth), listing(apikey.Display(*growth.ClientKey), apikey.Display(*growth.ServerKey)); got != expected {
		t.Errorf("got %s, expected %s", got, expected)
	}
	raw := p.as(control, growth, "admin").regenerate(`{"graceSeconds":60}`)
	if got, expected := list(growth), listing(apikey.Display(*growth.ClientKey), apikey.Display(raw)); got != expected {
		t.Errorf("within a grace: got %s, expected the new key %s", got, expected)
	}

	// Without api_access the listing is locked, whatever keys exist. The keys are rejected, and work again with a plan that has the
	// feature.
	const locked = `{"sdkKey":null,"serverKey":null,"locked":true}`
	if got := list(free); got != locked {
		t.Errorf("plan free: %s, expected %s", got, locked)
	}
	if _, err := w.Store.SetPlan(t.Context(), testenv.Actor, growth.OrgKey, new(catalog.Starter)); err != nil {
		t.Fatal(err)
	}
	if got := list(growth); got != locked {
		t.Errorf("plan starter: %s, expected %s", got, locked)
	}
	if r := control.client(raw).Do("GET", "/links", ""); r.Status != http.StatusForbidden || r.Code() != "FEATURE_NOT_AVAILABLE" {
		t.Errorf("a key of plan starter: %s, expected 403", r)
	}
	if r := p.as(control, growth, "member").Do("POST", "/portal/links", `{"path":"/a"}`); r.Status != http.StatusCreated {
		t.Errorf("a link of plan starter: %s, expected 201", r)
	}
	w.Exec(`update organizations set plan = null where id = $1`, growth.ID)
	if got := list(growth); got != locked {
		t.Errorf("no plan: %s, expected %s", got, locked)
	}
	// A plan with api_access and no key yet.
	if _, err := w.Store.SetPlan(t.Context(), testenv.Actor, never.OrgKey, new(catalog.Growth)); err != nil {
		t.Fatal(err)
	}
	if got, expected := list(never), `{"sdkKey":null,"serverKey":null,"locked":false}`; got != expected {
		t.Errorf("never issued: %s, expected %s", got, expected)
	}
}

func TestRegenerationIsValidated(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	p := w.provider()
	control := p.serve()
	for _, test := range []struct {
		tier, body, fields string
		headers            []string
		status             int
	}{
		{"BOTH", ``, "tier", nil, 400},
		{"server", ``, "tier", nil, 400},
		{"SERVER%20", ``, "tier", nil, 400},
		{"BOTH", `{"graceSeconds":-1}`, "tier,graceSeconds", nil, 400},
		{"SERVER", `{"graceSeconds":604801}`, "graceSeconds", nil, 400},
		{"SERVER", `{"graceSeconds":1.5}`, "graceSeconds", nil, 400},
		{"SERVER", `{"graceSeconds":1e2}`, "graceSeconds", nil, 400},
		{"SERVER", `{"graceSeconds":-0}`, "graceSeconds", nil, 400},
		{"SERVER", `{"graceSeconds":"60"}`, "graceSeconds", nil, 400},
		{"SERVER", `{"graceSeconds":1,"graceSeconds":1}`, "graceSeconds", nil, 400},
		{"SERVER", `{"grace":1,"another":2}`, "another,grace", nil, 400},
		{"SERVER", `[]`, "body", nil, 400},
		{"SERVER", `null`, "body", nil, 400},
		{"SERVER", `{`, "body", nil, 400},
		{"SERVER", `{}`, "", []string{"Content-Type", "", "Content-Type", "text/plain"}, 415},
		{"SERVER", `{}`, "", nil, 200},
		{"SERVER", `{"graceSeconds":null}`, "", nil, 200},
		{"SERVER", `{"graceSeconds":604800}`, "", nil, 200},
	} {
		c := p.as(control, w.Tenant(catalog.Growth), "admin") // a new organization, with all its points
		r := c.Do("POST", "/portal/api-keys/"+test.tier+"/regenerate", test.body, test.headers...)
		if r.Status != test.status || r.Fields() != test.fields {
			t.Errorf("%s %s: %s, expected %d with details of %q", test.tier, test.body, r, test.status, test.fields)
		}
	}
}

func TestEveryAttemptToRegenerateCostsAPoint(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	p := w.provider()
	controls := []*process{p.serve(), p.serve()}
	options, err := redis.ParseURL(w.Redis.URL())
	if err != nil {
		t.Fatal(err)
	}
	counter := redis.NewClient(options)
	t.Cleanup(func() { counter.Close() })

	var statuses []int
	var refusal reply
	var o store.CreatedOrganization
	var began time.Time
	counted(t, controls, func() {
		o, began = w.Tenant(catalog.Growth), time.Now()
		admins := []*client{p.as(controls[0], o, "admin"), p.as(controls[1], o, "owner")}
		member := p.as(controls[0], o, "member")
		for i, attempt := range []struct{ tier, body string }{
			{"SERVER", ``}, {"BOTH", ``}, {"CLIENT", `{}`}, {"SERVER", `{"graceSeconds":-1}`}, {"BOTH", `{`},
			{"SERVER", ``}, {"SERVER", ``}, {"SERVER", ``}, {"x", ``}, {"CLIENT", ``},
			{"SERVER", ``}, {"BOTH", ``},
		} {
			// Requests that are rejected before the attempt counts cost nothing.
			if r := member.Do("POST", "/portal/api-keys/SERVER/regenerate", ""); r.Status != http.StatusForbidden {
				t.Errorf("a member: %s, expected 403", r)
			}
			refusal = admins[i%2].Do("POST", "/portal/api-keys/"+attempt.tier+"/regenerate", attempt.body)
			statuses = append(statuses, refusal.Status)
		}
	})
	if got, expected := fmt.Sprint(statuses), "[200 400 200 400 400 200 200 200 400 200 429 429]"; got != expected {
		t.Fatalf("12 attempts: %s, expected %s", got, expected)
	}
	wait := checkRefusal(t, refusal)
	if least := time.Hour - time.Since(began) - time.Second; wait < least || wait > time.Hour {
		t.Errorf("Retry after %v, expected %v to an hour", wait, least)
	}
	if r := p.as(controls[0], w.Tenant(catalog.Growth), "admin").Do("POST", "/portal/api-keys/SERVER/regenerate", ""); r.Status != http.StatusOK {
		t.Errorf("another organization: %s, expected 200", r)
	}

	// The announced wait must be exact. The test shortens it by all but 2 s of an hour, in Redis, the only place of the points.
	id := uuid.MustParse(o.ID)
	name := limitPrefix + "regeneration:" + hex.EncodeToString(id[:])
	times, err := counter.LRange(context.Background(), name, 0, -1).Result()
	if err != nil || len(times) != 10 {
		t.Fatalf("points in Redis: %v, %v; expected 10", times, err)
	}
	now, err := counter.Time(context.Background()).Result()
	if err != nil {
		t.Fatal(err)
	}
	if err := counter.LSet(context.Background(), name, 0, now.Add(2*time.Second-time.Hour).UnixMicro()).Err(); err != nil {
		t.Fatal(err)
	}
	await(t, "a regeneration that Redis counted", func() error {
		before := fallbacks(t, controls)
		r := p.as(controls[1], o, "admin").Do("POST", "/portal/api-keys/SERVER/regenerate", "")
		if fallbacks(t, controls) != before {
			return fmt.Errorf("%s without Redis", r)
		}
		if r.Status == http.StatusOK {
			if time.Since(now) < 2*time.Second {
				t.Errorf("a point was available after %v, expected after 2 s", time.Since(now))
			}
			return nil
		}
		wait := checkRefusal(t, r)
		if wait > 2*time.Second {
			t.Errorf("Retry after %v, expected at most 2 s", wait)
		}
		time.Sleep(wait)
		return fmt.Errorf("%s", r)
	})
}

// sendChunked sends a request whose body, empty or not, has no Content-Length. headers come in pairs.
func (c *client) sendChunked(method, path, body string, headers ...string) reply {
	c.T.Helper()
	request, err := http.NewRequest(method, c.Base+path, io.NopCloser(strings.NewReader(body)))
	if err != nil {
		c.T.Fatal(err)
	}
	request.TransferEncoding = []string{"chunked"}
	request.Header.Set("Authorization", "Bearer "+c.Key)
	request.Header.Set(clientip.Header, c.From())
	for i := 0; i < len(headers); i += 2 {
		request.Header.Add(headers[i], headers[i+1])
	}
	response, err := c.HTTP.Do(request)
	if err != nil {
		c.T.Fatalf("%s %s: %v", method, path, err)
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		c.T.Fatalf("%s %s: %v", method, path, err)
	}
	return reply{Status: response.StatusCode, Header: response.Header, Body: content}
}

func TestUnknownTierIs400WithAnyBodyAndConsumesAPoint(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	p := w.provider()
	control := p.serve()
	c := p.as(control, w.Tenant(catalog.Growth), "admin")
	mediaType := func(value string) []string { return []string{"Content-Type", "", "Content-Type", value} }
	const regenerate, body = "/portal/api-keys/%s/regenerate", `{"graceSeconds":60}`
	attempts := []struct {
		name, tier string
		send       func(path string) reply
	}{
		{"empty chunked body", "BOTH", func(path string) reply { return c.sendChunked("POST", path, "") }},
		{"empty chunked body with a type", "BOTH", func(path string) reply { return c.sendChunked("POST", path, "", "Content-Type", "text/plain") }},
		{"chunked body without a type", "BOTH", func(path string) reply { return c.sendChunked("POST", path, body) }},
		{"no body and text/plain", "server", func(path string) reply { return c.Do("POST", path, "", mediaType("text/plain")...) }},
		{"text/plain", "BOTH", func(path string) reply { return c.Do("POST", path, body, mediaType("text/plain")...) }},
		{"form", "x", func(path string) reply {
			return c.Do("POST", path, "tier=SERVER", mediaType("application/x-www-form-urlencoded")...)
		}},
		{"another charset", "BOTH", func(path string) reply {
			return c.Do("POST", path, body, mediaType("application/json; charset=latin1")...)
		}},
		{"two types", "BOTH", func(path string) reply { return c.Do("POST", path, body, "Content-Type", "application/json") }},
		{"compressed", "BOTH", func(path string) reply { return c.Do("POST", path, body, "Content-Encoding", "gzip") }},
		{"too large", "BOTH", func(path string) reply { return c.Do("POST", path, repeat("x", decode.MaxBody+1)) }},
	}
	if len(attempts) != ratelimit.Regeneration.Limit {
		t.Fatalf("%d attempts, expected as many as there are points", len(attempts))
	}
	for _, attempt := range attempts {
		if r := attempt.send(fmt.Sprintf(regenerate, attempt.tier)); r.Status != http.StatusBadRequest || r.Message() != "Validation failed" || r.Fields() != "tier" {
			t.Errorf("%s: %s, expected 400 with details of tier alone", attempt.name, r)
		}
	}
	if r := c.Do("POST", fmt.Sprintf(regenerate, "SERVER"), ""); r.Status != http.StatusTooManyRequests {
		t.Errorf("with every point consumed: %s, expected 429", r)
	}

	// An attempt without the role or the feature consumes no point, whatever its tier and body.
	fresh := w.Tenant(catalog.Growth)
	for range ratelimit.Regeneration.Limit {
		if r := p.as(control, fresh, "member").Do("POST", fmt.Sprintf(regenerate, "BOTH"), body, mediaType("text/plain")...); r.Status != http.StatusForbidden {
			t.Errorf("a member: %s, expected 403", r)
		}
	}
	w.Exec(`update organizations set plan = 'starter' where id = $1`, fresh.ID)
	for range ratelimit.Regeneration.Limit {
		r := p.as(control, fresh, "admin").sendChunked("POST", fmt.Sprintf(regenerate, "BOTH"), "")
		if r.Status != http.StatusForbidden || r.Code() != "FEATURE_NOT_AVAILABLE" {
			t.Errorf("plan starter: %s, expected 403", r)
		}
	}
	w.Exec(`update organizations set plan = 'growth' where id = $1`, fresh.ID)
	if r := p.as(control, fresh, "admin").sendChunked("POST", fmt.Sprintf(regenerate, "SERVER"), ""); r.Status != http.StatusOK {
		t.Errorf("a known tier with an empty chunked body: %s, expected 200 as without a body", r)
	}
}

func TestConcurrentRegenerationsAreExactAndLeaveOneKey(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	p, path := w.provider(), testenv.Build(t)
	controls := []*process{p.launch(path), p.launch(path)}
	var counts map[int]int
	var replies []reply
	var o store.CreatedOrganization
	counted(t, controls, func() {
		o = w.Tenant(catalog.Growth)
		admins := []*client{p.as(controls[0], o, "admin"), p.as(controls[1], o, "admin")}
		warm(t, admins, 15)
		counts, replies = burst(30, func(i int) reply {
			return admins[i%2].Do("POST", "/portal/api-keys/SERVER/regenerate", fmt.Sprintf(`{"graceSeconds":%d}`, i%3*3600))
		})
	})
	if counts[http.StatusOK] != 10 || counts[http.StatusTooManyRequests] != 20 {
		t.Errorf("30 regenerations at once: %v, expected 10 × 200 and 20 × 429", counts)
	}
	valid := 0
	for _, r := range replies {
		if r.Status != http.StatusOK {
			continue
		}
		if controls[0].client(testenv.DecodeReply[newKeyReply](t, r).RawKey).Do("GET", "/links", "").Status == http.StatusOK {
			valid++
		}
	}
	var current int
	if err := w.Pool.QueryRow(t.Context(), `select count(*) from api_keys where organization_id = $1 and tier = 'SERVER' and valid_until is null`,
		o.ID).Scan(&current); err != nil || current != 1 || valid < 1 || valid > 2 {
		t.Errorf("%d keys work, %d are current, %v; expected one or two, and one", valid, current, err)
	}
}
