package main

import (
	"fmt"
	"html"
	"strings"
	"sync"
	"testing"
	"time"

	"deeplink/shared/testkit"
)

// hostileID is a request id that is markup unless a page escapes it.
const hostileID = `<b class="x">a & 'b'</b>`

const navigation = "Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"

func TestErrorsArePagesIfTheOrganizationWantsThem(t *testing.T) {
	t.Parallel()
	e := startEdge(t, nil)
	r := rows{t, e.owner}
	fill := func(organization string) {
		r.exec(`insert into app_configs (organization_id, html_error_pages) values ($1, true)`, organization)
		r.link(organization, "off"+organization[:4], map[string]any{"is_active": false})
		r.link(organization, "old"+organization[:4], map[string]any{"expiry": time.Now().Add(-time.Hour)})
	}
	pages, gone, plain := r.organization("abcd"), r.organization("zz99"), r.organization("wxyz")
	fill(pages)
	fill(gone)
	r.link(pages, "custom", map[string]any{"domain_id": r.domain(pages, "links.one.example", "verified"), "is_active": false})
	r.exec(`update organizations set suspended = true where id = $1`, gone)
	r.link(plain, "off", map[string]any{"is_active": false})

	for _, test := range []struct {
		path, host string
		status     int
		words      string
	}{
		{"/abcd/nothing", "", 404, "We can’t find this link"},
		{"/abcd/off" + pages[:4], "", 410, "This link is not available any more"},
		{"/abcd/old" + pages[:4], "", 410, "This link has expired"},
		{"/ABCD/OFF" + pages[:4] + "?x=1", "", 410, "This link is not available any more"},
		{"/zz99/off" + gone[:4], "", 410, "This link is not available any more"},
		{"/custom", "links.one.example", 410, "This link is not available any more"},
		{"/nothing", "links.one.example", 404, "We can’t find this link"},
		{"/wxyz/off", "", 410, ""},
		{"/wxyz/nothing", "", 404, ""},
		{"/none/nothing", "", 404, ""},
		{"/nothing", "links.two.example", 404, ""},
		{"/abcd/", "", 404, ""},
		{"/abc/x", "", 400, ""},
		{"/abcd/nothing/data", "", 404, ""},
		{"/abcd/off" + pages[:4] + "/data", "", 410, ""},
	} {
		host := "Host: go.example.com"
		if test.host != "" {
			host = "Host: " + test.host
		}
		path, _, _ := strings.Cut(test.path, "?")
		for accept, navigates := range map[string]bool{
			navigation: true, "Accept: TEXT/HTML": true, "Accept: image/png, text/html;level=1;q=0.1": true,
			"Accept: */*": false, "Accept: application/json": false, "X-Nothing: to accept": false, "Accept: text/html;q=0, */*": false, "Accept: text/html5": false,
		} {
			a := e.get(t, test.path, host, accept, "X-Request-Id: "+hostileID, "Accept-Language: en")
			want := "envelope"
			if navigates && test.words != "" {
				want = "error"
			}
			if got := pageOf(a); got != want || a.status != test.status {
				t.Errorf("%s with %s: %d as %s, expected %d as %s\n%s", test.path, accept, a.status, got, test.status, want, a.body)
				continue
			}
			if want == "envelope" {
				checkEnvelope(t, a, path)
			} else if !strings.Contains(a.body, test.words) || !strings.Contains(a.body, html.EscapeString(hostileID)) || strings.Contains(a.body, hostileID) {
				t.Errorf("%s lacks %q or the request id, escaped:\n%s", test.path, test.words, a.body)
			}
			if id := a.header.Get("X-Request-Id"); id != hostileID {
				t.Errorf("%s: request id %q, expected it as sent", test.path, id)
			}
			checkPage(t, a)
			if vary := fmt.Sprint(a.header.Values("Vary")); test.words != "" && !strings.Contains(strings.ReplaceAll(vary, "Accept-", ""), "Accept") {
				t.Errorf("%s: Vary %s lacks Accept", test.path, vary)
			}
		}
		if a := e.ask(t, "HEAD", test.path, host, navigation); a.status != test.status || a.body != "" {
			t.Errorf("HEAD %s: %d, %q", test.path, a.status, a.body)
		}
	}
	if a := e.ask(t, "POST", "/abcd/nothing", navigation); pageOf(a) != "envelope" || a.status != 405 {
		t.Errorf("POST: %d as %s", a.status, pageOf(a))
	}

	r.exec(`update app_configs set html_error_pages = false`)
	until(t, "the edge has seen that pages are no longer wanted", func() bool { return pageOf(e.get(t, "/abcd/nothing", navigation)) == "envelope" })
	if got := pageOf(e.get(t, "/abcd/off"+pages[:4], navigation)); got != "envelope" {
		t.Errorf("a cached link is still refused with: %s", got)
	}
	r.exec(`update app_configs set html_error_pages = true`)
	until(t, "the edge has seen that pages are wanted", func() bool { return pageOf(e.get(t, "/abcd/off"+pages[:4], navigation)) == "error" })
}

