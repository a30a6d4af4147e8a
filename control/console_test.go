package main

import (
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"deeplink/shared/catalog"
)

func TestConsoleIsServedWithItsPolicy(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.serve().client("")
	paths := []string{"/console"}
	entries, err := consoleFiles.ReadDir("console")
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		if entry.Name() != consolePage {
			paths = append(paths, "/console/"+entry.Name())
		}
	}
	if len(paths) < 10 {
		t.Errorf("the console is %q, expected a page, its style and its modules", paths)
	}
	const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; connect-src 'self'; base-uri 'none'; " +
		"form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
	for _, path := range paths {
		r := c.do("GET", path, "")
		for name, expected := range map[string]string{
			"Content-Security-Policy": policy, "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cache-Control": "no-cache",
			"Cross-Origin-Opener-Policy": "same-origin", versionHeader: version,
		} {
			if got := r.header.Get(name); r.status != http.StatusOK || got != expected {
				t.Errorf("GET %s: %d, %s %q, expected %q", path, r.status, name, got, expected)
			}
		}
		if strings.Contains(string(r.body), "//") && strings.HasSuffix(path, "/console") {
			t.Errorf("the page names another host:\n%s", r.body)
		}
		again := c.do("GET", path, "", "If-None-Match", r.header.Get("ETag"))
		if again.status != http.StatusNotModified || len(again.body) != 0 || again.header.Get("Content-Security-Policy") != policy {
			t.Errorf("GET %s again: %s, expected 304", path, again)
		}
	}
}

// TestConsoleLoadsOnlyWhatIsThere follows the page and the modules.
func TestConsoleLoadsOnlyWhatIsThere(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.serve().client("")
	loads := regexp.MustCompile(`(?:src|href)="(console/[^"]+)"|from "\./([^"]+)"`)
	types := map[string]string{"js": "text/javascript; charset=utf-8", "css": "text/css; charset=utf-8", "svg": "image/svg+xml"}
	seen := []string{"/console"}
	for i := 0; i < len(seen); i++ {
		r := c.do("GET", seen[i], "")
		expected := "text/html; charset=utf-8"
		if _, ending, ok := strings.Cut(seen[i], "."); ok {
			expected = types[ending]
		}
		if got := r.header.Get("Content-Type"); r.status != http.StatusOK || got != expected {
			t.Errorf("GET %s: %d %q, expected %q", seen[i], r.status, got, expected)
		}
		for _, found := range loads.FindAllStringSubmatch(string(r.body), -1) {
			path := "/" + found[1]
			if found[2] != "" {
				path = "/console/" + found[2]
			}
			if !slices.Contains(seen, path) {
				seen = append(seen, path)
			}
		}
	}
	entries, err := consoleFiles.ReadDir("console")
	if err != nil || len(seen) != len(entries) {
		t.Errorf("the page leads to %q, expected all of %v (%v)", seen, entries, err)
	}
}

func TestConsoleRefusesAsEverythingDoes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.serve().client("")
	for _, test := range []struct {
		method, path string
		status       int
		allow        string
	}{
		{"GET", "/console/", 404, ""},
		{"GET", "/console/index.html", 404, ""},
		{"GET", "/console/nothing.js", 404, ""},
		{"GET", "/console/console.js/", 404, ""},
		{"GET", "/console/../docs", 404, ""},
		{"POST", "/console", 405, "GET, HEAD"},
		{"OPTIONS", "/console/console.css", 405, "GET, HEAD"},
	} {
		r := c.do(test.method, test.path, "")
		if r.status != test.status || r.header.Get("Allow") != test.allow {
			t.Errorf("%s %s: %s, expected %d and Allow %q", test.method, test.path, r, test.status, test.allow)
			continue
		}
		checkEnvelope(t, test.method+" "+test.path, r, test.path)
	}
	get, head := c.do("GET", "/console", ""), c.do("HEAD", "/console", "")
	if head.status != http.StatusOK || len(head.body) != 0 || head.header.Get("ETag") != get.header.Get("ETag") {
		t.Errorf("HEAD /console: %s", head)
	}
}

// TestConsoleKnowsTheDevelopmentProvider only when it is told of it.
func TestConsoleKnowsTheDevelopmentProvider(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := w.serve("--console-dev-token-url=http://127.0.0.1:5555/token", `--console-dev-organization=</script>"org`,
		"--portal-role-claim=the_role").client("").do("GET", "/console", "")
	if policy := r.header.Get("Content-Security-Policy"); !strings.Contains(policy, "; connect-src 'self' http://127.0.0.1:5555; ") {
		t.Errorf("the policy is %q", policy)
	}
	page := string(r.body)
	for _, expected := range []string{`"tokenUrl":"http://127.0.0.1:5555/token"`, `"roleClaim":"the_role"`, `"` + catalog.Channels[0] + `"`, `"enterprise"`} {
		if !strings.Contains(page, expected) {
			t.Errorf("the page does not say %s:\n%s", expected, page)
		}
	}
	if strings.Count(page, "</script>") != 2 {
		t.Errorf("a setting ended the element that it is in:\n%s", page)
	}
}

func TestDevelopmentTokenAddressIsChecked(t *testing.T) {
	t.Parallel()
	for address, origin := range map[string]string{
		"": "", "http://127.0.0.1:5555/token": "http://127.0.0.1:5555", "https://id.example": "https://id.example",
		"http://[::1]:80/t": "http://[::1]:80",
	} {
		if got, err := (consoleSettings{TokenURL: address}).origin(); got != origin || err != nil {
			t.Errorf("%q: %q, %v, expected %q", address, got, err, origin)
		}
	}
	for _, address := range []string{"id.example/token", "ftp://id.example/", "http:///token", "http://u@id.example/", "http://id.example/?a", "http://id.example/#a",
		"http://id.example; script-src *", "http://a;b/", "http://a,b/", "http://*/", "javascript:alert(1)"} {
		_, _, err := parseCommand([]string{"--database-url=postgres://u@127.0.0.1/d", "--redis-url=redis://127.0.0.1:1",
			"--link-base-url=" + testLinkBase, "--console-dev-token-url=" + address}, new(lockedBuffer), new(lockedBuffer), func(int) {})
		if err == nil || !strings.Contains(err.Error(), "CONSOLE_DEV_TOKEN_URL") {
			t.Errorf("%q: %v, expected it to be refused", address, err)
		}
	}
}
