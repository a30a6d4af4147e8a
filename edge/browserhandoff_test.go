package main

import (
	"bytes"
	"image/png"
	"net/url"
	"slices"
	"strings"
	"testing"

	cdppage "github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp/kb"
	"github.com/makiuchi-d/gozxing"
	"github.com/makiuchi-d/gozxing/qrcode"

	"deeplink/shared/testkit"
	"deeplink/shared/testkit/chrome"
)

const (
	appStore = "https://apps.apple.com/app/id1234567890"
	play     = "https://play.google.com/store/apps/details?id=com.example.shop"
)

// organization creates an organization with apps on both platforms, and returns a function that creates links in it.
func (c *chromium) organization(t *testing.T, orgKey string) func(code string, columns map[string]any) (path, short string) {
	t.Helper()
	r := rows{t, testkit.Connect(t, c.database.URL)}
	id := r.organization(orgKey)
	r.exec(`insert into app_configs (organization_id, ios_bundle_id, ios_team_id, ios_app_store_id, ios_scheme, android_package_name,
		android_sha256_cert_fingerprints, android_scheme, html_error_pages)
		values ($1, 'com.example.shop', 'ABCDE12345', '1234567890', 'shop', 'com.example.shop', '{}', 'shopdroid', true)`, id)
	return func(code string, columns map[string]any) (path, short string) {
		t.Helper()
		r.link(id, code, columns)
		path = "/" + orgKey + "/" + code
		return path, c.base + path
	}
}

// tokenOf returns the token in a short URL that a page has copied.
func tokenOf(t *testing.T, handed, short string) string {
	t.Helper()
	token, ok := strings.CutPrefix(handed, short+"?mt=")
	if !ok || token == "" || len(token) > 80 || strings.ContainsAny(token, "&?#%/+= ") {
		t.Fatalf("handed on was %q, expected %s?mt= and a token", handed, short)
	}
	return token
}

func (c *chromium) checkMatchesOnce(t *testing.T, body, path string) {
	t.Helper()
	if a := c.edge.post(t, body); !isMatch(a) || !strings.Contains(a.body, `"url":"`+c.base+path+`"`) {
		t.Errorf("%s: %d %s, expected a match of %s", body, a.status, a.body, path)
	}
	checkNothing(t, "the same again", c.edge.post(t, body))
}

func testCopiedToken(t *testing.T, c *chromium) {
	link := c.organization(t, "copy")
	path, short := link("Spring", map[string]any{"path": "/sale/42?x=1#top", "og_title": "Spring"})
	for name, v := range map[string]visitor{"iPhone": onIPhone, "iPad": onIPad, "Instagram": inInstagram} {
		p := c.open(t, v)
		p.visit(path)
		p.WriteClipboard("what was there before")
		if led := p.leads("open"); led != "shop:///sale/42?x=1#top" {
			t.Errorf("%s: the tap led to %s", name, led)
		}
		c.checkMatchesOnce(t, clipboard(tokenOf(t, p.ReadClipboard(), short)), path)
		// The visitor is still on the page, so the app is not installed.
		if then := p.next(); then != appStore {
			t.Errorf("%s: then to %s, expected %s", name, then, appStore)
		}
	}
}

func testNothingCopied(t *testing.T, c *chromium) {
	link := c.organization(t, "none")
	path, _ := link("Spring", map[string]any{"path": "sale", "fallback_url": "https://shop.example.com/sale"})
	p := c.open(t, onIPhone)
	for _, id := range []string{"store", "web", "nocopy"} {
		p.visit(path)
		p.WriteClipboard("kept")
		p.leads(id)
		if got := p.ReadClipboard(); got != "kept" {
			t.Errorf("#%s put %q on the clipboard", id, got)
		}
	}
}

func testIOSButtons(t *testing.T, c *chromium) {
	link := c.organization(t, "appl")
	path, _ := link("Web", map[string]any{
		"path": "sale", "fallback_url": "https://shop.example.com/a?ref=own", "utm_source": "mail", "og_title": "Spring",
	})
	bare, _ := link("Bare", nil)
	for name, v := range map[string]visitor{"iPhone": onIPhone, "iPad": onIPad} {
		t.Run(name, func(t *testing.T) {
			p := c.open(t, v)
			p.visit(path + "?gclid=1&mt=forged")
			p.checkShown("open", "nocopy", "store", "web")
			p.Says("Spring")
			p.checkLeads("store", appStore)
			p.checkLeads("web", "https://shop.example.com/a?ref=own&utm_source=mail&gclid=1")
			p.checkLeads("nocopy", "shop://sale")
			if then := p.next(); then != appStore {
				t.Errorf("then to %s, expected %s", then, appStore)
			}
			p.visit(bare)
			p.checkShown("open", "nocopy", "store")
		})
	}
}

