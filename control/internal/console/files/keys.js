// The two API keys: their masked forms, and a new one in the place of each.
import { change, get } from "./api.js"
import { button, copyButton, el, fill, heading, icon, openDialog, chip } from "./dom.js"
import { makeForm } from "./form.js"
import { facts } from "./session.js"

const tiers = [
	{ tier: "SERVER", member: "serverKey", title: "Server key", about: "Manages links from your backend. Never put it into an app or a page." },
	{ tier: "CLIENT", member: "sdkKey", title: "Client key", about: "Goes into your apps, for the mobile SDK." },
]

const graces = [["0", "Stops at once"], ["3600", "Works for another hour"], ["86400", "Works for another day"], ["604800", "Works for another 7 days"]]

export async function showKeys(place, session, { signal, reload }) {
	const keys = await get("/portal/api-keys", signal)
	fill(place,
		heading("Keys", "API keys are shown once, when they are made. Only their masked forms are kept."),
		keys.locked ? lockedCard(session) : el("div", { class: "cards" }, tiers.map((row) => keyCard(row, keys[row.member], reload))))
}

function lockedCard(session) {
	const why = session.organization.plan === null ? "The organization has no plan yet." : `The ${session.organization.plan} plan does not include access by API key.`
	const able = facts.plans.filter((offer) => offer.features.api_access).map((offer) => offer.plan)
	return el("div", { class: "card empty" }, icon("key"), el("h2", {}, "Keys are locked"),
		el("p", { class: "soft" }, `${why} Links can be managed here all the same.`),
		el("p", { class: "soft" }, "With a server key your programs create and change links; with a client key your apps open them."),
		el("p", { class: "soft" }, `The plans ${new Intl.ListFormat("en").format(able)} include API keys.`),
		el("p", {}, el("a", { href: "#plan" }, "See the plans and what they include")))
}

function keyCard(row, key, reload) {
	return el("div", { class: "card", id: `key-${row.tier}` },
		el("div", { class: "row" }, el("h2", {}, row.title), chip(row.tier)),
		el("p", { class: "soft" }, row.about),
		el("p", { class: "code" }, key ? key.displayKey : "No key yet"),
		el("div", { class: "deeds" }, button(key ? "Regenerate…" : "Make a key…", () => askToRegenerate(row, key, reload), { kind: "quiet", id: `regenerate-${row.tier}` })))
}

function askToRegenerate(row, key, reload) {
	const form = makeForm({
		groups: [{ fields: key ? [{ name: "graceSeconds", label: "The present key", kind: "select", options: graces, value: "0" }] : [] }],
		verb: key ? "Regenerate" : "Make a key", cancel: () => dialog.close(),
		submit: async ({ graceSeconds = "0" }) => {
			const { answer } = await change("POST", `/portal/api-keys/${row.tier}/regenerate`, { graceSeconds: Number(graceSeconds) })
			dialog.close()
			showRawKey(row, answer, reload)
		},
	})
	const dialog = openDialog(`${key ? "Regenerate" : "Make"} the ${row.title.toLowerCase()}`, el("div", {},
		key && el("div", { class: "warning" }, icon("warn"), el("p", {}, "Whatever uses the present key has to get the new one. Unless you let it go on for a while, it is refused from this moment on.")),
		form.element))
}

function showRawKey(row, made, reload) {
	let copied = false
	const copy = copyButton(made.rawKey, { label: "Copy the key", kind: "main", id: "copy-key" })
	copy.addEventListener("click", () => { copied = true })
	const dialog = openDialog(`Your new ${row.title.toLowerCase()}`, el("div", {},
		el("p", {}, "Store it now, in a safe place: it cannot be shown again."),
		el("p", { class: "code", id: "raw-key", tabindex: "0" }, made.rawKey),
		el("div", { class: "deeds" }, button("I have stored it", () => dialog.close(), { kind: "quiet", id: "stored" }), copy)))
	dialog.addEventListener("close", () => reload())
	// Escape is pressed by mistake too easily for what is shown once.
	dialog.addEventListener("cancel", (event) => {
		if (!copied) event.preventDefault()
	})
}
