// The plan, what is used of it, and the way to another one.
import { change, orThrow } from "./api.js"
import { alertOf, button, chip, confirm, el, fill, heading, icon, isWeb, number, openDialog, tell } from "./dom.js"
import { facts } from "./session.js"

const features = { api_access: "API keys", custom_domains: "Custom domains" }

export async function showPlan(place, session, { reload }) {
	const wrong = el("div")
	fill(place,
		heading("Plan", session.may("owner") ? "What you have, and what you could have." : "What you have. Owners of the organization choose the plan."),
		usageCard(session.organization), wrong,
		el("h2", {}, "All plans"),
		el("div", { class: "plans" }, facts.plans.map((offer) => offerCard(offer, session, wrong, reload))))
}

function usageCard({ plan, links, features: has }) {
	const quota = links.quota === null ? "unlimited" : number(links.quota)
	const share = links.quota === null ? 0 : links.used / links.quota
	return el("div", { class: "card" },
		el("div", { class: "row" }, el("h2", { id: "current-plan" }, plan ?? "No plan selected"), chip("current plan", "accent")),
		el("p", {}, el("strong", {}, number(links.used)), ` of ${quota} links used`),
		links.quota !== null && el("progress", { max: links.quota, value: Math.min(links.used, links.quota), class: share >= 0.9 ? "full" : "", "aria-label": "Links used" }),
		share >= 1 && el("div", { class: "warning" }, icon("warn"), el("p", {}, "No more links can be made on this plan. Those that are there go on resolving.")),
		el("ul", { class: "has" }, Object.entries(features).map(([name, text]) => featureItem(text, has[name]))))
}

function featureItem(text, there) {
	return el("li", { class: there ? "there" : "soft" }, icon(there ? "done" : "close"), there ? text : `No ${text.charAt(0).toLowerCase() === "a" ? text : text.toLowerCase()}`)
}

function offerCard(offer, session, wrong, reload) {
	const current = session.organization.plan === offer.plan
	return el("div", { class: current ? "card offer current" : "card offer" },
		el("h3", {}, offer.plan), el("p", { class: "soft" }, offer.links === null ? "Unlimited links" : `${number(offer.links)} links`),
		el("ul", { class: "has" }, Object.entries(features).map(([name, text]) => featureItem(text, offer.features[name]))),
		current ? el("p", { class: "soft small" }, "Your plan") : session.may("owner") &&
			button(offer.paid ? "Check out" : "Choose", () => choose(offer, wrong, reload), { kind: offer.paid ? "main" : "quiet", id: `choose-${offer.plan}`, name: `${offer.paid ? "Check out" : "Choose"} the ${offer.plan} plan` }))
}

async function choose(offer, wrong, reload) {
	wrong.replaceChildren()
	if (!offer.paid) return askToLeave(offer, reload)
	try {
		await select(offer.plan, reload)
	} catch (problem) {
		wrong.replaceChildren(alertOf(orThrow(problem)))
		wrong.scrollIntoView({ block: "nearest" })
	}
}

function askToLeave(offer, reload) {
	confirm(`Change to the ${offer.plan} plan?`, [
		"Links beyond its quota stay and resolve, but no more can be made. Keys and custom domains stop being of use until a plan has them reload.",
		"What is paid for the present plan is ended with the billing provider, not here.",
	], `Change to ${offer.plan}`, () => select(offer.plan, reload))
}

// select sets the plan, or leads to where it is paid for.
async function select(plan, reload) {
	try {
		await change("PUT", "/portal/plan", { plan })
		await reload()
		tell(`The plan is ${plan} now.`)
	} catch (problem) {
		const { code, billingEndpoint } = orThrow(problem)
		if (code !== "USE_BILLING_FLOW" || !billingEndpoint?.startsWith("/portal/")) throw problem
		const { answer } = await change("POST", billingEndpoint, { plan })
		if (!isWeb(answer.url)) throw problem
		showCheckout(plan, answer.url)
	}
}

function showCheckout(plan, url) {
	openDialog(`Pay for the ${plan} plan`, el("div", {},
		el("p", {}, `A paid plan is selected where it is paid for: at ${new URL(url).host}. The address is good for an hour.`),
		el("div", { class: "deeds" }, el("a", { class: "main", id: "checkout", href: url, target: "_blank", rel: "noopener noreferrer" }, "Continue to checkout"))))
}
