// The console: which section is shown to which role, and what happens when the session ends.
import { change, get, onInterruption, orThrow, readSession, showsOrganization } from "./api.js"
import { alertOf, button, chip, el, guard, icon, openDialog } from "./dom.js"
import { interrupt } from "./interruption.js"
import { hashOf, readRoute, restoreRoute } from "./route.js"
import { offerShortcuts, showShortcuts } from "./shortcuts.js"
import { openChooser, Session, showChooser, showFailure, showSignIn, signInLink, takeProblem } from "./session.js"
import { showAppConfig } from "./appconfig.js"
import { showAudit } from "./audit.js"
import { showClicks } from "./clicks.js"
import { showDomains } from "./domains.js"
import { showKeys } from "./keys.js"
import { showLinks } from "./links.js"
import { showPlan } from "./plan.js"
import { showSessions } from "./sessions.js"

// Each section is shown to those who have at least its role.
const sections = {
	links: { title: "Links", sign: "link", least: "member", show: showLinks },
	clicks: { title: "Clicks", sign: "clicks", least: "member", show: showClicks },
	app: { title: "App config", sign: "app", least: "member", show: showAppConfig },
	domains: { title: "Domains", sign: "globe", least: "member", show: showDomains },
	keys: { title: "Keys", sign: "key", least: "admin", show: showKeys },
	plan: { title: "Plan", sign: "plan", least: "member", show: showPlan },
	audit: { title: "Audit log", sign: "list", least: "admin", show: showAudit },
	sessions: { title: "Sessions", least: "member", show: showSessions, unlisted: true },
}

const [gate, desk, bar, nav, content] = ["signin", "desk", "bar", "sections", "content"].map((id) => document.getElementById(id))
let session = null
let shown = new AbortController() // ends what the section shown has under way

// start shows the console to a person who is signed in, and otherwise the way in.
async function start() {
	const problem = takeProblem()
	try {
		const caller = await readSession()
		if (!caller.organization) {
			document.title = "Choose an organization · Deeplink console"
			return showChooser(gate, caller, () => location.reload(), leave)
		}
		restoreRoute()
		showsOrganization(caller.organization.id)
		session = new Session(caller, await get("/portal/organization"))
		gate.hidden = true
		desk.hidden = false
		drawDesk()
		await showSection({ moved: true })
	} catch (cause) {
		const failed = orThrow(cause)
		document.title = "Sign in · Deeplink console"
		if (problem) return showSignIn(gate, problem)
		if (failed.status !== 401 && failed.status !== 501) return showFailure(gate, failed, () => location.reload())
		const retry = () => location.reload()
		if (failed.code === "SESSION_RENEW") return showSignIn(gate, failed.message, { prompt: "none", label: "Continue", retry })
		// A 401 without a code is the one for a browser without a cookie, unless the organization of the session is suspended.
		if (failed.code === "SESSION_ENDED") return showSignIn(gate, failed.message, { retry })
		showSignIn(gate, "")
	}
}

onInterruption((problem) => {
	if (session) interrupt(problem, session.caller, (now) => {
		showsOrganization(now.organization.id)
		session.read(now)
		drawDesk()
	})
})

// leave signs out here, and at the identity provider.
async function leave() {
	shown.abort()
	const { answer } = await change("POST", "/console/sign-out")
	location.assign(answer.location)
}

// drawDesk draws what stays for the length of a session: a button that is drawn anew under the mouse is not pressed.
function drawDesk() {
	bar.replaceChildren(
		el("div", { class: "mark" }, icon("link")), el("div", { class: "who" }), el("span", { id: "left", class: "soft" }, session.left()),
		button("Keyboard shortcuts", showShortcuts, { kind: "icon", sign: "keyboard", id: "shortcuts" }),
		button("Account", openAccount, { kind: "quiet", sign: "person", id: "account" }),
		el("div", { id: "provider", class: "warning", role: "status", hidden: true }, icon("warn"),
			el("p", {}, "The identity provider cannot be reached. You can look at everything, but changes are not possible now.")))
	nav.replaceChildren(el("ul", {}, Object.entries(sections).filter(([, section]) => !section.unlisted && session.may(section.least)).map(([name, section]) =>
		el("li", {}, el("a", { href: `#${name}` }, icon(section.sign), section.title)))))
	nameOrganization()
	offerShortcuts([
		{ key: "/", what: "Search the links", deed: () => inLinks('[name="search"]', (field) => field.select()) },
		{ key: "c", what: "Create a link", deed: () => inLinks("#create", (made) => made.click()) },
		{ key: "u", what: "Undo, while it is offered", deed: () => document.getElementById("undo")?.click() },
	])
}

// inLinks does a deed with an element of the list of links, which it shows first.
async function inLinks(selector, deed) {
	if (!content.querySelector(":scope > .links")) {
		history.pushState(null, "", hashOf("links"))
		await showSection({ moved: true })
	}
	const found = content.querySelector(`:scope > .links ${selector}`)
	if (!found) return
	found.focus()
	deed(found)
}

// openAccount shows who is signed in, and what can be done about it.
function openAccount() {
	const { caller, organization, role } = session
	const wrong = el("div")
	const out = button("Sign out", async () => {
		wrong.replaceChildren()
		try {
			await leave()
		} catch (cause) {
			wrong.replaceChildren(alertOf(orThrow(cause)))
		}
	}, { kind: "quiet", sign: "out", id: "leave" })
	const other = caller.organizations.length > 1
		? button("Switch organization", () => {
			dialog.close()
			openChooser(caller, () => location.assign("/console"))
		}, { kind: "quiet", id: "switch" })
		: caller.via === "provider" && Object.assign(signInLink("Switch organization", { prompt: "select_account", id: "switch" }), { className: "quiet main" })
	const line = (name, value) => el("div", {}, el("dt", {}, name), el("dd", {}, value))
	const dialog = openDialog(caller.name ?? caller.email ?? caller.subject ?? "Signed in with a link", el("div", {},
		el("dl", { class: "facts" }, caller.email && line("Email", caller.email), line("Role", role || "none"), line("Organization", organization.name)),
		wrong,
		el("div", { class: "deeds" }, other, session.may("member") && el("a", { class: "quiet main", id: "sessions", href: "#sessions" }, "Sessions"), out)))
}

function nameOrganization() {
	const { organization, role } = session
	bar.querySelector(".who").replaceChildren(el("strong", {}, organization.name),
		el("span", {}, chip(role || "no role"), chip(organization.plan ?? "no plan", "accent")))
	document.getElementById("provider").hidden = session.caller.provider !== "unavailable"
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
	const { name: wished, values } = readRoute()
	const name = Object.hasOwn(sections, wished) && session.may(sections[wished].least) ? wished : "links"
	const section = sections[name]
	shown.abort()
	shown = new AbortController()
	const { signal } = shown
	markSection(name)
	document.title = `${section.title} · ${session.organization.name} · Deeplink console`
	if (moved) {
		content.replaceChildren(el("p", { class: "soft" }, "Loading…"))
		content.focus({ preventScroll: true })
	}
	const place = el("div", { class: `section ${name}` })
	await guard(place, signal, async () => {
		await session.refresh(signal)
		await section.show(place, session, { signal, reload: showSection, values: name === wished ? values : {} })
		nameOrganization()
	})
	if (!signal.aborted) content.replaceChildren(place)
}

document.querySelector(".skip").addEventListener("click", (event) => {
	event.preventDefault() // the address names the section
	content.focus()
})
addEventListener("hashchange", () => {
	for (const open of document.querySelectorAll("dialog[open]:not(.interruption)")) open.close()
	showSection({ moved: true })
})
start()
