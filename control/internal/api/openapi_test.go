package api

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"

	"deeplink/control/internal/decode"
	"deeplink/shared/apikey"
	"deeplink/shared/catalog"
)

// readDocument returns the document that control serves. It must be valid OpenAPI, with examples that match their schemas.
func readDocument(t *testing.T, c *client) *openapi3.T {
	t.Helper()
	r := c.Do("GET", "/openapi.json", "")
	if r.Status != http.StatusOK || r.Header.Get("Content-Type") != "application/json" {
		t.Fatalf("GET /openapi.json: %d %v", r.Status, r.Header)
	}
	doc, err := openapi3.NewLoader().LoadFromData(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	if err := doc.Validate(t.Context(), openapi3.EnableExamplesValidation()); err != nil {
		t.Fatalf("the document is not valid: %v", err)
	}
	if !doc.IsOpenAPI31OrLater() {
		t.Fatalf("openapi %q, expected 3.1", doc.OpenAPI)
	}
	return doc
}

// testCase is a request to an operation, and the status of the response.
type testCase struct {
	operation string
	c         *client
	path      string // with its query
	body      string
	status    int
	headers   []string
}

// testCases returns requests for the operations on links and of the service, with every documented status that a client can provoke.
func testCases(t *testing.T, w *testEnv, p *process) []testCase {
	organization := w.Organization(catalog.Scale)
	c := p.client(*organization.ServerKey)
	c.CreateLink(`{"path":"/a","shortCode":"taken"}`)
	unplanned, unregistered, full := w.Organization(catalog.Growth), w.Organization(catalog.Growth), w.Organization(catalog.Growth)
	w.Exec(`update organizations set plan = null where id = $1`, unplanned.ID)
	w.Exec(`delete from app_configs where organization_id = $1`, unregistered.ID)
	w.Exec(`update link_usage set links = 50000 where organization_id = $1`, full.ID)
	client401, client402, client403 := p.client(""), p.client(*unplanned.ServerKey), p.client(*organization.ClientKey)

	link, doomed := c.CreateLink(strings.Replace(fullLink, "Spring-Sale_1", "full", 1)), c.CreateLink(`{"path":"/doomed"}`)
	tag := c.Do("GET", "/links/"+link.ID+"/qr.svg", "").Header.Get("ETag")
	pngTag := c.Do("GET", "/links/"+link.ID+"/qr.png", "").Header.Get("ETag")
	external := c.CreateLink(`{"path":"/external","externalId":"sku-1"}`)
	c.CreateLink(`{"path":"/external","externalId":"sku-gone"}`)
	linkTag := func() string { return c.Do("GET", "/links/"+external.ID, "").Header.Get("ETag") }
	const unknown = "/links/00000000-0000-7000-8000-000000000000"
	big := repeat(" ", decode.MaxBody+1)
	plain := []string{"Content-Type", "", "Content-Type", "text/plain"}
	mergePatch := []string{"Content-Type", "", "Content-Type", "application/merge-patch+json"}
	all := []testCase{
		{"createLink", c, "/links", fullLink, 201, nil},
		{"createLink", c, "/links", `{"path":"/minimal"}`, 201, nil},
		{"createLink", c, "/links", `{"channel":"fax","x":1}`, 400, nil},
		{"createLink", p.client(*full.ServerKey), "/links", `{"path":"/a"}`, 402, nil},
		{"createLink", c, "/links", `{"path":"/a","domainId":"00000000-0000-7000-8000-000000000000"}`, 404, nil},
		{"createLink", c, "/links", `{"path":"/a","shortCode":"taken"}`, 409, nil},
		{"createLink", c, "/links", big, 413, nil},
		{"createLink", c, "/links", `{}`, 415, plain},
		{"createLink", p.client(*unregistered.ServerKey), "/links", `{"path":"/a"}`, 428, nil},
		{"listLinks", c, "/links", "", 200, nil},
		{"listLinks", c, "/links?page=2&limit=1&isActive=true&search=a&tag=one&channel=email&domainId=" + link.DomainID, "", 200, nil},
		{"listLinks", c, "/links?page=0", "", 400, nil},
		{"listLinks", c, "/links?include=clicks", "", 200, nil},
		{"getLink", c, "/links/" + link.ID, "", 200, nil},
		{"getLink", c, "/links/" + link.ID + "?include=clicks", "", 200, nil},
		{"showClicks", c, "/analytics/clicks", "", 200, nil},
		{"showClicks", c, "/analytics/clicks?interval=day&timezone=Europe/Berlin&class=human,bot&outcome=redirect&linkId=" + link.ID + "&limit=5", "", 200, nil},
		{"showClicks", c, "/analytics/clicks?groupBy=link&class=all", "", 200, nil},
		{"showClicks", c, "/analytics/clicks?interval=fortnight", "", 400, nil},
		{"listClicks", c, "/analytics/clicks/raw", "", 200, nil},
		{"listClicks", c, "/analytics/clicks/raw?order=asc&late=false&limit=1", "", 200, nil},
		{"listClicks", c, "/analytics/clicks/raw?order=up", "", 400, nil},
		{"getLink", c, "/links/42", "", 400, nil},
		{"getLink", c, unknown, "", 404, nil},
		{"updateLink", c, "/links/" + link.ID, `{"title":null,"og":{"title":"New"}}`, 200, mergePatch},
		{"updateLink", c, "/links/" + link.ID, `{"path":""}`, 400, nil},
		{"updateLink", c, unknown, `{}`, 404, nil},
		{"updateLink", c, "/links/" + link.ID, `{"shortCode":"taken"}`, 409, nil},
		{"updateLink", c, "/links/" + link.ID, big, 413, nil},
		{"updateLink", c, "/links/" + link.ID, `{}`, 415, plain},
		{"deleteLink", c, "/links/" + doomed.ID, "", 200, nil},
		{"deleteLink", c, "/links/42", "", 400, nil},
		{"deleteLink", c, "/links/" + doomed.ID, "", 404, nil},
		{"drawLinkSVG", c, "/links/" + link.ID + "/qr.svg?size=100&level=L&margin=1&fg=112233&bg=ffffff", "", 200, nil},
		{"drawLinkSVG", c, "/links/" + link.ID + "/qr.svg", "", 304, []string{"If-None-Match", tag}},
		{"drawLinkSVG", c, "/links/" + link.ID + "/qr.svg?size=1", "", 400, nil},
		{"drawLinkSVG", c, unknown + "/qr.svg", "", 404, nil},
		{"drawLinkPNG", c, "/links/" + link.ID + "/qr.png", "", 200, nil},
		{"drawLinkPNG", c, "/links/" + link.ID + "/qr.png", "", 304, []string{"If-None-Match", pngTag}},
		{"drawLinkPNG", c, "/links/42/qr.png", "", 400, nil},
		{"drawLinkPNG", c, unknown + "/qr.png", "", 404, nil},
		{"health", client401, "/healthz", "", 200, nil},
		{"openapi", client401, "/openapi.json", "", 200, nil},
		{"docs", client401, "/docs", "", 200, nil},
	}
	all = append(all, writeCases("", "", linkTag(), c, external, p.client(*full.ServerKey), p.client(*unregistered.ServerKey))...)
	for operation, path := range map[string]string{
		"writeLinks": "/links/bulk", "getExternalLink": "/links/external/none", "putExternalLink": "/links/external/none", "deleteExternalLink": "/links/external/none",
		"createLink": "/links", "listLinks": "/links", "getLink": unknown, "updateLink": unknown, "deleteLink": unknown,
		"drawLinkSVG": unknown + "/qr.svg", "drawLinkPNG": unknown + "/qr.png", "showClicks": "/analytics/clicks", "listClicks": "/analytics/clicks/raw",
	} {
		all = append(all, testCase{operation, client401, path, "", 401, nil}, testCase{operation, client402, path, "", 402, nil},
			testCase{operation, client403, path, "", 403, nil})
	}
	return all
}

// writeCases returns requests with conditions, idempotency keys, external ids and bulk bodies. prefix is that of the paths, and portal that of
// the operations. The client has the link external, with the external id sku-1 and the tag, and another one with sku-gone.
func writeCases(prefix, portal, tag string, c *client, external catalog.Link, full, unregistered *client) []testCase {
	name := func(operation string) string {
		if portal == "" {
			return operation
		}
		return portal + strings.ToUpper(operation[:1]) + operation[1:]
	}
	links, byID, sku := prefix+"/links", prefix+"/links/"+external.ID, prefix+"/links/external/sku-1"
	none, gone, bulk := prefix+"/links/external/none", prefix+"/links/external/sku-gone", prefix+"/links/bulk"
	big, plain := repeat(" ", maxBulkBody+1), []string{"Content-Type", "", "Content-Type", "text/plain"}
	match, noMatch, noneMatch := []string{"If-Match", tag}, []string{"If-Match", `"other"`}, []string{"If-None-Match", tag}
	key := func(key string, more ...string) []string { return append([]string{"Idempotency-Key", key}, more...) }
	const one = `{"operations":[{"op":"create","link":{"path":"/a"}}]}`
	atomic := func(operation string) string { return `{"operations":[` + operation + `],"atomic":true}` }
	return []testCase{
		{name("createLink"), c, links, `{"path":"/keyed","externalId":"keyed"}`, 201, key("create")},
		{name("createLink"), c, links, `{"path":"/keyed","externalId":"keyed"}`, 201, key("create")},
		{name("createLink"), c, links, `{"path":"/other"}`, 422, key("create")},
		{name("createLink"), c, links, `{"path":"/a","externalId":"keyed"}`, 409, nil},
		{name("listLinks"), c, links + "?after=&limit=1&total=true", "", 200, nil},
		{name("listLinks"), c, links + "?after=&externalId=keyed", "", 200, nil},
		{name("listLinks"), c, links + "?after=x", "", 400, nil},
		{name("getLink"), c, byID, "", 304, noneMatch},
		{name("getLink"), c, byID, "", 412, noMatch},
		{name("getExternalLink"), c, sku, "", 200, match},
		{name("getExternalLink"), c, sku, "", 304, noneMatch},
		{name("getExternalLink"), c, sku, "", 400, []string{"If-Match", "x"}},
		{name("getExternalLink"), c, none, "", 404, nil},
		{name("getExternalLink"), c, sku, "", 412, noMatch},
		{name("updateLink"), c, byID, `{}`, 412, noMatch},
		{name("updateLink"), c, byID, `{}`, 200, key("patch")},
		{name("updateLink"), c, byID, `{"title":"x"}`, 422, key("patch")},
		{name("deleteLink"), c, byID, "", 412, noMatch},
		{name("putExternalLink"), c, sku, `{}`, 412, noMatch},
		{name("putExternalLink"), c, sku, `{}`, 200, key("put")},
		{name("putExternalLink"), c, sku, `{"title":"x"}`, 422, key("put")},
		{name("putExternalLink"), c, prefix + "/links/external/new", `{"path":"/new"}`, 201, []string{"If-None-Match", "*"}},
		{name("putExternalLink"), c, none, `{}`, 400, nil},
		{name("putExternalLink"), full, none, `{"path":"/a"}`, 402, nil},
		{name("putExternalLink"), c, none, `{"path":"/a","domainId":"00000000-0000-7000-8000-000000000000"}`, 404, nil},
		{name("putExternalLink"), c, none, `{"path":"/a","shortCode":"taken"}`, 409, nil},
		{name("putExternalLink"), c, none, repeat(" ", decode.MaxBody+1), 413, nil},
		{name("putExternalLink"), c, none, `{}`, 415, plain},
		{name("putExternalLink"), unregistered, none, `{"path":"/a"}`, 428, nil},
		{name("deleteExternalLink"), c, sku, "", 400, []string{"Idempotency-Key", "a b"}},
		{name("deleteExternalLink"), c, sku, "", 412, noMatch},
		{name("deleteExternalLink"), c, gone, "", 200, key("delete")},
		{name("deleteExternalLink"), c, gone, "", 200, key("delete")},
		{name("deleteExternalLink"), c, gone, "", 422, key("delete", "If-Match", "*")},
		{name("deleteExternalLink"), c, gone, "", 404, nil},
		{name("deleteLink"), c, byID, "", 200, key("delete-id")},
		{name("deleteLink"), c, byID, "", 422, key("delete-id", "If-Match", "*")},
		{name("writeLinks"), c, bulk, `{"operations":[{"op":"create","link":{"path":"/b"}},{"op":"upsert","externalId":"bulk","link":{"path":"/b"}},{"op":"update","externalId":"bulk","link":{}},
			{"op":"create","link":{"path":"/b","shortCode":"taken"}},{"op":"delete","id":"` + nowhere + `"},{"op":"delete","externalId":"bulk"}]}`, 200, key("bulk")},
		{name("writeLinks"), c, bulk, one, 422, key("bulk")},
		{name("writeLinks"), c, bulk, `{"operations":[]}`, 400, nil},
		{name("writeLinks"), full, bulk, atomic(`{"op":"create","link":{"path":"/a"}}`), 402, nil},
		{name("writeLinks"), full, bulk, one, 200, nil},
		{name("writeLinks"), c, bulk, atomic(`{"op":"delete","id":"` + nowhere + `"}`), 404, nil},
		{name("writeLinks"), c, bulk, atomic(`{"op":"create","link":{"path":"/a","shortCode":"taken"}}`), 409, nil},
		{name("writeLinks"), c, bulk, big, 413, nil},
		{name("writeLinks"), c, bulk, one, 415, plain},
		{name("writeLinks"), unregistered, bulk, atomic(`{"op":"create","link":{"path":"/a"}}`), 428, nil},
	}
}

// onlyWhileRunning are the operations that respond with 409 only while another request with the same idempotency key is running, which
// TestRepeatedRequestWaitsForTheFirstOne provokes.
var onlyWhileRunning = []string{"deleteLink 409", "deleteExternalLink 409", "portalDeleteLink 409", "portalDeleteExternalLink 409"}

// unprovoked are the statuses that a client cannot provoke, or only with a flood of requests.
var unprovoked = []string{"408", "429", "500", "503"}

func TestResponsesFitTheDocument(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	p := w.serve()
	doc := readDocument(t, p.client(""))

	// Documented operations of control by id, with the statuses that no response has had so far.
	operations := make(map[string]*routers.Route)
	missing := make(map[string]bool)
	for path, item := range doc.Paths.Map() {
		if len(item.Servers) == 1 {
			if item.Servers[0].URL != testLinkBase {
				t.Errorf("%s is on %s, expected the edges", path, item.Servers[0].URL)
			}
			continue // served only by edges
		}
		for method, operation := range item.Operations() {
			operations[operation.OperationID] = &routers.Route{Spec: doc, Path: path, PathItem: item, Method: method, Operation: operation}
			for status := range operation.Responses.Map() {
				if !slices.Contains(unprovoked, status) && !slices.Contains(onlyWhileRunning, operation.OperationID+" "+status) {
					missing[operation.OperationID+" "+status] = true
				}
			}
		}
	}

	for _, s := range slices.Concat(testCases(t, w, p), sdkTestCases(w, p), portalTestCases(t, w)) {
		route := operations[s.operation]
		if route == nil {
			t.Errorf("the document has no operation %s", s.operation)
			continue
		}
		r := s.c.Do(route.Method, s.path, s.body, s.headers...)
		name := fmt.Sprintf("%s %s %.200s", route.Method, s.path, s.body)
		if r.Status != s.status {
			t.Errorf("%s: %s, expected %d", name, r, s.status)
			continue
		}
		delete(missing, fmt.Sprintf("%s %d", s.operation, r.Status))
		if err := checkResponse(t, route, s, r); err != nil {
			t.Errorf("%s: %s does not fit the document: %v", name, r, err)
		}
	}
	for _, what := range slices.Sorted(maps.Keys(missing)) {
		t.Errorf("%s is documented, but no response had it", what)
	}
}

// checkResponse validates a response against the document, and for a success also the request.
func checkResponse(t *testing.T, route *routers.Route, s testCase, r reply) error {
	t.Helper()
	request, err := http.NewRequest(route.Method, s.c.Base+s.path, strings.NewReader(s.body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	options := &openapi3filter.Options{IncludeResponseStatus: true, AuthenticationFunc: openapi3filter.NoopAuthenticationFunc,
		ExcludeReadOnlyValidations: true, SkipSettingDefaults: true}
	input := &openapi3filter.RequestValidationInput{Request: request, Route: route, Options: options, PathParams: pathParameters(route.Path, s.path)}
	if r.Status < 300 {
		if err := openapi3filter.ValidateRequest(t.Context(), input); err != nil {
			return fmt.Errorf("the request: %w", err)
		}
	}
	return openapi3filter.ValidateResponse(t.Context(), &openapi3filter.ResponseValidationInput{
		RequestValidationInput: input, Status: r.Status, Header: r.Header, Body: io.NopCloser(bytes.NewReader(r.Body)), Options: options,
	})
}

// pathParameters reads the parameters of a template from a path.
func pathParameters(template, path string) map[string]string {
	path, _, _ = strings.Cut(path, "?")
	parameters := make(map[string]string)
	parts := strings.Split(path, "/")
	for i, part := range strings.Split(template, "/") {
		if name, found := strings.CutPrefix(part, "{"); found {
			parameters[strings.TrimSuffix(name, "}")] = parts[i]
		}
	}
	return parameters
}

func TestDocsPageLoadsNothingFromAnotherHost(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	c := w.serve().client("")
	r := c.Do("GET", "/docs", "")
	policy := r.Header.Get("Content-Security-Policy")
	if r.Status != http.StatusOK || !strings.HasPrefix(policy, "default-src 'none'") || strings.Contains(policy, "http") || strings.Contains(policy, "*") {
		t.Errorf("GET /docs: %s, expected a policy without other hosts", r)
	}
	page := string(r.Body)
	if strings.Contains(page, "//") {
		t.Errorf("the page refers to another host:\n%s", page)
	}
	loaded := 0
	for _, attribute := range []string{`src="`, `href="`} {
		for _, rest := range strings.Split(page, attribute)[1:] {
			target, _, _ := strings.Cut(rest, `"`)
			asset := c.Do("GET", "/"+target, "")
			if asset.Status != http.StatusOK || len(asset.Body) == 0 || asset.Header.Get("X-Content-Type-Options") != "nosniff" {
				t.Errorf("GET /%s: %d, expected a file of the page", target, asset.Status)
			}
			loaded++
		}
	}
	if loaded < 5 {
		t.Errorf("the page loads %d files, expected its icon, style, scripts and the document", loaded)
	}
}

// TestNoExampleHoldsACredential guards against keys pasted into examples.
func TestNoExampleHoldsACredential(t *testing.T) {
	t.Parallel()
	text, _ := openapiYAML(t)
	for _, tier := range []apikey.Tier{apikey.Server, apikey.Client} {
		for _, rest := range strings.Split(string(text), apikey.Prefix(tier))[1:] {
			// The prefix alone and the masked form are not secret.
			if !strings.HasPrefix(rest, "…") && !strings.HasPrefix(rest, `"`) {
				t.Errorf("the document has a key: %.60s", rest)
			}
		}
	}
}
