package api

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"deeplink/control/internal/decode"
	"deeplink/control/internal/relay"
	"deeplink/control/internal/store"
	"deeplink/control/internal/testenv"
	"deeplink/shared/apikey"
	"deeplink/shared/catalog"
)

// malformedOperations are operations of a bulk request that get 400, with the field in details.
var malformedOperations = []struct{ name, body, field string }{
	{"no object", `5`, "op"},
	{"null", `null`, "op"},
	{"no op", `{}`, "op"},
	{"an op that is a number", `{"op":1}`, "op"},
	{"an unknown op", `{"op":"merge","link":{"path":"/a"}}`, "op"},
	{"a create without link", `{"op":"create"}`, "link"},
	{"a create with an id", `{"op":"create","id":"` + nowhere + `","link":{"path":"/a"}}`, "id"},
	{"a create with an external id outside of its link", `{"op":"create","externalId":"a","link":{"path":"/a"}}`, "externalId"},
	{"a create without path", `{"op":"create","link":{}}`, "link.path"},
	{"a link that is an array", `{"op":"create","link":[]}`, "link"},
	{"a bad field", `{"op":"create","link":{"path":"/a","og":{"title":1}}}`, "link.og.title"},
	{"an update without target", `{"op":"update","link":{}}`, "id"},
	{"an update with both targets", `{"op":"update","id":"` + nowhere + `","externalId":"a","link":{}}`, "externalId"},
	{"an update without link", `{"op":"update","externalId":"a"}`, "link"},
	{"a malformed id", `{"op":"update","id":"42","link":{}}`, "id"},
	{"an id that is null", `{"op":"delete","id":null}`, "id"},
	{"a malformed external id", `{"op":"delete","externalId":"a/b"}`, "externalId"},
	{"an external id that is a number", `{"op":"delete","externalId":1}`, "externalId"},
	{"a delete with a link", `{"op":"delete","externalId":"a","link":{}}`, "link"},
	{"an upsert without external id", `{"op":"upsert","link":{"path":"/a"}}`, "externalId"},
	{"an upsert with an id", `{"op":"upsert","externalId":"a","id":"` + nowhere + `","link":{"path":"/a"}}`, "id"},
	{"an upsert with another external id", `{"op":"upsert","externalId":"a","link":{"path":"/a","externalId":"b"}}`, "link.externalId"},
	{"an upsert with path null", `{"op":"upsert","externalId":"a","link":{"path":null}}`, "link.path"},
	{"an upsert of a new link without path", `{"op":"upsert","externalId":"unknown","link":{}}`, "link.path"},
	{"an unknown member", `{"op":"delete","externalId":"a","why":1}`, "why"},
	{"an unknown field", `{"op":"update","externalId":"a","link":{"Path":"/a"}}`, "link.Path"},
	{"U+0000 in a link", `{"op":"create","link":{"path":"/a","og":{"title":"a\u0000"}}}`, "link.og.title"},
	{"U+0000 in an external id", `{"op":"delete","externalId":"a\u0000"}`, "externalId"},
	{"half of a surrogate pair", `{"op":"create","link":{"path":"/a","tags":["a","\ud800"]}}`, "link.tags[1]"},
	{"a number out of range", `{"op":"create","link":{"path":"/a","params":{"n":1e999}}}`, "link.params.n"},
	{"a field twice", `{"op":"create","link":{"path":"/a","path":"/b"}}`, "link.path"},
	{"an op twice", `{"op":"delete","op":"delete","externalId":"a"}`, "op"},
	{"a string with U+0000", `"\u0000"`, "op"},
}

// writer is a client with the API key of a new organization, whose requests no rate limit slows down: patient repeats those that it rejects.
func (w *testEnv) writer(p *process, plan catalog.Plan) (*client, store.CreatedOrganization) {
	w.T.Helper()
	o := w.Organization(plan)
	return p.client(*o.ServerKey), o
}

// etag reads the ETag of the link at the path.
func (c *client) etag(path string) string {
	c.T.Helper()
	r := c.Do("GET", path, "")
	if r.Status != http.StatusOK || r.Header.Get("ETag") == "" {
		c.T.Fatalf("GET %s: %s, expected 200 with an ETag", path, r)
	}
	return r.Header.Get("ETag")
}

