package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestConsoleInChromium has administrators use the console as `make run` serves it: a real browser, control, edge, PostgreSQL, Redis
// and identity provider. One comes after the other: a tab that is behind others may wait for the mouse without end.
func TestConsoleInChromium(t *testing.T) {
	browser := startChromium(t)
	h := openHouse(t)
	for _, test := range []struct {
		name string
		run  func(*testing.T, *house, *tab)
	}{
		{"administer", testAdminister},
		{"the development provider's button", testDevelopmentSignIn},
		{"hostile names", testHostileNames},
		{"pages and filters", testPages},
		{"domains", testDomains},
		{"plans", testPlans},
		{"a member", testMember},
		{"the session ends", testSessionEnds},
		{"another organization", testSwitch},
		{"no connection", testNoConnection},
		{"by keyboard", testKeyboard},
		{"looks", testLooks},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, h, openTab(t, browser, h.control.URL(), h.identityURL)) })
	}
}

// signIn pastes a token of a role.
func (p *tab) signIn(h *house, o tenant, role string) {
	p.t.Helper()
	p.visit(h.control.URL() + "/console")
	p.paste(h.token(p.t, o, role))
	p.ready()
}

// paste enters a session token.
func (p *tab) paste(token string) {
	p.t.Helper()
	p.write(`[name="token"]`, token)
	p.press(`#signin form:not(.development) button[type="submit"]`)
}

// ready waits until a section is there, with the session above it.
func (p *tab) ready() {
	p.t.Helper()
	p.holds(`document.getElementById("signin").hidden && document.querySelector("#content .section h1") !== null`)
}

// section goes to one by the navigation.
func (p *tab) section(name string) {
	p.t.Helper()
	p.press(`#sections a[href="#` + name + `"]`)
	p.holds(`document.querySelector("#content > .` + name + ` h1") !== null`)
}

// closed waits until no dialog is open, when what it did is done.
func (p *tab) closed() {
	p.t.Helper()
	p.holds(`document.querySelector("dialog[open]") === null`)
}

// named is the selector of a button by its accessible name.
func named(name string) string { return fmt.Sprintf(`[aria-label=%q]`, name) }

func testAdminister(t *testing.T, h *house, p *tab) {
	o := h.tenant(t, "Walk Ltd.", "scale")
	p.signIn(h, o, "admin")
	p.says("Walk Ltd.", "admin", "scale", "Session ends in", "No links yet")

	// Without an app config no link is made, and the way to it is shown.
	p.press("#create")
	p.write(`dialog [name="path"]`, "/sale")
	p.press(`dialog button[type="submit"]`)
	p.says("Register an app config before the first link.")
	p.minds("status of 428")
	p.press(`dialog .alert a`)
	p.closed()
	p.says("Register at least one app")
	setAppConfig(p)

	p.section("links")
	p.press("#create")
	p.write(`dialog [name="fallbackUrl"]`, "javascript:alert(1)")
	p.press(`dialog button[type="submit"]`)
	p.says("Is required.", "Must be an http or https address")
	p.write(`dialog [name="path"]`, "https://elsewhere.example/")
	p.write(`dialog [name="fallbackUrl"]`, "https://shop.example.com/spring")
	p.write(`dialog [name="title"]`, "Spring sale")
	p.write(`dialog [name="shortCode"]`, "Spring")
	p.write(`dialog [name="tags"]`, "spring, paid")
	p.press(`dialog button[type="submit"]`)
	// This only the service knows.
	p.holds(`document.activeElement.name === "path" && document.activeElement.getAttribute("aria-invalid") === "true"`)
	p.checkErrorAt("path", "URL")
	p.minds("status of 400")
	p.write(`dialog [name="path"]`, "/sale")
	p.press(`dialog button[type="submit"]`)
	p.closed()
	p.says("Spring sale", h.edge.URL()+"/"+o.key+"/Spring", "#paid")
	if status, to := h.click(t, o, "spring"); status != http.StatusFound || to != "https://shop.example.com/spring" {
		t.Fatalf("the edge answers %d %q", status, to)
	}

	seeQR(p, h.edge.URL()+"/"+o.key+"/Spring")
	p.press(named("Edit: Spring sale"))
	p.write(`dialog [name="fallbackUrl"]`, "https://shop.example.com/summer")
	p.write(`dialog [name="title"]`, "Summer sale")
	p.press(`dialog button[type="submit"]`)
	p.closed()
	p.says("Summer sale", "Every edge knows.")
	if _, to := h.click(t, o, "spring"); to != "https://shop.example.com/summer" {
		t.Errorf("after the edit the edge leads to %q", to)
	}
	p.press(named("Deactivate: Summer sale"))
	p.says("inactive")
	if status, _ := h.click(t, o, "spring"); status != http.StatusGone {
		t.Errorf("inactive, the edge answers %d", status)
	}
	regenerateKey(p, h)

	p.section("links")
	p.press(named("Delete: Summer sale"))
	p.press("#sure")
	p.closed()
	if status, _ := h.click(t, o, "spring"); status != http.StatusNotFound {
		t.Errorf("deleted, the edge answers %d", status)
	}
	p.says("The link is deleted. Every edge knows.", "No links yet")
	p.section("audit")
	p.says("user_dev made a link", "deleted a link", "regenerated a key", "changed the app config")
	if kept := evaluate[int](p, `localStorage.length + sessionStorage.length + document.cookie.length`); kept != 0 {
		t.Error("the console keeps something outside of its memory")
	}
}

