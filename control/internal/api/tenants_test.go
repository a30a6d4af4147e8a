package api

import (
	"bytes"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"deeplink/control/internal/store"
	"deeplink/control/internal/testenv"
	"deeplink/shared/catalog"
)

// fixture is an organization with a link and a domain.
type fixture struct {
	store.CreatedOrganization
	link   catalog.Link
	domain catalog.Domain
}

func (w *testEnv) fixture(host string) fixture {
	w.T.Helper()
	o := w.Tenant(catalog.Scale)
	domain, _, _, err := w.Store.AddDomain(w.T.Context(), testenv.Actor, o.ID, store.Unconditional, host, false)
	if err != nil {
		w.T.Fatal(err)
	}
	link, _, err := w.Store.CreateLink(w.T.Context(), testenv.Actor, o.ID, store.Unconditional, catalog.Link{Path: "/" + host, ExternalID: new("sku-" + host), Title: new("of " + host), IsActive: true, DomainID: domain.ID})
	if err != nil {
		w.T.Fatal(err)
	}
	return fixture{o, link, domain}
}

// TestObjectOfAnotherOrganizationLooksUnknown sends the id of the own, another organization's and no object to every route with an id. The responses to the
// last two may differ only where any two responses differ.
func TestObjectOfAnotherOrganizationLooksUnknown(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	p, dns := w.provider(), testenv.NewNameServer(t)
	control := p.serve(withDNS(dns))
	own, foreign := w.fixture("own.example"), w.fixture("foreign.example")
	owner, server := p.as(control, own.CreatedOrganization, "owner"), control.client(*own.ServerKey)
	const report = `{"deviceId":"phone","userId":"of foreign","events":[{"id":"` + nowhere + `","name":"foreign"}]}`
	ourPhone, theirPhone := control.client(*own.ClientKey), control.client(*foreign.ClientKey)
	for _, route := range sdkRoutes {
		if route.path != "/sdk/identity/clear" {
			theirPhone.Do("POST", route.path, report)
		}
	}
	before := w.everythingOf(foreign)

	seen := make(map[string]bool)
	for _, route := range []struct {
		method, pattern, body string
		of                    func(fixture) string // the object whose id replaces {id}
		foreign               int                  // status for an id of another organization
	}{
		{"GET", "/links/{id}", ``, linkOf, 404},
		{"GET", "/links/{id}/qr.svg", ``, linkOf, 404},
		{"GET", "/links/{id}/qr.png", ``, linkOf, 404},
		{"PATCH", "/links/{id}", `{"title":"mine"}`, linkOf, 404},
		{"PATCH", "/links/{id}", `{"path":"/a","shortCode":"mine"}`, linkOf, 404},
		{"POST", "/links", `{"path":"/a","domainId":"{id}"}`, domainOf, 404},
		{"GET", "/links?domainId={id}", ``, domainOf, 200},
		{"GET", "/links/external/{id}", ``, externalIDOf, 404},
		{"DELETE", "/links/external/{id}", ``, externalIDOf, 404},
		{"GET", "/links?externalId={id}", ``, externalIDOf, 200},
		{"GET", "/analytics/clicks?linkId={id}", ``, linkOf, 200},
		{"GET", "/analytics/clicks?groupBy=country&domainId={id}&from=2026-01-01&to=2026-02-01", ``, domainOf, 200},
		{"GET", "/analytics/clicks/raw?linkId={id}&to=2026-01-01", ``, linkOf, 200},
		{"DELETE", "/links/{id}", ``, linkOf, 404},
		{"POST", "/domains/{id}/verify", ``, domainOf, 404},
		{"DELETE", "/domains/{id}", ``, domainOf, 404},
	} {
		for _, c := range []*client{server, owner} {
			prefix := ""
			if c == owner {
				prefix = "/portal"
			} else if strings.HasPrefix(route.pattern, "/domains") {
				continue
			}
			name := route.method + " " + prefix + route.pattern
			seen[strings.Split(name, "?")[0]] = true
			ask := func(id string) reply {
				fill := strings.NewReplacer("{id}", id)
				return c.Do(route.method, prefix+fill.Replace(route.pattern), fill.Replace(route.body), "X-Request-Id", "r-1")
			}
			theirs, nobodys := ask(route.of(foreign)), ask(nowhere)
			if theirs.Status != route.foreign {
				t.Errorf("%s %s: %s to the id of another organization, expected %d", name, route.body, theirs, route.foreign)
			}
			if diff := cmp.Diff(leveled(nobodys, nowhere), leveled(theirs, route.of(foreign))); diff != "" {
				t.Errorf("%s %s reveals an object of another organization (-unknown +theirs):\n%s", name, route.body, diff)
			}
			if strings.HasPrefix(route.pattern, "/links/") && route.method == "DELETE" && (c == server || route.pattern != "/links/{id}") {
				// The portal deletes the own objects last, by their ids.
				continue
			}
			if r := ask(route.of(own)); r.Status >= 300 && r.Status != http.StatusConflict {
				t.Errorf("%s %s: %s for the own object, expected success", name, route.body, r)
			}
		}
	}
	for _, route := range testServer(new(logBuffer)).routes() {
		if strings.Contains(route.Path, "{id}") && route.Path != "/portal/sessions/{id}" && !seen[route.Method+" "+route.Path] {
			t.Errorf("%s %s was not asked", route.Method, route.Path)
		}
	}

	// Routes without an id must not show data of other organizations.
	for _, path := range []string{"/links?limit=100", "/portal/links?limit=100", "/portal/analytics/clicks?groupBy=link&class=all", "/portal/analytics/clicks/raw?class=all", "/portal/domains", "/portal/organization", "/portal/app-config", "/portal/api-keys", "/portal/audit-log?limit=100"} {
		c := owner
		if strings.HasPrefix(path, "/links") {
			c = server
		}
		r := c.Do("GET", path, "")
		for _, theirs := range []string{foreign.ID, foreign.link.ID, foreign.domain.ID, "foreign", *foreign.ExternalID} {
			if r.Status != http.StatusOK || bytes.Contains(r.Body, []byte(theirs)) {
				t.Errorf("GET %s: %s, expected 200 without %s", path, r, theirs)
			}
		}
		// Four letters or digits may be part of any word or UUID.
		if regexp.MustCompile(`(^|[^0-9A-Za-z-])` + foreign.OrgKey + `($|[^0-9A-Za-z-])`).Match(r.Body) {
			t.Errorf("GET %s: %s, expected 200 without %s", path, r, foreign.OrgKey)
		}
	}
	for _, route := range sdkRoutes {
		r := ourPhone.Do("POST", route.path, strings.ReplaceAll(report, "foreign", "own"))
		if r.Status != http.StatusOK || bytes.Contains(r.Body, []byte("foreign")) || bytes.Contains(r.Body, []byte(`"duplicates":1`)) {
			t.Errorf("POST %s with ids of another organization's device: %s, expected 200 as for unknown ones", route.path, r)
		}
	}
	if diff := cmp.Diff(before, w.everythingOf(foreign)); diff != "" {
		t.Errorf("the other organization's data has changed (-before +after):\n%s", diff)
	}
}

