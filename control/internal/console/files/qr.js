// The QR code of a link, drawn by the service.
import { getBlob, query } from "./api.js"
import { button, el, openDialog } from "./dom.js"
import { makeForm } from "./form.js"

const levels = [["L", "L: smallest"], ["M", "M: usual"], ["Q", "Q: sturdy"], ["H", "H: sturdiest"]]

export function showQR(link) {
	const picture = el("img", { alt: `QR code of ${link.url}`, width: 240, height: 240 })
	let address = ""
	const draw = async (values) => {
		const blob = await getBlob(pathOf(link, "svg", values))
		URL.revokeObjectURL(address)
		address = URL.createObjectURL(blob)
		picture.src = address
	}
	const form = makeForm({
		verb: "Draw again",
		groups: [{ fields: [
			{ name: "size", label: "Size in pixels", kind: "number", value: 512, size: "half" },
			{ name: "margin", label: "Margin in modules", kind: "number", value: 4, size: "half" },
			{ name: "level", label: "Error correction", kind: "select", options: levels, value: "M" },
			{ name: "fg", label: "Foreground", kind: "color", value: "#000000", size: "half" },
			{ name: "bg", label: "Background", kind: "color", value: "#ffffff", size: "half" },
		] }],
		submit: draw,
	})
	const download = (format) => button(`Download ${format.toUpperCase()}`, () => form.attempt(async (values) => {
		save(await getBlob(pathOf(link, format, values)), `${link.shortCode}.${format}`)
	}), { kind: "quiet", id: `download-${format}` })
	const dialog = openDialog("QR code", el("div", { class: "qr" }, el("figure", {}, picture, el("figcaption", { class: "soft small anywhere" }, link.url)),
		el("div", {}, form.element, el("div", { class: "deeds" }, download("svg"), download("png")))), { wide: true })
	dialog.addEventListener("close", () => {
		if (!dialog.isConnected) URL.revokeObjectURL(address)
	})
	form.attempt(draw)
}

function pathOf(link, format, { size, margin, level, fg, bg }) {
	return `/portal/links/${link.id}/qr.${format}${query({ size, margin, level, fg: fg.slice(1), bg: bg.slice(1) })}`
}

// save has the browser keep a file.
function save(blob, name) {
	const address = URL.createObjectURL(blob)
	el("a", { href: address, download: name }).click()
	// At once would be before the browser has begun to read it.
	setTimeout(() => URL.revokeObjectURL(address), 60_000)
}
