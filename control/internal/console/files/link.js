// The page of a one-time sign-in link. It shows what the link is for, and spends it only when the person presses the button.
import { change, orThrow } from "./api.js"
import { alertOf, button, chip, el, icon, time } from "./dom.js"

// The token is in the fragment, which browsers do not send. It leaves the address bar at once, so that a person who copies the address does not copy the token.
const token = location.hash.slice(1)
history.replaceState(null, "", location.pathname)

const gate = document.getElementById("gate")
const head = () => [el("div", { class: "mark" }, icon("link")), el("h1", {}, "Deeplink console")]
const use = async (confirm) => (await change("POST", "/console/link", { token, confirm })).answer

async function show() {
	try {
		const link = await use(false)
		const wrong = el("div")
		const sure = button("Sign in", async () => {
			wrong.replaceChildren()
			try {
				location.assign((await use(true)).location)
			} catch (cause) {
				wrong.replaceChildren(alertOf(orThrow(cause)))
			}
		}, { kind: "main", id: "sign-in" })
		gate.replaceChildren(...head(),
			el("p", { class: "soft" }, "An operator sent you this link. It works once."),
			el("p", { class: "organization" }, el("strong", {}, link.organization.name), " ", chip(link.role, "accent")),
			el("p", { class: "soft small" }, "Valid until ", time(link.expiresAt)),
			wrong, el("div", { class: "deeds" }, sure))
		sure.focus()
	} catch (cause) {
		const problem = orThrow(cause)
		gate.replaceChildren(...head(), alertOf(problem, problem.status === 401 ? [] : button("Try again", show, { kind: "quiet" })))
	}
}

show()
