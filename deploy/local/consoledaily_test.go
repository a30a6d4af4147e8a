package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"deeplink/shared/testkit/chrome"
)

// blur takes the focus away from a field, so that keys are shortcuts.
func (p *tab) blur() {
	p.t.Helper()
	chrome.Evaluate[chromedp.Void](p.Tab, `void document.activeElement.blur()`)
}

// strike presses a key as a keyboard does: the character is typed where the focus is, unless the page takes the key for a shortcut.
func (p *tab) strike(key string, modifiers int64) {
	p.t.Helper()
	down := input.DispatchKeyEventParams{Type: input.DispatchKeyEventTypeKeyDown, Key: key, Modifiers: modifiers}
	if modifiers == 0 {
		down.Text = key
	}
	chrome.Call(p.Tab, input.DispatchKeyEvent, down)
	chrome.Call(p.Tab, input.DispatchKeyEvent, input.DispatchKeyEventParams{Type: input.DispatchKeyEventTypeKeyUp, Key: key, Modifiers: modifiers})
}

// opened waits until a dialog is open.
func (p *tab) opened() {
	p.t.Helper()
	p.Holds(`document.querySelector("dialog[open]") !== null`)
}

// noDialog requires that none is open now.
func (p *tab) noDialog(why string) {
	p.t.Helper()
	if chrome.Evaluate[bool](p.Tab, `document.querySelector("dialog[open]") !== null`) {
		p.t.Errorf("%s: a dialog is open", why)
	}
}

// links returns the links of an organization, the newest first.
func (h *testStack) links(t *testing.T, token string) (links []struct {
	ID, ShortCode, Path string
	Title               *string
	IsActive            bool
	Tags                []string
}) {
	t.Helper()
	status, answer := h.ask(t, "GET", "/portal/links?limit=100", token, "")
	var page struct{ Data json.RawMessage }
	if status != http.StatusOK || json.Unmarshal(answer, &page) != nil || json.Unmarshal(page.Data, &links) != nil {
		t.Fatalf("GET /portal/links: %d %s", status, answer)
	}
	return links
}

// makeLinks creates links in one request, the last one of which is the newest.
func (h *testStack) makeLinks(t *testing.T, token string, bodies ...string) {
	t.Helper()
	operations := make([]string, len(bodies))
	for i, body := range bodies {
		operations[i] = `{"op":"create","link":` + body + `}`
	}
	status, answer := h.ask(t, "POST", "/portal/links/bulk", token, `{"atomic":true,"operations":[`+strings.Join(operations, ",")+`]}`)
	if status != http.StatusOK {
		t.Fatalf("POST /portal/links/bulk: %d %s", status, answer)
	}
}

func testShortcuts(t *testing.T, h *testStack, p *tab) {
	o := h.tenant(t, "Shortcuts Ltd.", "scale", "--app-config", "demo")
	p.signIn(h, o, "admin")
	p.section("plan")
	p.strike("/", 0)
	p.Holds(`document.activeElement.name === "search" && document.querySelector("#content > .links") !== null && location.hash === "#links"`)
	// A key that is typed into a field is no shortcut.
	p.strike("c", 0)
	p.strike("?", 0)
	p.Holds(`document.activeElement.value === "c?"`)
	p.noDialog("typed into a field")
	p.Write(`[name="search"]`, "")
	p.blur()
	for name, modifier := range map[string]int64{"Alt": 1, "Ctrl": 2, "Meta": 4} {
		p.strike("c", modifier)
		p.noDialog("with " + name)
	}
	p.strike("c", 0)
	p.Holds(`document.activeElement.name === "path"`)
	p.Write(`dialog [name="path"]`, "/drafted")
	p.Key(kb.Escape)
	p.closed()
	p.Holds(`document.activeElement.id === "create"`)
	// What was typed is there again, until it is discarded.
	p.strike("c", 0)
	p.Says("This is what you typed before.")
	p.Holds(`document.activeElement.name === "path" && document.activeElement.value === "/drafted"`)
	p.Press(`dialog .deeds .quiet`)
	p.closed()
	p.strike("c", 0)
	p.Holds(`document.activeElement.name === "path" && document.activeElement.value === ""`)
	p.Key(kb.Escape)
	p.closed()
	p.strike("?", 0)
	p.Says("Search the links", "Create a link", "Close a dialog")
	p.Press("#use-shortcuts")
	p.Key(kb.Escape)
	p.closed()
	p.strike("c", 0)
	p.strike("?", 0)
	p.noDialog("shortcuts are off")
	p.Visit(h.control.URL() + "/console")
	p.ready()
	p.strike("c", 0)
	p.noDialog("shortcuts are off")
	p.Press("#shortcuts")
	p.Press("#use-shortcuts")
	p.Key(kb.Escape)
	p.closed()
	p.strike("c", 0)
	p.Holds(`document.activeElement.name === "path"`)
	p.Key(kb.Escape)
	p.closed()
	if kept := chrome.Evaluate[int](p.Tab, `localStorage.length + sessionStorage.length`); kept != 0 {
		t.Error("the browser keeps settings that nobody has chosen")
	}
}

