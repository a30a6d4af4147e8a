package main

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestDataReturnsThePublicFields(t *testing.T) {
	t.Parallel()
	e := startEdge(t, nil)
	r := rows{t, e.owner}
	organization := r.organization("abcd")
	id := r.link(organization, "Full", map[string]any{
		"path": "/items/1?a=<b>&c", "channel": "email", "utm_source": "s", "utm_medium": "m", "utm_campaign": "c", "utm_term": "t", "utm_content": "o",
		"fallback_url": "https://shop.example.com/?a&b", "og_title": "Title", "og_image_url": "https://cdn.example.com/x.png",
		"expiry": "2199-01-02T03:04:05.678Z", "params": `{"n": 1.0, "deep": {"a": [1, 2]}}`,
		"title": "internal", "tags": []string{"internal"}, "template_id": "internal",
	})
	bare := r.link(organization, "bare", nil)
	custom := r.link(organization, "Custom", map[string]any{"domain_id": r.domain(organization, "links.customer.example", "verified")})

	for _, test := range []struct{ path, host, want string }{
		{"/abcd/full/data", "go.example.com", `{"id":"` + id + `","url":"https://go.example.com/abcd/Full","shortCode":"Full","path":"/items/1?a=<b>&c",` +
			`"params":{"n":1.0,"deep":{"a":[1,2]}},"channel":"email","utmSource":"s","utmMedium":"m","utmCampaign":"c","utmTerm":"t","utmContent":"o",` +
			`"fallbackUrl":"https://shop.example.com/?a&b","og":{"title":"Title","description":null,"imageUrl":"https://cdn.example.com/x.png"},"expiry":"2199-01-02T03:04:05.678Z"}`},
		{"/abcd/BARE/data?x=1", "go.example.com", `{"id":"` + bare + `","url":"https://go.example.com/abcd/bare","shortCode":"bare","path":"somewhere",` +
			`"params":null,"channel":null,"utmSource":null,"utmMedium":null,"utmCampaign":null,"utmTerm":null,"utmContent":null,"fallbackUrl":null,"og":null,"expiry":null}`},
		{"/custom/data", "links.customer.example", `{"id":"` + custom + `","url":"https://links.customer.example/Custom","shortCode":"Custom","path":"somewhere",` +
			`"params":null,"channel":null,"utmSource":null,"utmMedium":null,"utmCampaign":null,"utmTerm":null,"utmContent":null,"fallbackUrl":null,"og":null,"expiry":null}`},
	} {
		for _, method := range []string{"GET", "HEAD"} {
			a := e.ask(t, method, test.path, "Host: "+test.host)
			checkHeaders(t, a)
			want := test.want
			if method == "HEAD" {
				want = ""
			}
			if diff := cmp.Diff(want, a.body); diff != "" || a.status != 200 {
				t.Errorf("%s %s: %d (-expected +got):\n%s", method, test.path, a.status, diff)
			}
			if a.header.Get("Content-Type") != "application/json" || a.header.Get("Access-Control-Allow-Origin") != "*" ||
				a.header.Get("Content-Length") != fmt.Sprint(len(test.want)) {
				t.Errorf("%s %s: header %v", method, test.path, a.header)
			}
		}
	}
}