func TestRateLimitIsAPageIfTheOrganizationWantsIt(t *testing.T) {
	t.Parallel()
	e := startEdge(t, nil)
	r := rows{t, e.owner}
	organization := r.organization("abcd")
	r.exec(`insert into app_configs (organization_id, html_error_pages) values ($1, true)`, organization)
	r.link(organization, "x", nil)
	e.get(t, "/abcd/x")
	var limited answer
	until(t, "requests are limited", func() bool {
		one := "GET /abcd/x HTTP/1.1\r\nHost: go.example.com\r\n" + navigation + "\r\nAccept-Language: en\r\n\r\n"
		for _, limited = range e.pipeline(t, strings.Repeat(one, 600), 600) {
			if limited.status == 429 {
				return true
			}
		}
		return false
	})
	if pageOf(limited) != "error" || !strings.Contains(limited.body, "try again in 1 s.") {
		t.Errorf("%s:\n%s", pageOf(limited), limited.body)
	}
	checkPage(t, limited)
	if limited.header.Get("Retry-After") != "" {
		t.Error("the 429 has a Retry-After")
	}
}

func TestOutageIsAPageIfTheOrganizationWantsIt(t *testing.T) {
	t.Parallel()
	server := testkit.NewPostgres(t)
	e := startEdgeOn(t, server.Database, nil)
	r := rows{t, e.owner}
	wants := r.organization("abcd")
	r.exec(`insert into app_configs (organization_id, html_error_pages) values ($1, true)`, wants)
	r.organization("wxyz")
	for _, path := range []string{"/abcd/x", "/wxyz/x"} {
		if a := e.get(t, path); a.status != 404 {
			t.Fatalf("%s: %d", path, a.status)
		}
	}
	if err := server.StopImmediate(); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{"/abcd/other": "error", "/wxyz/other": "envelope", "/none/other": "envelope"} {
		a := e.get(t, path, navigation)
		if a.status != 503 || pageOf(a) != want {
			t.Errorf("%s: %d as %s, expected 503 as %s", path, a.status, pageOf(a), want)
		}
		checkPage(t, a)
	}
	if err := server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestRemovedDomainGetsEnvelopeInsteadOfErrorPage(t *testing.T) {
	t.Parallel()
	e := startEdge(t, nil)
	r := rows{t, e.owner}
	organization := r.organization("abcd")
	r.exec(`insert into app_configs (organization_id, html_error_pages) values ($1, true)`, organization)
	r.domain(organization, "links.one.example", "verified")
	answered := func() string {
		a := e.get(t, "/nothing", "Host: links.one.example", navigation)
		if a.status != 404 {
			t.Fatalf("%d %s, expected 404", a.status, a.body)
		}
		return pageOf(a)
	}
	if got := answered(); got != "error" {
		t.Fatalf("refused with: %s, expected a page", got)
	}
	r.exec(`delete from domains where host is not null`)
	until(t, "a domain that was removed gets the envelope", func() bool { return answered() == "envelope" })
}

func TestLaterLoadDecidesWhetherErrorPagesAreWanted(t *testing.T) {
	t.Parallel()
	var e errorPages
	loads := make([]uint64, 4)
	for i := range loads {
		loads[i] = e.startLoad()
	}
	for _, step := range []struct {
		load          int
		found, wanted bool
	}{
		{0, true, true}, {1, false, false}, {0, true, false}, {2, true, true}, {1, false, true}, {3, false, false}, {2, true, false},
	} {
		e.record("abcd", loads[step.load], true, step.found)
		e.record("wxyz", e.startLoad(), true, !step.found)
		if got := e.wanted([]byte("abcd")); got != step.wanted {
			t.Fatalf("after %+v: %v", step, got)
		}
	}
	e.record("abcd", e.startLoad(), true, true)
	e.record("abcd", e.startLoad(), false, false)
	if e.wanted([]byte("abcd")) {
		t.Error("a domain that was removed wants pages")
	}
	if e.wanted([]byte("none")) {
		t.Error("a domain without a load wants pages")
	}
}

func TestErrorPageDomainsAreBoundedAndExist(t *testing.T) {
	t.Parallel()
	var e errorPages
	for i := range maxErrorPageDomains + 10 {
		real, madeUp := fmt.Sprintf("real%d.example", i), fmt.Sprintf("made-up%d.example", i)
		e.record(real, e.startLoad(), true, true)
		e.record(madeUp, e.startLoad(), false, false)
		if !e.wanted([]byte(real)) || e.wanted([]byte(madeUp)) {
			t.Fatalf("%s: %v, %s: %v", real, e.wanted([]byte(real)), madeUp, e.wanted([]byte(madeUp)))
		}
	}
	for domain := range e.domains {
		if !strings.HasPrefix(domain, "real") {
			t.Fatalf("%s is remembered, but does not exist", domain)
		}
	}
	if n := len(e.domains); n != maxErrorPageDomains {
		t.Errorf("%d domains are remembered, expected %d", n, maxErrorPageDomains)
	}
}

func TestConcurrentLoadsLeaveTheLatestErrorPageSetting(t *testing.T) {
	t.Parallel()
	var e errorPages
	var racing sync.WaitGroup
	for i := range 8 {
		racing.Go(func() {
			for n := range 500 {
				load := e.startLoad()
				if n%3 > 0 { // the others fail
					e.record("abcd", load, true, (n+i)%2 == 0)
				}
				e.wanted([]byte("abcd"))
			}
		})
	}
	racing.Wait()
	e.record("abcd", e.startLoad(), true, true)
	if !e.wanted([]byte("abcd")) || len(e.domains) != 1 {
		t.Errorf("wanted %v, %d domains", e.wanted([]byte("abcd")), len(e.domains))
	}
}
