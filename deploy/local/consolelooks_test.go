package main

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"deeplink/shared/testkit/chrome"
)

// testLooksOfSignIn shows each problem, the page of a link and the dialog of a session that has ended.
func testLooksOfSignIn(t *testing.T, h *testStack, p *tab) {
	for _, problem := range []struct{ code, text string }{
		{"request", "incomplete response"}, {"access_denied", "You cancelled the sign-in"}, {"sign_in_needed", "has ended. Sign in again."},
		{"code", "this reference: 7f3a"}, {"provider_unavailable", "Try again in a minute."}, {"provider_unsupported", "PKCE with S256"},
		{"no_organization", "belongs to no organization"}, {"unknown_organization", "not set up here"}, {"not_configured", "Ask your operator for a sign-in link."},
	} {
		p.Visit(h.control.URL() + "/console?problem=" + problem.code + "&ref=7f3a")
		p.Says(problem.text)
		p.Minds("status of 401")
		p.Holds(`location.search === "" && document.querySelectorAll("#signin .main").length === 1`)
		p.look("problem-" + problem.code)
	}
	p.Visit(h.control.URL() + "/console?problem=made-up&ref=7f3a")
	p.Holds(`document.getElementById("sign-in") !== null`)
	p.Minds("status of 401")
	p.SaysNot("7f3a", "made-up")

	o := h.tenant(t, "Looks Ltd.", "scale", "--app-config", "demo")
	var made struct{ URL string }
	if err := json.Unmarshal(h.operate(t, "console-link", "--org", o.key, "--role", "admin", "--console-url", h.control.URL()), &made); err != nil {
		t.Fatal(err)
	}
	p.Visit(made.URL)
	p.Says("It works once.")
	p.look("link")
	p.Key(kb.Enter)
	p.ready()
	p.Visit(made.URL)
	p.Says("This sign-in link is no longer valid.")
	p.Minds("status of 401")
	p.look("link-invalid")

	p.signIn(h, o, "admin")
	p.strike("c", 0)
	p.Write(`dialog [name="path"]`, "/typed")
	h.operate(t, "session", "revoke", "--org", o.key, "--all")
	p.Key(kb.Enter)
	p.Says("Your session has ended")
	p.Minds("status of 401")
	p.look("ended")
	// On a fresh load the message fills the page.
	p.Visit(h.control.URL() + "/console")
	p.Says("Try again")
	p.Minds("status of 401")
	p.look("ended-page")
}

// testLooksOfDailyUse shows the list of links with a selection, its dialogs and its empty states.
func testLooksOfDailyUse(t *testing.T, h *testStack, p *tab) {
	o := h.fillShop(t)
	token := h.token(t, o, "owner")
	p.signIn(h, o, "owner")
	p.Says("Spring sale")
	p.Press(named("Select: Spring sale"))
	p.Press(named("Select: /about"))
	p.Says("2 selected")
	p.look("selected")
	p.Press("#bulk-tag")
	p.look("tag")
	p.Press(`dialog .icon`)
	p.closed()
	p.Press("#bulk-delete")
	p.Press(`dialog button[type="submit"]`)
	p.look("delete-many")
	p.Press(`dialog .icon`)
	p.closed()
	links := h.links(t, token)
	if status, answer := h.ask(t, "DELETE", "/portal/links/"+links[len(links)-1].ID, token, ""); status != 200 {
		t.Fatalf("%d %s", status, answer)
	}
	p.Press("#bulk-deactivate")
	p.Says("1 link not changed")
	p.look("failed")
	p.Press("#columns")
	p.look("columns")
	p.Press(`dialog .icon`)
	p.closed()
	p.strike("?", 0)
	p.opened()
	p.look("shortcuts")
	p.Press(`dialog .icon`)
	p.closed()

	p.Press(named("Edit: Winter sale"))
	p.opened()
	if status, answer := h.ask(t, "PATCH", "/portal/links/"+links[2].ID, token, `{"title":"Winter sale","tags":["winter","theirs"],"channel":"sms"}`); status != 200 {
		t.Fatalf("%d %s", status, answer)
	}
	p.Write(`dialog [name="tags"]`, "winter, mine")
	p.Key(kb.Enter)
	p.Says("Someone else changed this link")
	p.Minds("status of 412")
	p.Press("#show-changes")
	p.look("conflict")
	p.Press(`dialog .icon`)
	p.closed()
	p.Write(`[name="search"]`, "nothing-like-it")
	p.Key(kb.Enter)
	p.Says("No link matches")
	p.look("links-no-match")
	p.signIn(h, h.tenant(t, "First Ltd.", "free", "--app-config", "demo"), "member")
	p.look("links-first")
}

// axeFile is an environment variable: the path of axe-core's script, which checks accessibility. .ci/axe installs it.
const axeFile = "AXE_CORE"

// axe returns what axe-core finds in the page: rules of WCAG 2.2, levels A and AA, and its best practices.
func (p *tab) axe() []string {
	p.t.Helper()
	file := os.Getenv(axeFile)
	if file == "" {
		if os.Getenv("CI") == "true" {
			p.t.Fatal("set " + axeFile + " to the output of .ci/axe")
		}
		return nil
	}
	if !chrome.Evaluate[bool](p.Tab, `typeof axe === "object"`) {
		script, err := os.ReadFile(file)
		if err != nil {
			p.t.Fatal(err)
		}
		chrome.Evaluate[chromedp.Void](p.Tab, string(script)+";void 0")
	}
	return chrome.Evaluate[[]string](p.Tab, `axe.run(document.querySelector("dialog[open]") ?? document, {
		runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"], resultTypes: ["violations"],
	}).then(({violations}) => violations.map(({id, nodes}) => id + ": " + nodes.slice(0, 3).map(({html}) => html.slice(0, 160)).join(" | ")))`)
}
