package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/page"
)

// screenshots is where a person finds what the console looks like. It is not under version control.
var screenshots = filepath.Join("..", "..", ".run", "screenshots")

// testLooks shows every section and dialog, on narrow and wide screens, by day and by night.
func testLooks(t *testing.T, h *house, p *tab) {
	if err := os.MkdirAll(screenshots, 0o755); err != nil {
		t.Fatal(err)
	}
	p.visit(h.control.URL() + "/console")
	p.says("Session token")
	p.look("signin")

	o := h.fillShop(t)
	p.signIn(h, o, "owner")
	p.says("Spring sale")
	p.look("links")
	p.press("#create")
	p.look("create")
	p.press(`dialog button[type="submit"]`)
	p.says("Is required.")
	p.look("create-refused")
	p.press(`dialog .icon`)
	p.press(named("QR code: Spring sale"))
	p.holds(`document.querySelector("dialog img")?.naturalWidth > 0`)
	p.look("qr")
	p.press(`dialog .icon`)
	p.press(named("Delete: Spring sale"))
	p.look("delete")
	p.press(`dialog .icon`)
	p.section("keys")
	p.look("keys")
	p.press("#regenerate-CLIENT")
	p.look("regenerate")
	p.press(`dialog button[type="submit"]`)
	p.holds(`document.getElementById("raw-key") !== null`)
	p.look("raw-key")
	p.press("#copy-key")
	p.press("#stored")
	p.closed()
	p.section("domains")
	p.press(named("Verify go.example.com now"))
	p.says("DNS gave no answer")
	p.look("domains")
	for _, name := range []string{"app", "plan", "audit"} {
		p.section(name)
		p.look(name)
	}
	p.press("#choose-enterprise, #sections a[href='#plan']")
	p.holds(`document.querySelector("#content > .plan") !== null`)
	p.press("#choose-enterprise")
	p.holds(`document.getElementById("checkout") !== null`)
	p.minds("status of 422")
	p.look("checkout")

	free := h.tenant(t, "A small organization with a name that is longer than most", "free")
	p.signIn(h, free, "owner")
	p.section("links")
	p.look("links-none")
	p.section("keys")
	p.look("keys-locked")
	p.section("domains")
	p.look("domains-locked")
	p.section("app")
	p.look("app-unregistered")
}

// fillShop makes an organization that has something of everything.
func (h *house) fillShop(t *testing.T) tenant {
	t.Helper()
	o := h.tenant(t, "Spring & Sons", "scale", "--app-config", "demo")
	token := h.token(t, o, "owner")
	h.operate(t, "domain", "add", o.key, "links.spring-and-sons.example", "--verified")
	if status, answer := h.ask(t, "POST", "/portal/domains", token, `{"host":"go.example.com"}`); status != 201 {
		t.Fatalf("%d %s", status, answer)
	}
	for _, body := range []string{
		`{"path":"/about"}`,
		fmt.Sprintf(`{"path":"/%s","title":"%s","tags":["long"],"shortCode":"%s"}`,
			strings.Repeat("segment/", 40), strings.Repeat("Donaudampfschifffahrt", 9), strings.Repeat("x", 64)),
		`{"path":"/winter","title":"Winter sale","isActive":false,"channel":"email","tags":["winter"]}`,
		`{"path":"/old","title":"Last year's sale","expiry":"2020-01-01T00:00:00Z","channel":"sms"}`,
		`{"path":"/sale?from=qr","title":"Spring sale","shortCode":"spring","channel":"instagram","tags":["spring","paid","story"],
			"fallbackUrl":"https://shop.example.com/spring","expiry":"2999-01-01T00:00:00Z"}`,
	} {
		h.makeLink(t, token, body)
	}
	return o
}

// look keeps pictures of what is shown, and minds what is too wide or too faint.
func (p *tab) look(name string) {
	p.t.Helper()
	if found := blunder.FindAllString(p.text(), -1); len(found) > 0 {
		p.t.Errorf("%s says %q", name, found)
	}
	for _, width := range []int64{360, 1280} {
		const least = 800
		p.size(width, least)
		if wide := evaluate[int64](p, `document.documentElement.scrollWidth`); wide > width {
			p.t.Errorf("%s is %d pixels wide, the screen %d", name, wide, width)
		}
		if wide := evaluate[[]string](p, tooWide); len(wide) > 0 {
			p.t.Errorf("%s at %d pixels: too wide are %q", name, width, wide)
		}
		if long := evaluate[int64](p, `Math.max(document.documentElement.scrollHeight, (document.querySelector("dialog[open]")?.scrollHeight ?? 0) + 40)`); long > least {
			p.size(width, long)
		}
		for _, scheme := range []string{"light", "dark"} {
			p.prefer(scheme)
			if found := evaluate[[]string](p, faint); len(found) > 0 {
				p.t.Errorf("%s, %s, is too faint: %q", name, scheme, found)
			}
			p.shoot(fmt.Sprintf("console-%s-%d-%s.png", name, width, scheme))
		}
	}
	p.prefer("light")
	p.size(1280, 900)
}

func (p *tab) shoot(name string) {
	p.t.Helper()
	quick := true
	shot := call(p, page.CaptureScreenshot, page.CaptureScreenshotParams{OptimizeForSpeed: &quick})
	if err := os.WriteFile(filepath.Join(screenshots, name), shot.Data, 0o644); err != nil {
		p.t.Fatal(err)
	}
}

// blunder is what no text for people has in it.
var blunder = regexp.MustCompile(`false|null|undefined|NaN|\[object`)

// tooWide are the elements whose content does not fit, without a scroll bar, into what is visible of them.
const tooWide = `[...document.querySelectorAll("dialog[open], .card, .section, #bar, nav")].
	filter(e => e.checkVisibility() && e.scrollWidth > e.clientWidth + 1).map(e => e.tagName + "." + e.className)`

// faint are the texts whose contrast with what is behind them is below what WCAG 2.2 asks for (1.4.3): 4.5, or 3 for large ones. What
// a dialog covers is left out.
const faint = `
(() => {
	const rgba = (color) => {
		const context = new OffscreenCanvas(1, 1).getContext("2d")
		context.fillStyle = color
		context.fillRect(0, 0, 1, 1)
		return [...context.getImageData(0, 0, 1, 1).data]
	}
	const luminance = ([r, g, b]) => {
		const linear = (c) => (c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4
		return 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b)
	}
	const behind = (e) => {
		for (; e; e = e.parentElement) {
			const color = rgba(getComputedStyle(e).backgroundColor)
			if (color[3] === 255) return color
		}
		return [255, 255, 255, 255]
	}
	const found = []
	for (const e of (document.querySelector("dialog[open]") ?? document.body).querySelectorAll("*")) {
		const text = [...e.childNodes].filter(n => n.nodeType === Node.TEXT_NODE).map(n => n.data.trim()).join("")
		if (!text || !e.checkVisibility() || e.closest("script,style,svg,option,:disabled")) continue
		const style = getComputedStyle(e), size = parseFloat(style.fontSize)
		const [a, b] = [luminance(rgba(style.color)), luminance(behind(e))].sort((a, b) => b - a)
		const ratio = (a + 0.05) / (b + 0.05)
		const least = size >= 24 || size >= 18.66 && style.fontWeight >= 700 ? 3 : 4.5
		if (ratio < least) found.push(text + ": " + ratio.toFixed(2))
	}
	return found
})()`
