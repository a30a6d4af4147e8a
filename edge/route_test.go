package main

import (
	"regexp"
	"strings"
	"testing"

	"deeplink/edge/internal/link"
	"deeplink/shared/catalog"
	"deeplink/shared/settings"
)

var testHosts = newHosts(base, []settings.HostName{"also.example.com"})

// The model of the routes, in regular expressions.
var (
	sharedPath = regexp.MustCompile(`^/([A-Za-z0-9]{4})/([A-Za-z0-9][A-Za-z0-9_-]{0,63})(/data)?$`)
	customPath = regexp.MustCompile(`^/([A-Za-z0-9][A-Za-z0-9_-]{0,63})(/data)?$`)
	knownPath  = regexp.MustCompile(`^/\.well-known/(apple-app-site-association|assetlinks\.json)$`)
	lonePath   = regexp.MustCompile(`^/(match|healthz|robots\.txt|favicon\.ico)$`)
	// keyless has the form of a short URL whose first segment is not an organization key.
	keyless = regexp.MustCompile(`^/[^/]+/[^/]+(/data)?$`)
)

func checkRoute(t *testing.T, host, target string) {
	t.Helper()
	path, query, _ := strings.Cut(target, "?")
	r := testHosts.route(nil, []byte(host), []byte(target))
	found, place := testHosts.find(nil, []byte(host))
	domain := string(found)

	status, asked, key := 404, kindNone, ""
	switch {
	case !strings.HasPrefix(target, "/"):
		status = 400
	case lonePath.MatchString(path):
		status, asked = 0, map[string]kind{"/match": kindMatch, "/healthz": kindHealth, "/robots.txt": kindRobots, "/favicon.ico": kindFavicon}[path]
	case knownPath.MatchString(path):
		asked = kindWellKnown
		if place == sharedHost {
			domain = "shared"
		}
		if place != unknownHost {
			status, query, key = 0, "", domain+path
		}
	case place == sharedHost && sharedPath.MatchString(path):
		m := sharedPath.FindStringSubmatch(path)
		status, asked, key = 0, linkOrData(m[3]), strings.ToLower(m[1]+"/"+m[2])
	case place == customDomain && customPath.MatchString(path):
		m := customPath.FindStringSubmatch(path)
		status, asked, key = 0, linkOrData(m[2]), domain+"/"+strings.ToLower(m[1])
	case place == sharedHost && keyless.MatchString(path) && !regexp.MustCompile(`^/[A-Za-z0-9]{4}/`).MatchString(path) &&
		!strings.HasPrefix(path, "/.well-known/") && !regexp.MustCompile(`(?i)/(\.|%2e){1,2}(/|$)|%2f|%5c|\\`).MatchString(path):
		status, asked = 400, linkOrData(keyless.FindStringSubmatch(path)[1])
	}
	if key != "" && (len(query) > link.MaxQuery || strings.Count(query, "&") >= link.MaxParameters) {
		status = 414
	}
	got := 0
	if r.refused != nil {
		got = r.refused.status
	}
	if got != status || r.kind != asked {
		t.Fatalf("%q on %q: status %d and kind %d, expected %d and %d", target, host, got, r.kind, status, asked)
	}
	if got == 0 && key != "" && (string(r.key) != key || r.domain != strings.IndexByte(key, '/') || string(r.query) != query) {
		t.Fatalf("%q on %q: key %q, domain %d, query %q; expected key %q", target, host, r.key, r.domain, r.query, key)
	}
}

func linkOrData(end string) kind {
	if end == "/data" {
		return kindData
	}
	return kindLink
}

func FuzzRoute(f *testing.F) {
	for _, target := range []string{
		"/abcd/Promo", "/ABCD/x/data?a=1", "/x", "/x/data", "/data/data", "/data/data/data", "/abc/x", "/abcde/x/data", "/ab%2f/x", "/../x", "/%2E/x", "/.well-known/x", "/.well-known/assetlinks.json?x", "/.well-known/apple-app-site-association", "/.well-known/apple-app-site-association/",
		"//x", "/abcd/", "/abcd/x/", "/abcd/x/y", "", "*", "http://a/b/c", "/healthz", "/healthz/", "/match", "/match?x", "/match/", "/Match", "/match/data", "/robots.txt?x", "/favicon.ico", "/abcd/-", "/ab-d/x", `/a\b/x`, "/\x00", "/abcd/x?" + strings.Repeat("&", 100),
		"/abcd/" + strings.Repeat("x", 64), "/abcd/" + strings.Repeat("x", 65),
	} {
		for _, host := range []string{"go.example.com", "links.customer.example", "unknownHost!", "127.0.0.1:80"} {
			f.Add(host, target)
		}
	}
	f.Fuzz(func(t *testing.T, host, target string) { checkRoute(t, host, target) })
}

