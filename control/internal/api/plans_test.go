package api

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"deeplink/control/internal/relay"
	"deeplink/control/internal/testenv"
	"deeplink/shared/catalog"
)

func TestOrganizationShowsItsPlanAndWhatIsUsed(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	p := w.provider()
	control := p.serve()
	for _, test := range []struct {
		plan            catalog.Plan
		features, quota string
	}{
		{"", `{"api_access":false,"custom_domains":false}`, "0"},
		{catalog.Free, `{"api_access":false,"custom_domains":false}`, "50"},
		{catalog.Starter, `{"api_access":false,"custom_domains":false}`, "1000"},
		{catalog.Growth, `{"api_access":true,"custom_domains":false}`, "50000"},
		{catalog.Scale, `{"api_access":true,"custom_domains":true}`, "1000000"},
		{catalog.Enterprise, `{"api_access":true,"custom_domains":true}`, "null"},
	} {
		o := w.Tenant(catalog.Enterprise)
		c, plan := p.as(control, o, "member"), "null"
		c.Do("POST", "/portal/links", `{"path":"/a"}`)
		if test.plan == "" {
			w.Exec(`update organizations set plan = null where id = $1`, o.ID)
		} else {
			plan = strconv.Quote(string(test.plan))
			w.Exec(`update organizations set plan = $2 where id = $1`, o.ID, test.plan)
		}
		expected := fmt.Sprintf(`{"id":%q,"orgKey":%q,"name":"Tenant","externalId":%q,"plan":%s,"suspended":false,"features":%s,"links":{"used":1,"quota":%s}}`,
			o.ID, o.OrgKey, *o.ExternalID, plan, test.features, test.quota)
		r := c.Do("GET", "/portal/organization", "")
		if diff := cmp.Diff(expected, strings.TrimSpace(string(r.Body))); r.Status != http.StatusOK || diff != "" {
			t.Errorf("plan %q: %d (-expected +got):\n%s", test.plan, r.Status, diff)
		}
	}
}

func TestOnlyAFreePlanIsSetDirectly(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	p := w.provider()
	control := p.serve()
	o := w.Tenant(catalog.Scale)
	c, server := p.as(control, o, "owner"), control.client(*o.ServerKey)
	for _, plan := range []string{"starter", "growth", "scale", "enterprise"} {
		r := c.Do("PUT", "/portal/plan", fmt.Sprintf(`{"plan":%q}`, plan))
		if r.Status != http.StatusUnprocessableEntity || r.Code() != "USE_BILLING_FLOW" || !strings.Contains(string(r.Body), `"billingEndpoint":"/portal/billing/checkout"`) {
			t.Errorf("plan %s: %s, expected 422 with billingEndpoint", plan, r)
		}
	}
	for body, fields := range map[string]string{
		`{}`: "plan", `{"plan":null}`: "plan", `{"plan":"gold"}`: "plan", `{"plan":"FREE"}`: "plan", `{"plan":1}`: "plan", `{"plan":"free","x":1}`: "x",
		`"free"`: "body", `{`: "body",
	} {
		if r := c.Do("PUT", "/portal/plan", body); r.Status != http.StatusBadRequest || r.Fields() != fields {
			t.Errorf("%s: %s, expected 400 with details of %s", body, r, fields)
		}
	}
	if r := c.Do("GET", "/portal/organization", ""); !strings.Contains(string(r.Body), `"plan":"scale"`) {
		t.Errorf("after rejected requests: %s, expected plan scale", r)
	}

	// Down to free with more links than it allows: they remain and can be edited, but no new ones can be created.
	w.Exec(`insert into links (id, organization_id, domain_id, short_code, path)
		select gen_random_uuid(), d.organization_id, d.id, 'n' || n, '/n' from domains d, generate_series(1, 60) n where d.organization_id = $1`, o.ID)
	r := c.Do("PUT", "/portal/plan", `{"plan":"free"}`)
	if r.Status != http.StatusOK || !strings.Contains(string(r.Body), `"plan":"free"`) || !strings.Contains(string(r.Body), `"links":{"used":60,"quota":50}`) {
		t.Errorf("plan free: %s, expected 200 and the organization", r)
	}
	list := testenv.DecodeReply[linkPage](t, c.Do("GET", "/portal/links?limit=1", ""))
	if list.Total != 60 {
		t.Errorf("%d links after it, expected all 60", list.Total)
	}
	if r := c.Do("PATCH", "/portal/links/"+list.Data[0].ID, `{"isActive":false}`); r.Status != http.StatusOK {
		t.Errorf("an update beyond the quota: %s, expected 200", r)
	}
	if r := c.Do("POST", "/portal/links", `{"path":"/a"}`); r.Status != http.StatusPaymentRequired || r.Code() != "QUOTA_EXCEEDED" {
		t.Errorf("a create beyond the quota: %s, expected 402", r)
	}
	if r := server.Do("GET", "/links", ""); r.Status != http.StatusForbidden || r.Code() != "FEATURE_NOT_AVAILABLE" {
		t.Errorf("the server key: %s, expected 403", r)
	}
	if r := c.Do("PUT", "/portal/plan", `{"plan":"free"}`); r.Status != http.StatusOK {
		t.Errorf("the same again: %s, expected 200", r)
	}
}