// testBulk selects links, on one page and on all, and does with them what can be done.
func testBulk(t *testing.T, h *testStack, p *tab) {
	o := h.tenant(t, "Many Ltd.", "scale", "--app-config", "demo")
	token := h.token(t, o, "owner")
	var bodies []string
	for i := range 23 {
		bodies = append(bodies, fmt.Sprintf(`{"path":"/m%02d","shortCode":"m%02d","tags":["old","kept"],"fallbackUrl":"https://example.com/%d"}`, i, i, i))
	}
	h.makeLinks(t, token, append(bodies, `{"path":"/asleep","shortCode":"asleep","isActive":false}`)...)
	p.signIn(h, o, "member")
	p.Says("1 to 20 of 24")
	p.Press("#select-page")
	p.Says("20 selected")
	p.Press("#select-all")
	p.Says("24 selected")
	p.Press("#bulk-deactivate")
	p.Says("24 links inactive. Every edge knows.")
	if status, _ := h.click(t, o, "m00"); status != http.StatusGone {
		t.Errorf("inactive, the edge answers %d", status)
	}
	p.Press("#undo")
	// The one that was inactive before stays so.
	p.Says("23 links active again. Every edge knows.")
	for code, expected := range map[string]int{"m00": http.StatusFound, "m22": http.StatusFound, "asleep": http.StatusGone} {
		if status, _ := h.click(t, o, code); status != expected {
			t.Errorf("after the undo, the edge answers %d for %s, expected %d", status, code, expected)
		}
	}

	// Tags are added and taken away; the others stay.
	p.Press(named("Select: /m22"))
	p.Press(named("Select: /m21"))
	p.Says("2 selected")
	p.Press("#bulk-tag")
	p.Write(`dialog [name="add"]`, "vip, new")
	p.Write(`dialog [name="remove"]`, "old")
	p.Press(`dialog button[type="submit"]`)
	p.closed()
	p.Says("2 links tagged.")
	p.Holds(`document.querySelectorAll('#links a[href="#links?tag=vip"]').length === 2`)
	for _, link := range h.links(t, token)[1:4] {
		expected := map[bool]string{true: "kept vip new", false: "old kept"}[link.Path > "/m20"]
		if got := strings.Join(link.Tags, " "); got != expected {
			t.Errorf("%s has the tags %s, expected %s", link.Path, got, expected)
		}
	}

	// One of two was deleted elsewhere: the other one is changed, and the error stands at its link.
	gone := h.links(t, token)[3]
	if status, answer := h.ask(t, "DELETE", "/portal/links/"+gone.ID, token, ""); status != http.StatusOK {
		t.Fatalf("%d %s", status, answer)
	}
	p.Press(named("Select: " + gone.Path))
	p.Press(named("Select: /m22"))
	p.Press("#bulk-deactivate")
	p.Says("1 link not changed, 1 link changed.", gone.Path+": Link not found.")
	p.Holds(`!document.body.innerText.includes("1 selected")`)

	// What the service refuses for every link leaves the dialog as it is.
	p.Press(named("Select: /m21"))
	p.Press("#bulk-tag")
	p.Write(`dialog [name="add"]`, strings.Repeat("x", 65))
	p.Press(`dialog button[type="submit"]`)
	p.Says("1 link not changed.", "/m21: ")
	p.Write(`dialog [name="add"]`, "fits")
	p.Press(`dialog button[type="submit"]`)
	p.closed()
	p.Says("1 link tagged.", "#fits")

	testLostAnswer(p)

	// The count must be typed.
	p.Press(named("Select: /m19"))
	p.Press(named("Select: /m18"))
	p.Press("#bulk-delete")
	p.Says("Delete 2 links?", "/m19")
	for _, wrong := range []string{"", "3", "02", "two"} {
		p.Write(`dialog [name="count"]`, wrong)
		p.Press(`dialog button[type="submit"]`)
		p.Holds(`document.activeElement.getAttribute("aria-invalid") === "true"`)
	}
	p.Write(`dialog [name="count"]`, "2")
	p.Key(kb.Enter)
	p.closed()
	p.Says("2 links deleted. Every edge knows.")
	p.Holds(`!document.getElementById("links").innerText.includes("/m19") && !document.getElementById("links").innerText.includes("/m18")`)
	if status, _ := h.click(t, o, "m19"); status != http.StatusNotFound {
		t.Errorf("deleted, the edge answers %d", status)
	}
}

