package page

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"deeplink/edge/internal/link"
	"deeplink/edge/internal/matchtoken"
	"deeplink/shared/agent"
	"deeplink/shared/catalog"
	"deeplink/shared/qr"
)

var update = flag.Bool("update", false, "write the golden files")

func text(s string) *string { return &s }

// anID is the id of every link here.
const anID = "0195514c-9a00-7b3e-8d2f-3b6a1c9e4f10"

// bothApps has an app for each platform.
var bothApps = catalog.AppConfig{
	IOS:     &catalog.IOSApp{AppStoreID: text("1234567890"), Scheme: text("shop")},
	Android: &catalog.AndroidApp{PackageName: text("com.example.shop"), Scheme: text("shop")},
}

// fataler is implemented by *testing.T, *testing.F and *rapid.T.
type fataler interface {
	Helper()
	Fatal(...any)
	Fatalf(string, ...any)
}

// testLink is a link as pages see it, with its destination.
type testLink struct {
	texts       []string
	destination link.Destination
	room        int
}

func (l *testLink) Value(s Slot) []byte { return []byte(l.texts[s]) }

// base is LINK_BASE_URL.
const base = "https://go.example.com"

func newTestLink(t fataler, l catalog.Link, config catalog.AppConfig, host string) *testLink {
	t.Helper()
	l.ID, l.URL = anID, catalog.ShortURL(base, "abcd", host, l.ShortCode)
	to, _ := link.DestinationOf(&l, config)
	texts, room, err := Prepare(&l, config, to.Location)
	if err != nil {
		t.Fatal(err)
	}
	return &testLink{texts, to, room}
}

// web returns the URL on the web that a page shows for a visit with this query.
func web(l *testLink, query []byte) []byte {
	visit := &Visit{Destination: l.destination.Location, Merged: l.destination.Location, Room: l.room}
	if len(query) > 0 && len(visit.Destination) > 0 {
		visit.Merged = l.destination.AppendMerged(nil, query)
	}
	return appendWeb(nil, visit)
}

// testToken stands for a match token and has the length of one.
var testToken = strings.Repeat("T", matchtoken.Length)

// fullVisit returns all values of a visit without a query.
func fullVisit(l *testLink) *values {
	return &values{slotToken: []byte(testToken), slotWeb: web(l, nil)}
}

// inApp is fullVisit in the web view of an app.
func inApp(l *testLink, name string) *values {
	v := fullVisit(l)
	v[slotApp], v[slotView] = []byte(name), yes
	return v
}

// show returns the page of a link.
func show(p *page, l *testLink, v *values) string { return string(fill(nil, p, l, v, []byte("test"))) }

// showError returns an error page.
func showError(p *page, v *values) string { return string(fill(nil, p, noLink{}, v, []byte("test"))) }

var spring = catalog.Link{
	ShortCode: "Spring", Path: "/collections/spring?ref=a&b#top", FallbackURL: text("https://shop.example.com/spring?ref=deeplink"), UTMSource: text("mail"),
	OG: &catalog.OpenGraph{
		Title: text("The spring collection"), Description: text("Light jackets\nand linen shirts"),
		ImageURL: text("https://cdn.example.com/a.jpg?w=1200&h=630"),
	},
}

