package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp/kb"

	"deeplink/shared/testkit"
	"deeplink/shared/testkit/chrome"
)

// TestConsoleInChromium walks administrators through the console as `make run` serves it: a real browser, control, edge, PostgreSQL, Redis
// and identity provider. The walks run one after the other.
func TestConsoleInChromium(t *testing.T) {
	testkit.Prove(t)
	browser := chrome.New(t)
	h := openTestStack(t)
	for _, test := range []struct {
		name string
		run  func(*testing.T, *testStack, *tab)
	}{
		{"administer", testAdminister},
		{"sign in", testSignIn},
		{"a sign-in link", testLink},
		{"hostile names", testHostileNames},
		{"pages and filters", testPages},
		{"domains", testDomains},
		{"plans", testPlans},
		{"a member", testMember},
		{"the session ends", testSessionEnds},
		{"another organization", testSwitch},
		{"no connection", testNoConnection},
		{"by keyboard", testKeyboard},
		{"shortcuts", testShortcuts},
		{"several links", testBulk},
		{"undo", testUndo},
		{"the address of a list", testAddress},
		{"two editors", testTwoEditors},
		{"columns", testColumns},
		{"empty states", testEmptyStates},
		{"pages of others", testOtherOrigins},
		{"a lost renewal", testLostRenewal},
		{"the keyboard alone", testKeyboardAlone},
		{"looks of the sign-in", testLooksOfSignIn},
		{"looks of daily use", testLooksOfDailyUse},
		{"looks", testLooks},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, h, openTab(t, browser, h)) })
	}
}

func testAdminister(t *testing.T, h *testStack, p *tab) {
	o := h.tenant(t, "Walk Ltd.", "scale")
	p.signIn(h, o, "admin")
	p.Says("Walk Ltd.", "admin", "scale", "No links yet")

	// Without an app config, no link can be created, and the error leads to the app config.
	p.Press("#create")
	p.Write(`dialog [name="path"]`, "/sale")
	p.Press(`dialog button[type="submit"]`)
	p.Says("Register an app config before the first link.")
	p.Minds("status of 428")
	p.Press(`dialog .alert a`)
	p.closed()
	p.Says("Register at least one app")
	setAppConfig(p)

	p.section("links")
	p.Press("#create")
	p.Holds(`document.activeElement.value === "/sale"`) // typed before the way to the app config
	p.Write(`dialog [name="path"]`, "")
	p.Write(`dialog [name="fallbackUrl"]`, "javascript:alert(1)")
	p.Press(`dialog button[type="submit"]`)
	p.Says("Is required.", "Must be an http or https address")
	p.Write(`dialog [name="path"]`, "https://elsewhere.example/")
	p.Write(`dialog [name="fallbackUrl"]`, "https://shop.example.com/spring")
	p.Write(`dialog [name="title"]`, "Spring sale")
	p.Write(`dialog [name="shortCode"]`, "Spring")
	p.Write(`dialog [name="tags"]`, "spring, paid")
	p.Press(`dialog button[type="submit"]`)
	// Only the service can detect this error.
	p.Holds(`document.activeElement.name === "path" && document.activeElement.getAttribute("aria-invalid") === "true"`)
	p.checkErrorAt("path", "URL")
	p.Minds("status of 400")
	p.Write(`dialog [name="path"]`, "/sale")
	p.Press(`dialog button[type="submit"]`)
	p.closed()
	p.Says("Spring sale", h.edge.URL()+"/"+o.key+"/Spring", "#paid")
	if status, to := h.click(t, o, "spring"); status != http.StatusFound || to != "https://shop.example.com/spring" {
		t.Fatalf("the edge answers %d %q", status, to)
	}

	seeQR(p, h.edge.URL()+"/"+o.key+"/Spring")
	p.Press(named("Edit: Spring sale"))
	p.Write(`dialog [name="fallbackUrl"]`, "https://shop.example.com/summer")
	p.Write(`dialog [name="title"]`, "Summer sale")
	p.Press(`dialog button[type="submit"]`)
	p.closed()
	p.Says("Summer sale", "Every edge knows.")
	if _, to := h.click(t, o, "spring"); to != "https://shop.example.com/summer" {
		t.Errorf("after the edit the edge leads to %q", to)
	}
	p.Press(named("Deactivate: Summer sale"))
	p.Says("inactive")
	if status, _ := h.click(t, o, "spring"); status != http.StatusGone {
		t.Errorf("inactive, the edge answers %d", status)
	}
	regenerateKey(p, h)

	p.section("links")
	p.Press(named("Delete: Summer sale"))
	p.Press("#sure")
	p.closed()
	if status, _ := h.click(t, o, "spring"); status != http.StatusNotFound {
		t.Errorf("deleted, the edge answers %d", status)
	}
	p.Says("The link is deleted. Every edge knows.", "No links yet")
	p.section("audit")
	p.Says("user_dev made a link", "deleted a link", "regenerated a key", "changed the app config")
	if kept := chrome.Evaluate[int](p.Tab, `localStorage.length + sessionStorage.length + document.cookie.length`); kept != 0 {
		t.Error("the console stores data in the browser")
	}
}

