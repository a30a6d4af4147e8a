// Two people changed the same link: what the other one changed, and what can be done about it.
import { button, el, icon } from "./dom.js"

const titles = {
	path: "Path in the app", shortCode: "Short code", domainId: "Domain", fallbackUrl: "Fallback address", utmSource: "UTM source", utmMedium: "UTM medium",
	utmCampaign: "UTM campaign", utmTerm: "UTM term", utmContent: "UTM content", "og.title": "Preview title", "og.description": "Preview description",
	"og.imageUrl": "Preview picture", params: "Parameters", templateId: "Template id", isActive: "Active", expiry: "Expires", tags: "Tags", channel: "Channel", title: "Title",
}

const shown = (value) => value === "" ? "nothing" : value === true ? "yes" : value === false ? "no" : value

// conflict shows it. before, now and mine are the texts of the link's form: as it was opened, as the link is, and as they were typed.
export function conflict(before, now, mine, { overwrite, reload }) {
	const names = Object.keys(now).filter((name) => now[name] !== before[name])
	const list = el("dl", { class: "facts changes", hidden: true }, names.map((name) => el("div", {}, el("dt", {}, titles[name] ?? name),
		el("dd", {}, el("del", {}, shown(before[name])), " → ", el("ins", {}, shown(now[name])),
			mine[name] !== before[name] && mine[name] !== now[name] && el("span", {}, ` (you typed: ${shown(mine[name])})`)))))
	const toggle = button("Show what changed", () => {
		list.hidden = !list.hidden
		toggle.setAttribute("aria-expanded", String(!list.hidden))
	}, { kind: "quiet", id: "show-changes" })
	toggle.setAttribute("aria-expanded", "false")
	return el("div", { class: "warning conflict", role: "alert" }, icon("warn"), el("div", {},
		el("p", {}, "Someone else changed this link after you opened it. Nothing was saved."),
		el("p", {}, "Overwrite saves the fields that you changed and keeps the other person's changes to the others. Reload discards what you typed."),
		list,
		el("div", { class: "deeds" }, names.length > 0 && toggle, button("Overwrite", overwrite, { kind: "quiet", id: "overwrite" }), button("Reload", reload, { kind: "quiet", id: "reload" }))))
}