// testLostAnswer loses the answer to a change that was made. Sent again, it is done once: the service repeats its answer.
func testLostAnswer(p *tab) {
	p.t.Helper()
	chrome.Evaluate[chromedp.Void](p.Tab, `void (() => {
		const send = fetch
		window.fetch = async (...request) => {
			const response = await send(...request)
			if (!String(request[0]).endsWith("/bulk")) return response
			window.bulk = [...window.bulk ?? [], response.headers.get("Idempotency-Replayed")]
			if (window.bulk.length === 1) throw new TypeError("Failed to fetch")
			window.fetch = send
			return response
		}
	})()`)
	p.Press(named("Select: /m17"))
	p.Press("#bulk-deactivate")
	p.Says("The service could not be reached.", "1 selected")
	p.Press("#bulk-again")
	p.Holds(`window.bulk.length === 2 && window.bulk[0] === null && window.bulk[1] === "true"`)
	p.Holds(`!document.body.innerText.includes("The service could not be reached.") && !document.body.innerText.includes("1 selected")`)
}

// testUndo deactivates one link and takes it back with the keyboard.
func testUndo(t *testing.T, h *testStack, p *tab) {
	o := h.tenant(t, "Undo Ltd.", "scale", "--app-config", "demo")
	h.makeLink(t, h.token(t, o, "owner"), `{"path":"/a","title":"Sale","shortCode":"sale","fallbackUrl":"https://example.com/"}`)
	p.signIn(h, o, "admin")
	p.Press(named("Deactivate: Sale"))
	p.Says("The link is inactive: it answers that it is gone. Every edge knows.", "Undo")
	// Another note does not take the offer away.
	p.Press(named("Copy the short URL: Sale"))
	p.Says("Copied.", "Undo")
	if copied := p.ReadClipboard(); copied != h.edge.URL()+"/"+o.key+"/sale" {
		t.Errorf("copied %q", copied)
	}
	p.strike("u", 0)
	p.Says("The link is active again. Every edge knows.")
	p.Holds(`document.getElementById("undo") === null`)
	if status, _ := h.click(t, o, "sale"); status != http.StatusFound {
		t.Errorf("after the undo, the edge answers %d", status)
	}
	p.Press(named("Deactivate: Sale"))
	p.Holds(`document.getElementById("undo") !== null`)
	p.Holds(`document.getElementById("undo") === null`) // the offer ends by itself
	p.strike("u", 0)
	p.Says("inactive")
	if status, _ := h.click(t, o, "sale"); status != http.StatusGone {
		t.Errorf("after the offer, the edge answers %d", status)
	}
}

