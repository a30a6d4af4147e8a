// The latest clicks, one by one, of all classes: whether a click was counted, and as what.
import { get, query } from "./api.js"
import { button, chip, el, fill, guard } from "./dom.js"
import { linkAddress } from "./clicksaddress.js"
import { classWords, keyWords, outcomeWords, reasonWords } from "./clickswords.js"

const steps = [8, 50, 200]

const titles = new Map() // of links, by id; null for one that was deleted

export class Latest {
	constructor(page) {
		Object.assign(this, { page, step: 0, drawn: "" })
		this.list = el("div", {}, el("p", { class: "soft" }, "Loading…"))
		this.element = el("section", { class: "card latest", "aria-label": "Latest clicks" },
			el("div", {}, el("h2", {}, "Latest clicks"), el("p", { class: "soft small" }, "One by one, of all classes, with the reason for the class.")), this.list)
	}

	load() {
		return guard(this.list, this.page.signal, async () => {
			const answer = await get(`/portal/analytics/clicks/raw${query({ ...this.page.rangeQuery(), class: "all", limit: steps[this.step] })}`, this.page.signal)
			if (!this.page.state.linkId) await this.name(answer.data)
			const drawn = JSON.stringify([answer.data, answer.nextCursor !== null, answer.keptSince, answer.to, this.page.zone])
			if (drawn === this.drawn && this.list.querySelector(".alert") === null) return
			this.drawn = drawn
			this.draw(answer)
		})
	}

	// name reads the titles of links that are not known yet. The figures of a link name it, also if it was deleted.
	async name(rows) {
		const unknown = [...new Set(rows.map(({ linkId }) => linkId))].filter((id) => id && !titles.has(id)).slice(0, 8)
		await Promise.all(unknown.map(async (id) => {
			const { data } = await get(`/portal/analytics/clicks${query({ ...this.page.rangeQuery(), class: "all", groupBy: "link", linkId: id })}`, this.page.signal)
			const row = data.find(({ key }) => key === id)
			if (row) titles.set(id, row.link ? row.link.title ?? row.link.shortCode : null)
		}))
	}

	draw({ data, nextCursor, keptSince, to }) {
		const focused = this.list.contains(document.activeElement) ? document.activeElement.dataset.key : undefined
		const gone = keptSince !== null && to <= keptSince
		fill(this.list,
			data.length === 0 && el("p", { class: "soft none" }, gone ? ["Single clicks of this time are not kept any more: only the counts are. They are kept since ", this.page.at(keptSince, { dated: true }), "."] : "No clicks in this time."),
			data.length > 0 && el("ol", {}, data.map((row) => this.row(row))),
			nextCursor !== null && this.step < steps.length - 1 && button("Show more", () => {
				this.step++
				return this.load()
			}, { kind: "quiet", name: "Show more: Latest clicks" }))
		if (focused !== undefined) [...this.list.querySelectorAll("[data-key]")].find(({ dataset }) => dataset.key === focused)?.focus({ preventScroll: true })
	}

	row(row) {
		const facts = [
			row.device && row.device !== "other" && keyWords("device", row.device), row.os && row.os !== "other" && keyWords("os", row.os),
			row.browser && row.browser !== "other" && keyWords("browser", row.browser), row.country && keyWords("country", row.country),
			row.language && keyWords("language", row.language), row.referrer && `from ${row.referrer}`,
		].filter(Boolean)
		return el("li", { "data-id": row.id },
			el("p", {}, this.page.at(row.at, { dated: true, milliseconds: true }), " ", chip(classWords[row.class]?.[0] ?? row.class, row.class === "human" ? "accent" : ""),
				row.late && chip("late", "warn"), " ", outcomeWords(row.outcome), !this.page.state.linkId && row.linkId && [" · ", this.linkOf(row)]),
			el("p", { class: "soft small anywhere" }, `${reasonWords(row.reason)}${facts.length ? ` · ${facts.join(" · ")}` : ""}`,
				row.class !== "human" && row.agent && el("span", { class: "agent" }, ` · ${row.agent}`)))
	}

	linkOf({ linkId, id }) {
		const title = titles.get(linkId)
		return el("a", { class: "anywhere", href: linkAddress(linkId), "data-key": id }, title === null ? "a deleted link" : title ?? "its link")
	}
}
