// What the page of clicks says about the figures themselves: up to when they are complete, and which clicks may be missing.
import { counted, el, fill, icon, number } from "./dom.js"

// shownMissing is how many missing edges are shown at once.
const shownMissing = 4

// behindAfter is from which age on the page says how far the figures are behind, in milliseconds. It is 5 s at most while all edges run.
const behindAfter = 15_000

// missingText says what is missing from an edge, and what happens next.
function missingText({ slot, since, until, state }, at) {
	const edge = el("strong", { class: "anywhere" }, slot)
	switch (state) {
	case "waiting":
		return ["The edge ", edge, " has sent nothing since ", at(since), ". Its clicks since then are not counted yet. They will be when it is back; until then, figures after that time can still change."]
	case "forgotten":
		return ["Your operator gave up the edge ", edge, " on ", at(until), ". Its clicks since ", at(since), " are not in the figures. If it comes back, they are counted as late clicks."]
	case "lost":
		return ["The edge ", edge, " lost some clicks between ", at(since), " and ", at(until), ". They cannot be counted any more."]
	case "off":
		return ["The edge ", edge, " does not record clicks: recording is off, or it is an older release. Its clicks are not counted."]
	}
	return ["The edge ", edge, " may have clicks that are not in the figures."]
}

export function missingNotice(missing, at) {
	if (missing.length === 0) return null
	const item = (one) => el("li", {}, missingText(one, at))
	const more = missing.slice(shownMissing)
	return el("div", { class: "warning missing", id: "missing" }, icon("warn"), el("div", {},
		el("p", {}, el("strong", {}, "These figures may lack clicks.")),
		el("ul", {}, missing.slice(0, shownMissing).map(item)),
		more.length > 0 && el("details", {}, el("summary", {}, `${number(more.length)} more`), el("ul", {}, more.map(item))),
		missing.some(({ state }) => state === "waiting" || state === "off") && el("p", { class: "small" }, "Your operator can see the edges with “control doctor”.")))
}

// notes are remarks on the figures that apply, each a text or a list of parts.
export function notesOf(figures, { at, old, zone }) {
	const { totals, countedSince, from } = figures
	const notes = []
	if (old) notes.push("For times more than 400 days ago there are figures per day (UTC) only, so this range is in UTC.")
	if (countedSince && countedSince > from) notes.push(["Counting began on ", at(countedSince), "."])
	if (totals.lateClicks > 0) notes.push(`${counted(totals.lateClicks, "click")} arrived late, when the figures of that time were already complete. The figures include them.`)
	if (totals.withoutDetail > 0) notes.push(`${counted(totals.withoutDetail, "click")} could only be counted, because the disk of an edge was full: without country, device, referrer or visitor.`)
	if (figures.approximate) notes.push("The visitor-days are approximate: there were more than a million visitors on a day, or clicks whose visitor is not known.")
	if (figures.reclassifiedAt) notes.push(["Your operator classified earlier clicks again on ", at(figures.reclassifiedAt), ", so the numbers of the classes may differ from those you saw before."])
	if (zone !== "UTC") notes.push(`Hours and days are those of ${zone.replaceAll("_", " ")}.`)
	return notes
}

// Completeness is the line that says up to when all figures are complete, and whether they are refreshed.
export class Completeness {
	constructor() {
		this.until = el("span", { id: "as-of" })
		this.problem = el("span", { class: "trouble" })
		this.element = el("p", { class: "complete small soft" }, el("span", { class: "pulse", "aria-hidden": "true" }), this.until, this.problem)
	}

	show({ asOf, complete }, at) {
		const age = Date.now() - Date.parse(asOf)
		this.element.classList.toggle("behind", !complete && age > behindAfter)
		const text = at(asOf, { dated: age > 12 * 3600_000 })
		fill(this.until, complete ? "Complete: no click of this time is missing." : el("span", {}, "Complete up to ", text))
	}

	// say tells why the figures are not refreshed; an empty text: they are.
	say(text) {
		fill(this.problem, text && ` · ${text}`)
		this.element.classList.toggle("still", text !== "")
	}
}
