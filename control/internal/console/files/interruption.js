// What happens when a session is interrupted while the page is in use. Nothing is unloaded: a dialog over the unchanged page leads to a sign-in in
// another tab, and goes away when the same person is back.
import { choose, orThrow, readSession } from "./api.js"
import { alertOf, button, el, tell } from "./dom.js"
import { facts, same, signInLink } from "./session.js"

const titles = {
	SESSION_RENEW: "Continue with your identity provider", IDENTITY_PROVIDER_UNAVAILABLE: "The identity provider cannot be reached",
	ORGANIZATION_CHANGED: "Another organization was chosen",
}

let open = null // the dialog, while there is one

// interrupt shows the dialog about a problem. The page shows what caller saw; resumed is called with who is signed in when the person is back.
export function interrupt(problem, caller, resumed) {
	if (open) return
	const code = problem.code ?? "SESSION_ENDED"
	const about = el("div")
	const deeds = el("div", { class: "deeds" })
	const title = el("h2", { id: "interruption-title" }, titles[code] ?? "Your session has ended")
	const dialog = el("dialog", { "aria-labelledby": "interruption-title", class: "interruption" }, el("div", { class: "top" }, title), about, deeds)
	const reload = button("Discard and continue", () => location.reload(), { kind: "danger", id: "discard" })
	const check = button("Try again", () => look(true), { kind: "quiet", id: "again" })

	const explain = () => {
		const lines = code === "ORGANIZATION_CHANGED"
			? ["Another tab switched to another organization. What you see here belongs to the previous one; nothing was saved."]
			: [problem.message, "What you have typed stays here."]
		if (code === "SESSION_ENDED" && !facts.provider) lines.push("Ask your operator for a sign-in link, and open it in another tab.")
		about.replaceChildren(...lines.map((line) => el("p", {}, line)))
		const label = code === "SESSION_RENEW" ? "Continue" : "Sign in"
		const link = facts.provider && code !== "ORGANIZATION_CHANGED" && signInLink(label, { prompt: code === "SESSION_RENEW" ? "none" : "", newTab: true, id: "sign-in-again" })
		deeds.replaceChildren(...(code === "ORGANIZATION_CHANGED" ? [reload] : [check, link].filter(Boolean)))
	}
	const differs = (now) => {
		title.replaceChildren("Someone else is signed in now")
		about.replaceChildren(
			el("p", {}, `Now signed in: ${now.email ?? now.name ?? now.subject ?? "with a link"}${now.organization ? `, ${now.organization.name}` : ""}.`),
			el("p", {}, "What you see here, and what you have typed, belongs to the session before. If you continue, it is discarded."))
		deeds.replaceChildren(check, reload)
	}
	let looking = false
	// look reads who is signed in. asked: a person pressed the button and gets an answer in any case.
	const look = async (asked = false) => {
		if (looking) return
		looking = true
		try {
			let now = await readSession()
			const before = caller.organization?.externalId
			if (!now.organization && now.subject === caller.subject && now.organizations.some((o) => o.externalId === before && !o.suspended)) now = await choose(before)
			if (!same(now, caller)) differs(now)
			else if (now.provider !== "unavailable") finish(now)
			else if (asked) explain()
		} catch (cause) {
			if (asked) about.append(alertOf(orThrow(cause)))
		} finally {
			looking = false
		}
	}
	const tabs = new BroadcastChannel("deeplink-console")
	const seen = () => { if (document.visibilityState === "visible") look() }
	const finish = (now) => {
		tabs.close()
		document.removeEventListener("visibilitychange", seen)
		open = null
		dialog.close()
		dialog.remove()
		resumed(now)
		tell("You are signed in. Nothing was sent again: repeat what you did last.")
	}
	tabs.addEventListener("message", () => look())
	document.addEventListener("visibilitychange", seen)
	// Escape must not hide that nothing can be saved.
	dialog.addEventListener("cancel", (event) => event.preventDefault())
	explain()
	document.body.append(dialog)
	open = dialog
	dialog.showModal()
}