func TestHostHeaderIsClassified(t *testing.T) {
	t.Parallel()
	h := newHosts("http://[2001:db8::5]:8080", []settings.HostName{"also.example.com", "edge"})
	for _, test := range []struct {
		header string
		kind   hostKind
		name   string
	}{
		{"[2001:db8::5]:8080", sharedHost, ""},
		{"[2001:db8::5]", sharedHost, ""},
		{"[2001:DB8::5]:80", sharedHost, ""},
		{"also.example.com", sharedHost, ""},
		{"ALSO.example.com.:", sharedHost, ""},
		{"edge:1", sharedHost, ""},
		{"localhost", sharedHost, ""},
		{"LocalHost.:8080", sharedHost, ""},
		{"192.0.2.1", sharedHost, ""},
		{"192.0.2.1:65535", sharedHost, ""},
		{"[::1]", sharedHost, ""},
		{"[::ffff:192.0.2.1]:1", sharedHost, ""},

		{"a.example", customDomain, "a.example"},
		{"A.Example.:80", customDomain, "a.example"},
		{"xn--bcher-kva.example", customDomain, "xn--bcher-kva.example"},
		{"1.2.3.4.example", customDomain, "1.2.3.4.example"},
		{strings.Repeat("a", 63) + ".example", customDomain, strings.Repeat("a", 63) + ".example"},

		{"", unknownHost, ""},
		{".", unknownHost, ""},
		{"..", unknownHost, ""},
		{":80", unknownHost, ""},
		{"a", unknownHost, ""},
		{"a.example..", unknownHost, ""},
		{".a.example", unknownHost, ""},
		{"a..example", unknownHost, ""},
		{"-a.example", unknownHost, ""},
		{"a-.example", unknownHost, ""},
		{"a_b.example", unknownHost, ""},
		{"a b.example", unknownHost, ""},
		{"a/b.example", unknownHost, ""},
		{"me@a.example", unknownHost, ""},
		{"a.example:80:80", unknownHost, ""},
		{"a.example:x", unknownHost, ""},
		{"b\u00fccher.example", unknownHost, ""},
		{"a.example\x00", unknownHost, ""},
		{"1.2.3", unknownHost, ""},
		{"256.1.1.1", unknownHost, ""},
		{"::1", unknownHost, ""},
		{"[::1", unknownHost, ""},
		{"[::1]x", unknownHost, ""},
		{"[192.0.2.1]", unknownHost, ""},
		{"[a.example]", unknownHost, ""},
		{"[fe80::1%eth0]", unknownHost, ""},
		{strings.Repeat("a", 64) + ".example", unknownHost, ""},
		{strings.Repeat("a.", 126) + "bc", unknownHost, ""},
	} {
		name, kind := h.find(nil, []byte(test.header))
		if kind != test.kind || string(name) != test.name {
			t.Errorf("Host %q: kind %d, name %q; expected %d, %q", test.header, kind, name, test.kind, test.name)
		}
	}
}

func FuzzHost(f *testing.F) {
	for _, host := range []string{"a.example", "A.EXAMPLE.", "1.2.3.4", "0x7f.1", "a_b.c", "xn--a.b", "a-.b", "[::1]:80"} {
		f.Add(host)
	}
	f.Fuzz(func(t *testing.T, host string) {
		name, kind := testHosts.find(nil, []byte(host))
		if again, where := testHosts.find(nil, name); kind == customDomain && (where != customDomain || string(again) != string(name)) {
			t.Fatalf("Host %q is %q, which is %q", host, name, again)
		}
		// Every host that the catalog accepts is found under the catalog's name for it.
		if kept, err := catalog.CheckHost(host); err == nil && kept != "go.example.com" && kept != "also.example.com" &&
			(kind != customDomain || string(name) != kept) {
			t.Fatalf("Host %q: kind %d, name %q; the catalog has %q", host, kind, name, kept)
		}
	})
}
