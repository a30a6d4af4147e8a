// What is done with several links at once: one request, which the service does in full, with a result for each link.
import { change, Intent, orThrow } from "./api.js"
import { alertOf, button, el, fill, number, openDialog } from "./dom.js"
import { makeForm } from "./form.js"
import { nameOf } from "./linkrow.js"
import { tagsOf } from "./linkform.js"

// maxSelected is how many operations one request may have.
export const maxSelected = 1000

export const count = (n) => n === 1 ? "1 link" : `${number(n)} links`

// send sends an operation for each link and returns what became of them. wanted is {links, operation}.
async function send({ links, operation }, intent) {
	const operations = links.map((link) => operation(link))
	const { answer, spread } = await change("POST", "/portal/links/bulk", { operations }, { intent })
	const done = [], failed = []
	for (const result of answer.results) {
		const link = links[result.index]
		if (result.error) failed.push({ link, gone: result.status === 404, message: [result.error.message, ...(result.error.details ?? []).map((detail) => detail.message)].join(" ") })
		else done.push({ link, result: result.result })
	}
	return { done, failed, spread }
}

const activate = (isActive) => ({ id }) => ({ op: "update", id, link: { isActive } })

// BulkBar is the bar of the selected links. list is the LinkList whose selection it works on.
export class BulkBar {
	constructor(list) {
		this.list = list
		this.words = el("span", { role: "status" })
		const deed = (label, sign, does, id) => button(label, does, { kind: "quiet", sign, id })
		this.deeds = el("div", { class: "deeds", hidden: true },
			deed("Activate", "power", () => this.setActive(true), "bulk-activate"), deed("Deactivate", "power", () => this.setActive(false), "bulk-deactivate"),
			deed("Tag…", "tag", () => this.askForTags(), "bulk-tag"), deed("Delete…", "bin", () => this.askToDelete(), "bulk-delete"),
			deed("Clear", "close", () => list.clear(), "bulk-clear"))
		this.element = el("div", { class: "bulk", role: "group", "aria-label": "Selected links" }, this.words, this.deeds)
	}

	get links() {
		return [...this.list.selected.values()]
	}

	draw() {
		const { size } = this.list.selected
		if (size === 0 && this.deeds.contains(document.activeElement)) this.list.element.focus({ preventScroll: true })
		this.deeds.hidden = size === 0
		this.element.classList.toggle("on", size > 0)
		const words = size === 0 ? "" : `${number(size)} selected`
		if (this.words.textContent !== words) this.words.replaceChildren(words)
	}

	// apply sends the operations and says what became of them. Without an answer, the same request can be sent again.
	async apply(wanted, said, intent = new Intent()) {
		try {
			const { done, failed, spread } = await send(wanted, intent)
			await this.finish({ done, failed, spread }, said)
		} catch (cause) {
			this.list.failed(alertOf(orThrow(cause), button("Try again", () => this.apply(wanted, said, intent), { kind: "quiet", id: "bulk-again" })))
		}
	}

	// finish shows an outcome. Those that failed stay selected, unless they are gone.
	async finish({ done, failed, spread }, { what, undo = null }) {
		this.list.select(failed.filter(({ gone }) => !gone).map(({ link }) => link), failed)
		const changed = done.filter(({ result }) => result !== "unchanged").map(({ link }) => link)
		if (done.length) await this.list.changed(what(done.length), { spread }, undo && changed.length > 0 ? () => undo(changed) : null)
		else await this.list.again()
		if (failed.length) this.list.failed(failedAlert(failed, done.length))
	}

	setActive(isActive) {
		const undo = (links) => this.apply({ links, operation: activate(true) }, { what: (n) => `${count(n)} active again.` })
		return this.apply({ links: this.links, operation: activate(isActive) },
			isActive ? { what: (n) => `${count(n)} active.` } : { what: (n) => `${count(n)} inactive.`, undo })
	}

	askForTags() {
		const { links } = this
		this.ask(`Tag ${count(links.length)}`, [], {
			verb: "Save the tags",
			fields: [
				{ name: "add", label: "Add tags", hint: "With commas between them." },
				{ name: "remove", label: "Take tags away", hint: "With commas between them. Other tags stay." },
			],
		}, ({ add, remove }) => {
			const [added, removed] = [tagsOf(add), new Set(tagsOf(remove))]
			const tags = (link) => [...new Set([...(link.tags ?? []).filter((tag) => !removed.has(tag)), ...added])]
			return { links, operation: (link) => ({ op: "update", id: link.id, link: { tags: tags(link) } }) }
		}, { what: (n) => `${count(n)} tagged.` })
	}

	askToDelete() {
		const { links } = this
		const names = links.slice(0, 3).map((link) => `“${nameOf(link)}”`).join(", ")
		const more = links.length > 3 ? ` and ${number(links.length - 3)} more` : ""
		this.ask(`Delete ${count(links.length)}?`, [`${names}${more} stop at once, for good. To stop links for a while, deactivate them.`], {
			verb: `Delete ${count(links.length)}`, danger: true,
			fields: [{
				name: "count", label: `Type ${links.length} to delete them`, required: true, inputmode: "numeric",
				check: (value) => value === String(links.length) ? "" : `Must be ${links.length}, the number of links that are deleted.`,
			}],
		}, () => ({ links, operation: ({ id }) => ({ op: "delete", id }) }), { what: (n) => `${count(n)} deleted.` })
	}

	// ask shows a dialog with a form. wantedOf returns what to send for its values. The dialog stays if no link was changed.
	ask(title, lines, { verb, fields, danger = false }, wantedOf, said) {
		let intent = new Intent()
		const form = makeForm({
			groups: [{ fields }], verb, danger, cancel: () => dialog.close(),
			submit: async (values) => {
				const outcome = await send(wantedOf(values), intent)
				if (outcome.done.length === 0) {
					intent = new Intent() // the service would repeat this answer
					return form.say(failedAlert(outcome.failed, 0))
				}
				dialog.close()
				await this.finish(outcome, said)
			},
		})
		const dialog = openDialog(title, el("div", {}, lines.map((line) => el("p", {}, line)), form.element))
		form.input(fields[0].name).focus()
	}
}

function failedAlert(failed, done) {
	const made = el("div", { class: "alert failures", role: "alert" })
	fill(made, el("div", {}, el("p", {}, `${count(failed.length)} not changed${done ? `, ${count(done)} changed` : ""}.`),
		el("ul", {}, failed.map(({ link, message }) => el("li", {}, `${nameOf(link)}: ${message}`)))))
	return made
}
