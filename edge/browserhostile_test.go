package main

import (
	"fmt"
	"net/url"
	"strings"
	"testing"

	"deeplink/shared/testkit/chrome"
)

// Each of these breaks out of some context of a page. If one runs, it opens a dialog.
var illTexts = []string{
	`<script>alert(1)</script>`,
	`</title><script>alert(2)</script>`,
	`</style></script><script>alert(3)</script>`,
	`"><img src=x onerror=alert(4)>`,
	`' onfocus='alert(5)' autofocus='`,
	`" onpointerdown="alert(6)" data-x="`,
	`<svg/onload=alert(7)>`,
	`--><script>alert(8)</script><!--`,
	`]]><script>alert(9)</script>`,
	`<base href="https://evil.example/">`,
	`<meta http-equiv="refresh" content="0;url=https://evil.example/">`,
	`<iframe srcdoc="<script>parent.alert(10)</script>"></iframe>`,
	`<style nonce="">*{display:none}</style>`,
	`{{.}}${alert(11)}[[token]][[if title]]` + "`${alert(12)}`",
	`&lt;script&gt;alert(13)&lt;/script&gt;&#60;script>&amp;quot;`,
	"\u202emoc.elpmaxe\u202c \u2066<b>\u2069 \u200f\u200e",
	"\u2028\u2029\u0085<\u00adscript>alert(14)",
	strings.Repeat("Wiederbelebungsversuch", 13),
}

var illPaths = []string{
	`"><script>alert(101)</script>`,
	`/"onclick="alert(102)`,
	`/'onclick='alert(103)`,
	`/a;end#Intent;scheme=javascript;S.browser_fallback_url=javascript:alert(104);end`,
	`/#Intent;scheme=https;package=com.evil;S.browser_fallback_url=https%3A%2F%2Fevil.example;end`,
	`/%23Intent;component=com.evil/.Main;end`,
	`/javascript:alert(105)`,
	`/x?y=javascript:alert(106)//`,
	`@evil.example/`,
	`:80@evil.example/`,
	`/a b<c>d|e^f{g}h`,
	`/%`,
	`/%0d%0aLocation:%20https://evil.example`,
	`/🛒/é?ü=ß#ñ`,
	`/[[token]]{{.Token}}`,
}

var illFallbacks = []string{
	`https://shop.example.com/"><script>alert(201)</script>`,
	`https://shop.example.com/'onclick='alert(202)`,
	`https://shop.example.com/?a="onclick="alert(203)`,
	`https://shop.example.com/#javascript:alert(204)`,
	`https://shop.example.com/javascript:alert(205)//`,
	`https://shop.example.com/%0d%0aSet-Cookie:%20x=1`,
	`https://shop.example.com/a%2Fb//c/../d?x=a%20b`,
	`https://shop.example.com/?u=https://evil.example/&v=//evil.example`,
	`https://shop.example.com/%22%3E%3Cscript%3Ealert(206)%3C/script%3E`,
	`https://shop.example.com/&lt;script&gt;?&amp;quot;`,
	`https://shop.example.com?`,
	`http://shop.example.com:8080/[[token]]{{.}}`,
	`https://xn--e1afmkfd.xn--p1ai/;end`,
}

var illPictures = []string{
	`https://pictures.example/"onerror="alert(301)`,
	`https://pictures.example/'onerror='alert(302)`,
	`https://pictures.example/a.png?"><script>alert(303)</script>`,
	`https://pictures.example/a.svg#"onload="alert(304)`,
	`https://pictures.example/);background:url(https://evil.example/`,
	`https://pictures.example/javascript:alert(305)`,
	`https://pictures.example/&quot;&gt;&lt;script&gt;`,
	`https://pictures.example/[[nonce]]{{.}}`,
}

var illParams = []string{
	`{"</script><script>alert(401)</script>": 1}`,
	`{"a": "</script><script>alert(402)</script>"}`,
	`{"__proto__": {"alert": "\u2028"}, "constructor": null}`,
	`{"a": "<!--<script>"}`,
}

// illLink is a link whose fields are all hostile.
type illLink struct {
	title, description, path, fallback, picture string
	at                                          string // where it is
}

// illLinks creates links that contain each of the values above at least once: with a destination on the web, and without.
func illLinks(t *testing.T, link func(string, map[string]any) (at, short string)) (web, none []illLink) {
	t.Helper()
	for i := range illTexts {
		pick := func(from []string) string { return from[i%len(from)] }
		h := illLink{
			title: pick(illTexts), description: illTexts[len(illTexts)-1-i], path: pick(illPaths), fallback: pick(illFallbacks), picture: pick(illPictures),
		}
		columns := map[string]any{
			"og_title": h.title, "og_description": h.description, "path": h.path, "og_image_url": h.picture, "params": pick(illParams),
		}
		h.at, _ = link(fmt.Sprintf("none%d", i), columns)
		none = append(none, h)
		columns["fallback_url"] = h.fallback
		h.at, _ = link(fmt.Sprintf("web%d", i), columns)
		web = append(web, h)
	}
	return web, none
}

// shape is the structure of a page without its texts: no text may add to it.
const shape = `[...document.querySelectorAll("*")].map(e => e.tagName + "(" + [...e.attributes].map(a => a.name) + ")").join(" ")`

