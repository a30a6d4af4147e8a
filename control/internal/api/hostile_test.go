package api

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"deeplink/control/internal/decode"
	"deeplink/control/internal/testenv"
	"deeplink/shared/catalog"
	"deeplink/shared/envelope"
)

// with returns a body with a valid path and one more member.
func with(member string) string { return `{"path":"/a",` + member + `}` }

func repeat(s string, n int) string { return strings.Repeat(s, n) }

// hostileBodies get 400 from a create and from an update, with details of the field or of something in it.
var hostileBodies = []struct{ name, body, field string }{
	{"nothing", ``, "body"},
	{"not JSON", `hello`, "body"},
	{"a number", `1`, "body"},
	{"a string", `"path"`, "body"},
	{"null", `null`, "body"},
	{"an array", `[{"path":"/a"}]`, "body"},
	{"half an object", `{"path":`, "path"},
	{"two values", `{"path":"/a"}{"path":"/b"}`, "body"},
	{"something after the value", `{"path":"/a"} x`, "body"},
	{"a trailing comma", `{"path":"/a",}`, "body"},
	{"a comment", `{"path":"/a"/**/}`, "path"},
	{"single quotes", `{'path':'/a'}`, "body"},
	{"a byte order mark", "\xef\xbb\xbf" + `{"path":"/a"}`, "body"},
	{"NaN", with(`"params":{"n":NaN}`), "params.n"},
	{"an infinite number", with(`"params":{"n":1e999}`), "params.n"},
	{"a leading zero", with(`"params":{"n":01}`), "params.n"},
	{"a duplicate name", `{"path":"/a","path":"/b"}`, "path"},
	{"a duplicate name, escaped", `{"path":"/a","p\u0061th":"/b"}`, "path"},
	{"a duplicate name inside", with(`"params":{"a":1,"a":2}`), "params.a"},
	{"another case of a name", `{"path":"/a","PATH":"/b"}`, "PATH"},
	{"nine levels", with(`"params":` + repeat(`{"a":`, 9) + `1` + repeat(`}`, 9)), "params"},
	{"ten thousand levels", with(`"params":` + repeat(`[`, 10_000) + repeat(`]`, 10_000)), "params"},
	{"prototype pollution", with(`"__proto__":{"isAdmin":true}`), "__proto__"},
	{"mass assignment", with(`"version":7`), "version"},
	{"a NUL in the path", `{"path":"/a\u0000b"}`, "path"},
	{"a raw NUL", "{\"path\":\"/a\x00\"}", "path"},
	{"a NUL in a name", with(`"\u0000":1`), "body"},
	{"a NUL in params", with(`"params":{"a":"\u0000"}`), "params.a"},
	{"a NUL in a tag", with(`"tags":["\u0000"]`), "tags[0]"},
	{"broken UTF-8 in the path", "{\"path\":\"/\xff\"}", "path"},
	{"broken UTF-8 in a title", with("\"title\":\"\xc3(\""), "title"},
	{"overlong UTF-8", with("\"title\":\"\xc0\xaf\""), "title"},
	{"UTF-8 of a surrogate", with("\"title\":\"\xed\xa0\x80\""), "title"},
	{"a lone surrogate", with(`"title":"\ud800"`), "title"},
	{"a path that is a number", `{"path":1}`, "path"},
	{"a path that is an object", `{"path":{}}`, "path"},
	{"an empty path", `{"path":""}`, "path"},
	{"a blank path", `{"path":"   "}`, "path"},
	{"a huge path", `{"path":"` + repeat("a", catalog.MaxPath+1) + `"}`, "path"},
	{"a javascript path", `{"path":"javascript:alert(1)"}`, "path"},
	{"a javascript path, in capitals", `{"path":"JaVaScRiPt:alert(1)"}`, "path"},
	{"a web path", `{"path":"https://evil.example/"}`, "path"},
	{"a host path", `{"path":"//evil.example/x"}`, "path"},
	{"a host path after a space", `{"path":" //evil.example/x"}`, "path"},
	{"a backslash path", `{"path":"/\\evil.example"}`, "path"},
	{"CR LF in the path", `{"path":"/a\r\nSet-Cookie: a=b"}`, "path"},
	{"CR LF at the end of the path", `{"path":"/a\r\n"}`, "path"},
	{"CR LF in a utm field", with(`"utmSource":"a\r\nb"`), "utmSource"},
	{"CR LF in a code", with(`"shortCode":"a\r\nb"`), "shortCode"},
	{"CR LF in a URL", with(`"fallbackUrl":"https://a.example/\r\nSet-Cookie:x"`), "fallbackUrl"},
	{"a URL that is a number", with(`"fallbackUrl":5`), "fallbackUrl"},
	{"an empty URL", with(`"fallbackUrl":""`), "fallbackUrl"},
	{"a relative URL", with(`"fallbackUrl":"/a"`), "fallbackUrl"},
	{"a URL without scheme", with(`"fallbackUrl":"//evil.example"`), "fallbackUrl"},
	{"a javascript URL", with(`"fallbackUrl":"javascript:alert(1)"`), "fallbackUrl"},
	{"a javascript URL with a host", with(`"fallbackUrl":"javascript://a.example/%0aalert(1)"`), "fallbackUrl"},
	{"a data URL", with(`"fallbackUrl":"data:text/html,<script>"`), "fallbackUrl"},
	{"a file URL", with(`"fallbackUrl":"file:///etc/passwd"`), "fallbackUrl"},
	{"a URL without slashes", with(`"fallbackUrl":"https:evil.example"`), "fallbackUrl"},
	{"a URL without host", with(`"fallbackUrl":"https:///a"`), "fallbackUrl"},
	{"a URL with user info", with(`"fallbackUrl":"https://good.example@evil.example/"`), "fallbackUrl"},
	{"a URL with a backslash", with(`"fallbackUrl":"https://good.example\\@evil.example/"`), "fallbackUrl"},
	{"a URL with a bad port", with(`"fallbackUrl":"https://a.example:99999/"`), "fallbackUrl"},
	{"a URL with text that runs backwards", with(`"fallbackUrl":"https://a.example/\u202egpj.exe"`), "fallbackUrl"},
	{"a URL with a foreign host name", with(`"fallbackUrl":"https://аpple.example/"`), "fallbackUrl"},
	{"a huge URL", with(`"fallbackUrl":"https://a.example/` + repeat("a", catalog.MaxURL) + `"`), "fallbackUrl"},
	{"an image that is a script", with(`"og":{"imageUrl":"javascript:alert(1)"}`), "og.imageUrl"},
	{"an og that is a string", with(`"og":"x"`), "og"},
	{"an unknown og member", with(`"og":{"type":"x"}`), "og.type"},
	{"a code that is a number", with(`"shortCode":1`), "shortCode"},
	{"an empty code", with(`"shortCode":""`), "shortCode"},
	{"a code with a slash", with(`"shortCode":"a/b"`), "shortCode"},
	{"a code that climbs", with(`"shortCode":"../x"`), "shortCode"},
	{"a code that is encoded", with(`"shortCode":"%2e%2e"`), "shortCode"},
	{"a code in letters that look alike", with(`"shortCode":"аpple"`), "shortCode"},
	{"a code with a full-width letter", with(`"shortCode":"ａ"`), "shortCode"},
	{"a code that begins with a hyphen", with(`"shortCode":"-a"`), "shortCode"},
	{"a code that is too long", with(`"shortCode":"` + repeat("a", 65) + `"`), "shortCode"},
	{"a reserved code", with(`"shortCode":"Match"`), "shortCode"},
	{"a channel that is an array", with(`"channel":["email"]`), "channel"},
	{"a channel in capitals", with(`"channel":"EMAIL"`), "channel"},
	{"a utm field that is a number", with(`"utmSource":1`), "utmSource"},
	{"a utm field that is an object", with(`"utmTerm":{"$ne":null}`), "utmTerm"},
	{"a utm field that is too long", with(`"utmSource":"` + repeat("é", catalog.MaxUTM+1) + `"`), "utmSource"},
	{"tags that are a string", with(`"tags":"a"`), "tags"},
	{"a tag that is a number", with(`"tags":[1]`), "tags"},
	{"an empty tag", with(`"tags":[" "]`), "tags"},
	{"a tag that is null", with(`"tags":[null]`), "tags"},
	{"too many tags", with(`"tags":[` + numbers(catalog.MaxTags+1) + `]`), "tags"},
	{"params that are an array", with(`"params":[]`), "params"},
	{"params that are a string", with(`"params":"{}"`), "params"},
	{"params that are too large", with(`"params":{"a":"` + repeat("a", catalog.MaxParamsBytes) + `"}`), "params"},
	{"an expiry that is a number", with(`"expiry":1893456000`), "expiry"},
	{"an expiry without zone", with(`"expiry":"2030-01-01T00:00:00"`), "expiry"},
	{"an expiry in February 30", with(`"expiry":"2030-02-30T00:00:00Z"`), "expiry"},
	{"an expiry in the year 10000", with(`"expiry":"10000-01-01T00:00:00Z"`), "expiry"},
	{"an infinite expiry", with(`"expiry":"infinity"`), "expiry"},
	{"an isActive that is a string", with(`"isActive":"false"`), "isActive"},
	{"an isActive that is a number", with(`"isActive":0`), "isActive"},
	{"a domain id in braces", with(`"domainId":"{00000000-0000-7000-8000-000000000000}"`), "domainId"},
	{"a domain id without hyphens", with(`"domainId":"00000000000070008000000000000000"`), "domainId"},
	{"a domain id that injects", with(`"domainId":"' or 1=1 --"`), "domainId"},
	{"an empty template id", with(`"templateId":""`), "templateId"},
	{"a template id that is too long", with(`"templateId":"` + repeat("a", catalog.MaxTemplateID+1) + `"`), "templateId"},
}