func TestConditionsDecideUnderTheLockOfTheWrite(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	c, _ := w.writer(w.serve(), catalog.Scale)
	created := c.Do("POST", "/links", `{"path":"/a","externalId":"a","title":"0"}`)
	link := testenv.DecodeReply[catalog.Link](t, created)
	byID, bySKU := "/links/"+link.ID, "/links/external/a"
	if tag := c.etag(byID); tag != created.Header.Get("ETag") || tag != c.etag(bySKU) || !regexp.MustCompile(`^"[A-Za-z0-9._-]{1,64}"$`).MatchString(tag) {
		t.Errorf("GET has the ETag %s, POST had %s", tag, created.Header.Get("ETag"))
	}
	old := c.etag(byID)
	patched := c.Do("PATCH", byID, `{"title":"1"}`, "If-Match", old)
	tag := patched.Header.Get("ETag")
	if patched.Status != http.StatusOK || tag == old || tag != c.etag(byID) {
		t.Fatalf("PATCH: %s, expected 200 with a new ETag, that of GET", patched)
	}
	if same := c.Do("PATCH", byID, `{"title":"1"}`).Header.Get("ETag"); same != tag {
		t.Errorf("a PATCH that changes nothing has the ETag %s, expected %s", same, tag)
	}
	weak := "W/" + tag
	for _, test := range []struct {
		method, path, body, name, value string
		status                          int
	}{
		{"GET", byID, ``, "If-Match", tag, 200},
		{"GET", byID, ``, "If-Match", "*", 200},
		{"GET", byID, ``, "If-Match", old, 412},
		{"GET", byID, ``, "If-Match", weak, 412},
		{"HEAD", byID, ``, "If-None-Match", tag, 304},
		{"GET", byID, ``, "If-None-Match", weak + `, "x"`, 304},
		{"GET", byID, ``, "If-None-Match", "*", 304},
		{"GET", byID, ``, "If-None-Match", old, 200},
		{"GET", bySKU, ``, "If-None-Match", `"x" ,` + tag, 304},
		{"GET", byID, ``, "If-Modified-Since", "Mon, 01 Jan 2035 00:00:00 GMT", 200},
		{"GET", "/links/" + nowhere, ``, "If-Match", old, 404},
		{"PATCH", "/links/" + nowhere, `{}`, "If-Match", old, 404},
		{"DELETE", "/links/external/unknown", ``, "If-None-Match", "*", 404},
		{"PATCH", byID, `{"title":"2"}`, "If-Match", old, 412},
		{"PATCH", byID, `{"title":"2"}`, "If-Match", weak, 412},
		{"PATCH", byID, `{"title":"2"}`, "If-None-Match", weak, 412},
		{"PATCH", byID, `{"title":"1"}`, "If-None-Match", old, 200},
		{"DELETE", byID, ``, "If-Match", old, 412},
		{"DELETE", bySKU, ``, "If-None-Match", "*", 412},
		{"PUT", bySKU, `{"title":"2"}`, "If-None-Match", "*", 412},
		{"PUT", bySKU, `{"title":"2"}`, "If-Match", old, 412},
		{"PUT", bySKU, `{"title":"1"}`, "If-Match", `"x",` + tag, 200},
		{"PUT", "/links/external/new", `{"path":"/new"}`, "If-Match", "*", 412},
		{"PUT", "/links/external/new", `{}`, "If-Match", tag, 412}, // before the path is missed
		{"PUT", "/links/external/new", `{}`, "If-None-Match", "*", 400},
		{"GET", byID, ``, "If-Match", tag[1:], 400},
		{"GET", byID, ``, "If-None-Match", `"a" "b"`, 400},
		{"PATCH", byID, `{}`, "If-Match", ``, 200}, // Go sends no empty header
		{"PATCH", byID, `{}`, "If-Match", `,`, 400},
		{"DELETE", byID, ``, "If-None-Match", `*, "a"`, 400},
		{"POST", "/links", `{"path":"/b"}`, "If-Match", "ignored", 201},
		{"GET", "/links", ``, "If-Match", "ignored", 200},
	} {
		r := c.Do(test.method, test.path, test.body, test.name, test.value)
		if r.Status != test.status || r.Status == 412 && r.Code() != "PRECONDITION_FAILED" || r.Status == 304 && (len(r.Body) > 0 || r.Header.Get("ETag") != tag) ||
			r.Status == 400 && r.Fields() != test.name && r.Fields() != "path" {
			t.Errorf("%s %s with %s: %s: %s, expected %d", test.method, test.path, test.name, test.value, r, test.status)
		}
	}
	if got := c.etag(byID); got != tag {
		t.Errorf("failed preconditions changed the link: ETag %s, expected %s", got, tag)
	}

	// Of 50 concurrent changes of one version, one wins.
	statuses := make([]int, 50)
	var senders sync.WaitGroup
	for i := range statuses {
		senders.Go(func() {
			statuses[i] = c.Do("PATCH", byID, fmt.Sprintf(`{"title":"concurrent %d"}`, i), "If-Match", tag).Status
		})
	}
	senders.Wait()
	if slices.Sort(statuses); statuses[0] != 200 || statuses[1] != 412 || statuses[49] != 412 {
		t.Errorf("concurrent PATCHes: %v, expected 200 once and 412 otherwise", statuses)
	}

	// A link that is recreated under the same ids has another tag.
	last := c.etag(byID)
	c.Do("DELETE", bySKU, "")
	c.Do("PUT", bySKU, `{"path":"/a","title":"0","shortCode":"`+link.ShortCode+`"}`)
	for _, tag := range []string{old, tag, last} {
		if r := c.Do("PATCH", "/links/"+testenv.DecodeReply[catalog.LinkWithDomain](t, c.Do("GET", bySKU, "")).ID, `{}`, "If-Match", tag); r.Status != 412 {
			t.Errorf("an ETag of the deleted link: %s, expected 412", r)
		}
	}
}

