// The list of links, and what can be done with it.
import { change, get, getTagged, Intent, orThrow, query } from "./api.js"
import { BulkBar, count, maxSelected } from "./bulk.js"
import { chooseColumns, shownColumns, showsColumn } from "./columns.js"
import { alertOf, button, confirm, el, fill, guard, heading, number, offerUndo, pager, tell } from "./dom.js"
import { filterForm, filtersOf } from "./linkfilter.js"
import { createLink, editLink } from "./linkform.js"
import { emptyList } from "./linkempty.js"
import { linkRow, nameOf } from "./linkrow.js"
import { showQR } from "./qr.js"
import { setRoute } from "./route.js"

export async function showLinks(place, session, { signal, values }) {
	const domains = await get("/portal/domains", signal)
	const list = new LinkList(session, domains.data, signal, values)
	await list.turn(list.page)
	fill(place,
		heading("Links", list.usage, list.createButton()), filterForm(list), list.wrong, list.tools(), list.element)
}

// pageOf returns the page in an address. The service takes numbers up to this one.
const pageOf = (text) => Math.min(Math.max(1, Math.floor(text) || 1), Number.MAX_SAFE_INTEGER)

// LinkList is a page of links, which are those that the filters match. Selected links stay selected on other pages.
class LinkList {
	constructor(session, domains, signal, values) {
		Object.assign(this, { session, domains, signal, filters: filtersOf(values, domains), page: pageOf(values.page) })
		this.element = el("div", { id: "links", tabindex: "-1", role: "region", "aria-label": "Links" })
		this.places = { rows: el("ul", { class: "rows" }), empty: el("div"), pager: el("div") }
		this.drawn = new Map() // rows, by id
		this.usage = el("span")
		this.wrong = el("div")
		this.selected = new Map() // by id
		this.errors = new Map() // what a link met, by id
		this.links = []
		this.bulk = new BulkBar(this)
	}

	createButton() {
		const made = button("Create a link", () => this.create(), { kind: "main", sign: "plus", id: "create" })
		made.setAttribute("aria-keyshortcuts", "c")
		return made
	}

	create() {
		createLink(this.domains, (made) => this.changed("The link is there.", made))
	}

	async turn(page) {
		const answer = await get(`/portal/links${query({ ...this.filters, page, limit: 20, include: showsColumn("clicks") ? "clicks" : "" })}`, this.signal)
		for (const { clicks } of answer.data) delete clicks?.asOf // a row is drawn again when a figure changes, not when it is read
		if (answer.data.length === 0 && page > 1) return this.turn(Math.max(1, Math.ceil(answer.total / answer.limit))) // the last one of a page was deleted
		this.page = page
		this.links = answer.data
		this.total = answer.total
		for (const link of answer.data) if (this.selected.has(link.id)) this.selected.set(link.id, link)
		const { used, quota } = this.session.organization.links
		this.usage.replaceChildren(quota === null ? `${number(used)} links.` : `${number(used)} of ${number(quota)} links of your plan.`)
		const empty = answer.data.length === 0 && await emptyList(this)
		const { rows, empty: nothing, pager: pages } = this.places
		if (rows.parentNode !== this.element) fill(this.element, nothing, rows, pages) // an alert was in their place
		const focused = focusedIn(this.element)
		fill(nothing, empty)
		fill(pages, pager({ ...answer, shown: answer.data.length }, (to) => this.go(to)))
		this.redraw()
		if (focused && !this.element.contains(document.activeElement)) (focused() ?? this.element).focus({ preventScroll: true })
		this.drawSelection()
	}

	// redraw shows the rows of the links. Those that are as before stay: one that is drawn anew under the mouse is not pressed.
	redraw() {
		const deeds = {
			select: (link, on) => this.pick(link, on), showQR, edit: (link) => this.edit(link), setActive: (link) => this.setActive(link),
			remove: (link) => this.askToDelete(link),
		}
		const columns = shownColumns()
		const { rows } = this.places
		const drawn = new Map()
		this.links.forEach((link, index) => {
			const error = this.errors.get(link.id)
			const key = JSON.stringify([link, error, columns.map(({ name }) => name)])
			const before = this.drawn.get(link.id)
			const row = before?.key === key ? before.row : linkRow(link, { columns, error, deeds })
			drawn.set(link.id, { key, row })
			row.querySelector(".pick input").checked = this.selected.has(link.id)
			if (before && before.row !== row && before.row.parentNode === rows) before.row.replaceWith(row)
			if (rows.children[index] !== row) rows.insertBefore(row, rows.children[index] ?? null)
		})
		while (rows.children.length > this.links.length) rows.lastChild.remove()
		rows.hidden = this.links.length === 0
		this.drawn = drawn
	}

	// again shows a page as it is now. A change before it was made, whatever goes wrong here.
	again(page = this.page) {
		return guard(this.element, this.signal, async () => {
			await this.session.refresh(this.signal)
			await this.turn(page)
		})
	}

	// go shows another page, and names it in the address.
	async go(page) {
		await this.again(page)
		this.name()
	}

	// filter shows the links that other filters match. None of them is selected: what is selected must not be out of sight.
	async filter(filters) {
		this.filters = filters
		this.selected.clear()
		this.forget()
		await this.turn(1)
		this.name()
	}