func TestCheckoutIsSigned(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	p := w.provider()
	o := w.Tenant(catalog.Free)
	const key = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"
	c := p.as(p.serve(withCheckout("https://billing.example/pay?shop=a%26b&plan=x", key)), o, "owner")
	for body, fields := range map[string]string{`{}`: "plan", `{"plan":"free"}`: "plan", `{"plan":"gold"}`: "plan", `{"plan":"scale","organization":"x"}`: "organization"} {
		if r := c.Do("POST", "/portal/billing/checkout", body); r.Status != http.StatusBadRequest || r.Fields() != fields {
			t.Errorf("%s: %s, expected 400 with details of %s", body, r, fields)
		}
	}
	r := c.Do("POST", "/portal/billing/checkout", `{"plan":"scale"}`)
	address := testenv.DecodeReply[struct{ URL string }](t, r).URL
	parsed, err := url.Parse(address)
	if r.Status != http.StatusOK || err != nil {
		t.Fatalf("%s, %v; expected 200 and a URL", r, err)
	}
	query := parsed.Query()
	expiry, err := strconv.ParseInt(query.Get("expires"), 10, 64)
	if left := time.Until(time.Unix(expiry, 0)); err != nil || left < 58*time.Minute || left > time.Hour {
		t.Errorf("%s is valid for %v, expected an hour", address, left)
	}
	for name, expected := range map[string][]string{"organization": {o.ID}, "plan": {"scale"}, "shop": {"a&b"}} {
		if diff := cmp.Diff(expected, query[name]); diff != "" || parsed.Host != "billing.example" || parsed.Path != "/pay" {
			t.Errorf("%s: %s (-expected +got):\n%s", address, name, diff)
		}
	}
	signed, signature, _ := strings.Cut(address, "&signature=")
	secret, err := hex.DecodeString(key)
	if err != nil {
		t.Fatal(err)
	}
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte(signed))
	if signature != hex.EncodeToString(mac.Sum(nil)) {
		t.Errorf("%s is not signed with the key", address)
	}
	if r := p.as(p.serve(), o, "owner").Do("POST", "/portal/billing/checkout", `{"plan":"scale"}`); r.Status != http.StatusNotImplemented {
		t.Errorf("without a billing page: %s, expected 501", r)
	}
	if plan := testenv.DecodeReply[organizationResponse](t, c.Do("GET", "/portal/organization", "")).Plan; *plan != catalog.Free {
		t.Errorf("plan %s after a checkout began, expected free", *plan)
	}
}

func TestAppConfigIsSetThroughThePortal(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	p := w.provider()
	control := p.serve()
	o := w.Tenant(catalog.Growth)
	w.Exec(`delete from app_configs where organization_id = $1`, o.ID)
	c := p.as(control, o, "admin")
	const none = `{"ios":null,"android":null,"fallbackUrl":null,"htmlErrorPages":false}`
	if r := c.Do("GET", "/portal/app-config", ""); r.Status != http.StatusOK || strings.TrimSpace(string(r.Body)) != none {
		t.Errorf("initially: %s, expected %s", r, none)
	}
	if r := c.Do("POST", "/portal/links", `{"path":"/a"}`); r.Code() != "APP_CONFIG_REQUIRED" {
		t.Errorf("a link before the app config: %s, expected 428", r)
	}
	const config = `{"ios":{"bundleId":"com.acme.app","teamId":"ABCDE12345","appStoreId":"123456789","scheme":"acme"},"android":null,"fallbackUrl":"https://acme.example/","htmlErrorPages":true}`
	put := c.Do("PUT", "/portal/app-config", config)
	if got := c.Do("GET", "/portal/app-config", ""); put.Status != http.StatusOK || put.Header.Get(relay.Header) != "complete" ||
		strings.TrimSpace(string(put.Body)) != config || string(got.Body) != string(put.Body) {
		t.Errorf("%s, then %s, expected %s twice", put, got, config)
	}
	if r := c.Do("PUT", "/portal/app-config", string(put.Body)); r.Status != http.StatusOK || string(r.Body) != string(put.Body) {
		t.Errorf("the response of GET, sent back: %s, expected 200", r)
	}
	if r := c.Do("POST", "/portal/links", `{"path":"/a"}`); r.Status != http.StatusCreated {
		t.Errorf("a link after the app config: %s, expected 201", r)
	}
	for body, fields := range map[string]string{
		`{"ios":{"teamId":"x"},"fallbackUrl":"javascript:alert(1)"}`: "ios.teamId,fallbackUrl", `{"registered":true}`: "registered",
		`{"ios":{"scheme":"javascript"}}`: "ios.scheme", `[]`: "body",
	} {
		if r := c.Do("PUT", "/portal/app-config", body); r.Status != http.StatusBadRequest || r.Fields() != fields {
			t.Errorf("%s: %s, expected 400 with details of %s", body, r, fields)
		}
	}
	if r := c.Do("PUT", "/portal/app-config", `{"fallbackUrl":"https://b.example/"}`); strings.TrimSpace(string(r.Body)) != `{"ios":null,"android":null,"fallbackUrl":"https://b.example/","htmlErrorPages":false}` {
		t.Errorf("PUT replaces all fields: %s", r)
	}

	// A change reaches the edges through the same barrier as any other.
	w.DeafEdge(600*time.Millisecond, time.Hour)
	began := time.Now()
	if r := c.Do("PUT", "/portal/app-config", config); r.Status != http.StatusOK || r.Header.Get(relay.Header) != "pending" || time.Since(began) < 600*time.Millisecond {
		t.Errorf("with an unreachable edge: %s after %v, expected pending after its lease", r, time.Since(began))
	}
}