// schemes are the URL schemes of everything that can be pressed or is loaded.
const schemes = `[...new Set([...document.querySelectorAll("[href],[src],[data-app]")].flatMap(e => [e.href, e.src, e.dataset.app])
	.filter(u => typeof u === "string").map(u => new URL(u).protocol))].sort().join(" ")`

func testHostileLinks(t *testing.T, c *chromium) {
	if n := 2*len(illTexts) + len(illPaths) + len(illFallbacks) + len(illPictures) + len(illParams); n < 60 {
		t.Fatalf("only %d hostile values", n)
	}
	link := c.organization(t, "evil")
	tame := map[string]any{"og_title": "A title", "og_description": "Words", "og_image_url": "https://" + pictures + "/a.png", "path": "/sale"}
	tameNone, _ := link("tamenone", tame)
	tame["fallback_url"] = "https://shop.example.com/"
	tameWeb, _ := link("tameweb", tame)
	web, none := illLinks(t, link)
	for _, h := range web {
		c.checkSentTo(t, h.at, h.fallback)
	}
	for _, test := range []struct {
		name, tame, schemes string
		links               []illLink
		as                  visitor
	}{
		{"iOS", tameWeb, "https: shop:", web, onIPhone},
		{"Android", tameWeb, "https: intent:", web, inInstagramAndroid},
		{"landing", tameNone, "https: shop:", none, onDesktop},
		{"preview", tameWeb, "http: https:", web, asBot},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			p := c.open(t, test.as)
			p.visit(test.tame)
			want := chrome.Evaluate[string](p.Tab, shape)
			for _, h := range test.links {
				p.visit(h.at)
				if got := chrome.Evaluate[string](p.Tab, shape); got != want {
					t.Errorf("%q: the page is made of\n%s\nexpected\n%s", h, got, want)
				}
				got := chrome.Evaluate[string](p.Tab, schemes)
				if got = strings.TrimPrefix(got, "http: "); got != strings.TrimPrefix(test.schemes, "http: ") {
					t.Errorf("%q: the page leads to %s, expected %s", h, got, test.schemes)
				}
				p.checkText(`document.querySelector("title").textContent`, h.title)
				p.checkText(`document.querySelector("h1").textContent`, h.title)
				p.checkText(`document.querySelector(".about").textContent`, h.description)
				p.checkText(`document.querySelector(".picture").getAttribute("src")`, h.picture)
				if test.name == "iOS" || test.name == "Android" {
					p.checkText(`document.getElementById("web").getAttribute("href")`, h.fallback)
				}
				if test.name == "Android" {
					opened := takeIntent(t, chrome.Evaluate[string](p.Tab, `document.getElementById("open").dataset.app`))
					referrerOf(t, opened.extras["S.browser_fallback_url"])
					if len(opened.extras) != 3 || opened.extras["package"] != "com.example.shop" || opened.extras["scheme"] != "shopdroid" {
						t.Errorf("%q: the button opens %+v", h, opened)
					}
				}
				if faults := p.TakeFaults(); len(faults) > 0 {
					t.Errorf("%q: %q", h, faults)
				}
			}
		})
	}
}

func (p *tab) checkText(expression, want string) {
	p.t.Helper()
	if got := chrome.Evaluate[string](p.Tab, expression); got != want {
		p.t.Errorf("%s is %q, expected %q", expression, got, want)
	}
}

// checkSentTo requires that a path redirects to exactly the bytes that were stored.
func (c *chromium) checkSentTo(t *testing.T, path, want string) {
	t.Helper()
	a := c.edge.get(t, path, "Host: "+strings.TrimPrefix(c.base, "http://"), "User-Agent: "+onDesktop.userAgent)
	if a.status != 302 || a.header.Get("Location") != want {
		t.Errorf("%s: %d to %q, expected 302 to %q", path, a.status, a.header.Get("Location"), want)
	}
}

func testHostileQueries(t *testing.T, c *chromium) {
	link := c.organization(t, "quer")
	path, _ := link("Spring", map[string]any{"path": "/sale", "fallback_url": "https://shop.example.com/"})
	for name, v := range map[string]visitor{"iOS": onIPhone, "Android": onPixel} {
		t.Run(name, func(t *testing.T) {
			p := c.open(t, v)
			p.visit(path)
			tame := chrome.Evaluate[string](p.Tab, shape)
			for _, query := range []string{
				`"><script>alert(1)</script>`, `'onclick='alert(2)`, `a="onclick="alert(3)`, `javascript:alert(4)`, `redirect=//evil.example`,
				`[[token]]{{.}}`, "\u202e\u00e9",
				`&amp;quot;&lt;`, `url=javascript:alert(5)//`, `%22%3E%3Cscript%3Ealert(6)%3C/script%3E`,
			} {
				p.visit(path + "?" + query)
				if got := chrome.Evaluate[string](p.Tab, shape); got != tame {
					t.Errorf("%q: the page is made of\n%s\nexpected\n%s", query, got, tame)
				}
				web, err := url.Parse(chrome.Evaluate[string](p.Tab, `document.getElementById("web").href`))
				if err != nil || web.Scheme != "https" || web.Host != "shop.example.com" || web.Path != "/" {
					t.Errorf("%q: the page leads to %s", query, web)
				}
				if faults := p.TakeFaults(); len(faults) > 0 {
					t.Errorf("%q: %q", query, faults)
				}
			}
		})
	}
}
