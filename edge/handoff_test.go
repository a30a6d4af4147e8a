package main

import (
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"deeplink/edge/internal/wellknown"
	"deeplink/shared/catalog"
)

// The User-Agents of some browsers and of a service that makes link previews.
const (
	windowsChrome   = "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0 Safari/537.36"
	iPhoneSafari    = "Mozilla/5.0 (iPhone; CPU iPhone OS 18_5 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/18.5 Mobile/15E148 Safari/604.1"
	iPhoneInstagram = "Mozilla/5.0 (iPhone; CPU iPhone OS 18_5 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Mobile/22F76 Instagram 393.1.0.36.70 (iPhone15,3; iOS 18_5; en_US; en; scale=3.00; 1290x2796; 776538208)"
	iPhoneWebView   = "Mozilla/5.0 (iPhone; CPU iPhone OS 18_5 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Mobile/22F76"
	pixelChrome     = "Mozilla/5.0 (Linux; Android 10; K) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0 Mobile Safari/537.36"
	pixelFirefox    = "Mozilla/5.0 (Android 15; Mobile; rv:140.0) Gecko/140.0 Firefox/140.0"
	pixelFacebook   = "Mozilla/5.0 (Linux; Android 15; Pixel 8; wv) AppleWebKit/537.36 (KHTML, like Gecko) Version/4.0 Chrome/140.0.0.0 Mobile Safari/537.36 [FB_IAB/FB4A;FBAV/500.0.0.0.0;]"
	slackBot        = "Slackbot-LinkExpanding 1.0 (+https://api.slack.com/robots)"
)

// pageOf returns the kind of page in a response.
func pageOf(a answer) string {
	has := func(mark string) bool { return strings.Contains(a.body, mark) }
	switch {
	case a.status == 302:
		return "redirect"
	case has(`property="og:url"`):
		return "preview"
	case has(`href="intent://`), has(`data-app="intent://`):
		return "android"
	case has(`data-copy=`):
		return "ios"
	case has(`id="phone"`):
		return "landing"
	case has(`"statusCode"`):
		return "envelope"
	case has(`class="mark"`):
		return "error"
	}
	return "?"
}

// withTokens gives an edge a key for match tokens.
func withTokens(c *options) { c.MatchTokenKeys = testTokenKeys }

// withApps gives an organization an app for each platform.
func (r rows) withApps(organizationID string) {
	r.exec(`insert into app_configs (organization_id, ios_scheme, ios_app_store_id, android_scheme, android_package_name)
		values ($1, 'shop', '123456789', 'shop', 'com.example.shop')`, organizationID)
}

