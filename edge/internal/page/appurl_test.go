package page

import (
	"fmt"
	"html"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"deeplink/shared/catalog"
)

func TestAppPathIsEncodedForItsPlace(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]string{
		"sale":                      "sale",
		"/sale":                     "/sale",
		"/a/b?x=1&y=2#top":          "/a/b?x=1&y=2#top",
		"?x=1":                      "?x=1",
		"#top":                      "#top",
		"/a b":                      "/a%20b",
		"/a%20b":                    "/a%20b",
		"/100%":                     "/100%25",
		"/100%zz":                   "/100%25zz",
		"/a;b?c;d#e;f":              "/a;b?c;d#e%3Bf",
		"/a#b#c":                    "/a#b%23c",
		"/x#Intent;scheme=http;end": "/x#Intent%3Bscheme=http%3Bend",
		`/"'<>` + "`{}|^\\":         "/%22'%3C%3E%60%7B%7D%7C%5E%5C",
		"1:2/a:b@c":                 "1%3A2/a:b@c",
		"user@host/x":               "user%40host/x",
		"[::1]/x[1]":                "%5B%3A%3A1%5D/x%5B1%5D",
		"/ä/字":                      "/%C3%A4/%E5%AD%97",
		"//evil.example/x":          "//evil.example/x",
		"javascript:alert(1)":       "javascript%3Aalert(1)",
		"":                          "",
	} {
		if got := appPath(path); got != want {
			t.Errorf("path %q: %q, expected %q", path, got, want)
		}
	}
}

// intent is an intent:// URL as Android parses it.
type intent struct {
	data   string
	extras map[string]string
}

// parseIntent does what Intent.parseUri of android.content does: everything after the last # is extras, one of which is the scheme.
func parseIntent(uri string) (intent, error) {
	end := strings.LastIndexByte(uri, '#')
	data, isIntent := strings.CutPrefix(uri[:max(end, 0)], "intent:")
	extras, isNew := strings.CutPrefix(uri[max(end, 0):], "#Intent;")
	if !isIntent || !isNew {
		return intent{}, fmt.Errorf("no intent: %s", uri)
	}
	parsed := intent{extras: make(map[string]string)}
	for extras != "end" {
		extra, rest, found := strings.Cut(extras, ";")
		name, value, assigned := strings.Cut(extra, "=")
		decoded, err := url.PathUnescape(value)
		if _, twice := parsed.extras[name]; !found || !assigned || twice || err != nil {
			return intent{}, fmt.Errorf("extra %q before %q in %s: %v", extra, rest, uri, err)
		}
		parsed.extras[name], extras = decoded, rest
	}
	parsed.data = parsed.extras["scheme"] + ":" + data
	return parsed, nil
}

// attribute returns the value of an attribute of the element with this id.
func attribute(t fataler, page, id, name string) (value string, found bool) {
	t.Helper()
	tags := regexp.MustCompile(`<[a-z]+ id="`+id+`"[^>]*>`).FindAllString(page, -1)
	if len(tags) > 1 {
		t.Fatalf("%d elements with the id %s", len(tags), id)
	}
	if len(tags) == 0 {
		return "", false
	}
	m := regexp.MustCompile(` ` + name + `="([^"]*)"`).FindStringSubmatch(tags[0])
	if m == nil {
		return "", false
	}
	return html.UnescapeString(m[1]), true
}

