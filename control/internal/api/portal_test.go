package api

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/lestrrat-go/jwx/v3/jwa"

	"deeplink/control/internal/session"
	"deeplink/control/internal/store"
	"deeplink/control/internal/testenv"
	"deeplink/shared/catalog"
)

const nowhere = "00000000-0000-7000-8000-000000000000"

// portalRoutes are the routes under /portal with the minimum role and bodies that change nothing.
var portalRoutes = []struct {
	least              session.Role
	method, path, body string
}{
	{session.Member, "GET", "/portal/organization", ``},
	{session.Owner, "PUT", "/portal/plan", `{"plan":"scale"}`},
	{session.Owner, "POST", "/portal/billing/checkout", `{"plan":"scale"}`},
	{session.Member, "GET", "/portal/app-config", ``},
	{session.Admin, "PUT", "/portal/app-config", `{"unknown":1}`},
	{session.Admin, "GET", "/portal/api-keys", ``},
	{session.Admin, "POST", "/portal/api-keys/BOTH/regenerate", ``},
	{session.Member, "POST", "/portal/links", `{}`},
	{session.Member, "GET", "/portal/links", ``},
	{session.Member, "POST", "/portal/links/bulk", `{}`},
	{session.Member, "GET", "/portal/links/external/sku-none", ``},
	{session.Member, "PUT", "/portal/links/external/sku-none", `{}`},
	{session.Member, "DELETE", "/portal/links/external/sku-none", ``},
	{session.Member, "GET", "/portal/links/" + nowhere, ``},
	{session.Member, "PATCH", "/portal/links/" + nowhere, `{}`},
	{session.Member, "DELETE", "/portal/links/" + nowhere, ``},
	{session.Member, "GET", "/portal/links/" + nowhere + "/qr.svg", ``},
	{session.Member, "GET", "/portal/links/" + nowhere + "/qr.png", ``},
	{session.Member, "GET", "/portal/analytics/clicks", ``},
	{session.Member, "GET", "/portal/analytics/clicks/raw", ``},
	{session.Member, "GET", "/portal/domains", ``},
	{session.Admin, "POST", "/portal/domains", `{}`},
	{session.Admin, "DELETE", "/portal/domains/" + nowhere, ``},
	{session.Admin, "POST", "/portal/domains/" + nowhere + "/verify", ``},
	{session.Admin, "GET", "/portal/audit-log", ``},
	{session.Member, "GET", "/portal/sessions", ``},
	{session.Member, "DELETE", "/portal/sessions/" + nowhere, ``},
}

func TestTableOfPortalRoutesIsComplete(t *testing.T) {
	t.Parallel()
	var listed, served []string
	pattern := strings.NewReplacer(nowhere, "{id}", "BOTH", "{tier}", "sku-none", "{externalId}")
	for _, route := range portalRoutes {
		listed = append(listed, route.method+" "+pattern.Replace(route.path))
	}
	for _, route := range testServer(io.Discard).routes() {
		if strings.HasPrefix(route.Path, "/portal") && !strings.HasPrefix(route.Path, "/portal/session/") && route.Path != "/portal/session" { // of every role
			served = append(served, route.Method+" "+route.Path)
		}
	}
	slices.Sort(listed)
	slices.Sort(served)
	if diff := cmp.Diff(served, listed); diff != "" {
		t.Errorf("(-served +in the table of the tests):\n%s", diff)
	}
}

