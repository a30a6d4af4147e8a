// Who is signed in: the view for it, and what a session token says about itself. Only the service judges a token.
import { carry, get, Problem, reach } from "./api.js"
import { alertOf, el, icon } from "./dom.js"
import { makeForm } from "./form.js"

export const facts = JSON.parse(document.getElementById("facts").textContent)

const ranks = { member: 1, admin: 2, owner: 3 }

// Session is the role of a user in an organization until a time.
class Session {
	constructor(organization, claims) {
		this.organization = organization
		this.role = String(claims[facts.roleClaim] ?? claims.o?.rol ?? "").replace(/^org:/, "")
		this.ends = new Date(claims.exp * 1000)
	}

	may(role) {
		return (ranks[this.role] ?? 0) >= ranks[role]
	}

	// refresh reads the organization again: a plan was chosen, a link made.
	async refresh(signal) {
		this.organization = await get("/portal/organization", signal)
	}

	// left tells how long the token is good for.
	left() {
		const seconds = Math.round((this.ends - Date.now()) / 1000)
		if (seconds <= 0) return "Session has ended"
		const [minutes, rest] = [Math.floor(seconds / 60), String(seconds % 60).padStart(2, "0")]
		return `Session ends in ${minutes}:${rest}`
	}
}

// readClaims returns what a token says, without a proof of it, or nothing.
function readClaims(token) {
	try {
		const bytes = Uint8Array.from(atob(token.split(".")[1].replaceAll("-", "+").replaceAll("_", "/")), (c) => c.charCodeAt(0))
		return JSON.parse(new TextDecoder().decode(bytes)) ?? {}
	} catch {
		return {}
	}
}

async function open(token) {
	const looksRight = /^[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+$/.test(token)
	if (!looksRight) throw new Problem(400, { details: [{ field: "token", message: "Is not a session token: three parts with dots between them." }] })
	return carry(token, async () => new Session(await get("/portal/organization"), readClaims(token)))
}

// signIn shows the view and calls done with the session once there is one. why is the problem that led here, if any.
export function signIn(place, { why, done, back }) {
	const opened = async (token) => done(await open(token))
	const pasted = makeForm({
		groups: [{ fields: [{
			name: "token", label: "Session token", kind: "textarea", rows: 4, mono: true, required: true,
			hint: "From your identity provider, for the organization to administer. It is kept in this page's memory only.",
		}] }],
		verb: "Sign in", cancel: back,
		submit: ({ token }) => opened(token.replace(/^Bearer\s+/i, "").replace(/\s+/g, "")),
	})
	place.replaceChildren(el("main", { class: "gate" },
		el("div", { class: "mark" }, icon("link")), el("h1", {}, "Deeplink console"),
		el("p", { class: "soft" }, "Links, apps, domains and keys of your organization."),
		why && alertOf(why), pasted.element, facts.tokenUrl && developmentForm(opened)))
	place.hidden = false
	pasted.input("token").focus()
}

// developmentForm gets a token from the development identity provider, which gives one to anybody.
function developmentForm(opened) {
	const roles = Object.keys(ranks).map((role) => [role, role])
	const form = makeForm({
		kind: "development",
		groups: [{ legend: "Development sign-in", fields: [
			{ name: "org", label: "Organization", value: facts.organization, hint: "Its external id.", size: "half" },
			{ name: "role", label: "Role", kind: "select", options: roles, value: "owner", size: "half" },
		] }],
		verb: "Get a token and sign in",
		submit: async ({ org, role }) => opened(await fetchToken(org, role)),
	})
	return form.element
}

async function fetchToken(org, role) {
	const response = await reach(facts.tokenUrl, {
		method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ org, role, ttlSeconds: 3600 }),
		credentials: "omit", cache: "no-store",
	})
	const answer = await response.json().catch(() => ({}))
	if (!response.ok || typeof answer.token !== "string") throw new Problem(response.status, answer)
	return answer.token
}