func setAppConfig(p *tab) {
	p.t.Helper()
	p.Write(`[name="ios.teamId"]`, "short")
	p.Write(`[name="ios.bundleId"]`, "com.example.app")
	p.Press(`.app button[type="submit"]`)
	p.Says("Must be 10 of A-Z and 0-9.")
	p.Write(`[name="ios.teamId"]`, "ABCDE12345")
	p.Write(`[name="fallbackUrl"]`, "https://user@example.com/")
	p.Press(`.app button[type="submit"]`)
	p.Holds(`document.activeElement.name === "fallbackUrl" && document.activeElement.getAttribute("aria-invalid") === "true"`)
	p.Minds("status of 400")
	p.Write(`[name="fallbackUrl"]`, "https://example.com/")
	p.Press(`.app button[type="submit"]`)
	p.Says("Saved. Every edge goes by it.")
}

// seeQR checks the QR code, and the error for an invalid size.
func seeQR(p *tab, text string) {
	p.t.Helper()
	p.Press(named("QR code: Spring sale"))
	p.Holds(fmt.Sprintf(`(i => i && i.alt === "QR code of " + %q && i.complete && i.naturalWidth > 100)(document.querySelector("dialog img"))`, text))
	p.Write(`dialog [name="size"]`, "9")
	p.Press(`dialog button[type="submit"]`)
	p.Says("Must be an integer from 64 to 2048.")
	p.Minds("status of 400")
	p.Write(`dialog [name="size"]`, "300")
	p.Press(`dialog button[type="submit"]`)
	p.Holds(`document.querySelector("dialog img").naturalWidth === 300`)
	for format, begins := range map[string]string{"svg": "<svg", "png": "\x89PNG"} {
		p.Press("#download-" + format)
		file := filepath.Join(p.Downloads, "Spring."+format)
		p.Until(file+" is there", func() bool {
			content, err := os.ReadFile(file)
			return err == nil && strings.HasPrefix(string(content), begins)
		})
	}
	p.Press(`dialog .icon`)
	p.closed()
}

// regenerateKey creates a new server key, which is shown once and works.
func regenerateKey(p *tab, h *testStack) {
	p.t.Helper()
	p.section("keys")
	p.Press("#regenerate-SERVER")
	p.Says("refused from this moment on")
	p.Choose(`dialog [name="graceSeconds"]`, "3600")
	p.Press(`dialog button[type="submit"]`)
	p.Says("it cannot be shown again")
	raw := chrome.Evaluate[string](p.Tab, `document.getElementById("raw-key").innerText`)
	p.Press("#copy-key")
	p.Says("Copied.")
	if copied := p.ReadClipboard(); copied != raw || !strings.HasPrefix(raw, "svc_api_") {
		p.t.Errorf("copied %q, shown %q", copied, raw)
	}
	if status, answer := h.ask(p.t, "GET", "/links", raw, ""); status != http.StatusOK {
		p.t.Errorf("with the new key: %d %s", status, answer)
	}
	p.Press("#stored")
	p.closed()
	p.Says("svc_api_…" + raw[len(raw)-4:])
	if html := chrome.Evaluate[string](p.Tab, `document.documentElement.outerHTML`); strings.Contains(html, raw) {
		p.t.Error("the raw key is still in the page")
	}
}

