// How to get the first click: shown while there is none.
import { get, query } from "./api.js"
import { addDays, dateIn } from "./clicksrange.js"
import { button, copyButton, el, fill, guard, icon, webLink } from "./dom.js"

// longest is how many days a range has at most.
const longest = 3660

// firstClick shows in place that there are no clicks in the range of the page, and how to get one.
export function firstClick(place, page) {
	return guard(place, page.signal, async () => {
		const link = page.link ?? (page.state.linkId ? null : (await get("/portal/links?limit=1&isActive=true", page.signal)).data[0])
		const earlier = await earlierClicks(page)
		if (page.hasClicks()) return // one came meanwhile
		fill(place, el("div", { class: "card empty first" }, icon("clicks"), el("h2", {}, earlier ? "No clicks in this time" : "No clicks yet"),
			link && teach(link),
			!link && !page.state.linkId && el("p", {}, "Clicks are counted as soon as there is a link. ", el("a", { href: "#links" }, "Create the first link")),
			earlier && el("div", { class: "deeds" }, button("Show all clicks so far", () => page.change({ range: earlier, interval: null }), { kind: "quiet", id: "show-earlier" }))))
	})
}

// earlierClicks returns the range of all days with figures if there are clicks in it, of any class, and otherwise null.
async function earlierClicks({ figures: { countedSince, from }, state: { linkId }, signal }) {
	if (countedSince === null || countedSince >= from) return null
	const today = dateIn(Date.now(), "UTC")
	const first = [countedSince.slice(0, 10), addDays(today, 1 - longest)].sort().at(-1)
	const { totals } = await get(`/portal/analytics/clicks${query({ from: first, to: addDays(today, 1), class: "all", linkId })}`, signal)
	return totals.clicks > 0 ? { from: first, to: today } : null
}

function teach(link) {
	const line = `curl -i '${link.url}'`
	return el("div", { class: "teach" },
		el("p", {}, "Open the link in a browser. It shows up here within two seconds, as a human click:"),
		el("p", { class: "anywhere" }, webLink(link.url)),
		el("p", {}, "Or call it in a terminal. A program is not a person, so this click is counted as a bot:"),
		el("div", { class: "line" }, el("code", { class: "code", id: "curl" }, line), copyButton(line, { name: "Copy the command" })))
}