func TestPagesEqualTheirGoldenFiles(t *testing.T) {
	t.Parallel()
	bare := catalog.Link{ShortCode: "k7m2qp9x", Path: "sale"}
	noDestination := spring
	noDestination.FallbackURL = nil
	noScheme := catalog.AppConfig{IOS: &catalog.IOSApp{AppStoreID: text("1234567890")}, Android: &catalog.AndroidApp{PackageName: text("com.example.shop")}}
	onlyScheme := catalog.AppConfig{IOS: &catalog.IOSApp{Scheme: text("shop")}, Android: &catalog.AndroidApp{Scheme: text("shop")}}
	full := newTestLink(t, spring, bothApps, "")
	for _, test := range []struct {
		file  string
		page  *page
		link  *testLink // nil: an error page
		visit *values
	}{
		{"preview", &languageNamed([]byte("en")).preview, full, new(values)},
		{"preview-bare", &languageNamed([]byte("en")).preview, newTestLink(t, bare, catalog.AppConfig{}, ""), new(values)},
		{"ios", &languageNamed([]byte("en")).ios, full, fullVisit(full)},
		{"ios-instagram", &languageNamed([]byte("de")).ios, full, func() *values {
			v := inApp(full, "Instagram")
			v[slotInstagram] = yes
			return v
		}()},
		{"ios-in-app", &languageNamed([]byte("fr")).ios, full, inApp(full, "LINE")},
		{"ios-early", &languageNamed([]byte("en")).ios, full, &values{slotEarly: yes}},
		{"ios-store", &languageNamed([]byte("en")).ios, newTestLink(t, bare, noScheme, ""), fullVisit(newTestLink(t, bare, noScheme, ""))},
		{"ios-scheme", &languageNamed([]byte("en")).ios, newTestLink(t, bare, onlyScheme, ""), new(values)},
		{"android", &languageNamed([]byte("ja")).android, full, fullVisit(full)},
		{"android-in-app", &languageNamed([]byte("es")).android, full, inApp(full, "Facebook")},
		{"android-store", &languageNamed([]byte("en")).android, newTestLink(t, bare, noScheme, "links.customer.example"), fullVisit(newTestLink(t, bare, noScheme, ""))},
		{"android-scheme", &languageNamed([]byte("en")).android, newTestLink(t, bare, onlyScheme, ""), new(values)},
		{"landing", &languageNamed([]byte("en")).landing, newTestLink(t, noDestination, bothApps, ""), &values{slotStores: yes}},
		{"landing-bare", &languageNamed([]byte("ar")).landing, newTestLink(t, bare, catalog.AppConfig{}, ""), new(values)},
		{"error-missing", &languageNamed([]byte("en")).errors[Missing], nil, &values{slotID: []byte("some-id")}},
		{"error-gone", &languageNamed([]byte("pt")).errors[Gone], nil, &values{slotID: []byte("some-id")}},
		{"error-expired", &languageNamed([]byte("zh")).errors[Expired], nil, &values{slotID: []byte("some-id")}},
		{"error-busy", &languageNamed([]byte("en")).errors[Busy], nil, &values{slotID: []byte("some-id"), slotSeconds: []byte("3")}},
		{"error-broken", &languageNamed([]byte("en")).errors[Broken], nil, &values{slotID: []byte("some-id")}},
	} {
		t.Run(test.file, func(t *testing.T) {
			t.Parallel()
			got, file := "", filepath.Join("testdata", test.file+".html")
			if test.link == nil {
				got = showError(test.page, test.visit)
			} else {
				got = show(test.page, test.link, test.visit)
			}
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

// linkPages returns the pages of a language that show a link.
func (l *language) linkPages() map[string]*page {
	return map[string]*page{"preview": &l.preview, "ios": &l.ios, "android": &l.android, "landing": &l.landing}
}

func TestPageOfLongestValuesIsAtMost15000Bytes(t *testing.T) {
	t.Parallel()
	label := strings.Repeat("a", 61) + "."
	longHost := label + label + label + label + "exam"
	longQuery := []byte(strings.Repeat("\"", link.MaxQuery))
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
				r := newTestLink(t, link, apps, longHost)
				for i := range languages {
					for kind, p := range languages[i].linkPages() {
						v := inApp(r, strings.Repeat("n", maxAppName))
						v[slotStores], v[slotInstagram], v[slotWeb] = yes, yes, web(r, longQuery)
						html := string(fill(nil, p, r, v, []byte(strings.Repeat("n", nonceLength))))
						largest = max(largest, len(html))
						if len(html) > 15_000 {
							t.Errorf("%s, %s in %s: %d bytes, expected at most 15,000", name, kind, languages[i].tag, len(html))
						}
						if !strings.Contains(html, "</html>") || kind != "preview" && !strings.Contains(html, "play.google.com") && kind != "ios" {
							t.Errorf("%s, %s in %s is incomplete:\n%s", name, kind, languages[i].tag, html)
						}
					}
				}
			}
		}
	}
	if largest < 13_000 {
		t.Errorf("the largest page has %d bytes: more was removed than necessary", largest)
	}
}

// An app without its own scheme is opened by the short URL, which takes room on the page, too.
func TestAppWithoutASchemeFitsOnItsPage(t *testing.T) {
	t.Parallel()
	app := catalog.AppConfig{Android: &catalog.AndroidApp{PackageName: text("a." + strings.Repeat("b", 253))}}
	closest := -maxPage
	for ampersands := 1000; ampersands < 2000; ampersands++ {
		l := catalog.Link{URL: base + "/abcd/x", Path: "p", FallbackURL: text("https://a.example/?" + strings.Repeat("&", ampersands))}
		to, _ := link.DestinationOf(&l, app)
		values, err := prepare(&l, app, to.Location)
		if err != nil {
			t.Fatal(err)
		}
		if values[slotAndroidPath] != "go.example.com/abcd/x" {
			t.Fatalf("%d ampersands: the app is opened by %q, expected the short URL", ampersands, values[slotAndroidPath])
		}
		closest = max(closest, values.excess())
		if values.excess() > 0 {
			t.Errorf("%d ampersands: a page is %d bytes too large", ampersands, values.excess())
		}
	}
	if closest < -5 {
		t.Errorf("the largest page has %d bytes of room: the bound was never reached", -closest)
	}
}

func TestFullPageHasNoRoomForTheDestination(t *testing.T) {
	t.Parallel()
	v := slotValues{slotTitle: strings.Repeat("x", maxPage), slotWeb: "https://a.example/"}
	if room := v.webRoom(); room != 0 {
		t.Errorf("room for %d bytes, expected none", room)
	}
}

// Encoded, the path is three times as long. Only the pages for phones contain it.
func TestTooLargePageRemovesNothingFromOtherPages(t *testing.T) {
	t.Parallel()
	link := spring
	link.FallbackURL, link.Path = nil, "/"+strings.Repeat("ж", 1400)
	r := newTestLink(t, link, bothApps, "")
	for _, s := range []Slot{slotDescription, slotImage, slotQR, slotAppStore, slotPackage} {
		if len(r.Value(s)) == 0 {
			t.Errorf("%s was removed from all pages", slotNames[s])
		}
	}
}

func TestLongDescriptionIsShortenedBeforeOtherValuesAreRemoved(t *testing.T) {
	t.Parallel()
	link := spring
	link.FallbackURL = nil
	link.OG = &catalog.OpenGraph{Title: spring.OG.Title, Description: text(strings.Repeat("'", 1000)), ImageURL: spring.OG.ImageURL}
	r := newTestLink(t, link, bothApps, "")
	if shown := string(r.Value(slotDescription)); len(shown) < fewWords-8 || len(shown) >= 5000 || !strings.HasSuffix(shown, "&#39;…") {
		t.Errorf("%d bytes of a description of 5000 bytes are shown: %s", len(shown), shown)
	}
	for _, s := range []Slot{slotQR, slotShownImage, slotPath, slotTitle} {
		if len(r.Value(s)) == 0 {
			t.Errorf("slot %s is empty", slotNames[s])
		}
	}
	link = spring
	link.OG = &catalog.OpenGraph{Description: text(strings.Repeat("a word ", 142))}
	if got := string(newTestLink(t, link, bothApps, "").Value(slotDescription)); got != *link.OG.Description {
		t.Errorf("a description that fits was shortened: %s", got)
	}
}

func TestLandingPageShowsTheQRCodeOfItsLink(t *testing.T) {
	t.Parallel()
	for host, url := range map[string]string{"": base + "/abcd/Spring", "links.customer.example": "https://links.customer.example/Spring"} {
		code, err := qr.SVG(url, qr.Defaults())
		if err != nil {
			t.Fatal(err)
		}
		r := newTestLink(t, catalog.Link{ShortCode: "Spring", Path: "/x"}, bothApps, host)
		if got := show(&languages[0].landing, r, new(values)); !strings.Contains(got, string(code)) {
			t.Errorf("the page of %s does not show its QR code:\n%s", url, got)
		}
	}
}

// skeleton returns a page without its texts and attribute values.
func skeleton(html string) string {
	html = regexp.MustCompile(`="[^"]*"`).ReplaceAllString(html, "=")
	return regexp.MustCompile(`>[^<]*<`).ReplaceAllString(html, "><")
}

// hostileTexts have a meaning in HTML, scripts, templates, intents or our slots.
var hostileTexts = []string{
	`</title><script>alert(1)</script>`, `"><script>alert(1)</script>`, `'><img src=x onerror=alert(1)>`, `" onload="alert(1)`, `' onmouseover='alert(1)`,
	`</style><style>*{display:none}`, `<!--`, `-->`, `]]>`, `</script>`, `<svg/onload=alert(1)>`, `&quot;onclick=alert(1)`, `&#34;><b>`, `&lt;script&gt;`,
	`[[nonce]]`, `[[if token]]`, `[[end]]`, `{{.Text}}`, `nonce="test"`, `javascript:alert(1)`, `<base href=//evil.example>`, `<meta http-equiv=refresh content=0>`,
	"\u2028alert(1)", "\u202etxet", "a\x00b", "`${alert(1)}`", `\x3cscript\x3e`, `%3Cscript%3E`, `<a href=javascript:alert(1)>`, `<iframe srcdoc=x>`, `="`, `"`, `'`, `<`, `>`, `&`,
	`#Intent;scheme=javascript;end`, `;S.browser_fallback_url=https%3A%2F%2Fevil.example;end`, `#Intent;component=evil/.Main;end#Intent;end`,
}

func TestHostileTextsDoNotChangeTheStructureOfAPage(t *testing.T) {
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
				r, expected := newTestLink(t, link, bothApps, ""), newTestLink(t, tame, bothApps, "")
				v := inApp(r, "Instagram")
				v[slotWeb] = web(r, []byte(query))
				if len(v[slotWeb]) == 0 { // url.Parse rejects it, so the link has no destination
					expected = newTestLink(t, catalog.Link{ShortCode: "x", Path: "p", OG: tame.OG}, bothApps, "")
				}
				want := inApp(expected, "Instagram")
				if diff := cmp.Diff(skeleton(show(p, expected, want)), skeleton(show(p, r, v))); diff != "" {
					t.Errorf("%q changes the structure of page %s (-expected +got):\n%s", evil, kind, diff)
				}
			}
		}
	}
}

