// Elements, icons, dialogs and notes. Text goes into text nodes only: nothing that anyone has written is ever read as HTML.
import { orThrow } from "./api.js"

// el makes an element. Attributes that begin with "on" are listeners; those that are false or null are left out.
export function el(tag, attributes = {}, ...children) {
	const made = document.createElement(tag)
	for (const [name, value] of Object.entries(attributes)) {
		if (name.startsWith("on")) made.addEventListener(name.slice(2), value)
		else if (value === true) made.setAttribute(name, "")
		else if (value !== false && value !== null && value !== undefined) made.setAttribute(name, value)
	}
	fill(made, ...children)
	return made
}

// fill puts children in the place of those there are. What is false or null is none.
export function fill(place, ...children) {
	place.replaceChildren(...children.flat().filter((child) => child !== null && child !== undefined && child !== false))
}

const icons = {
	link: "M10 13.5a4 4 0 0 0 5.7 0l3-3a4 4 0 0 0-5.7-5.7l-1 1M14 10.5a4 4 0 0 0-5.7 0l-3 3a4 4 0 0 0 5.7 5.7l1-1",
	app: "M8 3h8a2 2 0 0 1 2 2v14a2 2 0 0 1-2 2H8a2 2 0 0 1-2-2V5a2 2 0 0 1 2-2M11 18h2",
	globe: "M12 3a9 9 0 1 0 0 18 9 9 0 0 0 0-18M3 12h18M12 3c5 5 5 13 0 18c-5-5-5-13 0-18",
	key: "M8 11a4 4 0 1 0 0 8 4 4 0 0 0 0-8M11 12l8-8M16 7l3 3",
	clicks: "M4 4v16h16M8 15l4-5 3 3 5-7",
	plan: "M5 20V10M12 20V4M19 20v-7",
	list: "M9 6h11M9 12h11M9 18h11M4.5 6h.01M4.5 12h.01M4.5 18h.01",
	copy: "M9 9h10v11H9zM5 15V4h10",
	done: "M5 12.5l4.5 4.5L19 7.5",
	qr: "M4 4h6v6H4zM14 4h6v6h-6zM4 14h6v6H4zM14 14h2v2h-2zM19 14v2M14 19h2M19 19h1v1",
	edit: "M4 20l1-4L16 5l3 3L8 19zM13.5 7.5l3 3",
	power: "M12 3v8M7 6.5a7.5 7.5 0 1 0 10 0",
	bin: "M4 7h16M9 7V4h6v3M6 7l1 13h10l1-13M10 11v5M14 11v5",
	plus: "M12 5v14M5 12h14",
	close: "M6 6l12 12M18 6L6 18",
	warn: "M12 4L2.5 20h19zM12 10v4M12 17h.01",
	person: "M12 12a4 4 0 1 0 0-8 4 4 0 0 0 0 8M4 20c1-4 4-6 8-6s7 2 8 6",
	columns: "M4 5h16v14H4zM10 5v14M15 5v14",
	keyboard: "M3 6h18v12H3zM7 10h.01M11 10h.01M15 10h.01M7 14h10",
	tag: "M4 4h8l8 8-8 8-8-8zM8 8h.01",
	undo: "M9 6L4 11l5 5M4 11h10a5 5 0 0 1 0 10h-2",
	out: "M10 4H5v16h5M15 8l4 4-4 4M19 12H9",
}

export function icon(name) {
	const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg")
	const path = document.createElementNS("http://www.w3.org/2000/svg", "path")
	path.setAttribute("d", icons[name])
	svg.setAttribute("viewBox", "0 0 24 24")
	svg.setAttribute("aria-hidden", "true")
	svg.append(path)
	return svg
}

// button returns one that can't be pressed twice while its deed, which may be a promise, is being done.
export function button(label, deed, { kind = "", sign = null, id = null, name = null } = {}) {
	const made = el("button", { type: "button", class: kind, id, "aria-label": name }, sign && icon(sign), el("span", {}, label))
	made.addEventListener("click", () => once(made, deed))
	return made
}

// once does a deed unless the button is still at the one before. The button keeps the focus, which one that is disabled would lose.
export async function once(pressed, deed) {
	if (pressed.getAttribute("aria-busy") === "true") return
	pressed.setAttribute("aria-busy", "true")
	try {
		await deed(pressed)
	} finally {
		pressed.removeAttribute("aria-busy")
	}
}

// isWeb reports whether an address is that of a page. A link to any other, such as javascript:, is never made.
export function isWeb(address) {
	return URL.canParse(address) && ["http:", "https:"].includes(new URL(address).protocol)
}

export function webLink(address, attributes = {}) {
	if (!isWeb(address)) return el("span", {}, address)
	return el("a", { href: address, target: "_blank", rel: "noopener noreferrer", ...attributes }, address)
}

// copyButton copies a text that was in the page anyway, and shows for a moment that it did. Where the browser does not let it, it says so.
export function copyButton(text, { label = "Copy", kind = "quiet", name = null, id = null } = {}) {
	let shown = 0
	return button(label, async (pressed) => {
		const show = (sign, word) => {
			pressed.querySelector("svg").replaceWith(icon(sign))
			pressed.querySelector("span").replaceChildren(word)
		}
		try {
			await navigator.clipboard.writeText(text)
			tell("Copied.")
			show("done", "Copied")
			clearTimeout(shown)
			shown = setTimeout(() => show("copy", label), 2000)
		} catch {
			tell("The browser did not let it be copied. Select it and copy it by hand.")
		}
	}, { kind, sign: "copy", name, id })
}

const told = document.getElementById("told")