func checkApps(t testing.TB, path string) {
	t.Helper()
	r := newTestLink(t, catalog.Link{ShortCode: "x", Path: path}, bothApps, "")
	opened, _ := attribute(t, show(&languages[0].ios, r, fullVisit(r)), "open", "href")
	if want := "shop://" + appPath(path); opened != want {
		t.Fatalf("path %q opens %q on iOS, expected %q", path, opened, want)
	}
	if !regexp.MustCompile(`^shop://[^\x00-\x20\x7f-\xff"<>[\]\\^` + "`" + `{|}:@]*([/?#][^\x00-\x20\x7f-\xff"<>[\]\\^` + "`" + `{|}]*)?$`).MatchString(opened) {
		t.Fatalf("path %q opens %q on iOS, which is not a URL", path, opened)
	}
	android := show(&languages[0].android, r, fullVisit(r))
	href, _ := attribute(t, android, "open", "href")
	got, err := parseIntent(href)
	if err != nil {
		t.Fatalf("path %q: %v", path, err)
	}
	const store = "https://play.google.com/store/apps/details?id=com.example.shop&referrer=mt%3D"
	if got.data != opened || len(got.extras) != 3 || got.extras["package"] != "com.example.shop" || got.extras["S.browser_fallback_url"] != store+testToken {
		t.Fatalf("path %q opens %+v on Android, expected the data %q and the store", path, got, opened)
	}
	if strings.Count(href, "#Intent;") != 1 {
		t.Fatalf("path %q: %s is ambiguous", path, href)
	}
	if play, _ := attribute(t, android, "store", "href"); play != store+testToken {
		t.Fatalf("the store is %q", play)
	}
	referrer, err := url.ParseQuery(strings.TrimPrefix(store, "https://play.google.com/store/apps/details?") + testToken)
	if err != nil || referrer.Get("referrer") != "mt="+testToken {
		t.Fatalf("the referrer is %q, %v", referrer, err)
	}
}

func TestPagesOpenAppsAtThePathOfTheLink(t *testing.T) {
	t.Parallel()
	for _, path := range append([]string{"sale", "/sale", "/a?b#c", "?b", "#c", "/a b;c#d;e#f"}, hostileTexts...) {
		checkApps(t, path)
	}
	letters := rapid.StringOfN(rapid.RuneFrom([]rune("aZ0/?#;%&='\"<>()[]{}@:!|\\^`~ +,.-_ä字\u202e😀Intend")), 0, 60, -1)
	rapid.Check(t, func(t *rapid.T) {
		path := letters.Draw(t, "path")
		r := newTestLink(t, catalog.Link{ShortCode: "x", Path: path}, bothApps, "")
		href, _ := attribute(t, show(&languages[0].android, r, fullVisit(r)), "open", "href")
		got, err := parseIntent(href)
		if err != nil || got.data != "shop://"+appPath(path) || len(got.extras) != 3 {
			t.Fatalf("path %q: %+v, %v", path, got, err)
		}
	})
}

func TestInvalidAppNamesAreIgnored(t *testing.T) {
	t.Parallel()
	for scheme, good := range map[string]bool{
		"shop": true, "com.example.shop": true, "x+y-z": true,
		"javascript": false, "data": false, "vbscript": false, "intent": false, "https": false, "file": false, "blob": false, "about": false, "ws": false,
		"content": false, "market": false, "itms-services": false, "itms-apps": false, "tel": false, "x": false, "Shop": false, "1shop": false, `shop"`: false, "shop:": false, "shop://evil": false, "": false, "sh op": false,
	} {
		if got := appScheme(&scheme); (got == scheme && got != "") != good {
			t.Errorf("scheme %q: %q, expected it back: %v", scheme, got, good)
		}
	}
	evil := text(`1"><script>alert(1)</script>`)
	r := newTestLink(t, catalog.Link{ShortCode: "x", Path: "p"}, catalog.AppConfig{
		IOS: &catalog.IOSApp{AppStoreID: evil, Scheme: evil}, Android: &catalog.AndroidApp{PackageName: evil, Scheme: text("javascript")},
	}, "")
	for _, s := range []Slot{slotIOSScheme, slotAppStore, slotAndroidScheme, slotPackage} {
		if got := r.Value(s); len(got) > 0 {
			t.Errorf("slot %s is %q", slotNames[s], got)
		}
	}
}

func TestAppWithoutASchemeIsOpenedByTheShortURL(t *testing.T) {
	t.Parallel()
	r := newTestLink(t, catalog.Link{ShortCode: "Spring", Path: "p"}, catalog.AppConfig{Android: &catalog.AndroidApp{PackageName: text("com.example.shop")}}, "")
	href, _ := attribute(t, show(&languages[0].android, r, fullVisit(r)), "open", "href")
	if got, err := parseIntent(href); err != nil || got.data != base+"/abcd/Spring" || got.extras["package"] != "com.example.shop" {
		t.Errorf("%+v, %v; expected the data %s", got, err, base+"/abcd/Spring")
	}
}
