package api

import (
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"deeplink/control/internal/console"
	"deeplink/control/internal/testenv"
)

// consolePages are the files of the console as control serve has them.
func consolePages(t *testing.T) []Page {
	t.Helper()
	files, err := console.Files(console.Settings{Provider: true})
	if err != nil {
		t.Fatal(err)
	}
	pages := make([]Page, len(files))
	for i, file := range files {
		pages[i] = Page(file)
	}
	return pages
}

func TestConsoleIsServedWithItsPolicy(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	c := w.serve(withPages(consolePages(t)...)).client("")
	paths := []string{"/console"}
	for _, page := range consolePages(t)[1:] {
		if page.Volatile {
			if r := c.Do("GET", page.Path, ""); r.Status != http.StatusOK || r.Header.Get("Cache-Control") != "no-store" || r.Header.Get("Content-Security-Policy") != page.Policy {
				t.Errorf("GET %s: %s", page.Path, r)
			}
			continue
		}
		paths = append(paths, page.Path)
	}
	if len(paths) < 10 {
		t.Errorf("console files: %q, expected a page, its style and its modules", paths)
	}
	const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; connect-src 'self'; base-uri 'none'; " +
		"form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
	for _, path := range paths {
		r := c.Do("GET", path, "")
		for name, expected := range map[string]string{
			"Content-Security-Policy": policy, "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cache-Control": "no-cache",
			"Cross-Origin-Opener-Policy": "same-origin", versionHeader: version,
		} {
			if got := r.Header.Get(name); r.Status != http.StatusOK || got != expected {
				t.Errorf("GET %s: %d, %s %q, expected %q", path, r.Status, name, got, expected)
			}
		}
		if strings.Contains(string(r.Body), "//") && strings.HasSuffix(path, "/console") {
			t.Errorf("the page refers to another host:\n%s", r.Body)
		}
		again := c.Do("GET", path, "", "If-None-Match", r.Header.Get("ETag"))
		if again.Status != http.StatusNotModified || len(again.Body) != 0 || again.Header.Get("Content-Security-Policy") != policy {
			t.Errorf("GET %s again: %s, expected 304", path, again)
		}
	}
}

// TestConsoleLoadsOnlyWhatIsThere follows the references of the page and the modules.
func TestConsoleLoadsOnlyWhatIsThere(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	c := w.serve(withPages(consolePages(t)...)).client("")
	loads := regexp.MustCompile(`(?:src|href)="/?(console/[^"]+)"|from "\./([^"]+)"`)
	types := map[string]string{"js": "text/javascript; charset=utf-8", "css": "text/css; charset=utf-8", "svg": "image/svg+xml"}
	seen := []string{"/console", "/console/link", "/console/done"}
	for i := 0; i < len(seen); i++ {
		r := c.Do("GET", seen[i], "")
		expected := "text/html; charset=utf-8"
		if _, ending, ok := strings.Cut(seen[i], "."); ok {
			expected = types[ending]
		}
		if got := r.Header.Get("Content-Type"); r.Status != http.StatusOK || got != expected {
			t.Errorf("GET %s: %d %q, expected %q", seen[i], r.Status, got, expected)
		}
		for _, found := range loads.FindAllStringSubmatch(string(r.Body), -1) {
			path := "/" + found[1]
			if found[2] != "" {
				path = "/console/" + found[2]
			}
			if !slices.Contains(seen, path) {
				seen = append(seen, path)
			}
		}
	}
	if pages := consolePages(t); len(seen) != len(pages) {
		t.Errorf("the page loads %q, expected all %d files", seen, len(pages))
	}
}

func TestConsoleErrorsAreEnvelopes(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	c := w.serve(withPages(consolePages(t)...)).client("")
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
		r := c.Do(test.method, test.path, "")
		if r.Status != test.status || r.Header.Get("Allow") != test.allow {
			t.Errorf("%s %s: %s, expected %d and Allow %q", test.method, test.path, r, test.status, test.allow)
			continue
		}
		testenv.CheckEnvelope(t, test.method+" "+test.path, r, test.path)
	}
	get, head := c.Do("GET", "/console", ""), c.Do("HEAD", "/console", "")
	if head.Status != http.StatusOK || len(head.Body) != 0 || head.Header.Get("ETag") != get.Header.Get("ETag") {
		t.Errorf("HEAD /console: %s", head)
	}
}
