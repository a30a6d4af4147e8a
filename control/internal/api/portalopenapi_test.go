package api

import (
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"

	"deeplink/control/internal/decode"
	"deeplink/control/internal/session"
	"deeplink/control/internal/store"
	"deeplink/control/internal/testenv"
	"deeplink/shared/catalog"
)

// portalTestCases returns requests for the operations of the portal, with every documented status that a client can provoke.
func portalTestCases(t *testing.T, w *testEnv) []testCase {
	p, dns := w.provider(), testenv.NewNameServer(t)
	control := p.serve(withDNS(dns), withConsole(nil), withCheckout("https://billing.example/pay", repeat("ab", 32)))
	bare := w.serve() // without an identity provider
	o, free, unplanned, unregistered := w.Tenant(catalog.Scale), w.Tenant(catalog.Free), w.Tenant(catalog.Free), w.Tenant(catalog.Free)
	w.Exec(`update organizations set plan = null where id = $1`, unplanned.ID)
	w.Exec(`delete from app_configs where organization_id = $1`, unregistered.ID)
	full, many, rival := w.Tenant(catalog.Free), w.Tenant(catalog.Scale), w.Tenant(catalog.Scale)
	w.Exec(`update link_usage set links = 50 where organization_id = $1`, full.ID)
	w.Exec(`insert into domains (id, organization_id, host, status) select gen_random_uuid(), $1, 'h' || n || '.acme.example', 'pending' from generate_series(1, $2::int) n`,
		many.ID, store.MaxDomains)
	as := func(o store.CreatedOrganization) *client { return p.as(control, o, "owner") }
	c, noPlan := as(o), as(unplanned)

	link := func(body string) catalog.Link {
		return testenv.DecodeReply[catalog.Link](t, c.Do("POST", "/portal/links", body))
	}
	kept, doomed := link(strings.Replace(fullLink, "Spring-Sale_1", "full", 1)), link(`{"path":"/doomed"}`)
	c.Do("POST", "/portal/links", `{"path":"/a","shortCode":"taken"}`)
	svgTag := c.Do("GET", "/portal/links/"+kept.ID+"/qr.svg", "").Header.Get("ETag")
	pngTag := c.Do("GET", "/portal/links/"+kept.ID+"/qr.png", "").Header.Get("ETag")
	pending, proved, used, lost := c.add("pending.example"), c.add("proved.example"), c.add("used.example"), as(rival).add("proved.example")
	dns.Set(proved.Verification.Name, proved.Verification.Value, lost.Verification.Value)
	link(`{"path":"/used","domainId":"` + used.ID + `"}`)

	const links, unknown, unknownDomain, regenerate = "/portal/links", "/portal/links/" + nowhere, "/portal/domains/" + nowhere, "/portal/api-keys/SERVER/regenerate"
	big := repeat(" ", decode.MaxBody+1)
	plain := []string{"Content-Type", "", "Content-Type", "text/plain"}
	all := []testCase{
		{"showOrganization", c, "/portal/organization", "", 200, nil},
		{"showOrganization", noPlan, "/portal/organization", "", 200, nil},
		{"getAppConfig", c, "/portal/app-config", "", 200, nil},
		{"getAppConfig", as(unregistered), "/portal/app-config", "", 200, nil},
		{"putAppConfig", noPlan, "/portal/app-config", testenv.AppConfig, 200, nil},
		{"putAppConfig", noPlan, "/portal/app-config", `{}`, 200, nil},
		{"putAppConfig", c, "/portal/app-config", `{"ios":{"x":1}}`, 400, nil},
		{"listKeys", c, "/portal/api-keys", "", 200, nil},
		{"listKeys", as(free), "/portal/api-keys", "", 200, nil},
		{"regenerateKey", c, regenerate, "", 200, nil},
		{"regenerateKey", c, "/portal/api-keys/CLIENT/regenerate", `{"graceSeconds":604800}`, 200, nil},
		{"regenerateKey", c, "/portal/api-keys/BOTH/regenerate", `{}`, 400, nil},
		{"regenerateKey", noPlan, regenerate, `{}`, 402, nil},
		{"regenerateKey", as(free), regenerate, `{}`, 403, nil},
		{"portalCreateLink", c, links, fullLink, 201, nil},
		{"portalCreateLink", c, links, `{"channel":"fax"}`, 400, nil},
		{"portalCreateLink", as(full), links, `{"path":"/a"}`, 402, nil},
		{"portalCreateLink", c, links, `{"path":"/a","domainId":"` + nowhere + `"}`, 404, nil},
		{"portalCreateLink", c, links, `{"path":"/a","shortCode":"taken"}`, 409, nil},
		{"portalCreateLink", as(unregistered), links, `{"path":"/a"}`, 428, nil},
		{"portalListLinks", c, links + "?page=1&limit=1&isActive=true", "", 200, nil},
		{"portalListLinks", c, links + "?page=0", "", 400, nil},
		{"portalGetLink", c, links + "/" + kept.ID, "", 200, nil},
		{"portalGetLink", c, links + "/42", "", 400, nil},
		{"portalGetLink", c, unknown, "", 404, nil},
		{"portalUpdateLink", c, links + "/" + kept.ID, `{"title":null}`, 200, nil},
		{"portalUpdateLink", c, links + "/" + kept.ID, `{"path":""}`, 400, nil},
		{"portalUpdateLink", c, unknown, `{}`, 404, nil},
		{"portalUpdateLink", c, links + "/" + kept.ID, `{"shortCode":"taken"}`, 409, nil},
		{"portalDeleteLink", c, links + "/" + doomed.ID, "", 200, nil},
		{"portalDeleteLink", c, links + "/42", "", 400, nil},
		{"portalDeleteLink", c, unknown, "", 404, nil},
		{"portalDrawLinkSVG", c, links + "/" + kept.ID + "/qr.svg", "", 200, nil},
		{"portalDrawLinkSVG", c, links + "/" + kept.ID + "/qr.svg", "", 304, []string{"If-None-Match", svgTag}},
		{"portalDrawLinkSVG", c, links + "/" + kept.ID + "/qr.svg?size=1", "", 400, nil},
		{"portalDrawLinkSVG", c, unknown + "/qr.svg", "", 404, nil},
		{"portalDrawLinkPNG", c, links + "/" + kept.ID + "/qr.png", "", 200, nil},
		{"portalDrawLinkPNG", c, links + "/" + kept.ID + "/qr.png", "", 304, []string{"If-None-Match", pngTag}},
		{"portalDrawLinkPNG", c, links + "/42/qr.png", "", 400, nil},
		{"portalDrawLinkPNG", c, unknown + "/qr.png", "", 404, nil},
		{"portalShowClicks", c, "/portal/analytics/clicks?groupBy=country", "", 200, nil},
		{"portalShowClicks", c, "/portal/analytics/clicks?limit=0", "", 400, nil},
		{"portalListClicks", c, "/portal/analytics/clicks/raw?class=all&outcome=all&late=true", "", 200, nil},
		{"portalListClicks", c, "/portal/analytics/clicks/raw?limit=0", "", 400, nil},
		{"listDomains", c, "/portal/domains", "", 200, nil},
		{"listDomains", noPlan, "/portal/domains", "", 402, nil},
		{"addDomain", c, "/portal/domains", `{"host":"new.example"}`, 201, nil},
		{"addDomain", c, "/portal/domains", `{"host":"new"}`, 400, nil},
		{"addDomain", noPlan, "/portal/domains", `{"host":"new.example"}`, 402, nil},
		{"addDomain", as(many), "/portal/domains", `{"host":"new.example"}`, 402, nil},
		{"addDomain", as(free), "/portal/domains", `{"host":"new.example"}`, 403, nil},
		{"addDomain", c, "/portal/domains", `{"host":"new.example"}`, 409, nil},
		{"verifyDomain", c, "/portal/domains/" + pending.ID + "/verify", "", 200, nil},
		{"verifyDomain", c, "/portal/domains/" + proved.ID + "/verify", "", 200, nil},
		{"verifyDomain", c, "/portal/domains/42/verify", "", 400, nil},
		{"verifyDomain", noPlan, unknownDomain + "/verify", "", 402, nil},
		{"verifyDomain", c, unknownDomain + "/verify", "", 404, nil},
		{"verifyDomain", as(rival), "/portal/domains/" + lost.ID + "/verify", "", 409, nil},
		{"deleteDomain", c, "/portal/domains/" + pending.ID, "", 200, nil},
		{"deleteDomain", c, "/portal/domains/42", "", 400, nil},
		{"deleteDomain", noPlan, unknownDomain, "", 402, nil},
		{"deleteDomain", c, unknownDomain, "", 404, nil},
		{"deleteDomain", c, "/portal/domains/" + used.ID, "", 409, nil},
		{"listAudit", c, "/portal/audit-log?page=1&limit=100&since=2026-01-01T00:00:00Z&until=2126-01-01T00:00:00Z", "", 200, nil},
		{"listAudit", c, "/portal/audit-log?page=0", "", 400, nil},
		{"checkOut", c, billingPath, `{"plan":"growth"}`, 200, nil},
		{"checkOut", c, billingPath, `{"plan":"free"}`, 400, nil},
		{"setPlan", c, "/portal/plan", `{"plan":"gold"}`, 400, nil},
		{"setPlan", c, "/portal/plan", `{"plan":"scale"}`, 422, nil},
		{"setPlan", noPlan, "/portal/plan", `{"plan":"free"}`, 200, nil},
	}
	signedIn, other := w.signInWithLink(control, o, "owner"), w.signInWithLink(control, o, "member")
	w.Exec(`update console_sessions set memberships = jsonb_build_array(jsonb_build_object('externalId', $1::text, 'role', 'owner')) where role = 'owner'`, *o.ExternalID)
	var otherID string
	if err := w.Pool.QueryRow(t.Context(), `select id from console_sessions where role = 'member'`).Scan(&otherID); err != nil {
		t.Fatal(err)
	}
	const choose = "/portal/session/organization"
	own := func(changes ...string) []string { return signedIn.headers(changes...) }
	all = append(all,
		testCase{"showSession", c, "/portal/session", "", 200, nil},
		testCase{"showSession", other.client, "/portal/session", "", 200, other.headers()},
		testCase{"showSession", control.visit("junk"), "/portal/session", "", 401, nil},
		testCase{"showSession", bare.client(""), "/portal/session", "", 501, nil},
		testCase{"listSessions", c, "/portal/sessions?all=true", "", 200, nil},
		testCase{"listSessions", c, "/portal/sessions?all=x", "", 400, nil},
		testCase{"revokeSession", c, "/portal/sessions/42", "", 400, nil},
		testCase{"revokeSession", c, "/portal/sessions/" + nowhere, "", 404, nil},
		testCase{"revokeSession", c, "/portal/sessions/" + otherID, "", 200, nil},
		testCase{"chooseOrganization", c, choose, `{"externalId":"x"}`, 400, nil},
		testCase{"chooseOrganization", control.visit(""), choose, `{"externalId":"x"}`, 401, nil},
		testCase{"chooseOrganization", signedIn.client, choose, `{"externalId":"x"}`, 403, []string{"Cookie", signedIn.cookie}},
		testCase{"chooseOrganization", signedIn.client, choose, `{"externalId":"x"}`, 404, own()},
		testCase{"chooseOrganization", signedIn.client, choose, big, 413, own()},
		testCase{"chooseOrganization", signedIn.client, choose, `{}`, 415, own(plain...)},
		testCase{"chooseOrganization", bare.client(""), choose, `{}`, 501, nil},
		testCase{"chooseOrganization", signedIn.client, choose, `{"externalId":"` + *o.ExternalID + `"}`, 200, own()},
	)
	external := link(`{"path":"/external","externalId":"sku-1"}`)
	link(`{"path":"/external","externalId":"sku-gone"}`)
	linkTag := c.Do("GET", "/portal/links/"+external.ID, "").Header.Get("ETag")
	all = append(all, writeCases("/portal", "portal", linkTag, c, external, as(full), as(unregistered))...)
	unplanned = w.Tenant(catalog.Free) // the other organization has a plan in the end
	w.Exec(`update organizations set plan = null where id = $1`, unplanned.ID)
	member, visitor, noPlan := p.as(control, o, "billing"), control.visit("junk"), as(unplanned)
	for operation, path := range map[string]string{
		"portalWriteLinks": links + "/bulk", "portalGetExternalLink": links + "/external/none", "portalPutExternalLink": links + "/external/none", "portalDeleteExternalLink": links + "/external/none",
		"showOrganization": "/portal/organization", "getAppConfig": "/portal/app-config", "putAppConfig": "/portal/app-config", "listKeys": "/portal/api-keys",
		"regenerateKey": regenerate, "portalCreateLink": links, "portalListLinks": links, "portalGetLink": unknown, "portalUpdateLink": unknown,
		"portalDeleteLink": unknown, "portalDrawLinkSVG": unknown + "/qr.svg", "portalDrawLinkPNG": unknown + "/qr.png", "listDomains": "/portal/domains",
		"portalShowClicks": "/portal/analytics/clicks", "portalListClicks": "/portal/analytics/clicks/raw", "addDomain": "/portal/domains", "verifyDomain": unknownDomain + "/verify", "deleteDomain": unknownDomain, "listAudit": "/portal/audit-log",
		"checkOut": billingPath, "setPlan": "/portal/plan", "listSessions": "/portal/sessions", "revokeSession": "/portal/sessions/" + nowhere,
	} {
		all = append(all, testCase{operation, visitor, path, "", 401, nil}, testCase{operation, member, path, "", 403, nil},
			testCase{operation, bare.client(""), path, "", 501, nil})
		if strings.HasPrefix(path, links) || strings.HasPrefix(path, "/portal/analytics") {
			all = append(all, testCase{operation, noPlan, path, "", 402, nil})
		}
	}
	for operation, path := range map[string]string{"putAppConfig": "/portal/app-config", "portalCreateLink": links, "portalUpdateLink": links + "/" + kept.ID,
		"regenerateKey": regenerate, "addDomain": "/portal/domains", "checkOut": billingPath, "setPlan": "/portal/plan"} {
		all = append(all, testCase{operation, c, path, big, 413, nil}, testCase{operation, c, path, `{}`, 415, plain})
	}
	return all
}

