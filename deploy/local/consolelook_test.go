package main

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"deeplink/shared/testkit/chrome"
)

// screenshots is the folder for the screenshots of the console. It is not under version control.
var screenshots = filepath.Join("..", "..", ".run", "screenshots")

// testLooks shows every section and dialog, on narrow and wide screens, in light and dark mode.
func testLooks(t *testing.T, h *testStack, p *tab) {
	p.Visit(h.control.URL() + "/console")
	p.Holds(`document.getElementById("sign-in") !== null`)
	p.Minds("status of 401")
	p.look("signin")

	p.Visit(h.control.URL() + "/console?problem=state")
	p.Says("took longer than 10 minutes")
	p.Minds("status of 401")
	p.look("problem")
	o := h.fillShop(t)
	p.Visit(h.control.URL() + "/console/sign-in")
	p.choose(o.externalID+","+h.tenant(t, "Another organization with a long name", "free").externalID, "owner")
	p.Says("Choose an organization.")
	p.look("chooser")
	p.signIn(h, o, "owner")
	p.Press("#account")
	p.look("account")
	p.Press("#sessions")
	p.Says("this session")
	p.look("sessions")
	p.section("links")
	p.Says("Spring sale")
	p.look("links")
	p.Press("#create")
	p.look("create")
	p.Press(`dialog button[type="submit"]`)
	p.Says("Is required.")
	p.look("create-refused")
	p.Press(`dialog .icon`)
	p.Press(named("QR code: Spring sale"))
	p.Holds(`document.querySelector("dialog img")?.naturalWidth > 0`)
	p.look("qr")
	p.Press(`dialog .icon`)
	p.Press(named("Delete: Spring sale"))
	p.look("delete")
	p.Press(`dialog .icon`)
	p.section("keys")
	p.look("keys")
	p.Press("#regenerate-CLIENT")
	p.look("regenerate")
	p.Press(`dialog button[type="submit"]`)
	p.Holds(`document.getElementById("raw-key") !== null`)
	p.look("raw-key")
	p.Press("#copy-key")
	p.Press("#stored")
	p.closed()
	p.section("domains")
	p.Press(named("Verify go.example.com now"))
	p.Says("DNS gave no answer")
	p.look("domains")
	for _, name := range []string{"app", "plan", "audit"} {
		p.section(name)
		p.look(name)
	}
	p.Press("#choose-enterprise, #sections a[href='#plan']")
	p.Holds(`document.querySelector("#content > .plan") !== null`)
	p.Press("#choose-enterprise")
	p.Holds(`document.getElementById("checkout") !== null`)
	p.Minds("status of 422")
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

// fillShop creates an organization with data in every section.
func (h *testStack) fillShop(t *testing.T) tenant {
	t.Helper()
	o := h.tenant(t, "Spring & Sons", "scale", "--app-config", "demo")
	token := h.token(t, o, "owner")
	h.operate(t, "domain", "add", o.key, "links."+o.key+".spring-and-sons.example", "--verified")
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

// look takes screenshots of the page, and reports elements that are too wide and text with too little contrast.
func (p *tab) look(name string) {
	p.t.Helper()
	if found := blunder.FindAllString(key.ReplaceAllString(p.Text(), ""), -1); len(found) > 0 {
		p.t.Errorf("%s says %q", name, found)
	}
	for _, width := range []int64{360, 1280} {
		const least = 800
		p.Size(width, least, false)
		if wide := chrome.Evaluate[int64](p.Tab, `document.documentElement.scrollWidth`); wide > width {
			p.t.Errorf("%s is %d pixels wide, the screen %d", name, wide, width)
		}
		if wide := chrome.Evaluate[[]string](p.Tab, tooWide); len(wide) > 0 {
			p.t.Errorf("%s at %d pixels: too wide are %q", name, width, wide)
		}
		if found := chrome.Evaluate[[]string](p.Tab, tooSmall); width == 360 && len(found) > 0 {
			p.t.Errorf("%s at %d pixels: too small for a finger are %q", name, width, found)
		}
		if long := chrome.Evaluate[int64](p.Tab, `Math.max(document.documentElement.scrollHeight, (document.querySelector("dialog[open]")?.scrollHeight ?? 0) + 40)`); long > least {
			p.Size(width, long, false)
		}
		for _, scheme := range []string{"light", "dark"} {
			p.Prefer(scheme)
			if found := p.Faint(); len(found) > 0 {
				p.t.Errorf("%s, %s, is too faint: %q", name, scheme, found)
			}
			p.Shoot(filepath.Join(screenshots, fmt.Sprintf("console-%s-%d-%s.png", name, width, scheme)))
		}
	}
	p.Prefer("light")
	p.Size(1280, 900, false)
	if found := p.axe(); len(found) > 0 {
		p.t.Errorf("%s is not accessible: %q", name, found)
	}
}

// tooSmall are the controls that are lower than 44 pixels. Links in a text and chips may be.
const tooSmall = `[...(document.querySelector("dialog[open]") ?? document).querySelectorAll("button, .main, input:not([type=checkbox]), select, textarea, label.pick, .tick, #sections a")].
	filter(e => e.checkVisibility() && e.getBoundingClientRect().height < 43.5).map(e => e.tagName + " " + (e.innerText || e.name))`

// blunder matches text that should never be shown to people.
var blunder = regexp.MustCompile(`false|null|undefined|NaN|\[object`)

// key matches an API key or its masked form, which may contain any sequence of letters.
var key = regexp.MustCompile(`svc_(api|sdk)_[0-9A-Za-z_.…]+`)

// tooWide are the elements whose content is wider than their visible area and cannot be scrolled.
const tooWide = `[...document.querySelectorAll("dialog[open], .card, .section, #bar, nav")].
	filter(e => e.checkVisibility() && e.scrollWidth > e.clientWidth + 1).map(e => e.tagName + "." + e.className)`