// notes are those that are shown: at most one that says something, and one that offers something.
const notes = { said: null, offer: null }

// tell says what has happened, also to those who don't see it. It is said in the open dialog, if any: nothing else is heard meanwhile.
export function tell(what) {
	note("said", el("p", {}, what), 8000)
}

// offerUndo says what has happened, and lets it be undone for a while. The deed is done once at most.
export function offerUndo(what, deed) {
	const undo = button("Undo", () => {
		withdraw("offer")
		return deed()
	}, { sign: "undo", id: "undo" })
	undo.setAttribute("aria-keyshortcuts", "u")
	note("offer", el("p", { class: "offered" }, el("span", {}, what), undo), 10_000)
}

// note shows a note for a time, in milliseconds. The time does not go on while the mouse or the focus is at the note.
function note(kind, element, lasts) {
	withdraw(kind)
	const place = [...document.querySelectorAll("dialog[open]")].at(-1) ?? document.body
	if (told.parentNode !== place) place.append(told)
	const shown = { element }
	const start = () => {
		clearTimeout(shown.end)
		shown.end = setTimeout(() => withdraw(kind), lasts)
	}
	for (const hold of ["pointerenter", "focusin"]) element.addEventListener(hold, () => clearTimeout(shown.end))
	for (const go of ["pointerleave", "focusout"]) element.addEventListener(go, () => notes[kind] === shown && start())
	notes[kind] = shown
	told.append(element)
	start()
}

function withdraw(kind) {
	const shown = notes[kind]
	if (!shown) return
	notes[kind] = null
	clearTimeout(shown.end)
	const focused = shown.element.contains(document.activeElement)
	shown.element.remove()
	if (focused) document.getElementById("content")?.focus({ preventScroll: true })
}

// alertOf shows what went wrong, and what to do about it.
export function alertOf(problem, ...more) {
	return el("div", { class: "alert", role: "alert" }, icon("warn"), el("div", {}, problem.lines().map((line) => el("p", {}, line)), remedyOf(problem), more))
}

// guard shows in place what goes wrong with a deed, and lets it be tried again. It shows nothing for an aborted request.
export async function guard(place, signal, deed) {
	try {
		await deed()
	} catch (cause) {
		if (signal.aborted) return
		fill(place, alertOf(orThrow(cause), button("Try again", () => guard(place, signal, deed), { kind: "quiet" })))
	}
}

// remedyOf leads to where a problem can be mended, when that is in the console.
function remedyOf({ code }) {
	const leads = (to, text) => el("p", {}, el("a", { href: to }, text))
	switch (code) {
	case "FEATURE_NOT_AVAILABLE":
	case "QUOTA_EXCEEDED":
	case "PLAN_NOT_SELECTED":
		return leads("#plan", "See the plans and what they include")
	case "APP_CONFIG_REQUIRED":
		return leads("#app", "Go to the app config")
	}
	return null
}

let dialogs = 0

// openDialog shows content in a dialog and returns it. It is gone once it is closed; the focus goes back to where it was.
export function openDialog(title, content, { wide = false } = {}) {
	const id = `dialog-${++dialogs}`
	const dialog = el("dialog", { "aria-labelledby": id, class: wide ? "wide" : "" },
		el("div", { class: "top" }, el("h2", { id }, title),
			button("Close", () => dialog.close(), { kind: "icon", sign: "close" })),
		content)
	dialog.addEventListener("close", () => {
		drop(dialog)
		if (document.activeElement === document.body) document.getElementById("content").focus({ preventScroll: true })
	})
	document.body.append(dialog)
	dialog.showModal()
	return dialog
}

function drop(dialog) {
	if (dialog.contains(told)) document.body.append(told)
	dialog.remove()
}

// confirm asks before it does what can't be undone. What goes wrong is said in the dialog.
export function confirm(title, lines, verb, deed, kind = "danger") {
	const wrong = el("div")
	const sure = button(verb, async () => {
		wrong.replaceChildren()
		try {
			await deed()
			dialog.close()
		} catch (problem) {
			wrong.replaceChildren(alertOf(orThrow(problem)))
		}
	}, { kind, id: "sure" })
	const dialog = openDialog(title, el("div", {}, lines.map((line) => el("p", {}, line)), wrong,
		el("div", { class: "deeds" }, button("Cancel", () => dialog.close(), { kind: "quiet" }), sure)))
	return dialog
}

const dates = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" })

export function time(text) {
	return el("time", { datetime: text, title: text }, dates.format(new Date(text)))
}

export const number = (n) => new Intl.NumberFormat().format(n)

// counted is a number of things, such as "1 click" and "2 clicks".
export const counted = (n, noun) => `${number(n)} ${noun}${n === 1 ? "" : "s"}`

export const chip = (text, kind = "") => el("span", { class: `chip ${kind}` }, text)

// heading begins a section.
export function heading(title, about, ...deeds) {
	return el("div", { class: "heading" }, el("div", {}, el("h1", {}, title), el("p", { class: "soft" }, about)), deeds)
}

// pager leads to the pages of a list.
export function pager({ total, page, limit, shown }, turn) {
	if (total === 0) return null
	const from = (page - 1) * limit
	const text = shown === 0 ? `Nothing on page ${page}` : `${number(from + 1)} to ${number(from + shown)} of ${number(total)}`
	const to = (label, target, there) => {
		const made = button(label, () => turn(target), { kind: "quiet" })
		made.disabled = !there
		return made
	}
	return el("div", { class: "pager" }, el("span", { class: "soft" }, text),
		to("Previous", page - 1, page > 1), to("Next", page + 1, from + shown < total))
}
