package main

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"deeplink/shared/ratelimit"
	"deeplink/shared/testdb"
)

// Every row of interface.md 7 and decisions.md 3 that belongs to short URLs, in the order in which they are judged.
func TestVerdicts(t *testing.T) {
	t.Parallel()
	e := startEdge(t, nil)
	r := rows{t, e.owner}
	past, future := time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	to := map[string]any{"fallback_url": "https://shop.example.com/"}
	with := func(more map[string]any) map[string]any {
		columns := map[string]any{"fallback_url": "https://shop.example.com/"}
		for name, value := range more {
			columns[name] = value
		}
		return columns
	}
	good := r.organization("abcd")
	r.link(good, "Good", to)
	r.link(good, "later", with(map[string]any{"expiry": future}))
	r.link(good, "off", with(map[string]any{"is_active": false}))
	r.link(good, "over", with(map[string]any{"expiry": past}))
	r.link(good, "offover", with(map[string]any{"is_active": false, "expiry": past}))
	bad := r.organization("zz99")
	r.link(bad, "good", to)
	r.link(bad, "off", with(map[string]any{"is_active": false}))
	r.exec(`update organizations set suspended = true where id = $1`, bad)

	for _, test := range []struct {
		path    string
		status  int
		message string
	}{
		{"/abcd/Good", 302, ""},
		{"/abcd/later", 302, ""},
		{"/ABCD/gOOD", 302, ""},

		{"/abc/Good", 400, "Validation failed"},
		{"/abcde/Good", 400, "Validation failed"},
		{"/ab-d/Good", 400, "Validation failed"},
		{"/ab_d/Good", 400, "Validation failed"},
		{"/ab.d/Good", 400, "Validation failed"},
		{"/ab%20/Good", 400, "Validation failed"},
		{"/\u00e4\u00e4/Good", 400, "Validation failed"},
		{"/x/Good", 400, "Validation failed"},
		{"/abc/!", 400, "Validation failed"},
		{"/zz9/off", 400, "Validation failed"},

		{"/", 404, "There is nothing at this path."},
		{"/abcd", 404, "There is nothing at this path."},
		{"/abcd/", 404, "There is nothing at this path."},
		{"/abcde", 404, "There is nothing at this path."},
		{"/match", 404, "There is nothing at this path."},
		{"/.well-known/assetlinks.json", 404, "There is nothing at this path."},
		{"/.well-known/apple-app-site-association", 404, "There is nothing at this path."},
		{"/abcd/Good/more", 404, "There is nothing at this path."},
		{"/abcd/Good/data/more", 404, "There is nothing at this path."},
		{"/abcd/-good", 404, "There is nothing at this path."},
		{"/abcd/_good", 404, "There is nothing at this path."},
		{"/abcd/go.od", 404, "There is nothing at this path."},
		{"/abcd/nothing", 404, "Link not found."},
		{"/data/good", 404, "Link not found."},
		{"/docs/good", 404, "Link not found."},
		{"/zzzz/good", 404, "Link not found."},
		{"/zz99/nothing", 404, "Link not found."},

		{"/zz99/good", 410, "This link is not available."},
		{"/zz99/off", 410, "This link is not available."},
		{"/abcd/off", 410, "This link has been deactivated."},
		{"/abcd/offover", 410, "This link has been deactivated."},
		{"/abcd/over", 410, "This link has expired."},
	} {
		t.Run(test.path, func(t *testing.T) {
			t.Parallel()
			for _, method := range []string{"GET", "HEAD"} {
				a := e.ask(t, method, test.path)
				checkHeaders(t, a)
				if a.status != test.status {
					t.Fatalf("%s %s: %d, expected %d\n%s", method, test.path, a.status, test.status, a.body)
				}
				if method == "HEAD" || test.status == 302 {
					if a.body != "" {
						t.Errorf("%s %s has a body: %q", method, test.path, a.body)
					}
					continue
				}
				checkEnvelope(t, a, test.path)
				if got := a.envelope(t)["message"]; got != test.message {
					t.Errorf("%s: message %q, expected %q", test.path, got, test.message)
				}
				details, _ := json.Marshal(a.envelope(t)["details"])
				if want := `[{"field":"orgKey","message":"must be 4 letters or digits"}]`; (string(details) == want) != (test.status == 400) {
					t.Errorf("%s: details %s", test.path, details)
				}
			}
			// The data of a link are judged like the link.
			if test.status == 410 || test.message == "Link not found." || test.message == "Validation failed" && !strings.HasSuffix(test.path, "!") {
				a := e.get(t, test.path+"/data")
				if a.status != test.status || a.header.Get("Access-Control-Allow-Origin") != "*" {
					t.Errorf("%s/data: %d, allowed origin %q; expected %d and *", test.path, a.status, a.header.Get("Access-Control-Allow-Origin"), test.status)
				}
				checkEnvelope(t, a, test.path+"/data")
			}
		})
	}
}