// testAddress shows that a filtered list has an address, which outlives a reload, Back and a sign-in.
func testAddress(t *testing.T, h *testStack, p *tab) {
	o := h.tenant(t, "Address Ltd.", "scale", "--app-config", "demo")
	token := h.token(t, o, "owner")
	long := strings.Repeat("Donaudampfschifffahrt ", 4) + "é.?&=*+"
	var bodies []string
	for i := range 42 {
		bodies = append(bodies, fmt.Sprintf(`{"path":"/p%02d","tags":["%s"],"channel":"email"}`, i, []string{"even", "odd"}[i%2]))
	}
	h.makeLinks(t, token, append(bodies, fmt.Sprintf(`{"path":"/long","title":%q}`, long))...)
	console := h.control.URL() + "/console"
	p.Visit(console + "#links?tag=odd&isActive=true&page=2")
	p.Minds("status of 401")
	p.Press("#sign-in")
	p.choose(o.externalID, "member")
	p.ready()
	p.Says("21 to 21 of 21", "/p01")
	p.Holds(`location.hash === "#links?tag=odd&isActive=true&page=2" && document.querySelector('[name="tag"]').value === "odd" && document.querySelector('[name="isActive"]').value === "true"`)
	p.Press(`.pager button:nth-last-child(2)`)
	p.Says("1 to 20 of 21")
	p.Holds(`location.hash === "#links?isActive=true&tag=odd"`)
	p.Write(`[name="search"]`, "p07")
	p.Key(kb.Enter)
	p.Says("1 to 1 of 1")
	p.Holds(`location.hash === "#links?search=p07&isActive=true&tag=odd"`)
	chrome.Evaluate[chromedp.Void](p.Tab, `void history.back()`)
	p.Says("1 to 20 of 21")
	p.Holds(`document.querySelector('[name="search"]').value === ""`)
	// A tag leads to its links.
	p.section("links")
	p.Says("1 to 20 of 43")
	p.Press(`[data-id]:nth-child(3) a.chip`)
	p.Says("1 to 20 of 21", "/p40")
	p.Holds(`location.hash === "#links?tag=even"`)
	p.Press("#all-links, #sections a[href='#links']")
	p.Says("1 to 20 of 43")

	// Values that the service would refuse are no filters.
	for _, hash := range []string{"links?isActive=maybe&channel=%3Cscript%3E&domainId=x&page=-5", "links?page=1e99", "links?page=77", "links?%", "links?__proto__=1"} {
		p.Visit(console + "#" + hash)
		p.ready()
		p.Says(" of 43")
	}

	// What is too long for the sign-in waits in the tab, and no longer than that.
	p.Visit(console + "#links?search=" + strings.ReplaceAll(strings.ReplaceAll(strings.ReplaceAll(strings.ReplaceAll(long, " ", "%20"), "&", "%26"), "+", "%2B"), "=", "%3D"))
	p.Says("1 to 1 of 1")
	h.operate(t, "session", "revoke", "--org", o.key, "--all")
	chrome.Evaluate[chromedp.Void](p.Tab, `void location.reload()`)
	p.Holds(`document.getElementById("sign-in")?.search === "?next=%2Fconsole%23links"`)
	p.Minds("status of 401")
	p.Press("#sign-in")
	p.choose(o.externalID, "member")
	p.ready()
	p.Says("1 to 1 of 1", long)
	p.Holds(fmt.Sprintf(`document.querySelector('[name="search"]').value === %q && sessionStorage.length === 0`, long))
}