func TestEveryPortalRouteRequiresAValidTokenAndItsRole(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	p := w.provider()
	good, suspended := w.Tenant(catalog.Scale), w.Tenant(catalog.Scale)
	w.Exec(`update organizations set suspended = true where id = $1`, suspended.ID)
	control := p.serve()

	owner := func(changes claims) string {
		return p.Sign(jwa.RS256(), testenv.SigningKey(), "k1", testenv.UsualClaims(*good.ExternalID, changes))
	}
	in := func(d time.Duration) int64 { return time.Now().Add(d).Unix() }
	encode := base64.RawURLEncoding.EncodeToString
	const refused, let session.Role = "refused", session.Owner
	for _, kind := range []struct {
		name  string
		token func() string
		// role is the role of the token, refused, or none.
		role session.Role
	}{
		{"no token", func() string { return "" }, refused},
		{"an API key", func() string { return *good.ServerKey }, refused},
		{"junk", func() string { return "a.b.c" }, refused},
		{"HS256 with the public key", func() string {
			return p.Sign(jwa.HS256(), testenv.PublicPEM(), "k1", testenv.UsualClaims(*good.ExternalID, nil))
		}, refused},
		{"no signature", func() string {
			whole := strings.Split(owner(nil), ".")
			return encode([]byte(`{"alg":"none","kid":"k1"}`)) + "." + whole[1] + "."
		}, refused},
		{"another payload", func() string {
			whole, other := strings.Split(owner(nil), "."), strings.Split(owner(claims{"sub": "user_2"}), ".")
			return whole[0] + "." + other[1] + "." + whole[2]
		}, refused},
		{"unknown kid", func() string {
			return p.Sign(jwa.RS256(), testenv.SigningKey(), "k2", testenv.UsualClaims(*good.ExternalID, nil))
		}, refused},
		{"wrong testenv.Issuer", func() string { return owner(claims{"iss": "https://evil.example"}) }, refused},
		{"no exp", func() string { return owner(claims{"exp": nil}) }, refused},
		{"expired", func() string { return owner(claims{"exp": in(-time.Hour), "iat": in(-2 * time.Hour), "nbf": nil}) }, refused},
		{"expired 6 s ago", func() string { return owner(claims{"exp": in(-6 * time.Second)}) }, refused},
		{"expired 4 s ago", func() string { return owner(claims{"exp": in(-4 * time.Second)}) }, let},
		{"valid in 7 s", func() string { return owner(claims{"nbf": in(7 * time.Second)}) }, refused},
		{"valid in 4 s", func() string { return owner(claims{"nbf": in(4 * time.Second), "iat": in(4 * time.Second)}) }, let},
		{"no organization", func() string { return owner(claims{"org_id": nil}) }, refused},
		{"unknown organization", func() string { return owner(claims{"org_id": "org_nobody"}) }, refused},
		{"id in place of the external one", func() string { return owner(claims{"org_id": good.ID}) }, refused},
		{"suspended organization", func() string { return owner(claims{"org_id": *suspended.ExternalID}) }, refused},
		{"no role", func() string { return owner(claims{"org_role": nil}) }, session.NoRole},
		{"an unknown role", func() string { return owner(claims{"org_role": "org:billing"}) }, session.NoRole},
		{"member", func() string { return owner(claims{"org_role": "org:member"}) }, session.Member},
		{"admin, without org:", func() string { return owner(claims{"org_role": "admin"}) }, session.Admin},
		{"owner", func() string { return owner(nil) }, session.Owner},
		{"owner in the nested form", func() string {
			return owner(claims{"org_id": nil, "org_role": nil, "o": claims{"id": *good.ExternalID, "rol": "owner"}})
		}, session.Owner},
	} {
		c := control.visit("")
		for _, route := range portalRoutes {
			var r reply
			// Times in a token are whole seconds, and so is the leeway: the attempt counts if the clock's second has not changed meanwhile.
			await(t, "a request within a second of the clock", func() error {
				began := time.Now()
				c.Key = kind.token()
				r = c.Do(route.method, route.path, route.body)
				if time.Now().Unix() != began.Unix() && strings.Contains(kind.name, " s") {
					return errors.New("the second was over")
				}
				return nil
			})
			name := fmt.Sprintf("%s: %s %s", kind.name, route.method, route.path)
			switch {
			case kind.role == refused:
				if r.Status != http.StatusUnauthorized || r.Header.Get("WWW-Authenticate") != "Bearer" {
					t.Errorf("%s: %s, expected 401 and a challenge", name, r)
				}
			case !kind.role.AtLeast(route.least):
				if r.Status != http.StatusForbidden || r.Code() != "" {
					t.Errorf("%s: %s, expected 403", name, r)
				}
			default:
				if slices.Contains([]int{401, 403, 500, 503}, r.Status) {
					t.Errorf("%s: %s, expected to pass", name, r)
				}
			}
			if r.Status >= 400 {
				testenv.CheckEnvelope(t, name, r, route.path)
			}
		}
	}
}

func TestPortalWithoutAnIdentityProviderIsNotImplemented(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	c := w.serve().client(w.provider().Token("org_1", "owner"))
	for _, route := range portalRoutes {
		if r := c.Do(route.method, route.path, route.body); r.Status != http.StatusNotImplemented {
			t.Errorf("%s %s: %s, expected 501", route.method, route.path, r)
		}
	}
}

func TestPortalBeforeTheProvidersKeysAreThereIsUnavailable(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	p := w.provider()
	p.URL = "http://" + testenv.FreeAddress(t) // no server listens there
	r := p.serve().visit(p.Token("org_1", "owner")).Do("GET", "/portal/organization", "")
	if r.Status != http.StatusServiceUnavailable {
		t.Errorf("%s, expected 503: the token cannot be checked", r)
	}
}

