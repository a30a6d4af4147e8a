// Who is signed in, and the views for those who are not yet.
import { choose, get, lastCall, orThrow, readSession } from "./api.js"
import { alertOf, button, chip, el, icon, openDialog } from "./dom.js"
import { returnAddress } from "./route.js"

export const facts = JSON.parse(document.getElementById("facts").textContent)

const ranks = { member: 1, admin: 2, owner: 3 }

// lastMinutes is when the time left is shown, in milliseconds.
const lastMinutes = 10 * 60 * 1000

// texts are what the page says about a sign-in that failed. reference is the request id.
const again = "The sign-in could not be verified. Try again. If it happens again, give your operator this reference: "
const texts = {
	state: "This sign-in was started in another browser, was already used, or took longer than 10 minutes. Sign in again.",
	request: "The identity provider sent an incomplete response. Sign in again.",
	access_denied: "You cancelled the sign-in, or the identity provider did not allow it.",
	sign_in_needed: "Your session at the identity provider has ended. Sign in again.",
	code: again, token: again, issuer: again, provider_error: again,
	provider_unavailable: "The identity provider cannot be reached. Try again in a minute.",
	provider_unsupported: "The identity provider does not support PKCE with S256. Ask your operator to change its settings.",
	no_organization: "Your account belongs to no organization. Ask an administrator of your organization to add you at the identity provider, then sign in again.",
	unknown_organization: "Your organization is not set up here. Ask your operator to set its external id.",
	not_configured: "Sign-in with an identity provider is not set up. Ask your operator for a sign-in link.",
}

// takeProblem returns the text for the problem in the address, which it removes, or an empty text.
export function takeProblem() {
	const query = new URLSearchParams(location.search)
	const code = query.get("problem")
	if (query.size) history.replaceState(null, "", location.pathname + location.hash)
	if (!Object.hasOwn(texts, code)) return ""
	return texts[code] === again ? again + (query.get("ref") ?? "") : texts[code]
}

// Session is a person in an organization.
export class Session {
	constructor(caller, organization) {
		this.read(caller)
		this.organization = organization
	}

	read(caller) {
		this.caller = caller
		this.role = caller.role ?? ""
		this.idle = caller.idleUntil ? new Date(caller.idleUntil) - Date.now() : Infinity
	}

	may(role) {
		return (ranks[this.role] ?? 0) >= ranks[role]
	}

	// refresh reads the session and the organization again: a plan was chosen, a link made, the identity provider went away.
	async refresh(signal) {
		this.organization = await get("/portal/organization", signal)
		this.read(await readSession(signal))
	}

	// left tells how long the session lasts, in its last minutes.
	left() {
		const { endsAt } = this.caller
		if (!endsAt) return ""
		const left = Math.min(new Date(endsAt), lastCall + this.idle) - Date.now()
		if (left > lastMinutes) return ""
		if (left <= 0) return "Session has ended"
		const seconds = Math.floor(left / 1000)
		return `Session ends in ${Math.floor(seconds / 60)}:${String(seconds % 60).padStart(2, "0")}`
	}
}

// same reports whether a caller is the same person in the same organization.
export function same(a, b) {
	return a.via === b.via && a.subject === b.subject && a.organization?.id === b.organization?.id
}

// signInLink leads to the identity provider. A new tab comes back to a page that closes itself.
export function signInLink(label, { prompt = "", newTab = false, id = "sign-in" } = {}) {
	const query = new URLSearchParams({ next: newTab ? "/console/done" : returnAddress() })
	if (prompt) query.set("prompt", prompt)
	return el("a", { class: "main", id, href: `/console/sign-in?${query}`, target: newTab && "_blank", rel: newTab && "noopener" }, label)
}

const gate = (...content) => el("main", { class: "gate" }, el("div", { class: "mark" }, icon("link")), el("h1", {}, "Deeplink console"), ...content)

// showSignIn shows the view for it. why is a text, empty for none. retry, if any, is tried again: another tab may have signed in meanwhile.
export function showSignIn(place, why, { prompt = "", label = "Sign in", retry = null } = {}) {
	const told = why && el("div", { class: "alert", role: "alert" }, icon("warn"), el("p", {}, why))
	const missing = facts.missing.length > 0 && el("p", {}, `Sign-in is not set up. Ask your operator to set ${facts.missing.join(", ")}.`)
	const link = !missing && !facts.provider && el("p", {}, "You need a sign-in link. Ask your operator for one.")
	place.replaceChildren(gate(
		el("p", { class: "soft" }, "Links, apps, domains and keys of your organization."),
		told || "", missing || "", link || "",
		el("div", { class: "deeds" }, retry && button("Try again", retry, { kind: "quiet", id: "again" }), facts.provider && !missing && signInLink(label, { prompt }))))
	place.hidden = false
	document.getElementById("sign-in")?.focus()
}

// showFailure shows a problem in place of the page.
export function showFailure(place, problem, retry) {
	place.replaceChildren(gate(alertOf(problem, button("Try again", retry, { kind: "quiet", id: "again" }))))
	place.hidden = false
}

// organizationList is a list of organizations to choose from.
function organizationList(caller, chosen) {
	const wrong = el("div")
	const row = (o) => {
		const made = button(o.name, async () => {
			wrong.replaceChildren()
			try {
				await choose(o.externalId)
				chosen()
			} catch (cause) {
				wrong.replaceChildren(alertOf(orThrow(cause)))
			}
		}, { kind: "quiet choice" })
		made.append(chip(o.suspended ? "suspended" : o.role ?? "no role", o.suspended ? "warn" : ""))
		made.disabled = o.suspended || o.externalId === caller.organization?.externalId
		return el("li", {}, made)
	}
	return el("div", {}, el("ul", { class: "rows" }, caller.organizations.map(row)), wrong)
}

// showChooser shows the organizations of a person who has chosen none yet.
export function showChooser(place, caller, chosen, leave) {
	place.replaceChildren(gate(
		el("p", { class: "soft" }, `Signed in as ${caller.email ?? caller.name ?? caller.subject}. Choose an organization.`),
		organizationList(caller, chosen),
		el("div", { class: "deeds" }, button("Sign out", leave, { kind: "quiet", id: "leave" }))))
	place.hidden = false
	place.querySelector("li button:not(:disabled)")?.focus()
}

// openChooser lets a person switch to another organization.
export function openChooser(caller, chosen) {
	return openDialog("Switch organization", organizationList(caller, chosen))
}
