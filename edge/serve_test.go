package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"deeplink/shared/settings"
)

// Every status of a short URL, in the order of the checks.
func TestEachLinkStateGetsItsStatus(t *testing.T) {
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
		{"/match", 405, "Method not allowed. See the Allow header."},
		{"/.well-known/security.txt", 404, "There is nothing at this path."},
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
			// /data gets the same verdict as the link.
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

func TestOtherMethodsGet405(t *testing.T) {
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
	e := startEdge(t, func(c *options) { c.ExtraHosts = []settings.HostName{"also.example.com", "edge"} })
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
		{"links.one.example", "/.well-known/security.txt", 404},
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

func TestCachedLinkExpiresWithoutAMessage(t *testing.T) {
	t.Parallel()
	e := startEdge(t, nil)
	organization := rows{t, e.owner}.organization("abcd")
	// Requested often enough before its expiry, a link is cached. A slow machine needs a link that lives longer.
	for life := 2 * time.Second; life < bound; life *= 2 {
		if e.outlive(t, organization, life) >= 3 {
			return
		}
	}
	t.Error("no link was requested three times before its expiry")
}

// outlive creates a link and requests it until it has expired. It returns the number of requests before that.
func (e *testEdge) outlive(t *testing.T, organization string, life time.Duration) (alive int) {
	t.Helper()
	r, code := rows{t, e.owner}, fmt.Sprintf("x%d", life)
	r.link(organization, code, map[string]any{"fallback_url": "https://shop.example.com/"})
	r.exec(`update links set expiry = now() + $1::interval where short_code = $2`, life, code)
	var text string
	r.query(&text, `select to_char(expiry at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') from links where short_code = '`+code+`'`)
	expiry, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		t.Fatal(err)
	}
	for {
		before := time.Now()
		status := e.get(t, "/abcd/"+code).status
		after := time.Now()
		switch {
		case after.Before(expiry) && status == 302:
			alive++
		case !before.Before(expiry) && status == 410:
			return alive
		case status != 302 && status != 410, after.Before(expiry), !before.Before(expiry):
			t.Fatalf("status %d from %v to %v after the expiry", status, before.Sub(expiry), after.Sub(expiry))
		}
		time.Sleep(5 * time.Millisecond) // far below the rate limit
	}
}
