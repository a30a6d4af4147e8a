// The list of links, and what can be done with each.
import { change, get, orThrow, query } from "./api.js"
import { alertOf, button, chip, confirm, copyButton, el, fill, guard, heading, icon, number, pager, tell, time, webLink } from "./dom.js"
import { makeForm } from "./form.js"
import { createLink, editLink } from "./linkform.js"
import { showQR } from "./qr.js"
import { facts } from "./session.js"

const states = [["", "All"], ["true", "Active"], ["false", "Inactive"]]

export async function showLinks(place, session, { signal }) {
	const domains = await get("/portal/domains", signal)
	const list = new LinkList(session, domains.data, signal)
	await list.turn(1)
	fill(place,
		heading("Links", list.usage, button("Create a link", () => createLink(list.domains, (made) => list.changed("The link is there.", made)), { kind: "main", sign: "plus", id: "create" })),
		list.filterForm(), list.element)
}

// LinkList is a page of links, which are those that the filters match.
class LinkList {
	constructor(session, domains, signal) {
		Object.assign(this, { session, domains, signal, filters: {}, page: 1 })
		this.element = el("div", { id: "links", tabindex: "-1" })
		this.usage = el("span")
	}

	async turn(page) {
		const answer = await get(`/portal/links${query({ ...this.filters, page, limit: 20 })}`, this.signal)
		if (answer.data.length === 0 && page > 1) return this.turn(page - 1) // the last one of a page was deleted
		this.page = page
		const { used, quota } = this.session.organization.links
		this.usage.replaceChildren(quota === null ? `${number(used)} links.` : `${number(used)} of ${number(quota)} links of your plan.`)
		const focused = this.element.contains(document.activeElement)
		fill(this.element,
			answer.data.length ? el("ul", { class: "rows" }, answer.data.map((link) => this.row(link))) : this.nothing(),
			pager({ ...answer, shown: answer.data.length }, (to) => this.again(to)))
		if (focused) this.element.focus({ preventScroll: true })
	}

	// again shows a page as it is now. A change before it was made, whatever goes wrong here.
	again(page = this.page) {
		return guard(this.element, this.signal, async () => {
			await this.session.refresh(this.signal)
			await this.turn(page)
		})
	}

	// changed tells of a change, and whether every edge goes by it already.
	async changed(what, { spread }) {
		tell(spread ? `${what} Every edge knows.` : `${what} The edges follow within seconds.`)
		await this.again()
	}

	nothing() {
		const filtered = Object.values(this.filters).some((value) => value !== "")
		return el("div", { class: "card empty" }, icon("link"), el("h2", {}, filtered ? "No link matches" : "No links yet"),
			el("p", { class: "soft" }, filtered ? "Take a filter away, or search for something else." : "Create the first one: all it needs is a path in your app."))
	}

	filterForm() {
		const channels = [["", "All channels"], ...facts.channels.map((name) => [name, name])]
		const domains = [["", "All domains"], ...this.domains.map((domain) => [domain.id, domain.host])]
		return makeForm({
			kind: "filter", verb: "Search",
			groups: [{ fields: [
				{ name: "search", label: "Search", kind: "search", size: "broad", example: "Title, path or short code", max: 2048 },
				{ name: "isActive", label: "State", kind: "select", options: states },
				{ name: "channel", label: "Channel", kind: "select", options: channels },
				{ name: "tag", label: "Tag", max: 64 },
				this.domains.length > 1 && { name: "domainId", label: "Domain", kind: "select", options: domains },
			].filter(Boolean) }],
			submit: async (values) => {
				this.filters = values
				await this.turn(1)
			},
		}).element
	}

	row(link) {
		const name = link.title ?? link.path
		const state = !link.isActive ? chip("inactive", "warn") : link.expiry && new Date(link.expiry) <= Date.now() ? chip("expired", "warn") : chip("active", "good")
		const deed = (label, sign, does, options = {}) => button(label, does, { kind: "quiet", sign, name: `${label}: ${name}`, ...options })
		return el("li", { class: "card link", "data-id": link.id },
			el("div", { class: "about" },
				el("div", { class: "row" }, el("h2", { class: "anywhere" }, name), state),
				el("p", { class: "anywhere" }, webLink(link.url)),
				el("p", { class: "soft small anywhere" }, "opens ", el("code", {}, link.path), link.fallbackUrl && [" · otherwise ", webLink(link.fallbackUrl)]),
				el("p", { class: "chips" }, link.channel && chip(link.channel), link.tags?.map((tag) => chip(`#${tag}`)),
					el("span", { class: "soft small" }, "made ", time(link.createdAt), link.expiry && [" · expires ", time(link.expiry)]))),
			el("div", { class: "deeds" },
				copyButton(link.url, { label: "Copy", name: `Copy the short URL: ${name}` }),
				deed("QR code", "qr", () => showQR(link)),
				deed("Edit", "edit", () => editLink(link, this.domains, (made) => this.changed("The link is changed.", made))),
				deed(link.isActive ? "Deactivate" : "Activate", "power", () => this.setActive(link)),
				deed("Delete", "bin", () => this.askToDelete(link, name))))
	}

	async setActive(link) {
		try {
			const made = await change("PATCH", `/portal/links/${link.id}`, { isActive: !link.isActive })
			await this.changed(link.isActive ? "The link is inactive: it answers that it is gone." : "The link is active again.", made)
		} catch (cause) {
			this.element.prepend(alertOf(orThrow(cause)))
		}
	}

	askToDelete(link, name) {
		confirm("Delete this link?", [`“${name}” at ${link.url} stops at once, for good. To stop it for a while, deactivate it.`], "Delete", async () => {
			const made = await change("DELETE", `/portal/links/${link.id}`)
			await this.changed("The link is deleted.", made)
		})
	}
}