// Every kind of visitor, for links with and without a destination and organizations with each kind of app config.
func TestVisitorDecidesTheResponse(t *testing.T) {
	t.Parallel()
	e := startEdge(t, withTokens)
	r := rows{t, e.owner}
	for orgKey, columns := range map[string]string{
		"both": "ios_scheme = 'shop', ios_app_store_id = '123456789', android_scheme = 'shop', android_package_name = 'com.example.shop'",
		"ios0": "ios_scheme = 'shop'",
		"ios1": "ios_app_store_id = '123456789'",
		"and0": "android_scheme = 'shop'",
		"and1": "android_package_name = 'com.example.shop'",
		"idle": "ios_team_id = 'ABCDE12345', ios_bundle_id = 'com.example.shop', android_sha256_cert_fingerprints = '{AA}'",
		"bads": "ios_scheme = 'javascript', android_scheme = 'intent'",
		"none": "",
	} {
		organization := r.organization(orgKey)
		if columns != "" {
			r.exec(`insert into app_configs (organization_id) values ($1)`, organization)
			r.exec(`update app_configs set `+columns+` where organization_id = $1`, organization)
		}
		r.link(organization, "web", map[string]any{"fallback_url": "https://shop.example.com/"})
		r.link(organization, "app", nil)
	}
	for _, test := range []struct {
		orgKey  string
		ios     bool
		android bool
	}{
		{"both", true, true}, {"ios0", true, false}, {"ios1", true, false}, {"and0", false, true}, {"and1", false, true},
		{"idle", false, false}, {"bads", false, false}, {"none", false, false},
	} {
		for code, otherwise := range map[string]string{"web": "redirect", "app": "landing"} {
			for agent, want := range map[string]string{
				windowsChrome: otherwise, slackBot: "preview", "": otherwise, "curl/8.0": otherwise,
				iPhoneSafari: "ios", iPhoneInstagram: "ios", iPhoneWebView: "ios",
				pixelChrome: "android", pixelFirefox: "android", pixelFacebook: "android",
			} {
				if want == "ios" && !test.ios || want == "android" && !test.android {
					want = otherwise
				}
				path := "/" + test.orgKey + "/" + code
				a := e.get(t, path, "User-Agent: "+agent)
				if got := pageOf(a); got != want {
					t.Errorf("%s by %s: %s, expected %s\n%s", path, agent, got, want, a.body)
				}
				if a.status != 302 && (a.status != 200 || a.header.Get("Content-Type") != "text/html; charset=utf-8" || a.header.Get("Location") != "") {
					t.Errorf("%s by %s: %d as %s to %q", path, agent, a.status, a.header.Get("Content-Type"), a.header.Get("Location"))
				}
				checkPage(t, a)
				head := e.ask(t, "HEAD", path, "User-Agent: "+agent)
				if head.status != a.status || head.body != "" || a.status == 200 && head.header.Get("Content-Length") != a.header.Get("Content-Length") {
					t.Errorf("HEAD %s by %s: %d, %d bytes, Content-Length %q; GET has %d and %q", path, agent,
						head.status, len(head.body), head.header.Get("Content-Length"), a.status, a.header.Get("Content-Length"))
				}
			}
		}
	}
}

var policyPattern = regexp.MustCompile(`^default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; img-src https:; ` +
	`style-src 'nonce-([A-Za-z0-9_-]{22})'(; script-src 'nonce-([A-Za-z0-9_-]{22})')?(; frame-src intent:)?$`)

// checkPage checks what holds for every HTML response, and returns its nonce.
func checkPage(t *testing.T, a answer) (nonce string) {
	t.Helper()
	if !strings.HasPrefix(a.header.Get("Content-Type"), "text/html") {
		return ""
	}
	policy := policyPattern.FindStringSubmatch(a.header.Get("Content-Security-Policy"))
	if policy == nil || policy[2] != "" && policy[3] != policy[1] {
		t.Fatalf("Content-Security-Policy %q, expected %s", a.header.Get("Content-Security-Policy"), policyPattern)
	}
	if tags := regexp.MustCompile(`<(script|style)`).FindAllString(a.body, -1); len(tags) != strings.Count(a.body, `nonce="`+policy[1]+`"`) ||
		strings.Contains(a.body, "<script") && policy[2] == "" {
		t.Errorf("the page has %d scripts and styles, which do not fit its policy %q:\n%s", len(tags), policy[0], a.body)
	}
	vary := strings.Join(a.header.Values("Vary"), ", ")
	for _, name := range []string{"User-Agent", "Sec-CH-UA-Platform", "Accept-Language", "Sec-Purpose"} {
		if !strings.Contains(vary, name) {
			t.Errorf("Vary %q lacks %s", vary, name)
		}
	}
	if len(a.body) > 15_000 || !strings.HasSuffix(a.body, "</html>\n") {
		t.Errorf("a page of %d bytes:\n%s", len(a.body), a.body)
	}
	return policy[1]
}

