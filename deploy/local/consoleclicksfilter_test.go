package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp/kb"

	"deeplink/shared/testkit/chrome"
)

// set chooses an option as a person does.
func (p *tab) set(selector, value string) {
	p.t.Helper()
	p.Press("#content h1") // the browser reports entries in its history for which no person pressed anything
	p.Choose(selector, value)
	chrome.Evaluate[bool](p.Tab, fmt.Sprintf(`document.querySelector(%q).dispatchEvent(new Event("change"))`, selector))
}

// figures returns the number of human clicks and of visitor-days, as the API has them.
func (h *testStack) figures(t *testing.T, token, query string) (human, visitors int) {
	t.Helper()
	status, answer := h.ask(t, "GET", "/portal/analytics/clicks?"+query, token, "")
	var figures struct {
		Totals struct {
			ByClass     map[string]int
			VisitorDays *int
		}
	}
	if err := json.Unmarshal(answer, &figures); status != http.StatusOK || err != nil {
		t.Fatalf("%s: %d %s %v", query, status, answer, err)
	}
	if figures.Totals.VisitorDays != nil {
		visitors = *figures.Totals.VisitorDays
	}
	return figures.Totals.ByClass["human"], visitors
}

// testClickAddresses checks that each view has an address with which a sign-in leads back to it.
func testClickAddresses(t *testing.T, h *testStack, p *tab) {
	o := h.sale(t, "Addresses Ltd.", 60)
	p.signIn(h, o, "member")
	const longest = `(async () => {
		const { writeAddress, readAddress } = await import("/console/clicksaddress.js")
		const { readRoute } = await import("/console/route.js")
		const state = {linkId: "01a21232-3523-7e7a-a5fc-12fc39097084", range: {from: "2026-01-01", to: "2026-12-31"}, interval: "month",
			classes: ["human", "preview", "agent", "bot", "scanner", "prefetch"], utc: true}
		const address = writeAddress(state)
		return [address, JSON.stringify(readAddress(readRoute(address.slice(1)).values)) === JSON.stringify(state)].join(" ")
	})()`
	const most = 64
	if address, same, _ := strings.Cut(chrome.Evaluate[string](p.Tab, longest), " "); len(address) > most+len("#") || same != "true" {
		t.Errorf("the longest address is %q, of %d characters, and is read as it was written: %s", address, len(address), same)
	}
	for _, hostile := range []string{"l=nobody&r=1234567-1&i=x&c=xyz&u", "r=260231-260301", "l=%3Cscript%3E", "r=261231-260101", "c=%F0%9F%92%A9"} {
		p.Visit(h.control.URL() + "/console")
		p.ready()
		p.Visit(h.control.URL() + "/console#clicks?" + hostile)
		p.Holds(`document.querySelector("#range")?.value === "30"`)
		p.clicksShown()
	}
	// A person who signs in to see a view gets to it.
	p.Visit(h.control.URL() + "/console/sign-in?next=/console%23clicks%3Fr%3D7%26c%3Dhb")
	p.choose(o.externalID, "member")
	p.Holds(`document.querySelector("#range")?.value === "7" && document.querySelector("#class-bot").checked`)
	p.Holds(`location.hash === "#clicks?r=7&c=hb"`)
}

