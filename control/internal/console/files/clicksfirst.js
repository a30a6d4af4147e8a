// How to get the first click: shown while there is none.
import { get } from "./api.js"
import { button, copyButton, el, fill, guard, icon, webLink } from "./dom.js"

// firstClick shows in place that there are no clicks in the range of the page, and how to get one.
export function firstClick(place, page) {
	return guard(place, page.signal, async () => {
		const link = page.link ?? (page.state.linkId ? null : (await get("/portal/links?limit=1&isActive=true", page.signal)).data[0])
		if (page.hasClicks()) return // one came meanwhile
		const { countedSince, from } = page.figures
		const longer = countedSince !== null && countedSince < from
		fill(place, el("div", { class: "card empty first" }, icon("clicks"), el("h2", {}, longer ? "No clicks in this time" : "No clicks yet"),
			link && teach(link),
			!link && !page.state.linkId && el("p", {}, "Clicks are counted as soon as there is a link. ", el("a", { href: "#links" }, "Create the first link")),
			longer && page.state.range !== "365" && el("div", { class: "deeds" }, button("Show the last 12 months", () => page.change({ range: "365", interval: null }), { kind: "quiet" }))))
	})
}

function teach(link) {
	const line = `curl -i '${link.url}'`
	return el("div", { class: "teach" },
		el("p", {}, "Open the link in a browser. It shows up here within two seconds, as a human click:"),
		el("p", { class: "anywhere" }, webLink(link.url)),
		el("p", {}, "Or call it in a terminal. A program is not a person, so this click is counted as a bot:"),
		el("div", { class: "line" }, el("code", { class: "code", id: "curl" }, line), copyButton(line, { name: "Copy the command" })))
}