func TestPlatformHintDecidesTheResponse(t *testing.T) {
	t.Parallel()
	e := startEdge(t, nil)
	r := rows{t, e.owner}
	organization := r.organization("abcd")
	r.withApps(organization)
	r.link(organization, "x", nil)
	for hint, want := range map[string]string{`"Android"`: "android", `"iOS"`: "ios", `"Linux"`: "landing"} {
		a := e.get(t, "/abcd/x", "User-Agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0 Safari/537.36", "Sec-CH-UA-Platform: "+hint)
		if got := pageOf(a); got != want {
			t.Errorf("%s: %s, expected %s", hint, got, want)
		}
	}
}

func TestOnlyHandOffsToPeopleCarryTokens(t *testing.T) {
	t.Parallel()
	e := startEdge(t, withTokens)
	r := rows{t, e.owner}
	organization := r.organization("abcd")
	r.withApps(organization)
	id := r.link(organization, "Spring", map[string]any{"path": "/spring", "fallback_url": "https://shop.example.com/"})
	keys := testTokenKeys.keys()
	seen := make(map[string]bool)
	check := func(text string) {
		t.Helper()
		token, ok := keys.Read(text, time.Now())
		if !ok || uuid.UUID(token.Link).String() != id || time.Since(token.ClickedAt).Abs() > time.Minute {
			t.Errorf("token %q: %+v, %v; expected one for %s, just now", text, token, ok, id)
		}
		if seen[text] {
			t.Errorf("token %q came twice", text)
		}
		seen[text] = true
	}
	for range 3 {
		a := e.get(t, "/abcd/spring", "User-Agent: "+iPhoneSafari)
		copied, _ := attribute(t, a.body, "open", "data-copy")
		token, found := strings.CutPrefix(copied, base+"/abcd/Spring?mt=")
		if !found {
			t.Fatalf("%q is copied", copied)
		}
		check(token)

		a = e.get(t, "/abcd/spring", "User-Agent: "+pixelChrome)
		href, _ := attribute(t, a.body, "open", "href")
		opened, err := parseIntent(href)
		if err != nil {
			t.Fatal(err)
		}
		store, _ := attribute(t, a.body, "store", "href")
		if opened.extras["S.browser_fallback_url"] != store {
			t.Errorf("the app falls back to %q, the store is %q", opened.extras["S.browser_fallback_url"], store)
		}
		parsed, err := url.Parse(store)
		if err != nil {
			t.Fatal(err)
		}
		referrer, err := url.ParseQuery(parsed.Query().Get("referrer"))
		if err != nil {
			t.Fatal(err)
		}
		check(referrer.Get("mt"))
	}
	for _, header := range []string{
		"User-Agent: " + slackBot, "User-Agent: " + windowsChrome,
		"Sec-Purpose: prefetch\r\nUser-Agent: " + iPhoneSafari, "Sec-Purpose: prefetch;prerender\r\nUser-Agent: " + pixelChrome,
		"Purpose: prefetch\r\nUser-Agent: " + iPhoneSafari, "Purpose: prefetch\r\nUser-Agent: " + pixelChrome,
	} {
		a := e.get(t, "/abcd/spring", strings.Split(header, "\r\n")...)
		if strings.Contains(a.body, "mt=") || strings.Contains(a.body, "mt%") || regexp.MustCompile(`[A-Za-z0-9_-]{60,}`).MatchString(a.body) {
			t.Errorf("%s is given a token:\n%s", header, a.body)
		}
		if early := strings.Contains(a.body, "location.reload"); early != strings.Contains(header, "prefetch") {
			t.Errorf("%s: the page asks for itself again: %v", header, early)
		}
		checkPage(t, a)
	}
}