func numbers(n int) string {
	tags := make([]string, n)
	for i := range tags {
		tags[i] = fmt.Sprintf("%q", fmt.Sprint(i))
	}
	return strings.Join(tags, ",")
}

func TestHostileBodiesAreRefused(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	organization := w.Organization(catalog.Scale)
	p := w.serve()
	link := p.client(*organization.ServerKey).CreateLink(fullLink)
	for i, test := range hostileBodies {
		// A new key for every few requests, so that the write limit does not interfere.
		if i%25 == 0 {
			organization.ServerKey = new(w.APIKey(organization.ID, "SERVER"))
		}
		c := p.client(*organization.ServerKey)
		for _, request := range [][2]string{{"POST", "/links"}, {"PATCH", "/links/" + link.ID}} {
			r := c.Do(request[0], request[1], test.body)
			testenv.CheckEnvelope(t, request[0]+": "+test.name, r, request[1])
			if r.Status != http.StatusBadRequest || !strings.HasPrefix(r.Fields(), test.field) {
				t.Errorf("%s: %s %.200q: %s, expected 400 with details of %q", test.name, request[0], test.body, r, test.field)
			}
		}
	}
	if list := testenv.DecodeReply[linkPage](t, p.client(*organization.ServerKey).Do("GET", "/links", "")); list.Total != 1 || list.Data[0].UpdatedAt != link.UpdatedAt {
		t.Errorf("after hostile bodies there are %d links, the first %+v; expected only the unchanged one", list.Total, list.Data[0])
	}
}