func takeIntent(t *testing.T, uri string) intent {
	t.Helper()
	i, err := parseIntent(uri)
	if err != nil {
		t.Fatal(err)
	}
	return i
}

// referrerOf returns the referrer that the Play Store passes to an app that was installed from this URL.
func referrerOf(t *testing.T, store string) string {
	t.Helper()
	parsed, err := url.Parse(store)
	if err != nil {
		t.Fatal(err)
	}
	query := parsed.Query()
	referrer := query.Get("referrer")
	query.Del("referrer")
	parsed.RawQuery = query.Encode()
	if parsed.String() != play || !strings.HasPrefix(referrer, "mt=") {
		t.Fatalf("%s: expected %s and a referrer", store, play)
	}
	return referrer
}

func testAndroidButtons(t *testing.T, c *chromium) {
	link := c.organization(t, "goog")
	path, _ := link("Web", map[string]any{
		"path": "/sale?a=b;S.browser_fallback_url=https://evil.example", "fallback_url": "https://shop.example.com/a", "og_title": "Spring",
	})
	for _, v := range []visitor{onPixel, inFirefox} {
		p := c.open(t, v)
		p.visit(path + "?gclid=1")
		p.checkShown("open", "store", "web")
		p.Says("Spring")
		opened := takeIntent(t, p.leads("open"))
		if opened.data != "shopdroid:///sale?a=b;S.browser_fallback_url=https://evil.example" || opened.extras["package"] != "com.example.shop" {
			t.Errorf("the tap led to %+v", opened)
		}
		referrerOf(t, opened.extras["S.browser_fallback_url"])
		referrerOf(t, p.leads("store"))
		p.checkLeads("web", "https://shop.example.com/a?gclid=1")
	}
}

func testReferredToken(t *testing.T, c *chromium) {
	link := c.organization(t, "refe")
	path, _ := link("Spring", nil)
	p := c.open(t, onPixel)
	for _, store := range []func() string{
		func() string { return takeIntent(t, p.leads("open")).extras["S.browser_fallback_url"] },
		func() string { return p.leads("store") },
	} {
		p.visit(path)
		c.checkMatchesOnce(t, `{"installReferrer":"`+referrerOf(t, store())+`"}`, path)
	}
}

func testAppViews(t *testing.T, c *chromium) {
	link := c.organization(t, "view")
	path, short := link("Spring", map[string]any{"path": "sale"})
	p := c.open(t, inInstagram)
	p.visit(path)
	p.Says("Instagram", "Safari")
	p.checkShown("browser", "open", "nocopy", "store")
	p.checkLeads("browser", "instagram://extbrowser/?url="+short)

	facebook := onIPhone
	facebook.userAgent = "Mozilla/5.0 (iPhone; CPU iPhone OS 13_3_1 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Mobile/15E148 [FBAN/FBIOS;FBDV/iPhone11,8;FBMD/iPhone;FBSN/iOS;FBSV/13.3.1;FBSS/2;FBID/phone;FBLC/en_US;FBOP/5;FBCR/]"
	p = c.open(t, facebook)
	p.visit(path)
	p.Says("Facebook", "Safari")
	p.checkLeads("browser", "x-safari-"+short)

	p = c.open(t, inInstagramAndroid)
	p.visit(path)
	p.Says("Instagram")
	p.checkShown("open", "store")
	if opened := takeIntent(t, p.leads("open")); opened.data != "shopdroid://sale" || opened.extras["package"] != "com.example.shop" {
		t.Errorf("the tap led to %+v", opened)
	}
	referrerOf(t, p.next())

	p = c.open(t, onPixel)
	p.visit(path)
	if strings.Contains(p.Text(), "Instagram") {
		t.Errorf("Chrome is told of Instagram:\n%s", p.Text())
	}
}

