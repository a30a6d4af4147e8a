// A link in the list.
import { button, chip, copyButton, el, webLink } from "./dom.js"

export const nameOf = (link) => link.title ?? link.path

// linkRow shows the columns of a link. deeds are {select, showQR, edit, setActive, remove}; error is what the last attempt to change it met, if anything.
export function linkRow(link, { columns, error, deeds }) {
	const name = nameOf(link)
	const deed = (label, sign, does) => button(label, does, { kind: "quiet", sign, name: `${label}: ${name}` })
	const box = el("input", { type: "checkbox", "aria-label": `Select: ${name}` })
	box.addEventListener("change", () => deeds.select(link, box.checked))
	return el("li", { class: "card link", "data-id": link.id },
		el("label", { class: "pick" }, box),
		el("div", { class: "about" },
			el("div", { class: "row" }, el("h2", { class: "anywhere" }, name), stateChip(link)),
			el("p", { class: "anywhere" }, webLink(link.url)),
			error && el("p", { class: "error" }, error)),
		el("div", { class: "deeds" },
			copyButton(link.url, { label: "Copy", name: `Copy the short URL: ${name}` }),
			deed("QR code", "qr", () => deeds.showQR(link)),
			deed("Edit", "edit", () => deeds.edit(link)),
			deed(link.isActive ? "Deactivate" : "Activate", "power", () => deeds.setActive(link)),
			deed("Delete", "bin", () => deeds.remove(link))),
		cells(link, columns))
}

function stateChip(link) {
	if (!link.isActive) return chip("inactive", "warn")
	return link.expiry && new Date(link.expiry) <= Date.now() ? chip("expired", "warn") : chip("active", "good")
}

// cells are the columns of a link. An empty one keeps its place, so that columns stay below each other.
function cells(link, columns) {
	if (columns.length === 0) return null
	return el("dl", { class: "cells" }, columns.map(({ title, cell }) => {
		const content = cell(link)
		return el("div", { class: content ? "" : "none" }, el("dt", {}, title), el("dd", { class: "anywhere" }, content || el("span", { class: "soft" }, "none")))
	}))
}