func TestExternalIDsNameLinksInPathsAndFilters(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	c, o := w.writer(w.serve(), catalog.Scale)
	for value, status := range map[string]int{
		"sku-1": 201, "SKU-1": 201, "a%20b": 201, "%C3%A9": 201, "a+b": 201, "a:b@c": 201, "%2525": 201, "...": 201, "external": 201, "bulk": 201, "qr.svg": 201,
		strings.Repeat("%C3%A9", 255): 201,
		strings.Repeat("a", 256):      400, "%20a": 400, "a%C2%A0": 400, "a%00": 400, "%0A": 400, "%FF": 400, "%C2%85": 400, ".": 400, "..": 400, "%2e%2E": 400,
		"a%2Fb": 404, "a%5cb": 404, "a/b": 404, "": 404,
	} {
		r := c.patient("PUT", "/links/external/"+value, `{"path":"/a"}`)
		if r.Status != status || status == 400 && r.Fields() != "externalId" {
			t.Errorf("PUT /links/external/%.40s: %s, expected %d", value, r, status)
		}
		if status != 201 {
			continue
		}
		decoded, err := url.PathUnescape(value)
		if err != nil {
			t.Fatal(err)
		}
		link := testenv.DecodeReply[catalog.Link](t, r)
		if link.ExternalID == nil || *link.ExternalID != decoded {
			t.Errorf("PUT /links/external/%.40s: %s, expected the external id %q", value, r, decoded)
		}
		list := testenv.DecodeReply[linkPage](t, c.patient("GET", "/links?externalId="+url.QueryEscape(decoded), ""))
		if read := testenv.DecodeReply[catalog.LinkWithDomain](t, c.patient("GET", "/links/external/"+value, "")); read.ID != link.ID || list.Total != 1 || list.Data[0].ID != link.ID {
			t.Errorf("%q: got %s and %d links in the list, expected %s", decoded, read.ID, list.Total, link.ID)
		}
	}

	put := func(body string, status int, result string) reply {
		t.Helper()
		r := c.patient("PUT", "/links/external/one", body)
		if r.Status != status || r.Header.Get(resultHeader) != result {
			t.Errorf("PUT %s: %s, expected %d %s", body, r, status, result)
		}
		return r
	}
	put(`{"title":"x"}`, 400, "")
	put(`{"path":"/a","externalId":"other"}`, 400, "")
	put(`{"path":"/a","externalId":null}`, 400, "")
	created := put(`{"path":"/a","externalId":"one","og":{"title":"t"},"tags":["a"]}`, 201, "created")
	unchanged := put(`{"path":"/a","og":{"title":"t"}}`, 200, "unchanged")
	if string(created.Body) != string(unchanged.Body) || created.Header.Get("ETag") != unchanged.Header.Get("ETag") {
		t.Errorf("unchanged: %s, expected what was created: %s", unchanged, created)
	}
	put(`{"path":null}`, 400, "")
	updated := testenv.DecodeReply[catalog.Link](t, put(`{"og":{"description":"d"},"tags":null}`, 200, "updated"))
	if updated.Path != "/a" || *updated.OG.Title != "t" || *updated.OG.Description != "d" || updated.Tags != nil {
		t.Errorf("%+v, expected a merge", updated)
	}

	// A value is unique among the links that exist, and the short code's conflict comes first.
	other := c.CreateLink(`{"path":"/b","shortCode":"other"}`)
	for _, test := range []struct{ method, path, body, code string }{
		{"POST", "/links", `{"path":"/c","externalId":"one"}`, "EXTERNAL_ID_TAKEN"},
		{"POST", "/links", `{"path":"/c","externalId":"one","shortCode":"other"}`, ""},
		{"PATCH", "/links/" + other.ID, `{"externalId":"one"}`, "EXTERNAL_ID_TAKEN"},
		{"PATCH", "/links/" + other.ID, `{"externalId":"one","shortCode":"` + updated.ShortCode + `"}`, ""},
		{"PUT", "/links/external/one", `{"shortCode":"other"}`, ""},
	} {
		if r := c.patient(test.method, test.path, test.body); r.Status != 409 || r.Code() != test.code {
			t.Errorf("%s %s %s: %s, expected 409 %q", test.method, test.path, test.body, r, test.code)
		}
	}
	if r := c.patient("DELETE", "/links/external/one", ""); r.Status != 200 || !strings.Contains(string(r.Body), updated.ID) {
		t.Errorf("DELETE: %s, expected the id of the link", r)
	}
	gone := c.patient("GET", "/links/external/one", "")
	if gone.Status != 404 || gone.Header.Get(relay.Header) != "complete" {
		t.Errorf("GET after DELETE: %s, expected 404 after the barrier", gone)
	}
	if r := c.patient("PATCH", "/links/"+other.ID, `{"externalId":"one"}`); r.Status != 200 {
		t.Errorf("the external id of a deleted link: %s, expected that it is free", r)
	}
	if r := c.patient("PATCH", "/links/"+other.ID, `{"externalId":null}`); r.Status != 200 || c.patient("GET", "/links/external/one", "").Status != 404 {
		t.Errorf("null: %s, expected that it clears the external id", r)
	}
	for method, allowed := range map[string]string{"POST": "GET, HEAD, PUT, DELETE", "PATCH": "GET, HEAD, PUT, DELETE"} {
		if r := c.Do(method, "/links/external/one", `{}`); r.Status != 405 || r.Header.Get("Allow") != allowed {
			t.Errorf("%s: %s, expected 405 with Allow: %s", method, r, allowed)
		}
	}
	for _, method := range []string{"PUT", "PATCH", "DELETE"} {
		if r := c.Do(method, "/links/bulk", `{}`); r.Status != 405 || r.Header.Get("Allow") != "GET, HEAD, POST" {
			t.Errorf("%s /links/bulk: %s, expected 405 with the methods that it has", method, r)
		}
	}
	for _, path := range []string{"/links/bulk", "/links/external"} {
		if r := c.Do("GET", path, ""); r.Status != 400 || r.Fields() != "id" {
			t.Errorf("GET %s: %s, expected 400 about the id", path, r)
		}
	}
	var data int
	if err := w.Pool.QueryRow(t.Context(), `select count(*) from links where organization_id = $1 and external_id is not null`, o.ID).Scan(&data); err != nil || data != 12 {
		t.Errorf("%d links have external ids, %v; expected 12", data, err)
	}
}