func testClickFilters(t *testing.T, h *testStack, p *tab) {
	o := h.sale(t, "Filters Ltd.", 500)
	token := h.token(t, o, "member")
	p.signIn(h, o, "member")
	p.section("clicks")
	human, visitors := h.figures(t, token, "")
	p.shown("human", human)
	p.shown("visitors", visitors)
	p.Holds(`document.querySelector("#interval").value === "day"`)

	p.Press(`label[for="class-bot"]`)
	p.Holds(`location.hash === "#clicks?c=hb" && document.querySelectorAll(".figure .series").length === 2`)
	p.Press(`label[for="class-human"]`)
	p.Holds(`location.hash === "#clicks?c=b" && document.querySelector(".figure .series.bot") !== null && document.querySelector(".figure .series.human") === null`)
	p.Press(`label[for="class-bot"]`) // no class at all would show nothing
	p.Holds(`location.hash === "#clicks" && document.querySelector("#class-human").checked`)

	p.set("#range", "365")
	p.Says("Clicks per week")
	p.Holds(`location.hash === "#clicks?r=365"`)
	p.set("#interval", "month")
	p.Says("Clicks per month")
	chrome.Evaluate[bool](p.Tab, `(history.back(), true)`)
	p.Says("Clicks per week")
	p.ready()
	p.Press("[aria-label='Links: by'] button:nth-child(3)")
	p.Says("Sent to the website")

	// A range of two dates, and one from before the figures became days.
	p.set("#range", "custom")
	for _, c := range []struct{ from, to, says string }{
		{"", "2026-01-01", "Enter a date"}, {"2026-01-02", "2026-01-01", "must not be before"}, {"2001-01-01", "2026-01-01", "at most 3,660 days"},
	} {
		p.dates(c.from, c.to)
		p.Says(c.says)
	}
	day := chrome.Evaluate[string](p.Tab, `new Date(Date.now() - 450 * 86400000).toISOString().slice(0, 10)`)
	next := chrome.Evaluate[string](p.Tab, `new Date(Date.now() - 448 * 86400000).toISOString().slice(0, 10)`)
	p.dates(day, next)
	p.Says("For times more than 400 days ago there are figures per day (UTC) only")
	after := chrome.Evaluate[string](p.Tab, `new Date(Date.now() - 447 * 86400000).toISOString().slice(0, 10)`)
	human, visitors = h.figures(t, token, "from="+day+"&to="+after)
	p.shown("human", human)
	p.shown("visitors", visitors)
	p.Says("Single clicks of this time are not kept any more")

	// A time without clicks leads to the clicks that there are.
	p.dates("2001-01-01", "2001-01-02")
	p.Says("No clicks yet")
	tomorrow := chrome.Evaluate[string](p.Tab, `new Date(Date.now() + 2 * 86400000).toISOString().slice(0, 10)`)
	p.dates(tomorrow, tomorrow)
	p.Says("No clicks in this time")
	p.Press("#show-earlier")
	p.Says("Clicks per week")
	human, _ = h.figures(t, token, "from="+chrome.Evaluate[string](p.Tab, `document.querySelector("#from").value`))
	p.shown("human", human)
}

// dates enters the dates of a range.
func (p *tab) dates(from, to string) {
	p.t.Helper()
	chrome.Evaluate[bool](p.Tab, fmt.Sprintf(`(document.querySelector("#from").value = %q, document.querySelector("#to").value = %q, true)`, from, to))
	p.Press(".custom button")
}

// testClickZones looks at clicks of this moment in time zones whose date is another one than in UTC at some hour.
func testClickZones(t *testing.T, h *testStack, p *tab) {
	o := h.tenant(t, "Zones Ltd.", "scale", "--app-config", "demo")
	h.makeLink(t, h.token(t, o, "owner"), `{"path":"/sale","title":"Spring sale","shortCode":"sale","fallbackUrl":"https://shop.example.com/spring"}`)
	h.visit(t, o, "sale", safari)
	for _, zone := range []string{"Pacific/Kiritimati", "Pacific/Pago_Pago", "Pacific/Chatham"} {
		chrome.Call(p.Tab, emulation.SetTimezoneOverride, emulation.SetTimezoneOverrideParams{TimezoneID: zone})
		p.signIn(h, o, "member")
		p.Visit(h.control.URL() + "/console#clicks?r=1")
		p.ready()
		p.shown("human", 1)
		p.shown("visitors", 1)
		p.Says("Counted by whole days of UTC", "news.example", "Hours and days are those of "+strings.ReplaceAll(zone, "_", " "))
		p.set("#zone", "utc")
		p.Holds(`location.hash === "#clicks?r=1&u=1"`)
		p.shown("human", 1)
		p.Until("nothing is said about days of UTC", func() bool { return !strings.Contains(p.Text(), "Counted by whole days of UTC") })
		p.Visit(h.control.URL() + "/console")
	}
}

