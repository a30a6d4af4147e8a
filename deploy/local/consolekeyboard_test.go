package main

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp/kb"

	"deeplink/shared/testkit/chrome"
)

// maxTabs is more than the stops of any page.
const maxTabs = 200

// tabTo presses Tab until an element has the focus, which must then be visible.
func (p *tab) tabTo(selector string) {
	p.t.Helper()
	p.Holds(fmt.Sprintf(`document.querySelector(%q) !== null`, selector))
	for range maxTabs {
		if chrome.Evaluate[bool](p.Tab, fmt.Sprintf(`document.activeElement.matches(%q)`, selector)) {
			if !chrome.Evaluate[bool](p.Tab, `parseFloat(getComputedStyle(document.activeElement).outlineWidth) >= 2 && (box => box.top >= 0 && box.bottom <= innerHeight)(document.activeElement.getBoundingClientRect())`) {
				p.t.Errorf("%s has the focus, which is not visible", selector)
			}
			return
		}
		p.Key(kb.Tab)
	}
	p.t.Fatalf("Tab does not lead to %s", selector)
}

// enter presses Enter at an element, and space the space bar.
func (p *tab) enter(selector string) {
	p.t.Helper()
	p.tabTo(selector)
	p.Key(kb.Enter)
}

func (p *tab) space(selector string) {
	p.t.Helper()
	p.tabTo(selector)
	p.Key(" ")
}

// typeInto goes to a field and types in place of what it has: Tab selects that.
func (p *tab) typeInto(selector, text string) {
	p.t.Helper()
	p.tabTo(selector)
	chrome.Call(p.Tab, input.InsertText, input.InsertTextParams{Text: text})
}

// testKeyboardAlone goes from the sign-in to the sign-out, through all that is done daily, without a mouse.
func testKeyboardAlone(t *testing.T, h *testStack, p *tab) {
	one, other := h.tenant(t, "Keyboard Ltd.", "scale", "--app-config", "demo"), h.tenant(t, "Mouse Ltd.", "free")
	p.Visit(h.control.URL() + "/console")
	p.Minds("status of 401")
	p.enter("#sign-in")
	p.Says("Who do you want to be?")
	p.typeInto(`[name="org"]`, one.externalID+","+other.externalID)
	p.enter("#sign-in")
	p.Says("Choose an organization.")
	p.enter(`.gate li:first-child button`)
	p.ready()
	p.Says("Keyboard Ltd.")

	for _, path := range []string{"/one", "/two"} {
		p.strike("c", 0)
		p.Holds(`document.activeElement.name === "path"`)
		p.typeInto(`dialog [name="path"]`, path)
		p.typeInto(`dialog [name="shortCode"]`, path[1:])
		p.Key(kb.Enter)
		p.closed()
		p.Says(path)
	}
	p.strike("/", 0)
	p.typeInto(`[name="search"]`, "one")
	p.Key(kb.Enter)
	p.Says("1 to 1 of 1")
	p.enter(`#sections a[href="#links"]`)
	p.Says("1 to 2 of 2")

	// The focus stays at the button of a row that is drawn anew.
	p.enter(named("Deactivate: /two"))
	p.Says("The link is inactive")
	p.Holds(`document.activeElement.getAttribute("aria-label") === "Activate: /two"`)
	p.strike("u", 0)
	p.Holds(`document.activeElement.getAttribute("aria-label") === "Deactivate: /two"`)
	p.enter(named("Edit: /two"))
	p.typeInto(`dialog [name="title"]`, "Second")
	p.Key(kb.Enter)
	p.closed()
	p.Says("Second")

	p.space(`#select-page`)
	p.Says("2 selected")
	p.enter("#bulk-deactivate")
	p.Says("2 links inactive. Every edge knows.")
	p.enter("#undo")
	p.Says("2 links active again. Every edge knows.")
	if status, _ := h.click(t, one, "two"); status == http.StatusGone {
		t.Error("after the undo, the link is gone")
	}
	p.space(named("Select: Second"))
	p.enter("#bulk-tag")
	p.typeInto(`dialog [name="add"]`, "daily")
	p.Key(kb.Enter)
	p.closed()
	p.Says("#daily")
	p.space(named("Select: Second"))
	p.enter("#bulk-delete")
	p.typeInto(`dialog [name="count"]`, "1")
	p.Key(kb.Enter)
	p.closed()
	p.Says("1 link deleted.")
	p.Says("1 to 1 of 1")
	p.enter("#columns")
	p.space("#column-path")
	p.Key(kb.Escape)
	p.Holds(`document.activeElement.id === "columns" && !document.querySelector(".cells").innerText.includes("Path in the app")`)

	// A session that ends leaves the form as it is, and another sign-in too.
	p.strike("c", 0)
	p.typeInto(`dialog [name="path"]`, "/three")
	h.operate(t, "session", "revoke", "--org", one.key, "--all")
	p.Key(kb.Enter)
	p.Says("Your session has ended")
	p.Minds("status of 401")
	p.Holds(`document.activeElement.closest("dialog.interruption") !== null`)
	p.tabTo("#sign-in-again")
	p.Elsewhere(h.control.URL() + "/console/sign-in?next=/console/done&prompt=none")
	p.Holds(`document.querySelector("dialog.interruption") === null && document.querySelector('dialog[open] [name="path"]')?.value === "/three"`)
	p.typeInto(`dialog [name="title"]`, "Third")
	p.Key(kb.Enter)
	p.closed()
	p.Says("Third")

	p.enter("#account")
	p.enter("#sessions")
	p.Says("this session")
	p.enter("#account")
	p.enter("#switch")
	p.enter(`dialog .choice:not(:disabled)`)
	p.Holds(`document.readyState === "complete" && document.title.includes("Mouse Ltd.")`)
	p.ready()
	p.enter("#account")
	p.enter("#leave")
	p.Holds(`document.getElementById("sign-in") !== null && location.pathname === "/console"`)
	p.Minds("status of 401")
}