func testDesktop(t *testing.T, c *chromium) {
	link := c.organization(t, "desk")
	web, _ := link("Web", map[string]any{"fallback_url": "https://shop.example.com/a?b=%20c"})
	page, short := link("Page", map[string]any{"og_title": "Spring", "og_description": "Light jackets"})
	p := c.open(t, onDesktop)
	c.checkSentTo(t, web, "https://shop.example.com/a?b=%20c")
	p.visit(page)
	p.checkShown("appstore", "play")
	p.Says("Spring", "Light jackets", strings.TrimPrefix(short, "http://"))
	p.checkLeads("appstore", appStore)
	p.checkLeads("play", play)
	if got := p.scan(".code"); got != short {
		t.Errorf("the code says %q, expected %s", got, short)
	}
}

// scan decodes the QR code of an element.
func (p *tab) scan(selector string) string {
	p.t.Helper()
	at := p.Reach(selector)
	shot := chrome.Call(p.Tab, cdppage.CaptureScreenshot, cdppage.CaptureScreenshotParams{
		Clip: &cdppage.Viewport{X: at.X, Y: at.Y, Width: at.Width, Height: at.Height, Scale: 3},
	})
	picture, err := png.Decode(bytes.NewReader(shot.Data))
	if err != nil {
		p.t.Fatal(err)
	}
	bitmap, err := gozxing.NewBinaryBitmapFromImage(picture)
	if err != nil {
		p.t.Fatal(err)
	}
	code, err := qrcode.NewQRCodeReader().Decode(bitmap, nil)
	if err != nil {
		p.t.Fatalf("%s: %v", selector, err)
	}
	return code.GetText()
}

func testWithoutScripts(t *testing.T, c *chromium) {
	link := c.organization(t, "nojs")
	path, _ := link("Spring", map[string]any{"path": "sale", "fallback_url": "https://shop.example.com/", "og_title": "Spring"})
	page, _ := link("Page", map[string]any{"og_title": "Spring"})

	p := c.open(t, onIPhone.withoutScripts())
	p.visit(path)
	p.checkShown("open", "store", "web")
	p.Says("Spring")
	p.checkLeads("open", "shop://sale")
	p.checkLeads("store", appStore)
	p.checkLeads("web", "https://shop.example.com/")

	p = c.open(t, onPixel.withoutScripts())
	p.visit(path)
	p.checkShown("open", "store", "web")
	takeIntent(t, p.leads("open"))
	referrerOf(t, p.leads("store"))

	p = c.open(t, inInstagramAndroid.withoutScripts())
	p.visit(path)
	p.checkShown("open", "store", "web")
	referrerOf(t, p.leads("open"))

	p = c.open(t, onDesktop.withoutScripts())
	p.visit(page)
	p.checkShown("appstore", "play")
	p.checkLeads("play", play)
}

func testKeyboard(t *testing.T, c *chromium) {
	link := c.organization(t, "keys")
	path, short := link("Spring", map[string]any{"path": "sale", "fallback_url": "https://shop.example.com/"})
	page, _ := link("Page", nil)
	p := c.open(t, onIPad)
	for _, test := range []struct {
		name, path string
		v          visitor
	}{{"iOS", path, onIPad}, {"Instagram", path, inInstagram}, {"Android", path, onPixel}, {"landing", page, onDesktop}} {
		p.become(test.v)
		p.visit(test.path)
		var reached []string
		shown := p.shown()
		for range shown {
			p.Key(kb.Tab)
			reached = append(reached, chrome.Evaluate[string](p.Tab, `document.activeElement.id`))
			if ring := chrome.Evaluate[string](p.Tab, `getComputedStyle(document.activeElement).outlineStyle`); ring == "none" {
				t.Errorf("%s: #%s does not show that it has the focus", test.name, reached[len(reached)-1])
			}
		}
		if !slices.Equal(reached, shown) || len(shown) == 0 {
			t.Errorf("%s: keys reach %q of %q", test.name, reached, shown)
		}
		if nameless := chrome.Evaluate[[]string](p.Tab, `[...document.querySelectorAll("a,button,[role=img]")]
			.filter(e => !(e.ariaLabel || e.textContent).trim()).map(e => e.outerHTML)`); len(nameless) > 0 {
			t.Errorf("%s: nothing is said aloud for %q", test.name, nameless)
		}
		if headings := chrome.Evaluate[int](p.Tab, `document.querySelectorAll("h1").length`); headings != 1 {
			t.Errorf("%s: %d headings", test.name, headings)
		}
	}
	p.become(onIPad)
	p.visit(path)
	p.Key(kb.Tab)
	if led := p.leadsBy(func() { p.Key(kb.Enter) }); led != "shop://sale" {
		t.Errorf("the key led to %s", led)
	}
	tokenOf(t, p.ReadClipboard(), short)
}