func (p *tab) checkErrorAt(field, words string) {
	p.t.Helper()
	said := evaluate[string](p, fmt.Sprintf(`(() => {
		const input = document.querySelector('[name=%q]')
		return input.getAttribute("aria-describedby").split(" ").map(id => document.getElementById(id)).find(e => e.classList.contains("error")).innerText
	})()`, field))
	if said == "" || !strings.Contains(strings.ToLower(said), strings.ToLower(words)) {
		p.t.Errorf("at %s the page says %q, expected something about %s", field, said, words)
	}
}

func setAppConfig(p *tab) {
	p.t.Helper()
	p.write(`[name="ios.teamId"]`, "short")
	p.write(`[name="ios.bundleId"]`, "com.example.app")
	p.press(`.app button[type="submit"]`)
	p.says("Must be 10 of A-Z and 0-9.")
	p.write(`[name="ios.teamId"]`, "ABCDE12345")
	p.write(`[name="fallbackUrl"]`, "https://user@example.com/")
	p.press(`.app button[type="submit"]`)
	p.holds(`document.activeElement.name === "fallbackUrl" && document.activeElement.getAttribute("aria-invalid") === "true"`)
	p.minds("status of 400")
	p.write(`[name="fallbackUrl"]`, "https://example.com/")
	p.press(`.app button[type="submit"]`)
	p.says("Saved. Every edge goes by it.")
}

// seeQR looks at the QR code, and at what is wrong with a size.
func seeQR(p *tab, text string) {
	p.t.Helper()
	p.press(named("QR code: Spring sale"))
	p.holds(fmt.Sprintf(`(i => i && i.alt === "QR code of " + %s && i.complete && i.naturalWidth > 100)(document.querySelector("dialog img"))`, quoted(text)))
	p.write(`dialog [name="size"]`, "9")
	p.press(`dialog button[type="submit"]`)
	p.says("Must be an integer from 64 to 2048.")
	p.minds("status of 400")
	p.write(`dialog [name="size"]`, "300")
	p.press(`dialog button[type="submit"]`)
	p.holds(`document.querySelector("dialog img").naturalWidth === 300`)
	for format, begins := range map[string]string{"svg": "<svg", "png": "\x89PNG"} {
		p.press("#download-" + format)
		file := filepath.Join(p.downloads, "Spring."+format)
		p.until(file+" is there", func() bool {
			content, err := os.ReadFile(file)
			return err == nil && strings.HasPrefix(string(content), begins)
		})
	}
	p.press(`dialog .icon`)
	p.closed()
}

// regenerateKey makes a new server key, which is shown once and works.
func regenerateKey(p *tab, h *house) {
	p.t.Helper()
	p.section("keys")
	p.press("#regenerate-SERVER")
	p.says("refused from this moment on")
	p.choose(`dialog [name="graceSeconds"]`, "3600")
	p.press(`dialog button[type="submit"]`)
	p.says("nobody can show it to you again")
	raw := evaluate[string](p, `document.getElementById("raw-key").innerText`)
	p.press("#copy-key")
	p.says("Copied.")
	if copied := evaluate[string](p, `navigator.clipboard.readText()`); copied != raw || !strings.HasPrefix(raw, "svc_api_") {
		p.t.Errorf("copied %q, shown %q", copied, raw)
	}
	if status, answer := h.ask(p.t, "GET", "/links", raw, ""); status != http.StatusOK {
		p.t.Errorf("with the new key: %d %s", status, answer)
	}
	p.press("#stored")
	p.closed()
	p.says("svc_api_…" + raw[len(raw)-4:])
	if html := evaluate[string](p, `document.documentElement.outerHTML`); strings.Contains(html, raw) {
		p.t.Error("the raw key is still in the page")
	}
}

func testDevelopmentSignIn(t *testing.T, h *house, p *tab) {
	p.visit(h.control.URL() + "/console")
	p.says("Development sign-in")
	p.holds(`document.querySelector('[name="org"]').value === "org_1"`)
	p.press(`.development button[type="submit"]`)
	p.ready()
	p.says("Walk Ltd.", "owner")
	p.press("#leave")
	p.says("Development sign-in")
	p.checkNot("Walk Ltd.")
	p.write(`[name="org"]`, "org_nobody")
	p.choose(`[name="role"]`, "member")
	p.press(`.development button[type="submit"]`)
	p.says("Missing or invalid credential.")
	p.minds("status of 401")
	p.paste("not a token")
	p.says("Is not a session token")
}