	name() {
		if (!this.signal.aborted) setRoute("links", { ...this.filters, page: this.page > 1 ? this.page : "" })
	}

	// changed shows the list after a change, then tells of the change and whether every edge goes by it already. The list comes first, so that
	// nothing moves under a person who acts on the message. undo, if any, is offered for a while.
	async changed(what, { spread }, undo = null) {
		await this.again()
		const said = spread ? `${what} Every edge knows.` : `${what} The edges follow within seconds.`
		if (undo) offerUndo(said, undo)
		else tell(said)
	}

	// failed shows what went wrong with a change, above the list.
	failed(alert) {
		fill(this.wrong, alert)
		this.wrong.scrollIntoView({ block: "nearest" })
	}

	// forget takes away what earlier attempts met.
	forget() {
		fill(this.wrong)
		this.errors.clear()
	}

	// tools select what the list has, and say what is done with the selection.
	tools() {
		this.all = el("input", { type: "checkbox", id: "select-page" })
		this.all.addEventListener("change", () => this.pickPage(this.all.checked))
		this.every = button("", () => this.pickAll(), { kind: "quiet", id: "select-all" })
		const columns = button("Columns", () => chooseColumns(() => showsColumn("clicks") && !this.links[0]?.clicks ? this.again() : this.redraw()), { kind: "quiet", sign: "columns", id: "columns" })
		this.bar = el("div", { class: "tools" }, el("label", { class: "pick", for: "select-page" }, this.all, el("span", {}, "Select this page")), this.every, this.bulk.element, columns)
		this.drawSelection()
		return this.bar
	}

	drawSelection() {
		if (!this.bar) return
		const here = this.links.filter((link) => this.selected.has(link.id)).length
		this.bar.hidden = this.links.length === 0
		this.all.checked = here > 0 && here === this.links.length
		this.all.indeterminate = here > 0 && here < this.links.length
		const most = Math.min(this.total, maxSelected)
		this.every.hidden = !this.all.checked || this.selected.size >= most || this.total <= this.links.length
		this.every.querySelector("span").replaceChildren(most < this.total ? `Select the first ${number(most)} of ${number(this.total)}` : `Select all ${number(most)}`)
		this.bulk.draw()
	}

	pick(link, on) {
		if (!on) this.selected.delete(link.id)
		else if (this.selected.size < maxSelected) this.selected.set(link.id, link)
		else tell(`At most ${number(maxSelected)} links can be selected.`)
		this.drawSelection()
	}

	pickPage(on) {
		for (const link of this.links) this.pick(link, on)
		this.redraw()
	}

	// pickAll selects all links that the filters match, up to the bound.
	async pickAll() {
		try {
			let after = ""
			while (after !== null && this.selected.size < maxSelected) {
				const answer = await get(`/portal/links?after=${after}${query({ ...this.filters, limit: 100 }).replace("?", "&")}`, this.signal)
				for (const link of answer.data.slice(0, maxSelected - this.selected.size)) this.selected.set(link.id, link)
				after = answer.nextCursor
			}
			this.redraw()
			this.drawSelection()
			tell(`${count(this.selected.size)} selected.`)
		} catch (cause) {
			if (!this.signal.aborted) this.failed(alertOf(orThrow(cause)))
		}
	}

	// select replaces the selection by links, with what they met.
	select(links, failures = []) {
		this.forget()
		this.selected = new Map(links.map((link) => [link.id, link]))
		for (const { link, message } of failures) this.errors.set(link.id, message)
		this.drawSelection()
	}

	clear() {
		this.select([])
		this.redraw()
	}

	async edit(link) {
		try {
			const { answer, etag } = await getTagged(`/portal/links/${link.id}`, this.signal)
			editLink(answer, etag, this.domains, (made) => this.changed("The link is changed.", made))
		} catch (cause) {
			if (!this.signal.aborted) this.failed(alertOf(orThrow(cause)))
		}
	}

	async setActive(link, intent = new Intent()) {
		try {
			this.forget()
			const made = await change("PATCH", `/portal/links/${link.id}`, { isActive: !link.isActive }, { intent })
			if (link.isActive) await this.changed("The link is inactive: it answers that it is gone.", made, () => this.setActive({ ...link, isActive: false }))
			else await this.changed("The link is active again.", made)
		} catch (cause) {
			this.failed(alertOf(orThrow(cause), button("Try again", () => this.setActive(link, intent), { kind: "quiet" })))
		}
	}

	askToDelete(link) {
		const intent = new Intent()
		confirm("Delete this link?", [`“${nameOf(link)}” at ${link.url} stops at once, for good. To stop it for a while, deactivate it.`], "Delete", async () => {
			const made = await change("DELETE", `/portal/links/${link.id}`, undefined, { intent })
			this.selected.delete(link.id)
			await this.changed("The link is deleted.", made)
		})
	}
}

// focusedIn returns, if the focus is in place, a function that finds what has it: also after a row was drawn anew.
function focusedIn(place) {
	const focused = document.activeElement
	if (!place.contains(focused)) return null
	const controls = (row) => [...row.querySelectorAll("button, input, a")]
	const row = focused.closest("[data-id]")
	if (!row) return () => null
	const at = controls(row).indexOf(focused)
	return () => controls(place.querySelector(`[data-id="${row.dataset.id}"]`) ?? place)[at]
}