func testClickKeyboard(t *testing.T, h *testStack, p *tab) {
	o := h.sale(t, "Keyboard Ltd.", 30)
	p.signIn(h, o, "member")
	p.section("clicks")
	p.clicksShown()
	// Every control can be reached with the keyboard, shows the focus and has a name.
	const controls = `[...document.querySelectorAll("#content a[href],#content button:not(:disabled),#content input,#content select,#content summary,#content [role=slider]")].filter(e => e.checkVisibility())`
	wanted := chrome.Evaluate[int](p.Tab, controls+`.length`)
	reached := make(map[string]bool)
	for range 2*wanted + 20 {
		p.Key(kb.Tab)
		reached[chrome.Evaluate[string](p.Tab, `(() => {
			const e = document.activeElement, shows = e.matches(".class input") ? e.closest("label") : e
			return `+controls+`.includes(e) && parseFloat(getComputedStyle(shows).outlineWidth) >= 2 ? String(`+controls+`.indexOf(e)) : ""
		})()`)] = true
	}
	delete(reached, "")
	if len(reached) != wanted {
		t.Errorf("%d of %d were reached with a visible focus", len(reached), wanted)
	}
	if nameless := chrome.Evaluate[[]string](p.Tab, controls+`.filter(e => !(e.innerText?.trim() || e.getAttribute("aria-label") || e.labels?.[0]?.innerText)).map(e => e.outerHTML)`); len(nameless) > 0 {
		t.Errorf("without a name: %q", nameless)
	}
	// The values of the chart are read column by column, and a new click does not take the focus away.
	chrome.Evaluate[bool](p.Tab, `(document.querySelector(".slider").focus(), true)`)
	text := func() string {
		return chrome.Evaluate[string](p.Tab, `document.querySelector(".slider").getAttribute("aria-valuetext")`)
	}
	last := text()
	p.Key(kb.ArrowLeft)
	before := text()
	p.Key(kb.Home)
	if first := text(); last == before || before == first || !strings.Contains(first, "clicks") {
		t.Errorf("the keyboard reads %q, %q, %q", last, before, first)
	}
	p.Key(kb.End)
	h.visit(t, o, "sale", safari)
	p.Until("the marked column counts the new click", func() bool { return strings.Contains(text(), ": 1 click") })
	p.Holds(`document.activeElement.classList.contains("slider")`)
	chrome.Evaluate[bool](p.Tab, `(document.querySelector("#as-table").focus(), true)`)
	p.Key(kb.Enter)
	p.Holds(`document.querySelectorAll(".scroll tbody tr").length === 30 && document.querySelector(".scroll tbody td").innerText === "1"`)
}

// testClickInterruptions takes the service and the session away. What is shown stays, and goes on by itself.
func testClickInterruptions(t *testing.T, h *testStack, p *tab) {
	o := h.sale(t, "Far clicks Ltd.", 30)
	p.signIn(h, o, "member")
	p.section("clicks")
	p.clicksShown()
	human, _ := h.figures(t, h.token(t, o, "member"), "")
	p.Cut(true)
	p.Says("Could not refresh: The service could not be reached.")
	p.shown("human", human)
	p.Cut(false)
	h.visit(t, o, "sale", safari)
	p.shown("human", human+1)
	p.Holds(`!document.querySelector(".complete").innerText.includes("Could not refresh")`)

	h.operate(t, "session", "revoke", "--org", o.key, "--all")
	p.Says("Your session has ended")
	p.Minds("status of 401")
	p.Elsewhere(h.control.URL() + "/console/sign-in?next=/console/done&prompt=none")
	p.Holds(`document.querySelector("dialog.interruption") === null`)
	h.visit(t, o, "sale", safari)
	p.shown("human", human+2)
}