func TestRedirects(t *testing.T) {
	t.Parallel()
	e := startEdge(t, nil)
	r := rows{t, e.owner}
	organization := r.organization("abcd")
	r.link(organization, "plain", map[string]any{"fallback_url": "https://shop.example.com/a%2Fb//c/../d?x=1&y#top"})
	r.link(organization, "utm", map[string]any{"fallback_url": "https://shop.example.com/?utm_source=own", "utm_source": "link", "utm_campaign": "spring sale"})
	r.link(organization, "none", nil)
	other := r.organization("wxyz")
	r.link(other, "own", map[string]any{"fallback_url": "https://own.example.com/"})
	r.link(other, "ours", map[string]any{"utm_medium": "email"})
	r.exec(`insert into app_configs (organization_id, fallback_url) values ($1, 'https://app.example.com/get?ref=1')`, other)

	for path, want := range map[string]string{
		"/abcd/plain":                     "https://shop.example.com/a%2Fb//c/../d?x=1&y#top",
		"/abcd/plain?":                    "https://shop.example.com/a%2Fb//c/../d?x=1&y#top",
		"/abcd/plain?x=2&z=%20":           "https://shop.example.com/a%2Fb//c/../d?y&x=2&z=%20#top",
		"/abcd/plain?to=http://x.example": "https://shop.example.com/a%2Fb//c/../d?x=1&y&to=http://x.example#top",
		"/abcd/utm":                       "https://shop.example.com/?utm_source=own&utm_campaign=spring+sale",
		"/abcd/utm?utm_campaign=v&mt=tok": "https://shop.example.com/?utm_source=own&utm_campaign=v",
		"/wxyz/own":                       "https://own.example.com/",
		"/wxyz/ours":                      "https://app.example.com/get?ref=1&utm_medium=email",
		"/wxyz/ours?ref=2":                "https://app.example.com/get?utm_medium=email&ref=2",
	} {
		for _, method := range []string{"GET", "HEAD"} {
			a := e.ask(t, method, path)
			if a.status != 302 || a.header.Get("Location") != want || a.header.Get("Content-Type") != "" {
				t.Errorf("%s %s: %d to %q as %q, expected 302 to %q", method, path, a.status, a.header.Get("Location"), a.header.Get("Content-Type"), want)
			}
			checkHeaders(t, a)
		}
	}
}

