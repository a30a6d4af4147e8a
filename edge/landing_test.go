package main

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"deeplink/edge/internal/origin"
	"deeplink/shared/catalog"
	"deeplink/shared/qr"
)

var update = flag.Bool("update", false, "write the golden files")

func text(s string) *string { return &s }

var apps = catalog.AppConfig{
	IOS:     &catalog.IOSApp{AppStoreID: text("1234567890")},
	Android: &catalog.AndroidApp{PackageName: text("com.example.app")},
}

// page renders a link's landing page with "test" for its nonce.
func page(t *testing.T, link catalog.Link, config catalog.AppConfig, host string) string {
	t.Helper()
	r, err := newRecord(base, origin.Found{OrgKey: "abcd", Host: host, Link: &link, AppConfig: config})
	if err != nil {
		t.Fatal(err)
	}
	head, tail := r.landing()
	return string(head) + "test" + string(tail)
}

func TestLandingPages(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		file   string
		link   catalog.Link
		config catalog.AppConfig
	}{
		{"landing.html", catalog.Link{ShortCode: "Spring", OG: &catalog.OpenGraph{
			Title: text("The spring collection"), Description: text("Light jackets\nand linen shirts"), ImageURL: text("https://cdn.example.com/a.jpg?w=1200&h=630"),
		}}, apps},
		{"landing-bare.html", catalog.Link{ShortCode: "k7m2qp9x"}, catalog.AppConfig{}},
	} {
		t.Run(test.file, func(t *testing.T) {
			t.Parallel()
			got, file := page(t, test.link, test.config, ""), filepath.Join("testdata", test.file)
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("%s (-expected +got; write it with -update):\n%s", file, diff)
			}
		})
	}
}

func TestLandingPageShowsTheCodeOfItsLink(t *testing.T) {
	t.Parallel()
	for host, url := range map[string]string{"": base + "/abcd/Spring", "links.customer.example": "https://links.customer.example/Spring"} {
		code, err := qr.SVG(url, qr.Defaults())
		if err != nil {
			t.Fatal(err)
		}
		if got := page(t, catalog.Link{ShortCode: "Spring"}, apps, host); !strings.Contains(got, string(code)) {
			t.Errorf("the page of %s has no code of it:\n%s", url, got)
		}
	}
}

func TestLandingPageIsNeverTooLarge(t *testing.T) {
	t.Parallel()
	label := strings.Repeat("a", 61) + "."
	longHost := label + label + label + label + "exam"
	longImage := "https://a.example/?" + strings.Repeat("&", 2000)
	for name, og := range map[string]*catalog.OpenGraph{
		"none":    nil,
		"quotes":  {Title: text(strings.Repeat(`"`, 300)), Description: text(strings.Repeat(`'`, 1000)), ImageURL: &longImage},
		"emoji":   {Title: text(strings.Repeat("😀", 300)), Description: text(strings.Repeat("😀", 1000)), ImageURL: &longImage},
		"plusses": {Title: text(strings.Repeat("+", 300)), Description: text(strings.Repeat("+", 1000))},
	} {
		config := catalog.AppConfig{
			IOS:     &catalog.IOSApp{AppStoreID: text("123456789012")},
			Android: &catalog.AndroidApp{PackageName: text("a." + strings.Repeat("b", 253))},
		}
		got := page(t, catalog.Link{ShortCode: strings.Repeat("c", 64), OG: og}, config, longHost)
		if len(got) > 15_000 {
			t.Errorf("%s: %d bytes, expected at most 15,000", name, len(got))
		}
		if !strings.Contains(got, "</html>") || !strings.Contains(got, "play.google.com") {
			t.Errorf("%s: not a whole page:\n%s", name, got)
		}
	}
}

func TestLandingPageEscapesWhatItShows(t *testing.T) {
	t.Parallel()
	evil := `</title></style><script>alert(1)</script><img src=x onerror=alert(1)>" onload="x nonce-place`
	got := page(t, catalog.Link{ShortCode: "x", OG: &catalog.OpenGraph{
		Title: &evil, Description: &evil, ImageURL: text(`https://a.example/"onerror="alert(1)`),
	}}, catalog.AppConfig{
		IOS:     &catalog.IOSApp{AppStoreID: text(`1"><script>`)},
		Android: &catalog.AndroidApp{PackageName: text(`javascript:"><script>`)},
	}, "")
	if tag := regexp.MustCompile(`(?i)<script|<img[^>]*\sonerror|"\s*on[a-z]+=|javascript:`).FindString(got); tag != "" {
		t.Errorf("the page has %q:\n%s", tag, got)
	}
	if !strings.Contains(got, "onload=&#34;x nonce-place") || !strings.Contains(got, `<style nonce="test">`) {
		t.Errorf("the nonce went to another place than its own:\n%s", got)
	}
}

func TestLandingPageLoadsOnlyPicturesOverTLS(t *testing.T) {
	t.Parallel()
	for image, shown := range map[string]bool{"https://a.example/x.png": true, "http://a.example/x.png": false, "javascript:alert(1)": false} {
		got := page(t, catalog.Link{ShortCode: "x", OG: &catalog.OpenGraph{ImageURL: &image}}, apps, "")
		if strings.Contains(got, "<img") != shown {
			t.Errorf("picture %s shown: %v, expected %v", image, !shown, shown)
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