func TestOddRequestsGetTheEnvelope(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	c := w.serve().client(*w.Organization(catalog.Scale).ServerKey)
	link := c.CreateLink(`{"path":"/a"}`)
	const good = `{"path":"/a"}`
	contentType := func(value string) []string { return []string{"Content-Type", "", "Content-Type", value} }
	for _, test := range []struct {
		name, method, path, body string
		headers                  []string
		status                   int
	}{
		{"no content type", "POST", "/links", good, []string{"Content-Type", ""}, 415},
		{"plain text", "POST", "/links", good, contentType("text/plain"), 415},
		{"a form", "POST", "/links", good, contentType("application/x-www-form-urlencoded"), 415},
		{"a merge patch for a create", "POST", "/links", good, contentType("application/merge-patch+json"), 415},
		{"a JSON patch", "PATCH", "/links/" + link.ID, `[]`, contentType("application/json-patch+json"), 415},
		{"a media type with more behind", "POST", "/links", good, contentType("application/jsonx"), 415},
		{"a broken media type", "POST", "/links", good, contentType("application/json; ="), 415},
		{"two content types", "POST", "/links", good, []string{"Content-Type", "text/plain"}, 415},
		{"a compressed body", "POST", "/links", good, []string{"Content-Encoding", "gzip"}, 415},
		{"a charset", "POST", "/links", good, contentType("application/json; charset=UTF-8; x=y"), 201},
		{"another charset", "POST", "/links", good, contentType("application/json; charset=utf-16"), 415},
		{"a charset of the past", "POST", "/links", good, contentType(`application/json; charset="iso-8859-1"`), 415},
		{"a media type in capitals", "POST", "/links", good, contentType("Application/JSON"), 201},
		{"the largest body", "POST", "/links", good + repeat(" ", decode.MaxBody-len(good)), nil, 201},
		{"a body one byte too large", "POST", "/links", good + repeat(" ", decode.MaxBody+1-len(good)), nil, 413},
		{"a large body", "POST", "/links", repeat("a", 1<<20), nil, 413},
		{"an id in braces", "GET", "/links/{" + link.ID + "}", "", nil, 400},
		{"an id as a URN", "GET", "/links/urn:uuid:" + link.ID, "", nil, 400},
		{"an id without hyphens", "GET", "/links/" + strings.ReplaceAll(link.ID, "-", ""), "", nil, 400},
		{"an id with one digit more", "GET", "/links/" + link.ID + "0", "", nil, 400},
		{"an id with a letter that is no digit", "GET", "/links/g" + link.ID[1:], "", nil, 400},
		{"an id with its hyphens moved", "GET", "/links/" + link.ID[1:9] + link.ID[:1] + link.ID[9:], "", nil, 400},
		{"a huge id", "GET", "/links/" + repeat("9", 4000), "", nil, 400},
		{"an id that injects", "GET", "/links/1'%20or%20'1'='1", "", nil, 400},
		{"an id with a NUL", "DELETE", "/links/%00", "", nil, 400},
		{"an id with CR LF", "GET", "/links/%0d%0aSet-Cookie:%20a=b", "", nil, 400},
		{"an id in capitals", "GET", "/links/" + strings.ToUpper(link.ID), "", nil, 200},
		{"the nil id", "GET", "/links/00000000-0000-0000-0000-000000000000", "", nil, 404},
		{"a semicolon in the query", "GET", "/links?page=1;limit=2", "", nil, 400},
		{"a query that is a bomb", "GET", "/links?" + repeat("a=1&", 3000), "", nil, 200},
		{"a search that injects", "GET", "/links?search=%27%29%3B%20drop%20table%20links%3B--", "", nil, 200},
		{"a search of wildcards", "GET", "/links?search=%25_%5C", "", nil, 200},
		{"a body on GET", "GET", "/links", "junk", nil, 200},
		{"a body on DELETE", "DELETE", "/links/00000000-0000-0000-0000-000000000000", "junk", nil, 404},
		{"params of eight levels", "POST", "/links", with(`"params":` + repeat(`{"a":`, 7) + `{}` + repeat(`}`, 7)), nil, 201},
		{"a method override", "POST", "/links", good, []string{"X-HTTP-Method-Override", "DELETE"}, 201},
		{"a forwarded host", "POST", "/links", good, []string{"X-Forwarded-Host", "evil.example"}, 201},
		{"a rewritten URL", "GET", "/links", "", []string{"X-Original-URL", "/nothing"}, 200},
		{"an unknown Accept", "GET", "/links", "", []string{"Accept", "image/webp"}, 200},
	} {
		r := c.Do(test.method, test.path, test.body, test.headers...)
		if r.Status != test.status || strings.Contains(string(r.Body), "evil.example") {
			t.Errorf("%s: %s %.100s: %s, expected %d", test.name, test.method, test.path, r, test.status)
		} else if r.Status >= 400 {
			if e := testenv.DecodeReply[envelope.Envelope](t, r); e.StatusCode != r.Status || !strings.HasPrefix(e.Path, "/links") {
				t.Errorf("%s: %s, expected an envelope", test.name, r)
			}
		}
	}
}