func TestLandingPageIsServedWithoutDestination(t *testing.T) {
	t.Parallel()
	e := startEdge(t, nil)
	r := rows{t, e.owner}
	r.link(r.organization("abcd"), "Page", map[string]any{"og_title": "Hello", "og_description": "there"})
	nonces := make(map[string]bool)
	for range 3 {
		a := e.get(t, "/abcd/page?x=1")
		checkHeaders(t, a)
		if a.status != 200 || a.header.Get("Content-Type") != "text/html; charset=utf-8" || a.header.Get("Location") != "" {
			t.Fatalf("%d as %q to %q", a.status, a.header.Get("Content-Type"), a.header.Get("Location"))
		}
		policy := regexp.MustCompile(`^default-src 'none'; style-src 'nonce-([A-Za-z0-9+/=_-]{22,})'; img-src https: data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'$`)
		nonce := policy.FindStringSubmatch(a.header.Get("Content-Security-Policy"))
		if nonce == nil {
			t.Fatalf("Content-Security-Policy %q, expected %s", a.header.Get("Content-Security-Policy"), policy)
		}
		if strings.Count(a.body, `nonce="`+nonce[1]+`"`) != 1 || strings.Count(a.body, "<style") != 1 || strings.Contains(a.body, "<script") {
			t.Errorf("the page does not fit its policy %q:\n%s", policy, a.body)
		}
		nonces[nonce[1]] = true
		for _, want := range []string{"<title>Hello</title>", "there", "go.example.com/<wbr>abcd/<wbr>Page", "<svg"} {
			if !strings.Contains(a.body, want) {
				t.Errorf("the page lacks %q:\n%s", want, a.body)
			}
		}
		if len(a.body) > 15_000 {
			t.Errorf("the page has %d bytes", len(a.body))
		}
	}
	if len(nonces) != 3 {
		t.Errorf("%d nonces for 3 pages", len(nonces))
	}
	if a := e.ask(t, "HEAD", "/abcd/page"); a.status != 200 || a.body != "" || a.header.Get("Content-Length") == "" {
		t.Errorf("HEAD: %d, %d bytes, Content-Length %q", a.status, len(a.body), a.header.Get("Content-Length"))
	}
}

