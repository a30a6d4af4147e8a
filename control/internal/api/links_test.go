package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"deeplink/control/internal/relay"
	"deeplink/control/internal/store"
	"deeplink/control/internal/testenv"
	"deeplink/shared/catalog"
)

const fullLink = `{
	"path": "/products/42?color=red#top", "shortCode": "Spring-Sale_1", "channel": "email",
	"utmSource": "news", "utmMedium": "mail", "utmCampaign": "spring", "utmTerm": "boots", "utmContent": "a",
	"fallbackUrl": "https://example.com/p/42?x=1", "og": {"title": "T", "description": "D", "imageUrl": "https://example.com/i.png"},
	"title": "Internal", "tags": ["one", " two ", "one"], "expiry": "2030-01-31T12:00:00+01:00", "templateId": "t-1",
	"params": {"n": 1.50, "deep": {"a": [1, "<&>"]}}, "isActive": true}`

// members are the names of the fields of a link in a response.
var members = []string{"channel", "createdAt", "domainId", "expiry", "externalId", "fallbackUrl", "id", "isActive", "og", "organizationId", "params",
	"path", "shortCode", "tags", "templateId", "title", "updatedAt", "url", "utmCampaign", "utmContent", "utmMedium", "utmSource", "utmTerm"}

func names(t *testing.T, body []byte) []string {
	t.Helper()
	var object map[string]json.RawMessage
	if err := json.Unmarshal(body, &object); err != nil {
		t.Fatalf("%v in %s", err, body)
	}
	var names []string
	for name := range object {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func TestLinkIsCreatedReadChangedAndDeletedAsTheInterfaceSays(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	organization := w.Organization(catalog.Scale)
	c := w.serve().client(*organization.ServerKey)

	var created reply
	await(t, "a link whose changes were complete in time", func() error {
		created = c.Do("POST", "/links", fullLink)
		if created.Status != http.StatusCreated || created.Header.Get(relay.Header) != "pending" {
			return nil
		}
		c.Do("DELETE", "/links/"+testenv.DecodeReply[catalog.Link](t, created).ID, "")
		return errors.New("pending")
	})
	if created.Status != http.StatusCreated || created.Header.Get(relay.Header) != "complete" || created.Header.Get("Content-Type") != "application/json" {
		t.Fatalf("POST /links: %s, expected 201, propagated, JSON", created)
	}
	if diff := cmp.Diff(members, names(t, created.Body)); diff != "" {
		t.Errorf("POST /links returns other fields (-expected +got):\n%s", diff)
	}
	link := testenv.DecodeReply[catalog.Link](t, created)
	if expected := testLinkBase + "/" + organization.OrgKey + "/Spring-Sale_1"; link.URL != expected {
		t.Errorf("url %q, expected %q", link.URL, expected)
	}
	for _, expected := range []string{
		`"path":"/products/42?color=red#top"`, `"tags":["one","two"]`, `"expiry":"2030-01-31T11:00:00.000Z"`,
		`"params":{"n":1.50,"deep":{"a":[1,"<&>"]}}`, `"isActive":true`, `"organizationId":"` + organization.ID + `"`,
	} {
		if !strings.Contains(string(created.Body), expected) {
			t.Errorf("POST /links returns %s, expected %s in it", created.Body, expected)
		}
	}

	read := c.Do("GET", "/links/"+strings.ToUpper(link.ID), "")
	withDomain := testenv.DecodeReply[catalog.LinkWithDomain](t, read)
	if read.Status != http.StatusOK || withDomain.Domain.Host != "go.example.com" || !withDomain.Domain.IsDefault || withDomain.Domain.ID != link.DomainID {
		t.Errorf("GET: %s, expected 200 with the default domain", read)
	}
	if diff := cmp.Diff(link, withDomain.Link); diff != "" {
		t.Errorf("GET returns another link than POST (-POST +GET):\n%s", diff)
	}

	patched := c.Do("PATCH", "/links/"+link.ID, `{"title": null, "og": {"title": null}, "path": "/new"}`, "Content-Type", "", "Content-Type", "application/merge-patch+json")
	changed := testenv.DecodeReply[catalog.Link](t, patched)
	if patched.Status != http.StatusOK || patched.Header.Get(relay.Header) != "complete" {
		t.Errorf("PATCH: %s, expected 200, propagated", patched)
	}
	expected := link
	expected.Path, expected.Title, expected.OG, expected.UpdatedAt = "/new", nil, &catalog.OpenGraph{Description: link.OG.Description, ImageURL: link.OG.ImageURL}, changed.UpdatedAt
	if diff := cmp.Diff(expected, changed); diff != "" {
		t.Errorf("PATCH (-expected +got):\n%s", diff)
	}
	if diff := cmp.Diff(members, names(t, patched.Body)); diff != "" {
		t.Errorf("PATCH returns other fields (-expected +got):\n%s", diff)
	}

	deleted := c.Do("DELETE", "/links/"+link.ID, "")
	if deleted.Status != http.StatusOK || strings.TrimSpace(string(deleted.Body)) != `{"id":"`+link.ID+`","deleted":true}` || deleted.Header.Get(relay.Header) != "complete" {
		t.Errorf("DELETE: %s, expected 200, propagated", deleted)
	}
	for _, request := range [][2]string{{"GET", ""}, {"PATCH", "{}"}, {"DELETE", ""}} {
		if r := c.Do(request[0], "/links/"+link.ID, request[1]); r.Status != http.StatusNotFound || r.Header.Get(relay.Header) != "complete" {
			t.Errorf("%s after DELETE: %s, expected 404 after the same barrier", request[0], r)
		}
	}
	if again := c.CreateLink(fullLink); again.ShortCode != link.ShortCode || again.ID == link.ID {
		t.Errorf("the code of a deleted link: got %+v, expected a new link with it", again)
	}
}

func TestMinimalLinkHasEveryFieldAndItsDefaults(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	organization := w.Organization(catalog.Growth)
	c := w.serve().client(*organization.ServerKey)
	r := c.Do("POST", "/links", `{"path":"home"}`, "Content-Type", "", "Content-Type", "application/json; charset=utf-8")
	if diff := cmp.Diff(members, names(t, r.Body)); diff != "" || r.Status != http.StatusCreated {
		t.Errorf("%s (-expected +got):\n%s", r, diff)
	}
	link := testenv.DecodeReply[catalog.Link](t, r)
	if len(link.ShortCode) != 8 || !link.IsActive || link.Path != "home" {
		t.Errorf("%+v, expected 8 characters of code, active, the path as sent", link)
	}
	// A client can send back what it has read: output fields are ignored.
	whole := c.Do("GET", "/links/"+link.ID, "")
	back := c.Do("PATCH", "/links/"+link.ID, string(whole.Body))
	if diff := cmp.Diff(link, testenv.DecodeReply[catalog.Link](t, back)); back.Status != http.StatusOK || diff != "" {
		t.Errorf("PATCH with the response of GET: %s, expected 200 and an unchanged link\n%s", back, diff)
	}
}

func TestListPagesAndFilters(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	organization, other := w.Organization(catalog.Growth), w.Organization(catalog.Growth)
	p := w.serve()
	c := p.client(*organization.ServerKey)
	p.client(*other.ServerKey).CreateLink(`{"path":"/foreign"}`)
	domain, _, _, err := w.Store.AddDomain(context.Background(), testenv.Actor, organization.ID, store.Unconditional, "links.example.org", true)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 25 {
		body := fmt.Sprintf(`{"path":"/p/%d","isActive":%t,"title":"Title %d","tags":["t%d"],"channel":%q}`, i, i%2 == 0, i, i%5, []string{"email", "sms"}[i%2])
		c.CreateLink(body)
	}
	c.CreateLink(`{"path":"/own","domainId":"` + domain.ID + `","shortCode":"own"}`)

	for query, expected := range map[string]struct{ total, onPage, page, limit int }{
		"":                           {26, 20, 1, 20},
		"?page=2":                    {26, 6, 2, 20},
		"?page=2&limit=25":           {26, 1, 2, 25},
		"?limit=100":                 {26, 26, 1, 100},
		"?page=3":                    {26, 0, 3, 20},
		"?page=9007199254740991":     {26, 0, 1<<53 - 1, 20},
		"?isActive=true":             {14, 14, 1, 20},
		"?isActive=false":            {12, 12, 1, 20},
		"?search=title%201":          {11, 11, 1, 20},
		"?search=%25":                {0, 0, 1, 20},
		"?search=OWN":                {1, 1, 1, 20},
		"?search=":                   {26, 20, 1, 20},
		"?tag=t3":                    {5, 5, 1, 20},
		"?channel=sms":               {12, 12, 1, 20},
		"?channel=sms&isActive=true": {0, 0, 1, 20},
		"?domainId=" + domain.ID:     {1, 1, 1, 20},
		"?domainId=" + other.ID:      {0, 0, 1, 20},
		"?unknown=1&unknown=2":       {26, 20, 1, 20},
	} {
		r := c.Do("GET", "/links"+query, "")
		if r.Status != http.StatusOK {
			t.Errorf("GET /links%s: %s, expected 200", query, r)
			continue
		}
		got := testenv.DecodeReply[linkPage](t, r)
		if int(got.Total) != expected.total || len(got.Data) != expected.onPage || got.Page != expected.page || got.Limit != expected.limit {
			t.Errorf("GET /links%s: total %d, %d on page %d of %d, expected %+v", query, got.Total, len(got.Data), got.Page, got.Limit, expected)
		}
		if strings.Contains(string(r.Body), "/foreign") || strings.Contains(string(r.Body), `"data":null`) {
			t.Errorf("GET /links%s: %s, expected own links in an array", query, r)
		}
	}
	all := testenv.DecodeReply[linkPage](t, c.Do("GET", "/links?limit=100", "")).Data
	if !slices.IsSortedFunc(all, func(a, b catalog.LinkWithDomain) int { return b.CreatedAt.Compare(a.CreatedAt.Time) }) || all[0].Path != "/own" {
		t.Errorf("the list is not sorted from the newest")
	}
	if all[0].Domain.Host != "links.example.org" || !all[0].Domain.IsCustom || all[0].URL != "https://links.example.org/own" {
		t.Errorf("the link on a custom domain has %q and domain %+v", all[0].URL, all[0].Domain)
	}
}

func TestBadListQueryNamesEachBadParameterOnce(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	c := w.serve().client(*w.Organization(catalog.Growth).ServerKey)
	for query, fields := range map[string]string{
		"?page=0":                              "page",
		"?page=-1":                             "page",
		"?page=1.0":                            "page",
		"?page=%2B1":                           "page",
		"?page=":                               "page",
		"?page=9007199254740992":               "page",
		"?page=99999999999999999999999":        "page",
		"?page=1&page=2":                       "page",
		"?limit=0":                             "limit",
		"?limit=101":                           "limit",
		"?limit=abc":                           "limit",
		"?isActive=1":                          "isActive",
		"?isActive=TRUE":                       "isActive",
		"?channel=fax":                         "channel",
		"?domainId=1":                          "domainId",
		"?search=%00":                          "search",
		"?search=%ff":                          "search",
		"?search=" + strings.Repeat("a", 2049): "search",
		"?tag=" + strings.Repeat("a", 65):      "tag",
		"?externalId=":                         "externalId",
		"?externalId=a%2Fb":                    "externalId",
		"?after=x":                             "after",
		"?after=&page=1":                       "after",
		"?after=&total=1":                      "total",
		"?after=&after=":                       "after",
		"?page=%zz":                            "query",
		"?page=0&limit=0&isActive=x&channel=&tag=a%0ab": "page,limit,isActive,tag,channel",
	} {
		r := c.Do("GET", "/links"+query, "")
		if r.Status != http.StatusBadRequest || r.Message() != "Validation failed" || r.Fields() != fields {
			t.Errorf("GET /links%s: %s, expected 400 with details of %s", query, r, fields)
		}
	}
}

// TestErrorsOfLinkRoutes has a row for each error of the routes under /links that does not depend on the key.
func TestErrorsOfLinkRoutes(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	organization, other := w.Organization(catalog.Growth), w.Organization(catalog.Growth)
	p := w.serve()
	c := p.client(*organization.ServerKey)
	c.CreateLink(`{"path":"/a","shortCode":"Taken"}`)
	second := c.CreateLink(`{"path":"/b","shortCode":"second"}`)
	foreign := p.client(*other.ServerKey).CreateLink(`{"path":"/foreign"}`)

	const unknown = "00000000-0000-7000-8000-000000000000"
	for _, test := range []struct {
		name, method, path, body string
		status                   int
		code, fields             string
	}{
		{"path missing", "POST", "/links", `{}`, 400, "", "path"},
		{"path null", "POST", "/links", `{"path":null}`, 400, "", "path"},
		{"unknown channel", "POST", "/links", `{"path":"/a","channel":"fax"}`, 400, "", "channel"},
		{"malformed domain id", "POST", "/links", `{"path":"/a","domainId":"1"}`, 400, "", "domainId"},
		{"unknown field", "POST", "/links", `{"path":"/a","utmsource":"x"}`, 400, "", "utmsource"},
		{"every bad field at once", "POST", "/links", `{"channel":"fax","utmSource":1,"og":{"title":2},"zzz":1}`, 400, "", "path,channel,utmSource,og.title,zzz"},
		{"domain not in the organization", "POST", "/links", `{"path":"/a","domainId":"` + foreign.DomainID + `"}`, 404, "", ""},
		{"unknown domain", "POST", "/links", `{"path":"/a","domainId":"` + unknown + `"}`, 404, "", ""},
		{"short code taken", "POST", "/links", `{"path":"/a","shortCode":"Taken"}`, 409, "", ""},
		{"short code taken in another case", "POST", "/links", `{"path":"/a","shortCode":"tAKEN"}`, 409, "", ""},
		{"read a malformed id", "GET", "/links/42", ``, 400, "", "id"},
		{"read an unknown id", "GET", "/links/" + unknown, ``, 404, "", ""},
		{"read a foreign id", "GET", "/links/" + foreign.ID, ``, 404, "", ""},
		{"patch a malformed id", "PATCH", "/links/42", `{}`, 400, "", "id"},
		{"patch an unknown id", "PATCH", "/links/" + unknown, `{}`, 404, "", ""},
		{"patch a foreign id", "PATCH", "/links/" + foreign.ID, `{"path":"/x"}`, 404, "", ""},
		{"patch to a taken code", "PATCH", "/links/" + second.ID, `{"shortCode":"taken"}`, 409, "", ""},
		{"patch to an unknown channel", "PATCH", "/links/" + second.ID, `{"channel":"fax"}`, 400, "", "channel"},
		{"patch path to null", "PATCH", "/links/" + second.ID, `{"path":null,"shortCode":null}`, 400, "", "path,shortCode"},
		{"patch to a foreign domain", "PATCH", "/links/" + second.ID, `{"domainId":"` + foreign.DomainID + `"}`, 404, "", ""},
		{"delete a malformed id", "DELETE", "/links/42", ``, 400, "", "id"},
		{"delete an unknown id", "DELETE", "/links/" + unknown, ``, 404, "", ""},
		{"delete a foreign id", "DELETE", "/links/" + foreign.ID, ``, 404, "", ""},
		{"QR of a malformed id", "GET", "/links/42/qr.svg", ``, 400, "", "id"},
		{"QR of an unknown id", "GET", "/links/" + unknown + "/qr.png", ``, 404, "", ""},
		{"QR of a foreign id", "GET", "/links/" + foreign.ID + "/qr.svg", ``, 404, "", ""},
	} {
		r := c.Do(test.method, test.path, test.body)
		if r.Status != test.status || r.Code() != test.code || r.Fields() != test.fields {
			t.Errorf("%s: %s %s %s: %s, expected %d %q with details of %q", test.name, test.method, test.path, test.body, r, test.status, test.code, test.fields)
		}
	}
	if read := p.client(*other.ServerKey).Do("GET", "/links/"+foreign.ID, ""); testenv.DecodeReply[catalog.LinkWithDomain](t, read).Path != "/foreign" {
		t.Errorf("the foreign link was changed: %s", read)
	}
}

func TestPatchThatChangesNothingReturnsTheLink(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	c := w.serve().client(*w.Organization(catalog.Growth).ServerKey)
	link := c.CreateLink(fullLink)
	r := c.Do("PATCH", "/links/"+link.ID, `{}`)
	if diff := cmp.Diff(link, testenv.DecodeReply[catalog.Link](t, r)); r.Status != http.StatusOK || r.Header.Get(relay.Header) != "complete" || diff != "" {
		t.Errorf("%s, expected the link unchanged\n%s", r, diff)
	}
}

func TestExpiryInThePastIsAccepted(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	c := w.serve().client(*w.Organization(catalog.Growth).ServerKey)
	link := c.CreateLink(`{"path":"/a","expiry":"2001-01-01T00:00:00Z"}`)
	if !link.Expiry.Equal(time.Date(2001, 1, 1, 0, 0, 0, 0, time.UTC)) {
		t.Errorf("expiry %v", link.Expiry)
	}
}
