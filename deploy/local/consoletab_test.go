package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/audits"

	"deeplink/shared/testkit/chrome"
)

// tab is the console in the browser of an administrator.
type tab struct {
	*chrome.Tab
	t       *testing.T
	browser *chrome.Browser
}

func openTab(t *testing.T, browser *chrome.Browser, h *testStack) *tab {
	t.Helper()
	return &tab{t: t, browser: browser, Tab: browser.Open(t, chrome.Options{
		Origins:   []string{h.control.URL(), h.identityURL, "blob:", "data:"},
		Forwarded: true,
		Expected:  []audits.InspectorIssueCode{audits.InspectorIssueCodePerformanceIssue}, // the browser reports an issue when the test itself reads cookies
	})}
}

// signIn signs in with the identity provider, in place of who is signed in.
func (p *tab) signIn(h *testStack, o tenant, role string) {
	p.t.Helper()
	p.Visit(h.control.URL() + "/console/sign-in")
	p.choose(o.externalID, role)
	p.ready()
}

// choose chooses a person at the identity provider.
func (p *tab) choose(organization, role string) {
	p.t.Helper()
	p.Says("Who do you want to be?")
	p.Write(`[name="org"]`, organization)
	p.Choose(`[name="role"]`, role)
	p.Press("#sign-in")
}

// ready waits until a section is shown, with the session above it.
func (p *tab) ready() {
	p.t.Helper()
	p.Holds(`document.getElementById("signin")?.hidden && document.querySelector("#content .section h1") !== null`)
}

// section opens a section with the navigation.
func (p *tab) section(name string) {
	p.t.Helper()
	p.Press(`#sections a[href="#` + name + `"]`)
	p.Holds(`document.querySelector("#content > .` + name + ` h1") !== null`)
}

// closed waits until no dialog is open: its action is then complete.
func (p *tab) closed() {
	p.t.Helper()
	p.Holds(`document.querySelector("dialog[open]") === null`)
}

// named returns the selector of a button by its accessible name.
func named(name string) string { return fmt.Sprintf(`[aria-label=%q]`, name) }

func (p *tab) checkErrorAt(field, words string) {
	p.t.Helper()
	said := chrome.Evaluate[string](p.Tab, fmt.Sprintf(`(() => {
		const input = document.querySelector('[name=%q]')
		return input.getAttribute("aria-describedby").split(" ").map(id => document.getElementById(id)).find(e => e.classList.contains("error")).innerText
	})()`, field))
	if said == "" || !strings.Contains(strings.ToLower(said), strings.ToLower(words)) {
		p.t.Errorf("at %s the page says %q, expected something about %s", field, said, words)
	}
}
