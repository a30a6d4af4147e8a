// Keyboard shortcuts: single keys, which do nothing while a person types, while a dialog is open, and for those who turned them off.
import { el, openDialog } from "./dom.js"
import { readSetting, saveSetting } from "./settings.js"

// A shortcut is {key, what, deed}.
let shortcuts = []

const typed = "textarea, select, [contenteditable], input:not([type=checkbox], [type=button], [type=submit])"

// offerShortcuts sets the shortcuts that there are.
export function offerShortcuts(all) {
	shortcuts = [...all, { key: "?", what: "Show the keyboard shortcuts", deed: showShortcuts }]
}

// showShortcuts lists them. They can be turned off, for those whose words a program turns into keys.
export function showShortcuts() {
	const box = el("input", { type: "checkbox", id: "use-shortcuts" })
	box.checked = readSetting("shortcuts") !== "off"
	box.addEventListener("change", () => saveSetting("shortcuts", box.checked ? null : "off"))
	openDialog("Keyboard shortcuts", el("div", {},
		el("dl", { class: "shortcuts" }, [...shortcuts, { key: "Esc", what: "Close a dialog" }].map(({ key, what }) => el("div", {}, el("dt", {}, el("kbd", {}, key)), el("dd", {}, what)))),
		el("div", { class: "tick" }, box, el("label", { for: "use-shortcuts" }, "Use single keys as shortcuts"))))
}

document.addEventListener("keydown", (event) => {
	if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || event.isComposing || event.repeat) return
	if (document.querySelector("dialog[open]") || event.target.closest?.(typed)) return
	const shortcut = shortcuts.find(({ key }) => key === event.key)
	if (!shortcut || readSetting("shortcuts") === "off") return
	event.preventDefault() // the key must not be typed into what gets the focus
	shortcut.deed()
})