func TestOnlyHTTPSImagesAreShown(t *testing.T) {
	t.Parallel()
	for image, shown := range map[string]bool{"https://a.example/x.png": true, "http://a.example/x.png": false, "javascript:alert(1)": false} {
		r := newTestLink(t, catalog.Link{ShortCode: "x", Path: "p", OG: &catalog.OpenGraph{ImageURL: &image}}, bothApps, "")
		for kind, p := range languages[0].linkPages() {
			if got := strings.Contains(show(p, r, new(values)), "<img"); got != shown {
				t.Errorf("%s: image %s shown: %v, expected %v", kind, image, got, shown)
			}
		}
		if preview := show(&languages[0].preview, r, new(values)); !strings.Contains(preview, `<meta property="og:image" content="`+image) {
			t.Errorf("the preview has no og:image %s", image)
		}
	}
}

func TestSlotOutsideTextAndQuotesDoesNotCompile(t *testing.T) {
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

func TestPolicyAllowsOnlyWhatThePageContains(t *testing.T) {
	t.Parallel()
	r := newTestLink(t, spring, bothApps, "")
	for kind, p := range languages[0].linkPages() {
		html, policy := show(p, r, inApp(r, "LINE")), strings.Join(p.policy, "test")
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
			t.Errorf("%s has the attribute %s, which the policy forbids", kind, found)
		}
	}
	if got := fmt.Sprint(languages[0].preview.policy); strings.Contains(got, "script") {
		t.Errorf("the preview may run scripts: %s", got)
	}
}

func TestEveryKnownAppHasAName(t *testing.T) {
	t.Parallel()
	for b := agent.SystemBrowser; b <= agent.OtherApp; b++ {
		if named := len(appNames[b]) > 0; named != (b.InApp() && b != agent.OtherApp) || len(appNames[b]) > maxAppName {
			t.Errorf("browser %d is called %q", b, appNames[b])
		}
	}
}
