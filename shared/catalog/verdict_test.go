package catalog_test

import (
	"testing"
	"time"

	"deeplink/shared/catalog"
)

func TestVerdictIsTheFirstThatApplies(t *testing.T) {
	t.Parallel()
	now := time.UnixMilli(1_000_000)
	const past, future = 999_999, 1_000_001
	for _, c := range []struct {
		suspended, active bool
		expiry            int64
		expected          catalog.Verdict
	}{
		{true, false, past, catalog.Suspended},
		{true, true, catalog.NoExpiry, catalog.Suspended},
		{false, false, past, catalog.Inactive},
		{false, false, catalog.NoExpiry, catalog.Inactive},
		{false, true, past, catalog.Expired},
		{false, true, now.UnixMilli(), catalog.Expired},
		{false, true, -1, catalog.Expired},
		{false, true, future, catalog.Resolves},
		{false, true, catalog.NoExpiry, catalog.Resolves},
		{false, true, 0, catalog.Expired},
	} {
		if got := catalog.Judge(c.suspended, c.active, c.expiry, now); got != c.expected {
			t.Errorf("Judge(%t, %t, %d): got %d, expected %d", c.suspended, c.active, c.expiry, got, c.expected)
		}
	}
}

func TestShortURLAndKeyNameTheSameLink(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ host, url, key string }{
		{"", "https://links.example/acme/Sale-1", "acme/sale-1"},
		{"go.acme.example", "https://go.acme.example/Sale-1", "go.acme.example/sale-1"},
	} {
		if got := catalog.ShortURL("https://links.example", "acme", c.host, "Sale-1"); got != c.url {
			t.Errorf("host %q: short URL %s, expected %s", c.host, got, c.url)
		}
		if got := catalog.Key("acme", c.host, "Sale-1"); got != c.key {
			t.Errorf("host %q: key %s, expected %s", c.host, got, c.key)
		}
	}
}

func TestPlans(t *testing.T) {
	t.Parallel()
	for plan, expected := range map[catalog.Plan]catalog.Terms{
		"free":       {Links: 50},
		"starter":    {Links: 1_000, Paid: true},
		"growth":     {Links: 50_000, APIAccess: true, Paid: true},
		"scale":      {Links: 1_000_000, APIAccess: true, CustomDomains: true, Paid: true},
		"enterprise": {Links: catalog.Unlimited, APIAccess: true, CustomDomains: true, Paid: true},
		"Free":       {}, "": {},
	} {
		if got := plan.Terms(); got != expected {
			t.Errorf("%q: terms %+v, expected %+v", plan, got, expected)
		}
		if _, known := catalog.ParsePlan(string(plan)); known != (expected != catalog.Terms{}) {
			t.Errorf("ParsePlan(%q) knows it: %t", plan, known)
		}
	}
}