// An identity provider may let its users choose the names of their organizations.
func TestSessionTokenCannotNameTheCanaryOrganization(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	p := w.provider()
	control := p.serve()
	o := w.Tenant(catalog.Enterprise)
	w.Exec(`update organizations set external_id = $1 where id = $2`, store.CanaryOrganization, o.ID)
	r := control.visit(p.Token(store.CanaryOrganization, "owner")).Do("GET", "/portal/organization", "")
	unknown := control.visit(p.Token("org_none", "owner")).Do("GET", "/portal/organization", "")
	if r.Status != http.StatusUnauthorized || r.Message() != unknown.Message() {
		t.Errorf("%s, expected the same as for an unknown organization: %s", r, unknown)
	}
}

func TestPortalLimitIsPerAddressAndComesFirst(t *testing.T) {
	w := newTestEnv(t)
	p := w.provider()
	o, path := w.Tenant(catalog.Scale), testenv.Build(t)
	controls := []*process{p.launch(path), p.launch(path)}
	flooders := []*client{controls[0].client("junk"), controls[1].client(p.Token(*o.ExternalID, "owner"))}
	warm(t, flooders, 25)
	var counts map[int]int
	var replies []reply
	within(t, time.Second, controls, func() {
		counts, replies = burst(50, func(i int) reply { return flooders[i%2].Do("GET", "/portal/organization", "") })
	})
	if counts[http.StatusOK]+counts[http.StatusUnauthorized] != 30 || counts[http.StatusTooManyRequests] != 20 {
		t.Errorf("50 at once from one address, half of them with junk: %v, expected 30 within the limit", counts)
	}
	for _, r := range replies {
		if r.Status == http.StatusTooManyRequests {
			checkRefusal(t, r)
		}
	}
	if r := p.as(controls[0], o, "member").Do("GET", "/portal/organization", ""); r.Status != http.StatusOK {
		t.Errorf("another address meanwhile: %s, expected 200", r)
	}
}

func TestPlanDecidesOnPortalRoutes(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	p := w.provider()
	control := p.serve()
	clients := make(map[string]*client)
	for _, plan := range []catalog.Plan{catalog.Free, catalog.Growth, catalog.Scale} {
		clients[string(plan)] = p.as(control, w.Tenant(plan), "owner")
	}
	unplanned := w.Tenant(catalog.Scale)
	w.Exec(`update organizations set plan = null where id = $1`, unplanned.ID)
	clients["none"] = p.as(control, unplanned, "owner")
	for _, test := range []struct {
		method, path, body string
		// responses without a plan and with each of the plans: a status and perhaps a code
		none, free, growth, scale string
	}{
		{"GET", "/portal/organization", ``, "200", "200", "200", "200"},
		{"GET", "/portal/app-config", ``, "200", "200", "200", "200"},
		{"PUT", "/portal/app-config", `{"fallbackUrl":"https://a.example/"}`, "200", "200", "200", "200"},
		{"GET", "/portal/api-keys", ``, "200", "200", "200", "200"},
		{"GET", "/portal/audit-log", ``, "200", "200", "200", "200"},
		{"POST", "/portal/api-keys/CLIENT/regenerate", `{"graceSeconds":`, "402 PLAN_NOT_SELECTED", "403 FEATURE_NOT_AVAILABLE", "400", "400"},
		{"POST", "/portal/api-keys/CLIENT/regenerate", ``, "402 PLAN_NOT_SELECTED", "403 FEATURE_NOT_AVAILABLE", "200", "200"},
		{"POST", "/portal/links", `{`, "402 PLAN_NOT_SELECTED", "400", "400", "400"},
		{"POST", "/portal/links", `{"path":"/a"}`, "402 PLAN_NOT_SELECTED", "201", "201", "201"},
		{"GET", "/portal/links", ``, "402 PLAN_NOT_SELECTED", "200", "200", "200"},
		{"GET", "/portal/links/42", ``, "402 PLAN_NOT_SELECTED", "400", "400", "400"},
		{"GET", "/portal/domains", ``, "402 PLAN_NOT_SELECTED", "200", "200", "200"},
		{"POST", "/portal/domains", `{"host":1}`, "402 PLAN_NOT_SELECTED", "403 FEATURE_NOT_AVAILABLE", "403 FEATURE_NOT_AVAILABLE", "400"},
		{"POST", "/portal/domains/42/verify", ``, "402 PLAN_NOT_SELECTED", "403 FEATURE_NOT_AVAILABLE", "403 FEATURE_NOT_AVAILABLE", "400"},
		{"DELETE", "/portal/domains/" + nowhere, ``, "402 PLAN_NOT_SELECTED", "404", "404", "404"},
		{"PUT", "/portal/plan", `{"plan":"growth"}`, "422 USE_BILLING_FLOW", "422 USE_BILLING_FLOW", "422 USE_BILLING_FLOW", "422 USE_BILLING_FLOW"},
	} {
		for plan, expected := range map[string]string{"none": test.none, "free": test.free, "growth": test.growth, "scale": test.scale} {
			r := clients[plan].Do(test.method, test.path, test.body)
			if got := strings.TrimSpace(fmt.Sprint(r.Status, " ", r.Code())); got != expected {
				t.Errorf("plan %s: %s %s %s: %s, expected %s", plan, test.method, test.path, test.body, r, expected)
			}
		}
	}
}