// testSignIn goes the whole way: sign in, choose an organization, look at the sessions, switch, sign out.
func testSignIn(t *testing.T, h *testStack, p *tab) {
	one, other := h.tenant(t, "First Ltd.", "scale", "--app-config", "demo"), h.tenant(t, "Second Ltd.", "free")
	p.Visit(h.control.URL() + "/console")
	p.Minds("status of 401")
	p.Press("#sign-in")
	p.Says("Who do you want to be?")
	p.Press(`[name="cancel"]`)
	p.Says("You cancelled the sign-in")
	p.Minds("status of 401")
	p.Holds(`location.search === ""`)
	p.Press("#sign-in")
	p.choose("org_nobody", "owner")
	p.Says("Your organization is not set up here.")
	p.Minds("status of 401")
	p.Press("#sign-in")
	p.choose(one.externalID+","+other.externalID, "owner")
	p.Says("Choose an organization.", "First Ltd.", "Second Ltd.")
	p.Key(kb.Enter) // the first one has the focus
	p.ready()
	p.Says("First Ltd.", "owner")
	p.Press("#account")
	p.Says("Dana Developer", "dana@example.com")
	p.Press("#sessions")
	p.Says("this session")
	p.closed()
	p.Press("#account")
	p.Press("#switch")
	p.Holds(`document.querySelector("dialog[open] .choice:disabled")?.innerText.includes("First Ltd.")`)
	p.Press(`dialog .choice:not(:disabled)`)
	p.Holds(`document.readyState === "complete" && document.title.includes("Second Ltd.")`)
	p.ready()
	p.Press("#account")
	p.Press("#leave")
	p.Holds(`document.getElementById("sign-in") !== null && location.pathname === "/console"`)
	p.Minds("status of 401")
	p.SaysNot("Second Ltd.")
}

// testLink signs in with a link of an operator.
func testLink(t *testing.T, h *testStack, p *tab) {
	o := h.tenant(t, "Link Ltd.", "scale", "--app-config", "demo")
	var made struct{ URL string }
	if err := json.Unmarshal(h.operate(t, "console-link", "--org", o.key, "--role", "admin", "--console-url", h.control.URL()), &made); err != nil {
		t.Fatal(err)
	}
	p.Visit(made.URL)
	p.Says("Link Ltd.", "admin", "It works once.")
	p.Holds(`location.hash === "" && !document.documentElement.outerHTML.includes("` + made.URL[strings.Index(made.URL, "#")+1:] + `")`)
	p.Key(kb.Enter) // the button has the focus
	p.ready()
	p.Says("Link Ltd.", "admin")
	p.Visit(made.URL)
	p.Says("This sign-in link is no longer valid.")
	p.Minds("status of 401")
}

// testHostileNames shows text that an attacker wrote. None of it may run: openTab receives each dialog, violation and error.
func testHostileNames(t *testing.T, h *testStack, p *tab) {
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
	p.Says(hostile, "<b onclick=alert(4)>")
	p.Press(named("Edit: " + hostile))
	p.opened()
	p.Holds(`document.querySelector('dialog [name="og.description"]').value.startsWith("</textarea><img")`)
	p.Press(`dialog .icon`)
	p.closed()
	p.Press(named("Delete: " + hostile))
	p.Says("Delete this link?")
	p.Key(kb.Escape)
	p.closed()
	for _, name := range []string{"audit", "plan", "app", "domains", "keys", "links"} {
		p.section(name)
	}
	if n := chrome.Evaluate[int](p.Tab, `document.querySelectorAll("main img, main script, a:not([href^=http]):not([href^='#'])").length`); n != 0 {
		t.Errorf("%d elements were created from names", n)
	}
}

func testPages(t *testing.T, h *testStack, p *tab) {
	o := h.tenant(t, "Pages Ltd.", "scale", "--app-config", "demo")
	token := h.token(t, o, "owner")
	for i := range 21 {
		h.makeLink(t, token, fmt.Sprintf(`{"path":"/p%02d","tags":["%s"],"channel":"email"}`, i, []string{"even", "odd"}[i%2]))
	}
	p.signIn(h, o, "owner")
	p.Says("1 to 20 of 21", "/p20")
	p.Press(`.pager button:last-child`)
	p.Says("21 to 21 of 21", "/p00")
	p.Press(named("Delete: /p00"))
	p.Press("#sure")
	p.closed()
	p.Says("1 to 20 of 20")
	p.Write(`[name="tag"]`, "odd")
	p.Choose(`[name="channel"]`, "email")
	p.Press(`.filter button[type="submit"]`)
	p.Says("1 to 10 of 10")
	p.SaysNot("/p02")
	p.Write(`[name="search"]`, "p07")
	p.Key(kb.Enter)
	p.Says("1 to 1 of 1")
	p.Write(`[name="tag"]`, strings.Repeat("x", 64))
	p.Press(`.filter button[type="submit"]`)
	p.Says("No link matches")
	p.section("audit")
	p.Says("1 to 20 of 24")
	p.Press(`.pager button:last-child`)
	p.Says("21 to 24 of 24", "made the organization")
	p.Press(`.pager button:nth-last-child(2)`)
	p.Says("1 to 20 of 24")
}