func linkOf(b fixture) string       { return b.link.ID }
func externalIDOf(b fixture) string { return *b.link.ExternalID }
func domainOf(b fixture) string     { return b.domain.ID }

// leveled returns a response without what differs between any two: the time, and the requested id.
func leveled(r reply, id string) string {
	header := r.Header.Clone()
	header.Del("Date")
	header.Del("Content-Length")
	body := timestamps.ReplaceAll(r.Body, []byte(`"timestamp":"…"`))
	return fmt.Sprintf("%d %v %s", r.Status, header, bytes.ReplaceAll(body, []byte(id), []byte("{id}")))
}

// everythingOf returns all rows of an organization as text.
func (w *testEnv) everythingOf(b fixture) string {
	w.T.Helper()
	var all string
	err := w.Pool.QueryRow(w.T.Context(), `
		select concat_ws(E'\n', (select o::text from organizations o where o.id = $1), (select string_agg(l::text, ' ' order by l::text) from links l where l.organization_id = $1),
			(select string_agg(d::text, ' ' order by d::text) from domains d where d.organization_id = $1), (select string_agg(k::text, ' ' order by k::text) from api_keys k where k.organization_id = $1),
			(select a::text from app_configs a where a.organization_id = $1), (select u::text from link_usage u where u.organization_id = $1),
			(select string_agg(a::text, ' ' order by a::text) from audit_log a where a.organization_id = $1), (select string_agg(d::text, ' ' order by d::text) from devices d where d.organization_id = $1),
			(select string_agg(i::text, ' ' order by i::text) from identities i where i.organization_id = $1), (select string_agg(s::text, ' ' order by s::text) from sessions s where s.organization_id = $1),
			(select string_agg(e::text, ' ' order by e::text) from events e where e.organization_id = $1))`, b.ID).Scan(&all)
	if err != nil {
		w.T.Fatal(err)
	}
	return all
}