func TestIdempotencyKeyGivesTheStoredResponseOnce(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	p := w.serve()
	c, o := w.writer(p, catalog.Scale)
	entries := func() (n int) {
		t.Helper()
		if err := w.Pool.QueryRow(t.Context(), `select count(*) from audit_log where organization_id = $1`, o.ID).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	// twice sends a request two times. The second response is the first one, and writes nothing.
	twice := func(method, path, body string, status int, key string) reply {
		t.Helper()
		first := c.patient(method, path, body, "Idempotency-Key", key)
		n := entries()
		second := c.patient(method, path, body, "Idempotency-Key", `"`+key+`"`)
		if first.Status != status || second.Status != status || string(first.Body) != string(second.Body) || entries() != n ||
			first.Header.Get("ETag") != second.Header.Get("ETag") || first.Header.Get(resultHeader) != second.Header.Get(resultHeader) ||
			first.Header.Get(replayedHeader) != "" || second.Header.Get(replayedHeader) != "true" || second.Header.Get(relay.Header) != "complete" {
			t.Errorf("%s %s %s:\n%s\nand again:\n%s\nexpected %d and a replay", method, path, body, first, second, status)
		}
		return first
	}
	link := testenv.DecodeReply[catalog.Link](t, twice("POST", "/links", `{"path":"/a","params":{"b":1.0,"a":2}}`, 201, "create"))
	twice("PATCH", "/links/"+link.ID, `{"title":"new"}`, 200, "patch")
	twice("PATCH", "/links/"+link.ID, `{"path":"/b"}`, 200, "patch-2")
	twice("PATCH", "/links/"+link.ID, `{"title":"new"}`, 200, "patch-nothing")
	twice("PUT", "/links/external/one", `{"path":"/a"}`, 201, "put")
	twice("PUT", "/links/external/one", `{"path":"/a"}`, 200, "put-nothing")
	twice("PUT", "/links/external/one", `{"path":"/c"}`, 200, "put-change")
	twice("POST", "/links/bulk", `{"operations":[{"op":"create","link":{"path":"/a"}},{"op":"upsert","externalId":"one","link":{"path":"/c"}},{"op":"delete","externalId":"none"}]}`, 200, "bulk")
	twice("DELETE", "/links/external/one", ``, 200, "delete")
	twice("DELETE", "/links/"+link.ID, ``, 200, "delete")
	// The link is gone, and the response to its create stays. Order and white space of members do not matter, numbers as written do.
	again := c.patient("POST", "/links", ` {"params":{"a":2,"b":1.0}, "p\u0061th":"/a"}`, "Idempotency-Key", "create")
	if again.Status != 201 || again.Header.Get(replayedHeader) != "true" {
		t.Errorf("the same body written otherwise: %s, expected a replay", again)
	}
	for name, request := range map[string][]string{
		"a number written otherwise": {"/links", `{"path":"/a","params":{"b":1,"a":2}}`},
		"another query":              {"/links?x=1", `{"path":"/a","params":{"b":1.0,"a":2}}`},
		"a condition":                {"/links", `{"path":"/a","params":{"b":1.0,"a":2}}`, "If-Match", "*"},
	} {
		r := c.patient("POST", request[0], request[1], append([]string{"Idempotency-Key", "create"}, request[2:]...)...)
		if r.Status != 422 || r.Code() != "IDEMPOTENCY_KEY_REUSED" {
			t.Errorf("%s: %s, expected 422", name, r)
		}
	}
	// What is not 2xx is not stored.
	if r := c.patient("POST", "/links", `{"path":"/a","domainId":"`+nowhere+`"}`, "Idempotency-Key", "free"); r.Status != 404 {
		t.Errorf("%s, expected 404", r)
	}
	if r := c.patient("POST", "/links", `{"path":"/d"}`, "Idempotency-Key", "free"); r.Status != 201 || r.Header.Get(replayedHeader) != "" {
		t.Errorf("a key whose request failed before: %s, expected 201", r)
	}
	// After a day a key is new, also before it was purged. Another organization's keys are others.
	w.Exec(`update idempotency_keys set created_at = now() - interval '24 hours 1 second'`)
	if r := c.patient("POST", "/links", `{"path":"/e"}`, "Idempotency-Key", "create"); r.Status != 201 || r.Header.Get(replayedHeader) != "" {
		t.Errorf("a key after a day: %s, expected a new link", r)
	}
	if r := c.patient("POST", "/links", `{"path":"/e"}`, "Idempotency-Key", "create"); r.Status != 201 || r.Header.Get(replayedHeader) != "true" {
		t.Errorf("its repetition: %s, expected a replay", r)
	}
	foreign, _ := w.writer(p, catalog.Growth)
	if r := foreign.Do("POST", "/links", `{"path":"/f"}`, "Idempotency-Key", "create"); r.Status != 201 || r.Header.Get(replayedHeader) != "" {
		t.Errorf("another organization's key: %s, expected a new link", r)
	}
	// The key of another API key of the organization is the same one.
	other := p.client(w.APIKey(o.ID, apikey.Server))
	if r := other.Do("POST", "/links", `{"path":"/e"}`, "Idempotency-Key", "create"); r.Header.Get(replayedHeader) != "true" {
		t.Errorf("with a new API key: %s, expected a replay", r)
	}
	for value, ok := range map[string]bool{
		`a1`: true, `"a1"`: true, `"a\"b\\c"`: true, strings.Repeat("a", 255): true, `a=b/c?`: true,
		strings.Repeat("a", 256): false, `"`: false, `"a`: false, `a"b`: false, `a,b`: false, `a;b`: false, `a\b`: false, `""`: false, `"a b"`: false, `"a";x`: false, `"a\b"`: false, "é": false,
	} {
		r := other.patient("PATCH", "/links/"+nowhere, `{}`, "Idempotency-Key", value)
		if ok != (r.Status == 404) || !ok && (r.Status != 400 || r.Fields() != "Idempotency-Key") {
			t.Errorf("Idempotency-Key %.40s: %s, accepted expected: %t", value, r, ok)
		}
	}
	if r := other.patient("PATCH", "/links/42", `{"path":""}`, "Idempotency-Key", "a", "Idempotency-Key", "b", "If-Match", "x"); r.Fields() != "Idempotency-Key,If-Match,id,path" {
		t.Errorf("%s, expected details of headers, path and body together", r)
	}
	if r := other.patient("GET", "/links", "", "Idempotency-Key", "a,b"); r.Status != 200 {
		t.Errorf("GET with a malformed key: %s, expected that it is ignored", r)
	}
	if strings.Contains(p.Log.String(), "patch-nothing") {
		t.Error("an idempotency key is in the log")
	}
}

func TestKeyRegenerationRefusesIdempotencyKeys(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	p := w.provider()
	c := p.as(p.serve(), w.Tenant(catalog.Scale), "admin")
	const path = "/portal/api-keys/SERVER/regenerate"
	for range 10 {
		if r := c.Do("POST", path, "", "Idempotency-Key", "a"); r.Status != 400 || r.Fields() != "Idempotency-Key" {
			t.Errorf("%s, expected 400", r)
		}
	}
	if r := c.Do("POST", path, ""); r.Status != 429 {
		t.Errorf("%s, expected 429: each attempt consumes a point", r)
	}
}

// TestRepeatedRequestWaitsForTheFirstOne holds the lock of the organization's links for 7 seconds.
func TestRepeatedRequestWaitsForTheFirstOne(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	p, second := w.serve(), w.serve()
	c, o := w.writer(p, catalog.Scale)
	link := c.CreateLink(`{"path":"/a"}`)
	unlock := w.Hold(`select from link_usage where organization_id = $1 for update`, o.ID)
	began := time.Now()
	send := func(c *client) reply { return c.Do("DELETE", "/links/"+link.ID, "", "Idempotency-Key", "k") }
	first := make(chan reply, 1)
	go func() { first <- send(c) }()
	w.Blocked()
	// Another writer takes the other place of the organization, so that repeated requests cannot get one.
	other := make(chan reply, 1)
	go func() { other <- c.Do("POST", "/links", `{"path":"/b"}`) }()
	await(t, "two writers to wait for the lock", func() error {
		if n := len(w.LockWaits()); n < 2 {
			return fmt.Errorf("%d do", n)
		}
		return nil
	})
	var repeats sync.WaitGroup
	for _, c := range []*client{c, second.client(c.Key), c} {
		repeats.Go(func() {
			sent := time.Now()
			r := send(c)
			if took := time.Since(sent); r.Status != 409 || r.Code() != "IDEMPOTENCY_IN_PROGRESS" || r.Header.Get("Retry-After") != "" ||
				!strings.HasSuffix(r.Message(), "Retry after 1 second(s).") || took < 5*time.Second || took > 6*time.Second {
				t.Errorf("%v: %s, expected 409 after 5 s", took, r)
			}
		})
	}
	repeats.Wait()
	time.Sleep(time.Until(began.Add(7 * time.Second)))
	late := make(chan reply, 1)
	go func() { late <- send(second.client(c.Key)) }()
	unlock()
	done, replayed := <-first, <-late
	if r := <-other; done.Status != 200 || r.Status != 201 {
		t.Errorf("the first requests: %s and %s, expected 200 and 201", done, r)
	}
	if string(replayed.Body) != string(done.Body) || replayed.Header.Get(replayedHeader) != "true" {
		t.Errorf("the repeated request: %s, expected a replay of %s", replayed, done)
	}
	if n := p.Gauge(`deeplink_control_idempotency_total{result="in_progress"}`) + second.Gauge(`deeplink_control_idempotency_total{result="in_progress"}`); n != 3 {
		t.Errorf("%d requests counted as in progress, expected 3", n)
	}
}

func TestMalformedOperationsFailAlone(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	c, _ := w.writer(w.serve(), catalog.Scale)
	c.CreateLink(`{"path":"/a","externalId":"a"}`)
	var all []string
	for _, test := range malformedOperations {
		all = append(all, test.body)
	}
	all = append(all, `{"op":"update","externalId":"a","link":{"title":"good"}}`, `{"op":"create","link":{"path":"/b","title":"`+repeat(" ", decode.MaxBody)+`"}}`)
	r := c.Do("POST", "/links/bulk", `{"operations":[`+strings.Join(all, ",")+`]}`)
	results := testenv.DecodeReply[bulkResponse](t, r).Results
	for i, test := range malformedOperations {
		got := results[i]
		if got.Index != i || got.Status != 400 || got.Error == nil || len(got.Error.Details) != 1 || got.Error.Details[0].Field != test.field || got.Error.Message != "Validation failed" {
			t.Errorf("%s: %s: %+v, expected 400 with details of %s", test.name, test.body, got, test.field)
		}
	}
	if good, large := results[len(malformedOperations)], results[len(malformedOperations)+1]; good.Status != 200 || good.Result != store.Updated || large.Status != 413 {
		t.Errorf("%+v and %+v, expected an update and 413", good, large)
	}
	for body, field := range map[string]string{
		`{}`: "operations", `{"operations":[]}`: "operations", `{"operations":{}}`: "operations", `{"operations":null}`: "operations", `[]`: "body",
		`{"operations":[` + strings.TrimSuffix(repeat(`{},`, maxOperations+1), ",") + `]}`: "operations",
		`{"operations":[{}],"atomic":1}`: "atomic", `{"operations":[{}],"atomic":null}`: "atomic", `{"operations":[{}],"x":1}`: "x", `{"operations":[{}`: "operations",
		`{"operations":[{"op":"\u0000"}],"operations":[{}]}`: "operations", `{"operations":[{"op":"\u0000"}],"atomic":1e999}`: "atomic", `{"operations":[{"op":"\u0000"}}`: "operations",
		"{\"operations\":[{\"op\":\"\xff\"}]}": "operations[0].op",
		`{"operations":[{"op":"create","link":{"path":"/a","params":` + repeat(`{"a":`, 9) + `1` + repeat(`}`, 9) + `}}]}`: "operations[0].link.params",
	} {
		if r := c.patient("POST", "/links/bulk", body); r.Status != 400 || !strings.HasPrefix(r.Fields(), field) {
			t.Errorf("%.80s: %s, expected 400 about %s", body, r, field)
		}
	}
	if r := c.patient("POST", "/links/bulk", `{"operations":[{}]}`, "If-Match", "*", "If-None-Match", "*"); r.Fields() != "If-Match,If-None-Match" {
		t.Errorf("%s, expected 400 about both headers", r)
	}
	if r := c.patient("POST", "/links/bulk", `{"operations":[{"op":"create","link":{"path":"/a"}},`+all[3]+`],"atomic":true}`); r.Status != 400 || !strings.Contains(string(r.Body), `"failedIndex":1`) {
		t.Errorf("%s, expected 400 with failedIndex 1", r)
	}
}

func TestBulkHoldsTheQuotaExactly(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	p := w.serve()
	c, o := w.writer(p, catalog.Growth)
	w.Exec(`update link_usage set links = 50000 - 50 where organization_id = $1`, o.ID)
	creates := func(n int, atomic bool) string {
		return fmt.Sprintf(`{"operations":[%s],"atomic":%t}`, strings.TrimSuffix(repeat(`{"op":"create","link":{"path":"/a"}},`, n), ","), atomic)
	}
	count := func() (links int) {
		if err := w.Pool.QueryRow(t.Context(), `select count(*) from links where organization_id = $1`, o.ID).Scan(&links); err != nil {
			t.Fatal(err)
		}
		return links
	}
	r := c.Do("POST", "/links/bulk", creates(120, true))
	if r.Status != 402 || r.Code() != "QUOTA_EXCEEDED" || !strings.Contains(string(r.Body), `"failedIndex":50`) || count() != 0 {
		t.Errorf("atomic: %s and %d links, expected 402 at 50 and no link", r, count())
	}
	r = c.Do("POST", "/links/bulk", creates(120, false))
	statuses := map[int]int{}
	for _, result := range testenv.DecodeReply[bulkResponse](t, r).Results {
		statuses[result.Status]++
	}
	if statuses[201] != 50 || statuses[402] != 70 || count() != 50 {
		t.Errorf("%v and %d links, expected 50 times 201 and 70 times 402", statuses, count())
	}
	// A delete makes room for a later create.
	first := testenv.DecodeReply[linkPage](t, c.Do("GET", "/links?limit=1", "")).Data[0]
	r = c.Do("POST", "/links/bulk", `{"operations":[{"op":"create","link":{"path":"/a"}},{"op":"delete","id":"`+first.ID+`"},{"op":"create","link":{"path":"/a","shortCode":"`+first.ShortCode+`"}}]}`)
	results := testenv.DecodeReply[bulkResponse](t, r).Results
	if results[0].Status != 402 || results[1].Status != 200 || results[2].Status != 201 || count() != 50 {
		t.Errorf("%s, expected 402, 200 and 201", r)
	}
}

// TestBulkIsTheSameAsSingleRequests sends random operations in bulk and one by one, to organizations that are alike.
func TestBulkIsTheSameAsSingleRequests(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	p := w.serve()
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	for round := range 12 {
		bulk, _ := w.writer(p, catalog.Growth)
		single, _ := w.writer(p, catalog.Growth)
		alike(t, random, bulk, single)
		if t.Failed() {
			t.Fatalf("round %d of seed %d", round, seed)
		}
	}
}

// alike compares a bulk request with single ones. Ids of links differ between the organizations, so operations name links by external id.
func alike(t *testing.T, random *rand.Rand, bulk, single *client) {
	t.Helper()
	pick := func(values ...string) string { return values[random.IntN(len(values))] }
	var operations []string
	var statuses, results []string
	for range 40 {
		target := pick("a", "b", "c", "d")
		link := pick(`{}`, `{"title":"x"}`, `{"title":"y"}`, `{"path":"/p"}`, `{"path":"/q","shortCode":"one"}`, `{"shortCode":"two"}`, `{"shortCode":"THREE","path":"/r"}`, `{"tags":["t"]}`,
			`{"domainId":"`+nowhere+`"}`, `{"path":""}`, `{"channel":null,"og":{"title":"t"}}`)
		var method, path, body, operation string
		switch op := pick("create", "update", "update", "upsert", "upsert", "delete"); op {
		case "create":
			body = pick(`{"path":"/p"}`, `{"path":"/p","externalId":"`+target+`"}`, `{"path":"/p","shortCode":"one"}`, `{"path":"/p","shortCode":"Two","externalId":"`+target+`"}`, `{"title":"no path"}`)
			method, path, operation = "POST", "/links", `{"op":"create","link":`+body+`}`
		case "update":
			if random.IntN(3) == 0 {
				link = `{"externalId":` + pick(`"a"`, `"b"`, `"e"`, `null`) + `}`
			}
			method, body, operation = "PATCH", link, `{"op":"update","externalId":"`+target+`","link":`+link+`}`
		case "upsert":
			method, path, body, operation = "PUT", "/links/external/"+target, link, `{"op":"upsert","externalId":"`+target+`","link":`+link+`}`
		case "delete":
			method, path, operation = "DELETE", "/links/external/"+target, `{"op":"delete","externalId":"`+target+`"}`
		}
		if method == "PATCH" { // by id
			path = "/links/" + nowhere
			if r := single.patient("GET", "/links/external/"+target, ""); r.Status == 200 {
				path = "/links/" + testenv.DecodeReply[catalog.LinkWithDomain](t, r).ID
			}
		}
		r := single.patient(method, path, body)
		operations = append(operations, operation)
		statuses = append(statuses, fmt.Sprintf("%s: %d %s %s", operation, r.Status, r.Code(), strings.ReplaceAll(r.Fields(), "link.", "")))
	}
	r := bulk.patient("POST", "/links/bulk", `{"operations":[`+strings.Join(operations, ",")+`]}`)
	if r.Status != 200 || r.Header.Get(relay.Header) != "complete" {
		t.Fatalf("%s, expected 200", r)
	}
	for i, result := range testenv.DecodeReply[bulkResponse](t, r).Results {
		code, fields := "", ""
		if result.Error != nil {
			code = result.Error.Code
			var names []string
			for _, detail := range result.Error.Details {
				names = append(names, strings.TrimPrefix(detail.Field, "link."))
			}
			fields = strings.Join(names, ",")
		}
		results = append(results, fmt.Sprintf("%s: %d %s %s", operations[i], result.Status, code, fields))
		if result.ETag != "" && !slices.ContainsFunc(operations[i+1:], func(string) bool { return true }) {
			if tag := bulk.etag("/links/" + result.ID); tag != result.ETag {
				t.Errorf("the ETag of GET is %s, that of the result %s", tag, result.ETag)
			}
		}
	}
	if diff := cmp.Diff(statuses, results); diff != "" {
		t.Errorf("(-single +bulk):\n%s", diff)
	}
	if diff := cmp.Diff(comparable(t, single), comparable(t, bulk)); diff != "" {
		t.Errorf("links (-single +bulk) after %s:\n%s", strings.Join(statuses, "\n"), diff)
	}
}

// comparable returns the links of a client's organization without what differs in another one. A generated code is "generated".
func comparable(t *testing.T, c *client) (links []string) {
	t.Helper()
	for _, l := range testenv.DecodeReply[linkPage](t, c.patient("GET", "/links?limit=100", "")).Data {
		if len(l.ShortCode) == 8 {
			l.ShortCode = "generated"
		}
		l.ID, l.OrganizationID, l.DomainID, l.URL, l.CreatedAt, l.UpdatedAt = "", "", "", "", catalog.Time{}, catalog.Time{}
		links = append(links, string(jsonOf(t, l.Link)))
	}
	slices.Sort(links)
	return links
}

func TestCursorWalksEveryLinkOnce(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	p := w.serve()
	c, o := w.writer(p, catalog.Scale)
	w.Exec(`insert into links (id, organization_id, domain_id, short_code, path, channel, external_id, title, created_at)
		select gen_random_uuid(), $1, (select id from domains where organization_id = $1), 'c' || n, '/p', case when n % 3 = 0 then 'email' end, 'x' || n, 'even ' || n % 2,
		       now() - n / 7 * interval '1 s' from generate_series(1, 500) n`, o.ID)
	walk := func(query string, between func()) (codes []string, cursors []string) {
		t.Helper()
		cursor := ""
		for {
			r := c.patient("GET", "/links?after="+cursor+query, "")
			page := testenv.DecodeReply[cursorPage](t, r)
			if r.Status != 200 || len(page.Data) > page.Limit {
				t.Fatalf("%s: %s", query, r)
			}
			for _, l := range page.Data {
				codes = append(codes, l.ShortCode)
			}
			if page.NextCursor == nil {
				return codes, cursors
			}
			cursor = *page.NextCursor
			cursors = append(cursors, cursor)
			between()
		}
	}
	still := func() {}
	for query, n := range map[string]int{"": 500, "&limit=100": 500, "&channel=email&limit=7": 166, "&externalId=x9": 1, "&externalId=none": 0, "&search=even%201&limit=50": 250, "&isActive=true&channel=email": 166, "&limit=1&externalId=x1": 1} {
		codes, _ := walk(query, still)
		slices.Sort(codes)
		if len(codes) != n || len(slices.Compact(codes)) != n {
			t.Errorf("%q: %d links, expected %d different ones", query, len(codes), n)
		}
	}
	paged := testenv.DecodeReply[linkPage](t, c.patient("GET", "/links?limit=100&page=2", "")).Data
	first := testenv.DecodeReply[cursorPage](t, c.patient("GET", "/links?after=&limit=100&total=true", ""))
	second := testenv.DecodeReply[cursorPage](t, c.patient("GET", "/links?limit=100&after="+*first.NextCursor, ""))
	if *first.Total != 500 || second.Total != nil || second.Data[0].ID != paged[0].ID || second.Data[99].ID != paged[99].ID {
		t.Errorf("the second page by cursor is not that by number, or total is wrong: %v %v", *first.Total, second.Total)
	}

	// While other links come and go, those that stay are seen once. The link at the cursor itself is deleted.
	gone := 0
	codes, cursors := walk("&limit=20", func() {
		gone++
		c.patient("PUT", fmt.Sprintf("/links/external/new-%d", gone), `{"path":"/new"}`)
		c.patient("DELETE", fmt.Sprintf("/links/external/x%d", gone*20), "")
		c.patient("PUT", fmt.Sprintf("/links/external/x%d", gone*20-3), `{"title":"edited"}`)
	})
	seen := map[string]int{}
	for _, code := range codes {
		seen[code]++
	}
	for n := 1; n <= 500; n++ {
		if seen[fmt.Sprintf("c%d", n)] > 1 || seen[fmt.Sprintf("c%d", n)] == 0 && n%20 != 0 {
			t.Errorf("the link c%d was seen %d times", n, seen[fmt.Sprintf("c%d", n)])
		}
	}

	// A cursor works on another control, in the portal's form of it, after its link was deleted, and nowhere else.
	cursor := cursors[3]
	if r := w.serve().client(c.Key).Do("GET", "/links?limit=3&after="+cursor, ""); r.Status != 200 {
		t.Errorf("another control: %s, expected 200", r)
	}
	stranger, _ := w.writer(p, catalog.Scale)
	for name, r := range map[string]reply{
		"another organization": stranger.Do("GET", "/links?after="+cursor, ""), "another filter": c.patient("GET", "/links?channel=email&after="+cursor, ""),
		"longer": c.patient("GET", "/links?after="+cursor+"A", ""), "a line break": c.patient("GET", "/links?after="+cursor+"%0A", ""), "shorter": c.patient("GET", "/links?after="+cursor[:59], ""),
	} {
		if r.Status != 400 || r.Fields() != "after" {
			t.Errorf("%s: %s, expected 400 about after", name, r)
		}
	}
	codec := cursorCodec{key: []byte("k"), organizationID: o.ID}
	made, err := codec.encode(store.LinkPosition{CreatedAt: time.Now(), ID: nowhere})
	if err != nil {
		t.Fatal(err)
	}
	for i := range made {
		for _, other := range "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_=+/ \n" {
			altered := made[:i] + string(other) + made[i+1:]
			if _, ok := codec.decode(altered); ok != (altered == made) {
				t.Errorf("cursor %s, with character %d as %q: accepted %t", made, i, other, ok)
			}
		}
	}
}

// TestConcurrentWritesOverTwoControlsAreExact has 200 clients put one external id, then bulk requests fill up a quota.
func TestConcurrentWritesOverTwoControlsAreExact(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	controls := []*process{w.serve(), w.serve()}
	c, o := w.writer(controls[0], catalog.Growth)
	clients := []*client{c, controls[1].client(w.APIKey(o.ID, apikey.Server))}
	all := func(n int, send func(c *client) reply) []reply {
		replies := make([]reply, n)
		var senders sync.WaitGroup
		for i := range n {
			senders.Go(func() { replies[i] = send(clients[i%2]) })
		}
		senders.Wait()
		return replies
	}
	put := func(c *client) reply { return c.patient("PUT", "/links/external/one", `{"path":"/a","title":"t"}`) }
	results := map[string]int{}
	for _, r := range all(200, put) {
		results[fmt.Sprint(r.Status, " ", r.Header.Get(resultHeader))]++
	}
	if results["201 created"] != 1 || results["200 unchanged"] != 199 {
		t.Errorf("%v, expected 201 once and 199 times 200", results)
	}
	tag := c.etag("/links/external/one")
	for _, r := range all(4, put) {
		if r.Header.Get(resultHeader) != "unchanged" || r.Header.Get("ETag") != tag {
			t.Errorf("%s, expected unchanged with the ETag %s", r, tag)
		}
	}
	var links, entries int
	count := func() {
		t.Helper()
		if err := w.Pool.QueryRow(t.Context(), `select (select count(*) from links where organization_id = $1), (select count(*) from audit_log where organization_id = $1)`, o.ID).Scan(&links, &entries); err != nil {
			t.Fatal(err)
		}
	}
	if count(); links != 1 || entries != 1 {
		t.Errorf("%d links and %d audit entries, expected one each", links, entries)
	}

	w.Exec(`update link_usage set links = 50000 - 300 where organization_id = $1`, o.ID)
	statuses := map[int]int{}
	for _, r := range all(10, func(c *client) reply {
		return c.patient("POST", "/links/bulk", `{"operations":[`+strings.TrimSuffix(repeat(`{"op":"create","link":{"path":"/a"}},`, 100), ",")+`]}`)
	}) {
		for _, result := range testenv.DecodeReply[bulkResponse](t, r).Results {
			statuses[result.Status]++
		}
	}
	if count(); statuses[201] != 300 || statuses[402] != 700 || links != 301 || entries != 301 {
		t.Errorf("%v, %d links and %d audit entries, expected 300 creates", statuses, links, entries)
	}
}

// TestBulkRequestsHaveAWindowOfTheirOwn is not parallel: what it sends has to be sent within a second.
func TestBulkRequestsHaveAWindowOfTheirOwn(t *testing.T) {
	w := newTestEnv(t)
	c, _ := w.writer(w.serve(), catalog.Growth)
	const body = `{"operations":[{"op":"delete","externalId":"none"}]}`
	await(t, "13 requests within a second", func() error {
		time.Sleep(1100 * time.Millisecond)
		began := time.Now()
		admitted := 0
		for range 13 {
			r := c.Do("POST", "/links/bulk", body)
			if r.Status == 200 {
				admitted++
			} else if r.Status != 429 || r.Message() != "Rate limit exceeded. Retry after 1 second(s)." {
				t.Fatalf("%s, expected 200 or 429", r)
			}
		}
		if time.Since(began) > 900*time.Millisecond {
			return fmt.Errorf("they took %v", time.Since(began))
		}
		if admitted != 10 {
			t.Errorf("%d bulk requests were admitted in a second, expected 10", admitted)
		}
		// The rejected ones do not count as link writes, either.
		for i := range 90 {
			if r := c.Do("DELETE", "/links/"+nowhere, ""); r.Status != 404 {
				t.Errorf("write %d: %s, expected 404", i, r)
				break
			}
		}
		return nil
	})
}