func testDomains(t *testing.T, h *testStack, p *tab) {
	o := h.tenant(t, "Domains Ltd.", "scale", "--app-config", "demo")
	p.signIn(h, o, "admin")
	p.section("domains")
	p.Says("default")
	p.Write(`[name="host"]`, "https://go.example.com/")
	p.Press(`.domains button[type="submit"]`)
	p.Says("Must be a host name alone")
	p.Write(`[name="host"]`, "go.domains-of-ours.example")
	p.Press(`.domains button[type="submit"]`)
	p.Says("pending", "_deeplink.go.domains-of-ours.example", "deeplink-verification=", "Set its DNS record")
	p.Press(named("Copy the name"))
	p.Says("Copied.")
	if copied := p.ReadClipboard(); copied != "_deeplink.go.domains-of-ours.example" {
		t.Errorf("copied %q", copied)
	}
	p.Press(named("Verify go.domains-of-ours.example now"))
	p.Says("DNS gave no answer about _deeplink.go.domains-of-ours.example")
	p.Press(named("Delete go.domains-of-ours.example"))
	p.Press("#sure")
	p.closed()
	p.Says("is deleted.")
	p.Holds(`document.querySelectorAll(".domain").length === 1`)

	// Both organizations of a transfer see its date.
	other := h.tenant(t, "Others Ltd.", "scale", "--app-config", "demo")
	h.operate(t, "domain", "add", o.key, "ours.example", "--verified")
	h.operate(t, "domain", "add", other.key, "ours.example")
	h.operate(t, "domain", "add", other.key, "theirs.example", "--verified")
	h.operate(t, "domain", "add", o.key, "theirs.example")
	h.exec(t, `insert into domain_transfers (domain_id, owner_id, host, started_at, completes_at, check_at)
		select c.id, d.id, c.host, now(), '2099-12-31T12:00:00Z', 'infinity' from domains c join domains d on d.host = c.host and d.status = 'verified' where c.status = 'pending'`)
	p.section("links")
	p.section("domains")
	p.Says("Another organization proved this host", "Another organization has this host", "It moves to you on", "2099")
	p.Holds(`document.querySelectorAll('.domain time[datetime="2099-12-31T12:00:00.000Z"]').length === 2`)
	p.Press(named("Check the record of ours.example now"))
	p.Says("DNS gave no answer about _deeplink.ours.example")
	h.exec(t, `delete from domain_transfers`)
	h.exec(t, `update domains set status = 'pending', lost_at = '2020-01-31T12:00:00Z' where host = 'ours.example'`)
	p.section("links")
	p.section("domains")
	p.Says("This host moved to another organization", "2020")
}

func testPlans(t *testing.T, h *testStack, p *tab) {
	o := h.tenant(t, "Plans Ltd.", "growth", "--app-config", "demo")
	p.signIn(h, o, "owner")
	p.section("domains")
	p.Says("The growth plan does not include custom domains.")
	p.section("plan")
	p.Says("0 of 50,000 links used")
	p.Press("#choose-scale")
	p.Minds("status of 422")
	p.Holds(`document.getElementById("checkout")?.href.startsWith("https://billing.example/pay?")`)
	p.Press(`dialog .icon`)
	p.closed()
	p.Press("#choose-free")
	p.Press("#sure")
	p.closed()
	p.Says("The plan is free now.", "0 of 50 links used")
	p.section("keys")
	p.Says("Keys are locked", "The free plan does not include access by API key.")
}

func testMember(t *testing.T, h *testStack, p *tab) {
	o := h.tenant(t, "Members Ltd.", "scale", "--app-config", "demo")
	p.signIn(h, o, "member")
	p.Says("Create a link")
	p.SaysNot("Keys", "Audit log")
	p.section("app")
	p.Holds(`[...document.querySelectorAll(".app input, .app textarea")].every(e => e.disabled) && document.querySelector(".app form button") === null`)
	p.section("domains")
	p.Holds(`document.querySelector(".domains form") === null`)
	p.section("plan")
	p.SaysNot("Check out")
	p.Visit(h.control.URL() + "/console#audit")
	p.ready()
	p.Says("No links yet")
}