// TestDocumentedBoundsOfAppConfigsAreThoseOfTheAPI tests each pattern of an app config with the API.
func TestDocumentedBoundsOfAppConfigsAreThoseOfTheAPI(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	p := w.provider()
	c := p.as(p.serve(), w.Tenant(catalog.Free), "admin")
	config := readDocument(t, c).Components.Schemas["AppConfigInput"].Value
	good := map[string]string{
		catalog.BundleIDPattern: "com.acme-1.app", catalog.TeamIDPattern: "ABCDE12345", catalog.AppStoreIDPattern: "12345", catalog.AppSchemePattern: "a+",
		catalog.PackageNamePattern: "com.acme_1.app", catalog.FingerprintPattern: repeat("aB:", 31) + "09", "^[Hh][Tt][Tt][Pp][Ss]?://": "https://a.example/",
	}
	checked := 0
	check := func(field, body string, status int) {
		t.Helper()
		checked++
		r := c.Do("PUT", "/portal/app-config", body)
		if r.Status != status || status == 400 && r.Fields() != field {
			t.Errorf("%s: %s, expected %d about %s", body, r, status, field)
		}
	}
	try := func(name string, schema *openapi3.Schema, body func(value string) string) {
		t.Helper()
		check(name, body("null"), 200)
		value := func(s *openapi3.Schema) string { return quoted(t, good[s.Pattern]) }
		switch {
		case schema.Type.Includes("array"):
			list := func(n uint64) string {
				return "[" + strings.TrimSuffix(strings.Repeat(value(schema.Items.Value)+",", int(n)), ",") + "]"
			}
			check(name, body(list(*schema.MaxItems)), 200)
			check(name, body(list(*schema.MaxItems+1)), 400)
			check(name, body(list(schema.MinItems)), 200)
			check(name, body(list(schema.MinItems-1)), 400)
			check(name, body(`["x"]`), 400)
		case schema.Type.Includes("boolean"):
			check(name, body("true"), 200)
			check(name, body(`"true"`), 400)
		case schema.Pattern != "":
			check(name, body(value(schema)), 200)
			if schema.MaxLength != nil {
				longest := good[schema.Pattern] + repeat("a", int(*schema.MaxLength)-len(good[schema.Pattern]))
				check(name, body(quoted(t, longest)), 200)
				check(name, body(quoted(t, longest+"a")), 400)
			}
			check(name, body(`" `+good[schema.Pattern]+`"`), 400)
			check(name, body(`""`), 400)
			check(name, body(`1`), 400)
		default:
			t.Errorf("%s: the document gives no bounds", name)
		}
	}
	for name, property := range config.Properties {
		if property.Value.Properties == nil {
			try(name, property.Value, func(value string) string { return `{"` + name + `":` + value + `}` })
			continue
		}
		check(name, `{"`+name+`":null}`, 200)
		check(name, `{"`+name+`":"x"}`, 400)
		check(name+".x", `{"`+name+`":{"x":1}}`, 400)
		for inner, property := range property.Value.Properties {
			try(name+"."+inner, property.Value, func(value string) string { return `{"` + name + `":{"` + inner + `":` + value + `}}` })
		}
	}
	check("x", `{"x":1}`, 400)
	if checked < 40 {
		t.Errorf("only %d bounds were found in the document", checked)
	}
}