func TestLogNamesTheUserAndShowsNoToken(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	p := w.provider()
	o := w.Tenant(catalog.Growth)
	control := p.serve()
	token := p.Token(*o.ExternalID, "owner")
	c := control.visit(token)
	raw := testenv.DecodeReply[newKeyReply](t, c.Do("POST", "/portal/api-keys/SERVER/regenerate", "")).RawKey
	forged := p.Sign(jwa.HS256(), testenv.PublicPEM(), "k1", testenv.UsualClaims(*o.ExternalID, nil))
	control.visit(forged).Do("GET", "/portal/api-keys", "")
	control.Stop()
	log := control.Log.String()
	for _, expected := range []string{`"organizationId":"` + o.ID + `"`, `"subject":"user_1"`, `"route":"/portal/api-keys/{tier}/regenerate"`, `"status":401`} {
		if !strings.Contains(log, expected) {
			t.Errorf("the log lacks %s:\n%s", expected, log)
		}
	}
	for _, secret := range []string{token, forged, raw, strings.Split(token, ".")[1], strings.Split(token, ".")[2]} {
		if strings.Contains(log, secret) {
			t.Errorf("the log shows %s", secret)
		}
	}
}

func TestEnvelopesOfThePortalLookAsTheyDid(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	p := w.provider()
	control := p.serve()
	o, free, many := w.Tenant(catalog.Scale), w.Tenant(catalog.Free), w.Tenant(catalog.Scale)
	w.Exec(`insert into domains (id, organization_id, host, status) select gen_random_uuid(), $1, 'h' || n || '.acme.example', 'pending' from generate_series(1, $2::int) n`,
		many.ID, store.MaxDomains)
	c := p.as(control, o, "owner")
	d := c.add("go.acme.example")
	c.Do("POST", "/portal/links", `{"path":"/a","domainId":"`+d.ID+`"}`)
	shared := testenv.DecodeReply[struct{ Data []verdict }](t, c.Do("GET", "/portal/domains", "")).Data[0]
	for _, test := range []struct {
		name               string
		c                  *client
		method, path, body string
	}{
		{"portal-400-tier", c, "POST", "/portal/api-keys/BOTH/regenerate", `{"graceSeconds":-1}`},
		{"portal-401", control.visit("junk"), "GET", "/portal/organization", ``},
		{"portal-401-organization", control.visit(p.Sign(jwa.RS256(), testenv.SigningKey(), "k1", testenv.UsualClaims("", claims{"org_id": nil}))), "GET", "/portal/organization", ``},
		{"portal-402-domains", p.as(control, many, "owner"), "POST", "/portal/domains", `{"host":"go.acme.example"}`},
		{"portal-403-role", p.as(control, o, "member"), "GET", "/portal/api-keys", ``},
		{"portal-403-custom-domains", p.as(control, free, "admin"), "POST", "/portal/domains", `{"host":"go.acme.example"}`},
		{"portal-404-domain", c, "DELETE", "/portal/domains/" + nowhere, ``},
		{"portal-409-host", c, "POST", "/portal/domains", `{"host":"go.acme.example"}`},
		{"portal-409-links", c, "DELETE", "/portal/domains/{used}", ``},
		{"portal-409-default", c, "DELETE", "/portal/domains/{shared}", ``},
		{"portal-422", c, "PUT", "/portal/plan", `{"plan":"scale"}`},
		{"portal-501-billing", c, "POST", billingPath, `{"plan":"scale"}`},
		{"portal-501", w.serve().client(""), "GET", "/portal/organization", ``},
	} {
		path := strings.NewReplacer("{used}", d.ID, "{shared}", shared.ID).Replace(test.path)
		r := test.c.Do(test.method, path, test.body)
		testenv.CheckEnvelope(t, test.name, r, path)
		golden(t, test.name, []byte(strings.NewReplacer(d.ID, "{used}", shared.ID, "{shared}").Replace(string(timestamps.ReplaceAll(r.Body, []byte(`"timestamp":"…"`))))))
	}
}