// testHostileNames shows what others have written. None of it is run: openTab hears of each dialog, violation and error.
func testHostileNames(t *testing.T, h *house, p *tab) {
	const hostile = `<img src=x onerror=alert(1)>"'><script>alert(2)</script>`
	o := h.tenant(t, hostile, "scale", "--app-config", "demo")
	token := h.token(t, o, "owner")
	body, err := json.Marshal(map[string]any{
		"path": `javascript` + `"><svg onload=alert(3)>`, "title": hostile, "tags": []string{`<b onclick=alert(4)>`}, "shortCode": "Hostile",
		"utmSource": hostile, "og": map[string]any{"title": hostile, "description": `</textarea>` + hostile}, "params": map[string]any{"a": hostile},
		"fallbackUrl": `https://example.com/"onmouseover=alert(5)`,
	})
	if err != nil {
		t.Fatal(err)
	}
	h.makeLink(t, token, string(body))
	p.signIn(h, o, "owner")
	p.says(hostile, "<b onclick=alert(4)>")
	p.press(named("Edit: " + hostile))
	p.holds(`document.querySelector('dialog [name="og.description"]').value.startsWith("</textarea><img")`)
	p.press(`dialog .icon`)
	p.closed()
	p.press(named("Delete: " + hostile))
	p.says("Delete this link?")
	p.key("Escape", 27)
	p.closed()
	for _, name := range []string{"audit", "plan", "app", "domains", "keys", "links"} {
		p.section(name)
	}
	if n := evaluate[int](p, `document.querySelectorAll("main img, main script, a:not([href^=http]):not([href^='#'])").length`); n != 0 {
		t.Errorf("%d elements were made of names", n)
	}
}

func testPages(t *testing.T, h *house, p *tab) {
	o := h.tenant(t, "Pages Ltd.", "scale", "--app-config", "demo")
	token := h.token(t, o, "owner")
	for i := range 21 {
		h.makeLink(t, token, fmt.Sprintf(`{"path":"/p%02d","tags":["%s"],"channel":"email"}`, i, []string{"even", "odd"}[i%2]))
	}
	p.signIn(h, o, "owner")
	p.says("1 to 20 of 21", "/p20")
	p.press(`.pager button:last-child`)
	p.says("21 to 21 of 21", "/p00")
	p.press(named("Delete: /p00"))
	p.press("#sure")
	p.closed()
	p.says("1 to 20 of 20")
	p.write(`[name="tag"]`, "odd")
	p.choose(`[name="channel"]`, "email")
	p.press(`.filter button[type="submit"]`)
	p.says("1 to 10 of 10")
	p.checkNot("/p02")
	p.write(`[name="search"]`, "p07")
	p.key("Enter", 13)
	p.says("1 to 1 of 1")
	p.write(`[name="tag"]`, strings.Repeat("x", 64))
	p.press(`.filter button[type="submit"]`)
	p.says("No link matches")
	p.section("audit")
	p.says("1 to 20 of 23")
	p.press(`.pager button:last-child`)
	p.says("21 to 23 of 23", "made the organization")
	p.press(`.pager button:nth-last-child(2)`)
	p.says("1 to 20 of 23")
}

func testDomains(t *testing.T, h *house, p *tab) {
	o := h.tenant(t, "Domains Ltd.", "scale", "--app-config", "demo")
	p.signIn(h, o, "admin")
	p.section("domains")
	p.says("default")
	p.write(`[name="host"]`, "https://go.example.com/")
	p.press(`.domains button[type="submit"]`)
	p.says("Must be a host name alone")
	p.write(`[name="host"]`, "go.domains-of-ours.example")
	p.press(`.domains button[type="submit"]`)
	p.says("pending", "_deeplink.go.domains-of-ours.example", "deeplink-verification=", "Set its DNS record")
	p.press(named("Copy the name"))
	p.says("Copied.")
	if copied := evaluate[string](p, `navigator.clipboard.readText()`); copied != "_deeplink.go.domains-of-ours.example" {
		t.Errorf("copied %q", copied)
	}
	p.press(named("Verify go.domains-of-ours.example now"))
	p.says("DNS gave no answer about _deeplink.go.domains-of-ours.example")
	p.press(named("Delete go.domains-of-ours.example"))
	p.press("#sure")
	p.closed()
	p.says("is deleted.")
	p.holds(`document.querySelectorAll(".domain").length === 1`)
}