func TestData(t *testing.T) {
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

func TestMethods(t *testing.T) {
	t.Parallel()
	e := startEdge(t, nil)
	r := rows{t, e.owner}
	r.link(r.organization("abcd"), "x", nil)
	for _, method := range []string{"POST", "PUT", "PATCH", "DELETE", "TRACE", "OPTIONS", "QUERY"} {
		a := e.ask(t, method, "/abcd/x")
		if a.status != 405 || a.header.Get("Allow") != "GET, HEAD" {
			t.Errorf("%s /abcd/x: %d, Allow %q; expected 405 and GET, HEAD", method, a.status, a.header.Get("Allow"))
		}
		checkEnvelope(t, a, "/abcd/x")
		checkHeaders(t, a)
		if method == "OPTIONS" {
			continue
		}
		a = e.ask(t, method, "/abcd/x/data")
		if a.status != 405 || a.header.Get("Allow") != "GET, HEAD, OPTIONS" || a.header.Get("Access-Control-Allow-Origin") != "*" {
			t.Errorf("%s /abcd/x/data: %d, Allow %q; expected 405 and GET, HEAD, OPTIONS", method, a.status, a.header.Get("Allow"))
		}
		if a := e.ask(t, method, "/nothing"); a.status != 404 {
			t.Errorf("%s /nothing: %d, expected 404", method, a.status)
		}
	}
	a := e.ask(t, "OPTIONS", "/abcd/x/data", "Origin: https://a.example", "Access-Control-Request-Method: GET")
	if a.status != 204 || a.body != "" || a.header.Get("Access-Control-Allow-Origin") != "*" || a.header.Get("Access-Control-Allow-Methods") != "GET, HEAD" {
		t.Errorf("OPTIONS /abcd/x/data: %d %q %v", a.status, a.body, a.header)
	}
	checkHeaders(t, a)
}

func TestLinksResolveOnlyOnTheirOwnVerifiedDomain(t *testing.T) {
	t.Parallel()
	e := startEdge(t, func(c *settings) { c.ExtraHosts = []hostName{"also.example.com", "edge"} })
	r := rows{t, e.owner}
	one, two := r.organization("abcd"), r.organization("wxyz")
	link := func(organization, code, domain string) {
		columns := map[string]any{"fallback_url": "https://" + code + ".example.com/"}
		if domain != "" {
			columns["domain_id"] = domain
		}
		r.link(organization, code, columns)
	}
	link(one, "shared", "")
	link(one, "custom", r.domain(one, "links.one.example", "verified"))
	link(one, "second", r.domain(one, "second.one.example", "verified"))
	link(one, "pending", r.domain(one, "pending.one.example", "pending"))
	link(two, "theirs", r.domain(two, "links.two.example", "verified"))

	for _, test := range []struct {
		host, path string
		status     int
	}{
		{"go.example.com", "/abcd/shared", 302},
		{"also.example.com", "/abcd/shared", 302},
		{"ALSO.example.com:9", "/abcd/shared", 302},
		{"edge", "/abcd/shared", 302},
		{"127.0.0.1", "/abcd/shared", 302},
		{"links.one.example", "/custom", 302},
		{"links.one.example", "/CUSTOM", 302},
		{"Links.One.EXAMPLE.:8443", "/custom", 302},
		{"second.one.example", "/second", 302},
		{"links.two.example", "/theirs", 302},

		{"go.example.com", "/abcd/custom", 404},
		{"go.example.com", "/custom", 404},
		{"links.one.example", "/shared", 404},
		{"links.one.example", "/abcd/custom", 404},
		{"links.one.example", "/abcd/shared", 404},
		{"links.one.example", "/abc/shared", 404},
		{"links.one.example", "/second", 404},
		{"links.one.example", "/theirs", 404},
		{"links.two.example", "/custom", 404},
		{"pending.one.example", "/pending", 404},
		{"unknown.example", "/custom", 404},
		{"www.links.one.example", "/custom", 404},
		{"one.example", "/custom", 404},
		{"abcd", "/custom", 404},
		{"abcd", "/shared", 404},
		{"somewhere", "/abcd/shared", 404},
		{"a_b.example", "/custom", 404},
		{"-a.example", "/custom", 404},
		{"1.2.3", "/abcd/shared", 404},
		{"links.one.example", "/", 404},
		{"links.one.example", "/custom/", 404},
		{"links.one.example", "//custom", 404},
		{"links.one.example", "/custom%2Fdata", 404},
		{"links.one.example", "/.well-known/assetlinks.json", 404},
	} {
		if a := e.get(t, test.path, "Host: "+test.host); a.status != test.status {
			t.Errorf("GET %s on %s: %d, expected %d\n%s", test.path, test.host, a.status, test.status, a.body)
		}
	}
	r.exec(`update domains set status = 'verified' where host = 'pending.one.example'`)
	until(t, "the verified domain resolves", func() bool { return e.get(t, "/pending", "Host: pending.one.example").status == 302 })
	r.exec(`update domains set status = 'pending' where host = 'links.one.example'`)
	until(t, "the domain that is not verified any more does not resolve", func() bool { return e.get(t, "/custom", "Host: links.one.example").status == 404 })
}

func TestLinkExpiresByTheClockAlone(t *testing.T) {
	t.Parallel()
	e := startEdge(t, nil)
	r := rows{t, e.owner}
	r.link(r.organization("abcd"), "x", map[string]any{"fallback_url": "https://shop.example.com/"})
	// Warm, so that the expiry is one that is in memory.
	r.exec(`update links set expiry = now() + interval '2 s'`)
	var text string
	r.query(&text, `select to_char(expiry at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') from links`)
	expiry, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		t.Fatal(err)
	}
	alive := 0
	for {
		before := time.Now()
		status := e.get(t, "/abcd/x").status
		after := time.Now()
		switch {
		case after.Before(expiry) && status == 302:
			alive++
		case !before.Before(expiry) && status == 410:
			if alive < 3 {
				t.Errorf("asked %d times before the expiry, expected more", alive)
			}
			return
		case status != 302 && status != 410, after.Before(expiry), !before.Before(expiry):
			t.Fatalf("status %d from %v to %v after the expiry", status, before.Sub(expiry), after.Sub(expiry))
		}
		time.Sleep(5 * time.Millisecond) // far below the rate limit
	}
}

