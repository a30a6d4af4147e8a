package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"deeplink/edge/internal/origin"
	"deeplink/shared/catalog"
	"deeplink/shared/matchtoken"
	"deeplink/shared/qr"
)

var update = flag.Bool("update", false, "write the golden files")

func text(s string) *string { return &s }

// anID is the id of a link that no database has.
const anID = "0195514c-9a00-7b3e-8d2f-3b6a1c9e4f10"

// bothApps are an app for each platform.
var bothApps = catalog.AppConfig{
	IOS:     &catalog.IOSApp{AppStoreID: text("1234567890"), Scheme: text("shop")},
	Android: &catalog.AndroidApp{PackageName: text("com.example.shop"), Scheme: text("shop")},
}

// fataler is what tests and checks of properties have in common.
type fataler interface {
	Helper()
	Fatal(...any)
	Fatalf(string, ...any)
}

func newTestRecord(t fataler, link catalog.Link, config catalog.AppConfig, host string) record {
	t.Helper()
	link.ID = anID
	r, err := newRecord(base, origin.Found{OrgKey: "abcd", Host: host, Link: &link, AppConfig: config})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// testTokenKeys is a key as MATCH_TOKEN_KEYS has it.
var testTokenKeys = matchTokenKeys(strings.Repeat("ab", 32))

// testToken stands for a match token, and is as long as one.
var testToken = strings.Repeat("T", matchtoken.Length)

// fullVisit fills all that a visit to a link can, without a query.
func fullVisit(r record) *visit {
	return &visit{slotToken: []byte(testToken), slotWeb: appendWeb(nil, r, nil)}
}

// inApp is fullVisit in the view of an app.
func inApp(r record, name string) *visit {
	v := fullVisit(r)
	v[slotApp], v[slotView] = []byte(name), yes
	return v
}

func fill(p *page, r record, v *visit) string { return string(p.fill(nil, r, v, []byte("test"))) }

var spring = catalog.Link{
	ShortCode: "Spring", Path: "/collections/spring?ref=a&b#top", FallbackURL: text("https://shop.example.com/spring?ref=deeplink"), UTMSource: text("mail"),
	OG: &catalog.OpenGraph{
		Title: text("The spring collection"), Description: text("Light jackets\nand linen shirts"),
		ImageURL: text("https://cdn.example.com/a.jpg?w=1200&h=630"),
	},
}

func TestPages(t *testing.T) {
	t.Parallel()
	bare := catalog.Link{ShortCode: "k7m2qp9x", Path: "sale"}
	noDestination := spring
	noDestination.FallbackURL = nil
	noScheme := catalog.AppConfig{IOS: &catalog.IOSApp{AppStoreID: text("1234567890")}, Android: &catalog.AndroidApp{PackageName: text("com.example.shop")}}
	onlyScheme := catalog.AppConfig{IOS: &catalog.IOSApp{Scheme: text("shop")}, Android: &catalog.AndroidApp{Scheme: text("shop")}}
	full := newTestRecord(t, spring, bothApps, "")
	for _, test := range []struct {
		file  string
		page  *page
		link  record
		visit *visit
	}{
		{"preview", &languageNamed([]byte("en")).preview, full, new(visit)},
		{"preview-bare", &languageNamed([]byte("en")).preview, newTestRecord(t, bare, catalog.AppConfig{}, ""), new(visit)},
		{"ios", &languageNamed([]byte("en")).ios, full, fullVisit(full)},
		{"ios-instagram", &languageNamed([]byte("de")).ios, full, func() *visit {
			v := inApp(full, "Instagram")
			v[slotInstagram] = yes
			return v
		}()},
		{"ios-in-app", &languageNamed([]byte("fr")).ios, full, inApp(full, "LINE")},
		{"ios-early", &languageNamed([]byte("en")).ios, full, &visit{slotEarly: yes}},
		{"ios-store", &languageNamed([]byte("en")).ios, newTestRecord(t, bare, noScheme, ""), fullVisit(newTestRecord(t, bare, noScheme, ""))},
		{"ios-scheme", &languageNamed([]byte("en")).ios, newTestRecord(t, bare, onlyScheme, ""), new(visit)},
		{"android", &languageNamed([]byte("ja")).android, full, fullVisit(full)},
		{"android-in-app", &languageNamed([]byte("es")).android, full, inApp(full, "Facebook")},
		{"android-store", &languageNamed([]byte("en")).android, newTestRecord(t, bare, noScheme, "links.customer.example"), fullVisit(newTestRecord(t, bare, noScheme, ""))},
		{"android-scheme", &languageNamed([]byte("en")).android, newTestRecord(t, bare, onlyScheme, ""), new(visit)},
		{"landing", &languageNamed([]byte("en")).landing, newTestRecord(t, noDestination, bothApps, ""), &visit{slotStores: yes}},
		{"landing-bare", &languageNamed([]byte("ar")).landing, newTestRecord(t, bare, catalog.AppConfig{}, ""), new(visit)},
		{"error-missing", &languageNamed([]byte("en")).problems[missing], nil, &visit{slotID: []byte("some-id")}},
		{"error-gone", &languageNamed([]byte("pt")).problems[gone], nil, &visit{slotID: []byte("some-id")}},
		{"error-expired", &languageNamed([]byte("zh")).problems[outOfTime], nil, &visit{slotID: []byte("some-id")}},
		{"error-busy", &languageNamed([]byte("en")).problems[busy], nil, &visit{slotID: []byte("some-id"), slotSeconds: []byte("3")}},
		{"error-broken", &languageNamed([]byte("en")).problems[broken], nil, &visit{slotID: []byte("some-id")}},
	} {
		t.Run(test.file, func(t *testing.T) {
			t.Parallel()
			got, file := fill(test.page, test.link, test.visit), filepath.Join("testdata", "page-"+test.file+".html")
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

// linkPages are the pages that a link fills, in a language.
func (l *language) linkPages() map[string]*page {
	return map[string]*page{"preview": &l.preview, "ios": &l.ios, "android": &l.android, "landing": &l.landing}
}

func TestPagesAreNeverTooLarge(t *testing.T) {
	t.Parallel()
	label := strings.Repeat("a", 61) + "."
	longHost := label + label + label + label + "exam"
	longQuery := []byte(strings.Repeat("\"", maxQuery))
	withScheme := catalog.AppConfig{
		IOS:     &catalog.IOSApp{AppStoreID: text("123456789012"), Scheme: text(strings.Repeat("s", 32))},
		Android: &catalog.AndroidApp{PackageName: text("a." + strings.Repeat("b", 253)), Scheme: text(strings.Repeat("s", 32))},
	}
	withoutScheme := catalog.AppConfig{
		IOS: &catalog.IOSApp{AppStoreID: withScheme.IOS.AppStoreID}, Android: &catalog.AndroidApp{PackageName: withScheme.Android.PackageName},
	}
	largest := 0
	for name, letter := range map[string]string{"letters": "x", "words": "word ", "quotes": `"`, "ampersands": "&", "emoji": "😀", "kanji": "字", "hashes": "#"} {
		long := func(characters int) *string {
			return text(string([]rune(strings.Repeat(letter, characters))[:characters]))
		}
		for _, address := range []*string{nil, text("https://a.example/" + strings.Repeat("x", 500)), text("https://a.example/?" + strings.Repeat("&", 2029))} {
			link := catalog.Link{
				ShortCode: strings.Repeat("c", 64), Path: *long(catalog.MaxPath), FallbackURL: address,
				OG: &catalog.OpenGraph{Title: long(300), Description: long(1000), ImageURL: address},
			}
			if address != nil && len(*address) > 1000 {
				link.UTMSource, link.UTMMedium, link.UTMCampaign, link.UTMTerm, link.UTMContent = long(255), long(255), long(255), long(255), long(255)
			}
			for _, apps := range []catalog.AppConfig{withScheme, withoutScheme} {
				r := newTestRecord(t, link, apps, longHost)
				for i := range languages {
					for kind, p := range languages[i].linkPages() {
						v := inApp(r, strings.Repeat("n", maxAppName))
						v[slotStores], v[slotInstagram], v[slotWeb] = yes, yes, appendWeb(nil, r, longQuery)
						html := string(p.fill(nil, r, v, []byte(strings.Repeat("n", nonceLength))))
						largest = max(largest, len(html))
						if len(html) > 15_000 {
							t.Errorf("%s, %s in %s: %d bytes, expected at most 15,000", name, kind, languages[i].tag, len(html))
						}
						if !strings.Contains(html, "</html>") || kind != "preview" && !strings.Contains(html, "play.google.com") && kind != "ios" {
							t.Errorf("%s, %s in %s is no whole page:\n%s", name, kind, languages[i].tag, html)
						}
					}
				}
			}
		}
	}
	if largest < 13_000 {
		t.Errorf("the largest page has %d bytes: more was left out than had to be", largest)
	}
}

// An app without a scheme of its own is opened by the short URL, which takes room on its page as well.
func TestValuesOfAnAppWithoutASchemeHaveRoom(t *testing.T) {
	t.Parallel()
	app := catalog.AppConfig{Android: &catalog.AndroidApp{PackageName: text("a." + strings.Repeat("b", 253))}}
	closest := -maxPage
	for ampersands := 1000; ampersands < 2000; ampersands++ {
		link := catalog.Link{URL: base + "/abcd/x", Path: "p", FallbackURL: text("https://a.example/?" + strings.Repeat("&", ampersands))}
		to, _ := destinationOf(&link, app)
		values, err := readPageValues(&link, app, to)
		if err != nil {
			t.Fatal(err)
		}
		if values[slotAndroidPath] != "go.example.com/abcd/x" {
			t.Fatalf("%d ampersands: the app is opened by %q, expected by the short URL", ampersands, values[slotAndroidPath])
		}
		closest = max(closest, values.excess())
		if values.excess() > 0 {
			t.Errorf("%d ampersands: a page is %d bytes too large", ampersands, values.excess())
		}
	}
	if closest < -5 {
		t.Errorf("the largest page has %d bytes of room: the bound was never met", -closest)
	}
}

func TestDestinationHasNoRoomOnAPageThatIsFull(t *testing.T) {
	t.Parallel()
	v := pageValues{slotTitle: strings.Repeat("x", maxPage), slotWeb: "https://a.example/"}
	if room := v.webRoom(); room != 0 {
		t.Errorf("room for %d bytes, expected none", room)
	}
}

// The path is three times as long once it is encoded, and in the pages for phones alone.
func TestPageThatIsTooLargeTakesNothingFromTheOthers(t *testing.T) {
	t.Parallel()
	link := spring
	link.FallbackURL, link.Path = nil, "/"+strings.Repeat("ж", 1400)
	r := newTestRecord(t, link, bothApps, "")
	for _, s := range []slot{slotDescription, slotPicture, slotQR, slotAppStore, slotPackage} {
		if len(r.value(s)) == 0 {
			t.Errorf("%s is left out of all pages", slotNames[s])
		}
	}
}

func TestLongTextsLeaveOutWhatIsMissedLeast(t *testing.T) {
	t.Parallel()
	link := spring
	link.FallbackURL = nil
	link.OG = &catalog.OpenGraph{Title: spring.OG.Title, Description: text(strings.Repeat("'", 1000)), ImageURL: spring.OG.ImageURL}
	r := newTestRecord(t, link, bothApps, "")
	if shown := string(r.value(slotDescription)); len(shown) < fewWords-8 || len(shown) >= 5000 || !strings.HasSuffix(shown, "&#39;…") {
		t.Errorf("of a description of 5000 bytes %d are shown: %s", len(shown), shown)
	}
	for _, s := range []slot{slotQR, slotImage, slotPath, slotTitle} {
		if len(r.value(s)) == 0 {
			t.Errorf("slot %s is empty", slotNames[s])
		}
	}
	link = spring
	link.OG = &catalog.OpenGraph{Description: text(strings.Repeat("a word ", 142))}
	if got := string(newTestRecord(t, link, bothApps, "").value(slotDescription)); got != *link.OG.Description {
		t.Errorf("a description that has room is shortened: %s", got)
	}
}

func TestLandingPageShowsTheCodeOfItsLink(t *testing.T) {
	t.Parallel()
	for host, url := range map[string]string{"": base + "/abcd/Spring", "links.customer.example": "https://links.customer.example/Spring"} {
		code, err := qr.SVG(url, qr.Defaults())
		if err != nil {
			t.Fatal(err)
		}
		r := newTestRecord(t, catalog.Link{ShortCode: "Spring", Path: "/x"}, bothApps, host)
		if got := fill(&languages[0].landing, r, new(visit)); !strings.Contains(got, string(code)) {
			t.Errorf("the page of %s has no code of it:\n%s", url, got)
		}
	}
}

// skeleton is a page without texts and without what attributes say, but for addresses.
func skeleton(html string) string {
	html = regexp.MustCompile(`="[^"]*"`).ReplaceAllString(html, "=")
	return regexp.MustCompile(`>[^<]*<`).ReplaceAllString(html, "><")
}

// hostileTexts mean something to HTML, to scripts, to templates, to intents or to ours.
var hostileTexts = []string{
	`</title><script>alert(1)</script>`, `"><script>alert(1)</script>`, `'><img src=x onerror=alert(1)>`, `" onload="alert(1)`, `' onmouseover='alert(1)`,
	`</style><style>*{display:none}`, `<!--`, `-->`, `]]>`, `</script>`, `<svg/onload=alert(1)>`, `&quot;onclick=alert(1)`, `&#34;><b>`, `&lt;script&gt;`,
	`[[nonce]]`, `[[if token]]`, `[[end]]`, `{{.Text}}`, `nonce="test"`, `javascript:alert(1)`, `<base href=//evil.example>`, `<meta http-equiv=refresh content=0>`,
	"\u2028alert(1)", "\u202etxet", "a\x00b", "`${alert(1)}`", `\x3cscript\x3e`, `%3Cscript%3E`, `<a href=javascript:alert(1)>`, `<iframe srcdoc=x>`, `="`, `"`, `'`, `<`, `>`, `&`,
	`#Intent;scheme=javascript;end`, `;S.browser_fallback_url=https%3A%2F%2Fevil.example;end`, `#Intent;component=evil/.Main;end#Intent;end`,
}

func TestHostileTextsChangeNoPage(t *testing.T) {
	t.Parallel()
	tame := catalog.Link{ShortCode: "x", Path: "p", FallbackURL: text("https://a.example/"), OG: &catalog.OpenGraph{
		Title: text("t"), Description: text("d"), ImageURL: text("https://a.example/i"),
	}}
	l := &languages[0]
	for _, evil := range hostileTexts {
		link := tame
		link.Path = evil
		link.FallbackURL = text("https://a.example/?" + evil)
		link.OG = &catalog.OpenGraph{Title: &evil, Description: &evil, ImageURL: text("https://a.example/" + evil)}
		for kind, p := range l.linkPages() {
			for _, query := range []string{"", evil} {
				r, expected := newTestRecord(t, link, bothApps, ""), newTestRecord(t, tame, bothApps, "")
				v := inApp(r, "Instagram")
				v[slotWeb] = appendWeb(nil, r, []byte(query))
				if len(v[slotWeb]) == 0 { // a URL that Go cannot read is no destination
					expected = newTestRecord(t, catalog.Link{ShortCode: "x", Path: "p", OG: tame.OG}, bothApps, "")
				}
				want := inApp(expected, "Instagram")
				if diff := cmp.Diff(skeleton(fill(p, expected, want)), skeleton(fill(p, r, v))); diff != "" {
					t.Errorf("%q makes the page %s another one (-expected +got):\n%s", evil, kind, diff)
				}
			}
		}
	}
}

func TestOnlyPicturesOverTLSAreShown(t *testing.T) {
	t.Parallel()
	for image, shown := range map[string]bool{"https://a.example/x.png": true, "http://a.example/x.png": false, "javascript:alert(1)": false} {
		r := newTestRecord(t, catalog.Link{ShortCode: "x", Path: "p", OG: &catalog.OpenGraph{ImageURL: &image}}, bothApps, "")
		for kind, p := range languages[0].linkPages() {
			if got := strings.Contains(fill(p, r, new(visit)), "<img"); got != shown {
				t.Errorf("%s: picture %s shown: %v, expected %v", kind, image, got, shown)
			}
		}
		if preview := fill(&languages[0].preview, r, new(visit)); !strings.Contains(preview, `<meta property="og:image" content="`+image) {
			t.Errorf("the preview does not name %s", image)
		}
	}
}

func TestOnlySlotsInTheirPlaceCompile(t *testing.T) {
	t.Parallel()
	for html, good := range map[string]bool{
		`<p>[[title]]</p>`:                                      true,
		`<p title="a [[title]] b">x</p>`:                        true,
		`<p title="[[if title]]a[[end]]">x</p>`:                 true,
		`[[if title]]<p>[[unless url]]x[[end]]</p>[[end]]`:      true,
		`<style>a{}</style><script>let a="<p>"</script>[[url]]`: true,
		`<p title=[[title]]>x</p>`:                              false,
		`<p [[title]]>x</p>`:                                    false,
		`<script>[[title]]</script>`:                            false,
		`<script>let a="[[title]]"</script>`:                    false,
		`<style>[[title]]</style>`:                              false,
		`<p>[[nothing]]</p>`:                                    false,
		`<p>[[if title]]</p>`:                                   false,
		`<p>[[end]]</p>`:                                        false,
		`[[if title]]<p title="[[end]]">x</p>`:                  false,
		`<p>[[title]]</p`:                                       false,
	} {
		if _, err := parsePage(html); (err == nil) != good {
			t.Errorf("%s: %v, expected that it compiles: %v", html, err, good)
		}
	}
}

func TestPolicyAllowsWhatThePageHas(t *testing.T) {
	t.Parallel()
	r := newTestRecord(t, spring, bothApps, "")
	for kind, p := range languages[0].linkPages() {
		html, policy := fill(p, r, inApp(r, "LINE")), strings.Join(p.policy, "test")
		for directive, has := range map[string]bool{
			"script-src 'nonce-test'": strings.Contains(html, "<script"), "frame-src intent:": strings.Contains(html, "iframe"),
			"style-src 'nonce-test'": true, "default-src 'none'": true, "base-uri 'none'": true, "form-action 'none'": true, "frame-ancestors 'none'": true, "img-src https:": true,
		} {
			if strings.Contains(policy, directive) != has {
				t.Errorf("%s: %q in %q: %v, expected %v", kind, directive, policy, !has, has)
			}
		}
		for _, element := range regexp.MustCompile(`<(script|style)[^>]*>`).FindAllString(html, -1) {
			if !strings.Contains(element, ` nonce="test"`) {
				t.Errorf("%s has %s", kind, element)
			}
		}
		if found := regexp.MustCompile(`\s(on[a-z]+|style)=`).FindString(html); found != "" {
			t.Errorf("%s has an attribute %s that the policy forbids", kind, found)
		}
	}
	if got := fmt.Sprint(languages[0].preview.policy); strings.Contains(got, "script") {
		t.Errorf("the preview may run scripts: %s", got)
	}
}