// testTwoEditors changes a link while another person has it open.
func testTwoEditors(t *testing.T, h *testStack, p *tab) {
	o := h.tenant(t, "Editors Ltd.", "scale", "--app-config", "demo")
	token := h.token(t, o, "owner")
	h.makeLink(t, token, `{"path":"/a","title":"Sale"}`)
	id := h.links(t, token)[0].ID
	elsewhere := func(body string) {
		t.Helper()
		if status, answer := h.ask(t, "PATCH", "/portal/links/"+id, token, body); status != http.StatusOK {
			t.Fatalf("%d %s", status, answer)
		}
	}
	p.signIn(h, o, "admin")
	p.Press(named("Edit: Sale"))
	p.opened()
	elsewhere(`{"title":"Theirs","channel":"email"}`)
	p.Write(`dialog [name="title"]`, "Mine")
	p.Press(`dialog button[type="submit"]`)
	p.Says("Someone else changed this link after you opened it.")
	p.Minds("status of 412")
	p.SaysNot("Theirs")
	p.Press("#show-changes")
	p.Says("Theirs", "you typed: Mine", "email")
	p.Press("#overwrite")
	p.closed()
	p.Says("The link is changed.")
	if link := h.links(t, token)[0]; *link.Title != "Mine" {
		t.Errorf("the title is %q", *link.Title)
	}
	p.Says("email") // their change to another field

	p.Press(named("Edit: Mine"))
	p.opened()
	elsewhere(`{"path":"/theirs"}`)
	p.Write(`dialog [name="title"]`, "Discarded")
	p.Press(`dialog button[type="submit"]`)
	p.Says("Someone else changed this link after you opened it.")
	p.Minds("status of 412")
	p.Press("#reload")
	p.Holds(`document.querySelector('dialog[open] [name="path"]')?.value === "/theirs" && document.querySelector('dialog[open] [name="title"]').value === "Mine"`)
	p.Write(`dialog [name="title"]`, "Agreed")
	p.Press(`dialog button[type="submit"]`)
	p.closed()
	p.Says("Agreed", "/theirs")
}

func testColumns(t *testing.T, h *testStack, p *tab) {
	o := h.tenant(t, "Columns Ltd.", "scale", "--app-config", "demo")
	h.makeLink(t, h.token(t, o, "owner"), `{"path":"/a","title":"Sale","channel":"email","externalId":"crm-17","utmCampaign":"spring"}`)
	p.signIn(h, o, "admin")
	p.Says("Channel", "email")
	p.SaysNot("crm-17")
	p.Press("#columns")
	p.Press("#column-channel")
	p.Press("#column-externalId")
	p.Key(kb.Escape)
	p.closed()
	for range 2 {
		p.Holds(`(cells => cells.includes("External id") && cells.includes("crm-17") && !cells.includes("Channel"))(document.querySelector(".cells").innerText)`)
		p.Visit(h.control.URL() + "/console")
		p.ready()
	}
	p.Press("#columns")
	p.Press("#column-channel")
	p.Press("#column-externalId")
	p.Key(kb.Escape)
	p.Holds(`document.querySelector(".cells").innerText.includes("Channel") && localStorage.length === 0`)
	// What is kept may be anything.
	for _, kept := range []string{`[`, `null`, `7`, `{"channel": "no", "nothing": true}`} {
		chrome.Evaluate[chromedp.Void](p.Tab, fmt.Sprintf(`void localStorage.setItem("deeplink.columns", %q)`, kept))
		p.Visit(h.control.URL() + "/console")
		p.ready()
		p.Says("Channel", "email")
	}
}

// testEmptyStates shows what a list without links teaches.
func testEmptyStates(t *testing.T, h *testStack, p *tab) {
	bare := h.tenant(t, "Bare Ltd.", "free")
	p.signIn(h, bare, "member")
	p.Says("No links yet: first register your app", "Ask an administrator")
	p.signIn(h, bare, "owner")
	p.Press("#to-app-config")
	p.Says("Register at least one app")
	p.Write(`[name="fallbackUrl"]`, "https://example.com/")
	p.Press(`.app button[type="submit"]`)
	p.Says("Saved.")
	p.section("links")
	p.Says("A link is a short URL that opens a screen of your app.", "Your plan has no API keys")
	p.Press("#create-first")
	p.Write(`dialog [name="path"]`, "/first")
	p.Press(`dialog button[type="submit"]`)
	p.closed()
	p.Says("/first")
	p.Write(`[name="search"]`, "nothing-like-it")
	p.Key(kb.Enter)
	p.Says("No link matches", "Search: nothing-like-it", "Search finds a part of")
	p.Press("#all-links")
	p.Says("1 to 1 of 1")
	p.section("keys")
	p.Says("Keys are locked", "include API keys")
	p.signIn(h, h.tenant(t, "Able Ltd.", "scale", "--app-config", "demo"), "member")
	p.Says("Programs create links with the API")
}