// testSessionEnds types into a dialog, whose content outlives the session.
func testSessionEnds(t *testing.T, h *testStack, p *tab) {
	o := h.tenant(t, "Short Ltd.", "scale", "--app-config", "demo")
	p.signIn(h, o, "admin")
	p.Press("#create")
	p.Write(`dialog [name="path"]`, "/typed")
	h.operate(t, "session", "revoke", "--org", o.key, "--all")
	p.Press(`dialog:not(.interruption) button[type="submit"]`)
	p.Says("Your session has ended", "What you have typed stays here.")
	p.Minds("status of 401")
	p.Key(kb.Escape)
	p.Holds(`document.querySelector("dialog.interruption[open]") !== null`)
	p.Press("#again")
	p.Minds("status of 401")
	// The other tab has the same cookies; it signs the same person in.
	p.Elsewhere(h.control.URL() + "/console/sign-in?next=/console/done&prompt=none")
	p.Holds(`document.querySelector("dialog.interruption") === null && document.querySelector('dialog[open] [name="path"]')?.value === "/typed"`)
	p.Press(`dialog button[type="submit"]`)
	p.closed()
	p.Says("The link is there.", "/typed")
}

// testSwitch switches in another tab: this one cannot write into the other organization.
func testSwitch(t *testing.T, h *testStack, p *tab) {
	one, other := h.tenant(t, "One Ltd.", "scale", "--app-config", "demo"), h.tenant(t, "Other Ltd.", "free", "--app-config", "demo")
	h.makeLink(t, h.token(t, one, "owner"), `{"path":"/of-one"}`)
	p.Visit(h.control.URL() + "/console/sign-in")
	p.choose(one.externalID+","+other.externalID, "owner")
	p.Says("Choose an organization.")
	p.Press(`.gate li:first-child button`)
	p.ready()
	p.Says("One Ltd.", "/of-one")
	p.Press("#create")
	p.Write(`dialog [name="path"]`, "/for-one")
	if status := chrome.Evaluate[int](p.Tab, fmt.Sprintf(`fetch("/portal/session/organization", {method: "PUT",
		headers: {"Deeplink-Console": "1", "Content-Type": "application/json"}, body: JSON.stringify({externalId: %q})}).then(r => r.status)`, other.externalID)); status != 200 {
		t.Fatalf("switch: %d", status)
	}
	p.Press(`dialog button[type="submit"]`)
	p.Says("Another organization was chosen")
	p.Minds("status of 409")
	p.Press("#discard")
	p.Holds(`document.readyState === "complete" && document.title.includes("Other Ltd.")`)
	p.ready()
	p.Says("Other Ltd.", "free", "No links yet")
	p.SaysNot("One Ltd.", "/of-one", "/for-one")
}

func testNoConnection(t *testing.T, h *testStack, p *tab) {
	o := h.tenant(t, "Far Ltd.", "scale", "--app-config", "demo")
	p.signIn(h, o, "admin")
	p.Cut(true)
	p.Press(`#sections a[href="#keys"]`)
	p.Says("The service could not be reached.")
	p.Cut(false)
	p.Press(`#content .alert button`)
	p.Holds(`document.querySelector("#key-SERVER") !== null`)
}

func testKeyboard(t *testing.T, h *testStack, p *tab) {
	o := h.tenant(t, "Keys Ltd.", "scale", "--app-config", "demo")
	p.signIn(h, o, "admin")
	p.Press("#create")
	p.Holds(`document.activeElement.name === "path"`)
	p.Key(kb.Escape)
	p.closed()
	p.Holds(`document.activeElement.id === "create"`)
	// Every control can be reached with the keyboard and shows the focus.
	wanted := chrome.Evaluate[int](p.Tab, `[...document.querySelectorAll("a[href],button:not(:disabled),input,select")].filter(e => e.checkVisibility()).length`)
	reached := make(map[string]bool)
	for range 3 * wanted {
		p.Key(kb.Tab)
		reached[chrome.Evaluate[string](p.Tab, `(() => {
			const e = document.activeElement, all = [...document.querySelectorAll("a[href],button,input,select")]
			return all.includes(e) && parseFloat(getComputedStyle(e).outlineWidth) >= 2 ? String(all.indexOf(e)) : ""
		})()`)] = true
	}
	delete(reached, "")
	if len(reached) != wanted {
		t.Errorf("%d of %d were reached with a visible focus", len(reached), wanted)
	}
}