// TestDocumentNamesTheCredentialOfEachOperation compares the documented credentials and roles with those that the routes require.
func TestDocumentNamesTheCredentialOfEachOperation(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	doc := readDocument(t, w.serve().client(""))
	roles := map[session.Role]string{session.Member: "For members.", session.Admin: "For administrators", session.Owner: "For owners."}
	for path, item := range doc.Paths.Map() {
		for method, operation := range item.Operations() {
			if operation.Security == nil {
				t.Errorf("%s %s: no security, expected security: [] for a public operation", method, path)
				continue
			}
			scheme := ""
			for _, requirement := range *operation.Security {
				for name := range requirement {
					scheme += name
				}
			}
			expected := ""
			switch {
			case path == "/portal/session/organization":
				expected = "SessionCookie"
			case strings.HasPrefix(path, "/portal/"):
				expected = "SessionToken"
			case strings.HasPrefix(path, "/links"), strings.HasPrefix(path, "/analytics/"):
				expected = "ServerKey"
			case strings.HasPrefix(path, "/sdk/"):
				expected = "ClientKey"
			}
			if scheme != expected {
				t.Errorf("%s %s: security %q, expected %q", method, path, scheme, expected)
			}
		}
	}
	pattern := strings.NewReplacer(nowhere, "{id}", "BOTH", "{tier}", "sku-none", "{externalId}")
	for _, route := range portalRoutes {
		operation := doc.Paths.Find(pattern.Replace(route.path)).GetOperation(route.method)
		if !strings.HasPrefix(operation.Description, roles[route.least]) {
			t.Errorf("%s %s: %q, expected it to begin with %q", route.method, route.path, operation.Description, roles[route.least])
		}
	}
}
