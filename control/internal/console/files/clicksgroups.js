// A card with the clicks of each value of a dimension, such as a country.
import { get, query } from "./api.js"
import { button, chip, el, fill, guard, number } from "./dom.js"
import { linkAddress } from "./clicksaddress.js"
import { dimensions, keyWords } from "./clickswords.js"

// steps are how many rows are shown: at first, and after each "Show more". The last is the most that one response has.
const steps = [8, 50, 250, 1000]

const chosen = {} // the dimension of each card, for as long as the page is open

export class Groups {
	// names are the dimensions of the card. page gives the query of the range, and knows what to refresh.
	constructor(title, names, page) {
		Object.assign(this, { title, names, page, step: 0, drawn: "" })
		this.name = names.includes(chosen[title]) ? chosen[title] : names[0]
		this.list = el("div", { class: "groups" }, el("p", { class: "soft" }, "Loading…"))
		this.choices = names.length > 1 && el("div", { class: "choices", role: "group", "aria-label": `${title}: by` }, names.map((name) => this.choice(name)))
		this.element = el("section", { class: "card breakdown", "aria-label": title, "data-card": names[0] },
			el("div", { class: "row" }, el("h2", {}, title), this.choices), this.list)
	}

	choice(name) {
		const made = button(dimensions[name].name, () => {
			chosen[this.title] = this.name = name
			this.step = 0
			for (const other of this.choices.children) other.setAttribute("aria-pressed", String(other === made))
			return this.load()
		}, { kind: "choice-of" })
		made.setAttribute("aria-pressed", String(name === this.name))
		return made
	}

	// load shows the rows as they are now. Rows that did not change stay as they are, with the focus.
	load() {
		return guard(this.list, this.page.signal, async () => {
			const { name } = this
			const daily = Boolean(dimensions[name].daily)
			const answer = await get(`/portal/analytics/clicks${query({ ...this.page.groupQuery(daily), groupBy: name, limit: steps[this.step] })}`, this.page.signal)
			if (name !== this.name) return // another one was chosen meanwhile
			const { data, totals, nextCursor } = answer
			const drawn = JSON.stringify([name, data, totals.clicks, nextCursor !== null, this.page.dayNote(daily)])
			if (drawn === this.drawn && this.list.querySelector(".alert") === null) return
			this.drawn = drawn
			this.draw(answer, daily)
		})
	}

	draw({ data, totals, nextCursor }, daily) {
		const focused = this.list.contains(document.activeElement) ? document.activeElement.dataset.key : undefined
		const most = Math.max(...data.map(({ clicks }) => clicks), 1)
		fill(this.list,
			data.length === 0 ? el("p", { class: "soft none" }, "No clicks in this time.") : el("ol", {}, data.map((row) => this.row(row, most, totals.clicks))),
			this.name === "tag" && data.length > 0 && el("p", { class: "soft small" }, "A link with several tags counts under each of them."),
			nextCursor !== null && (this.step < steps.length - 1
				? button("Show more", () => {
					this.step++
					return this.load()
				}, { kind: "quiet", name: `Show more: ${this.title}` })
				: el("p", { class: "soft small" }, `These are the first ${number(steps.at(-1))}.`)),
			data.length > 0 && daily && this.page.dayNote(daily) && el("p", { class: "soft small" }, this.page.dayNote(daily)))
		if (focused !== undefined) [...this.list.querySelectorAll("[data-key]")].find(({ dataset }) => dataset.key === focused)?.focus({ preventScroll: true })
	}

	row(row, most, all) {
		const bar = el("span", { class: "bar", "aria-hidden": "true" })
		bar.style.inlineSize = `${row.clicks / most * 100}%`
		const share = all > 0 ? row.clicks / all : 0
		return el("li", { class: row.key === null ? "unset" : "" }, bar, el("span", { class: "key anywhere", title: this.name === "link" ? null : this.keyOf(row) }, this.keyOf(row)),
			el("span", { class: "count" }, number(row.clicks), el("span", { class: "soft share" }, share < 0.005 ? " <1 %" : ` ${Math.round(share * 100)} %`)))
	}

	keyOf(row) {
		if (this.name === "link" && row.key !== null) {
			const { link } = row
			const title = link ? link.title ?? link.shortCode : "A deleted link"
			return [el("a", { href: linkAddress(row.key), "data-key": row.key }, title), link?.title ? el("span", { class: "soft" }, ` ${link.shortCode}`) : "", !link && chip(row.key.slice(0, 8))].filter(Boolean)
		}
		return (this.name === "domain" && row.host) || keyWords(this.name, row.key)
	}
}