// flood sends so many clicks on /abcd/x and its data, in turns, and then one probe, and counts those that were admitted. It does so
// again, with another attempt number for the addresses, until all of them fit into one window of the limit.
func (e *testEdge) flood(t *testing.T, clicks int, forwarded func(attempt, click int) string, probe func(attempt int) string) (admitted int, refused, probed answer) {
	t.Helper()
	for attempt := range 20 {
		var raw strings.Builder
		for i := range clicks + 1 {
			path, from := "/abcd/x", probe(attempt)
			if i < clicks {
				from = forwarded(attempt, i)
			}
			if i%2 == 1 {
				path += "/data"
			}
			fmt.Fprintf(&raw, "GET %s HTTP/1.1\r\nHost: go.example.com\r\nX-Forwarded-For: %s\r\n\r\n", path, from)
		}
		time.Sleep(ratelimit.Resolution.Window) // that of the attempt before is over
		began := time.Now()
		answers := e.pipeline(t, raw.String(), clicks+1)
		if time.Since(began) >= ratelimit.Resolution.Window {
			continue
		}
		for i, a := range answers[:clicks] {
			switch {
			case a.status == 429:
				refused = a
			case i%2 == 0 && a.status == 302, i%2 == 1 && a.status == 200:
				admitted++
			default:
				t.Fatalf("request %d: status %d", i, a.status)
			}
		}
		return admitted, refused, answers[clicks]
	}
	t.Fatal("the machine is too slow to send so many requests within a second")
	return 0, refused, probed
}

func TestRateLimitIsExactPerClient(t *testing.T) {
	t.Parallel()
	e := startEdge(t, func(c *settings) {
		if err := c.TrustedProxies.UnmarshalText([]byte("127.0.0.0/8, 10.0.0.0/8")); err != nil {
			t.Fatal(err)
		}
	})
	r := rows{t, e.owner}
	r.link(r.organization("abcd"), "x", map[string]any{"fallback_url": "https://shop.example.com/"})
	e.get(t, "/abcd/x")
	for i, test := range []struct {
		// %d is another number each time.
		name, flood, probe string
		limited            bool
	}{
		{"the same address", "192.0.%d.1", "192.0.%d.1", true},
		{"another address", "192.0.%d.1", "192.0.%d.2", false},
		{"the right-most that is no proxy", "192.0.%d.1, 10.1.2.3", "203.0.113.7, 192.0.%d.1", true},
		{"an address that a stranger names", "192.0.%d.1", "192.0.%d.1, 203.0.113.7", false},
		{"the same /64", "2001:db8:0:%d::1", "2001:db8:0:%d:ffff::2", true},
		{"another /64", "2001:db8:0:%d::1", "2001:db8:1:%d::1", false},
		{"an IPv4 address written as IPv6", "192.0.%d.1", "::ffff:192.0.%d.1", true},
		{"an address with a port", "192.0.%d.1", "192.0.%d.1:4711", true},
		{"nonsense counts as the proxy", "192.0.%d.1", "192.0.%d.1, nonsense", false},
	} {
		number := func(attempt int) int { return 10*attempt + i + 1 }
		admitted, refused, probed := e.flood(t, 600,
			func(attempt, _ int) string { return fmt.Sprintf(test.flood, number(attempt)) },
			func(attempt int) string { return fmt.Sprintf(test.probe, number(attempt)) })
		if admitted != 500 {
			t.Errorf("%s: %d of 600 requests within a second were admitted, expected 500", test.name, admitted)
		}
		if m := refused.envelope(t)["message"]; m != "Rate limit exceeded. Retry after 1 second(s)." {
			t.Errorf("%s: message %q", test.name, m)
		}
		checkHeaders(t, refused)
		if (probed.status == 429) != test.limited {
			t.Errorf("%s: after 600 requests for %s one for %s has status %d", test.name, test.flood, test.probe, probed.status)
		}
	}
	if a := e.get(t, "/healthz"); a.status != 200 {
		t.Errorf("/healthz: %d, expected 200", a.status)
	}
}

func TestForwardedForIsIgnoredFromStrangers(t *testing.T) {
	t.Parallel()
	e := startEdge(t, nil)
	r := rows{t, e.owner}
	r.link(r.organization("abcd"), "x", map[string]any{"fallback_url": "https://shop.example.com/"})
	admitted, _, probed := e.flood(t, 600,
		func(_, click int) string { return fmt.Sprintf("192.0.2.%d", click%250) },
		func(int) string { return "198.51.100.1" })
	if admitted != 500 || probed.status != 429 {
		t.Errorf("%d of 600 requests within a second were admitted, and the next has status %d; expected 500 and 429", admitted, probed.status)
	}
}