func testPlans(t *testing.T, h *house, p *tab) {
	o := h.tenant(t, "Plans Ltd.", "growth", "--app-config", "demo")
	p.signIn(h, o, "owner")
	p.section("domains")
	p.says("The growth plan does not include custom domains.")
	p.section("plan")
	p.says("0 of 50,000 links used")
	p.press("#choose-scale")
	p.minds("status of 422")
	p.holds(`document.getElementById("checkout")?.href.startsWith("https://billing.example/pay?")`)
	p.press(`dialog .icon`)
	p.closed()
	p.press("#choose-free")
	p.press("#sure")
	p.closed()
	p.says("The plan is free now.", "0 of 50 links used")
	p.section("keys")
	p.says("Keys are locked", "The free plan does not include access by API key.")
}

func testMember(t *testing.T, h *house, p *tab) {
	o := h.tenant(t, "Members Ltd.", "scale", "--app-config", "demo")
	p.signIn(h, o, "member")
	p.says("Create a link")
	p.checkNot("Keys", "Audit log")
	p.section("app")
	p.holds(`[...document.querySelectorAll(".app input, .app textarea")].every(e => e.disabled) && document.querySelector(".app form button") === null`)
	p.section("domains")
	p.holds(`document.querySelector(".domains form") === null`)
	p.section("plan")
	p.checkNot("Check out")
	p.visit(h.control.URL() + "/console#audit")
	p.paste(h.token(t, o, "member"))
	p.ready()
	p.says("No links yet")
}

// testSessionEnds types into a dialog, whose content outlives the session.
func testSessionEnds(t *testing.T, h *house, p *tab) {
	o := h.tenant(t, "Short Ltd.", "scale", "--app-config", "demo")
	p.signIn(h, o, "admin")
	p.press("#create")
	p.write(`dialog [name="path"]`, "/typed")
	h.operate(t, "org", "suspend", o.key)
	p.press(`dialog button[type="submit"]`)
	p.says("Missing or invalid credential.", "Session token")
	p.minds("status of 401")
	p.checkNot("Short Ltd.")
	h.operate(t, "org", "resume", o.key)
	p.paste(h.token(t, o, "admin"))
	p.holds(`document.querySelector('dialog[open] [name="path"]')?.value === "/typed"`)
	p.press(`dialog button[type="submit"]`)
	p.closed()
	p.says("The link is there.", "/typed")
}

func testSwitch(t *testing.T, h *house, p *tab) {
	one, other := h.tenant(t, "One Ltd.", "scale", "--app-config", "demo"), h.tenant(t, "Other Ltd.", "free", "--app-config", "demo")
	h.makeLink(t, h.token(t, one, "owner"), `{"path":"/of-one"}`)
	p.signIn(h, one, "owner")
	p.says("One Ltd.", "/of-one")
	p.press("#switch")
	p.paste("a.b.c")
	p.says("Missing or invalid credential.")
	p.minds("status of 401")
	p.press(`#signin .quiet`)
	p.section("app") // with the token there was before
	p.press("#switch")
	p.paste(h.token(t, other, "owner"))
	p.ready()
	p.says("Other Ltd.", "free")
	p.section("links")
	p.says("No links yet")
	p.checkNot("One Ltd.", "/of-one")
}

func testNoConnection(t *testing.T, h *house, p *tab) {
	o := h.tenant(t, "Far Ltd.", "scale", "--app-config", "demo")
	p.signIn(h, o, "admin")
	p.cut.Store(true)
	p.press(`#sections a[href="#keys"]`)
	p.says("The service could not be reached.")
	p.minds("ERR_CONNECTION_FAILED")
	p.cut.Store(false)
	p.press(`#content .alert button`)
	p.holds(`document.querySelector("#key-SERVER") !== null`)
}

func testKeyboard(t *testing.T, h *house, p *tab) {
	o := h.tenant(t, "Keys Ltd.", "scale", "--app-config", "demo")
	p.signIn(h, o, "admin")
	p.press("#create")
	p.holds(`document.activeElement.name === "path"`)
	p.key("Escape", 27)
	p.closed()
	p.holds(`document.activeElement.id === "create"`)
	// All that can be pressed is reached, and the focus shows on it.
	wanted := evaluate[int](p, `[...document.querySelectorAll("a[href],button:not(:disabled),input,select")].filter(e => e.checkVisibility()).length`)
	reached := make(map[string]bool)
	for range 3 * wanted {
		p.key("Tab", 9)
		reached[evaluate[string](p, `(() => {
			const e = document.activeElement, all = [...document.querySelectorAll("a[href],button,input,select")]
			return all.includes(e) && parseFloat(getComputedStyle(e).outlineWidth) >= 2 ? String(all.indexOf(e)) : ""
		})()`)] = true
	}
	delete(reached, "")
	if len(reached) != wanted {
		t.Errorf("%d of %d were reached with the focus seen", len(reached), wanted)
	}
}