func TestPagesWithoutKeysHaveNoTokens(t *testing.T) {
	t.Parallel()
	e := startEdge(t, nil)
	r := rows{t, e.owner}
	organization := r.organization("abcd")
	r.withApps(organization)
	r.link(organization, "x", nil)
	for agent, want := range map[string]string{iPhoneSafari: "ios", pixelChrome: "android"} {
		a := e.get(t, "/abcd/x", "User-Agent: "+agent)
		if pageOf(a) != want || strings.Contains(a.body, "mt=") || strings.Contains(a.body, "mt%") || strings.Contains(a.body, `id="nocopy"`) ||
			strings.Contains(a.body, "location.reload") {
			t.Errorf("%s:\n%s", want, a.body)
		}
	}
}

func TestNoncesAreFresh(t *testing.T) {
	t.Parallel()
	e := startEdge(t, withTokens)
	r := rows{t, e.owner}
	organization := r.organization("abcd")
	r.withApps(organization)
	r.link(organization, "x", nil)
	nonces := make(map[string]bool)
	for _, agent := range []string{iPhoneSafari, pixelFacebook, windowsChrome, slackBot} {
		for range 5 {
			nonces[checkPage(t, e.get(t, "/abcd/x", "User-Agent: "+agent))] = true
		}
	}
	if len(nonces) != 20 || nonces[""] {
		t.Errorf("%d nonces on 20 pages: %v", len(nonces), nonces)
	}
}

func TestWebLinkOfAPageEqualsTheRedirect(t *testing.T) {
	t.Parallel()
	e := startEdge(t, withTokens)
	r := rows{t, e.owner}
	organization := r.organization("abcd")
	r.withApps(organization)
	r.exec(`update app_configs set fallback_url = 'https://org.example.com/?a=1&b="2"#x'`)
	r.link(organization, "own", map[string]any{"fallback_url": "https://shop.example.com/a%2Fb//c?x=1&y#top", "utm_campaign": "spring sale"})
	r.link(organization, "ours", nil)
	for _, path := range []string{
		"/abcd/own", "/abcd/ours", "/abcd/own?x=2&z=%20&mt=token", "/abcd/ours?a='%22><b", "/abcd/own?utm_campaign=v;w&" + strings.Repeat("long=1234567890&", 90),
	} {
		want := e.get(t, path, "User-Agent: "+windowsChrome).header.Get("Location")
		for _, agent := range []string{iPhoneSafari, pixelChrome, iPhoneInstagram, pixelFacebook} {
			got, found := attribute(t, e.get(t, path, "User-Agent: "+agent).body, "web", "href")
			if !found || got != want {
				t.Errorf("%s by %s: to %q, a redirect goes to %q", path, agent, got, want)
			}
		}
	}
	// The page drops a query that it has no room for.
	long := "/abcd/own?q=" + strings.Repeat("'", 4000)
	if got, _ := attribute(t, e.get(t, long, "User-Agent: "+iPhoneSafari).body, "web", "href"); got != "https://shop.example.com/a%2Fb//c?x=1&y&utm_campaign=spring+sale#top" {
		t.Errorf("with a very long query to %q", got)
	}
	r.exec(`update app_configs set fallback_url = null`)
	until(t, "there is no way to the web without a destination", func() bool {
		_, found := attribute(t, e.get(t, "/abcd/ours", "User-Agent: "+iPhoneSafari).body, "web", "href")
		return !found
	})
}