func TestRefusedRequestsDoNotCount(t *testing.T) {
	t.Parallel()
	e := startEdge(t, nil)
	r := rows{t, e.owner}
	r.link(r.organization("abcd"), "x", map[string]any{"fallback_url": "https://shop.example.com/"})
	e.flood(t, 900, func(int, int) string { return "-" }, func(int) string { return "-" })
	time.Sleep(ratelimit.Resolution.Window) // as the message says
	if a := e.get(t, "/abcd/x"); a.status != 302 {
		t.Errorf("status %d a second after a flood, expected 302", a.status)
	}
}

func TestEdgeWithoutPostgresAnswersWhatItMayAndSays503ForTheRest(t *testing.T) {
	t.Parallel()
	server := testdb.NewServer(t)
	e := startEdgeOn(t, server.Database, nil)
	r := rows{t, e.owner}
	organization := r.organization("abcd")
	r.link(organization, "known", map[string]any{"fallback_url": "https://shop.example.com/"})
	r.link(organization, "unknown", map[string]any{"fallback_url": "https://shop.example.com/"})
	for range 20 {
		if a := e.get(t, "/abcd/known"); a.status != 302 {
			t.Fatalf("status %d", a.status)
		}
		time.Sleep(10 * time.Millisecond) // the cache takes new entries in its own time
	}
	if err := server.StopImmediate(); err != nil {
		t.Fatal(err)
	}
	for range 30 {
		if a := e.get(t, "/abcd/known"); a.status != 302 {
			t.Fatalf("a known link: %d %s, expected 302", a.status, a.body)
		}
		a := e.get(t, "/abcd/unknown/data")
		if a.status != 503 || a.header.Get("Access-Control-Allow-Origin") != "*" {
			t.Fatalf("an unknown link: %d %s, expected 503", a.status, a.body)
		}
		checkEnvelope(t, a, "/abcd/unknown/data")
		checkHeaders(t, a)
		time.Sleep(100 * time.Millisecond) // past the lease, into the time of stale answers
	}
	if err := server.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	until(t, "the edge answers again", func() bool { return e.get(t, "/abcd/unknown").status == 302 })
}

func TestFailedStatementIs500AndLoggedOnce(t *testing.T) {
	t.Parallel()
	e := startEdge(t, nil)
	r := rows{t, e.owner}
	r.exec(`revoke select on app_configs from deeplink_edge`)
	a := e.get(t, "/abcd/x?secret=1", "X-Request-Id: find-me", "Authorization: secret")
	if a.status != 500 || strings.Contains(a.body, "permission") || strings.Contains(a.body, "app_configs") {
		t.Errorf("%d %s, expected a silent 500", a.status, a.body)
	}
	checkEnvelope(t, a, "/abcd/x")
	checkHeaders(t, a)
	log := e.log.String()
	if strings.Count(log, "find-me") != 1 || !strings.Contains(log, "permission denied") || strings.Contains(log, "secret") {
		t.Errorf("logged:\n%s\nexpected the cause, once, with the request id", log)
	}
	r.exec(`grant select on app_configs to deeplink_edge`)
}

// changes reach an edge that no control tells of them by its poll.
func TestChangedRowsAreServedAfterAPoll(t *testing.T) {
	t.Parallel()
	e := startEdge(t, nil)
	r := rows{t, e.owner}
	organization := r.organization("abcd")
	r.link(organization, "x", map[string]any{"fallback_url": "https://shop.example.com/"})
	for _, step := range []struct {
		statement string
		status    int
	}{
		{`select 1`, 302},
		{`update links set is_active = false`, 410},
		{`update links set is_active = true`, 302},
		{`update organizations set suspended = true`, 410},
		{`update organizations set suspended = false`, 302},
		{`delete from links`, 404},
	} {
		r.exec(step.statement)
		until(t, fmt.Sprintf("%d after %s", step.status, step.statement), func() bool { return e.get(t, "/abcd/x").status == step.status })
	}
}
