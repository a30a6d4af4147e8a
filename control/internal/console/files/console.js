// The console: which section is shown to which role, and what happens when the session ends.
import { forget, onRefusal } from "./api.js"
import { button, chip, dropDialogs, el, guard, icon } from "./dom.js"
import { signIn } from "./session.js"
import { showAppConfig } from "./appconfig.js"
import { showAudit } from "./audit.js"
import { showDomains } from "./domains.js"
import { showKeys } from "./keys.js"
import { showLinks } from "./links.js"
import { showPlan } from "./plan.js"

// Each section is shown to those who have at least its role.
const sections = {
	links: { title: "Links", sign: "link", least: "member", show: showLinks },
	app: { title: "App config", sign: "app", least: "member", show: showAppConfig },
	domains: { title: "Domains", sign: "globe", least: "member", show: showDomains },
	keys: { title: "Keys", sign: "key", least: "admin", show: showKeys },
	plan: { title: "Plan", sign: "plan", least: "member", show: showPlan },
	audit: { title: "Audit log", sign: "list", least: "admin", show: showAudit },
}

const [gate, desk, bar, nav, content] = ["signin", "desk", "bar", "sections", "content"].map((id) => document.getElementById(id))
let session = null
let shown = new AbortController() // ends what the section shown has under way
let title = "" // of the page, when the section is shown
let kept = null // a dialog that the end of the session interrupted, with what was typed into it

// askToSignIn shows the view for it in place of the desk. What is on the desk stays, should the same organization come back.
function askToSignIn(why, back = null) {
	const open = document.querySelector("dialog[open]")
	if (open) {
		kept = open
		open.setAttribute("data-kept", "")
		open.close()
	}
	desk.hidden = true
	document.title = "Sign in · Deeplink console"
	signIn(gate, { why, back, done: enter })
}

// Those that come while the view is there are shown in it.
onRefusal((problem) => {
	if (!desk.hidden) askToSignIn(problem)
})

function enter(opened) {
	const same = session !== null && session.organization.id === opened.organization.id && session.role === opened.role
	session = opened
	back()
	drawDesk()
	if (same && kept) {
		kept.showModal()
		kept.removeAttribute("data-kept")
	} else {
		dropDialogs()
		showSection({ moved: true })
	}
	kept = null
}

// leave forgets the token and everything that it showed.
function leave() {
	shown.abort()
	forget()
	session = null
	dropDialogs()
	for (const part of [bar, nav, content]) part.replaceChildren()
	askToSignIn(null)
}

// back returns from the sign-in view to what was there before it.
function back() {
	gate.hidden = true
	gate.replaceChildren()
	desk.hidden = false
	document.title = title
}

// drawDesk draws what stays for the length of a session: a button that is drawn anew under the mouse is not pressed.
function drawDesk() {
	bar.replaceChildren(
		el("div", { class: "mark" }, icon("link")), el("div", { class: "who" }), el("span", { id: "left", class: "soft" }, session.left()),
		button("Switch", () => askToSignIn(null, back), { kind: "quiet", id: "switch", name: "Switch organization" }),
		button("Sign out", leave, { kind: "quiet", sign: "out", id: "leave" }))
	nav.replaceChildren(el("ul", {}, Object.entries(sections).filter(([, section]) => session.may(section.least)).map(([name, section]) =>
		el("li", {}, el("a", { href: `#${name}` }, icon(section.sign), section.title)))))
	nameOrganization()
}

function nameOrganization() {
	const { organization, role } = session
	bar.querySelector(".who").replaceChildren(el("strong", {}, organization.name),
		el("span", {}, chip(role || "no role"), chip(organization.plan ?? "no plan", "accent")))
}

setInterval(() => {
	const left = document.getElementById("left")
	if (session && left) left.replaceChildren(session.left())
}, 1000)

function markSection(current) {
	for (const link of nav.querySelectorAll("a")) {
		if (link.hash === `#${current}`) link.setAttribute("aria-current", "page")
		else link.removeAttribute("aria-current")
	}
}

// showSection shows the one that the address names, or the first. What is there stays until the section is, unless the visitor went there.
async function showSection({ moved = false } = {}) {
	if (!session) return
	const wished = location.hash.slice(1)
	const name = Object.hasOwn(sections, wished) && session.may(sections[wished].least) ? wished : "links"
	const section = sections[name]
	shown.abort()
	shown = new AbortController()
	const { signal } = shown
	markSection(name)
	document.title = title = `${section.title} · ${session.organization.name} · Deeplink console`
	if (moved) {
		content.replaceChildren(el("p", { class: "soft" }, "Loading…"))
		content.focus({ preventScroll: true })
	}
	const place = el("div", { class: `section ${name}` })
	await guard(place, signal, async () => {
		await session.refresh(signal)
		await section.show(place, session, { signal, reload: showSection })
		nameOrganization()
	})
	if (!signal.aborted) content.replaceChildren(place)
}

document.querySelector(".skip").addEventListener("click", (event) => {
	event.preventDefault() // the address names the section
	content.focus()
})
addEventListener("hashchange", () => {
	for (const open of document.querySelectorAll("dialog[open]")) open.close()
	showSection({ moved: true })
})
askToSignIn(null)