func TestInAppBrowsersGetInstructionsToLeave(t *testing.T) {
	t.Parallel()
	e := startEdge(t, withTokens)
	r := rows{t, e.owner}
	organization := r.organization("abcd")
	r.withApps(organization)
	r.link(organization, "x", map[string]any{"path": "/x"})
	get := func(agent, language string) string {
		return e.get(t, "/abcd/x", "User-Agent: "+agent, "Accept-Language: "+language).body
	}
	page := get(iPhoneInstagram, "en")
	if out, _ := attribute(t, page, "browser", "href"); !strings.Contains(page, "inside Instagram.") || out != "instagram://extbrowser/?url="+base+"/abcd/x" {
		t.Errorf("the way out of Instagram is %q:\n%s", out, page)
	}
	page = get(iPhoneWebView, "de")
	if out, _ := attribute(t, page, "browser", "href"); !strings.Contains(page, "in einer anderen App") || out != "x-safari-"+base+"/abcd/x" {
		t.Errorf("the way out of an app is %q:\n%s", out, page)
	}
	page = get(pixelFacebook, "en")
	href, _ := attribute(t, page, "open", "href")
	app, _ := attribute(t, page, "open", "data-app")
	if !strings.Contains(page, "inside Facebook.") || !strings.HasPrefix(href, "https://play.google.com/") || !strings.HasPrefix(app, "intent:///x#Intent;") {
		t.Errorf("in Facebook the button leads to %q, its script to %q:\n%s", href, app, page)
	}
	for _, agent := range []string{iPhoneSafari, pixelChrome, pixelFirefox} {
		if page := get(agent, "en"); strings.Contains(page, `class="tip"`) || strings.Contains(page, "data-app") {
			t.Errorf("%s is told how to leave an app:\n%s", agent, page)
		}
	}
}

func TestPagesSpeakTheVisitorsLanguage(t *testing.T) {
	t.Parallel()
	e := startEdge(t, nil)
	r := rows{t, e.owner}
	organization := r.organization("abcd")
	r.withApps(organization)
	r.link(organization, "x", nil)
	for header, want := range map[string]struct{ tag, words string }{
		"ja,en;q=0.5": {"ja", "アプリで開く"}, "de-DE": {"de", "In der App öffnen"}, "nl": {"en", "Open in the app"}, "ar": {"ar", "فتح في التطبيق"},
	} {
		a := e.get(t, "/abcd/x", "User-Agent: "+iPhoneSafari, "Accept-Language: "+header)
		if a.header.Get("Content-Language") != want.tag || !strings.Contains(a.body, `<html lang="`+want.tag+`"`) || !strings.Contains(a.body, want.words) {
			t.Errorf("%s: %s, expected %s and %q:\n%s", header, a.header.Get("Content-Language"), want.tag, want.words, a.body)
		}
	}
}

// Earlier releases of control accepted these schemes, so rows may have them. An edge must still serve the link and the association files.
func TestStoredReservedSchemeIsIgnored(t *testing.T) {
	t.Parallel()
	e := startEdge(t, nil)
	r := rows{t, e.owner}
	for orgKey, config := range map[string]struct {
		stored string // columns and values of app_configs
		agent  string
		status int
	}{
		"ios1": {"ios_scheme, ios_bundle_id, ios_team_id) values ($1, 'tel', 'com.example.shop', 'ABCDE12345')", iPhoneSafari, 302},
		"ios2": {"ios_scheme, ios_app_store_id) values ($1, 'market', '123456789')", iPhoneSafari, 200},
		"and1": {"android_scheme, android_package_name) values ($1, 'sms', 'com.example.shop')", pixelChrome, 200},
	} {
		organization := r.organization(orgKey)
		r.link(organization, "x", map[string]any{"path": "+15550100", "fallback_url": "https://shop.example.com/"})
		r.exec("insert into app_configs (organization_id, "+config.stored, organization)
		a := e.get(t, "/"+orgKey+"/x", "User-Agent: "+config.agent)
		if a.status != config.status {
			t.Errorf("%s: status %d, expected %d", config.stored, a.status, config.status)
		}
		for _, scheme := range catalog.ReservedAppSchemes {
			if opens := scheme + "://+15550100"; strings.Contains(a.body, `"`+opens) || strings.Contains(a.body, "scheme="+scheme+";") && scheme != "http" && scheme != "https" {
				t.Errorf("%s: the page opens %s", config.stored, opens)
			}
		}
	}
	for i := range wellknown.Files {
		if a := e.get(t, wellknown.Files[i].Path); a.status != 200 {
			t.Errorf("%s: status %d, expected 200", wellknown.Files[i].Path, a.status)
		}
	}
}
