// The domains that links are on.
import { change, get, orThrow } from "./api.js"
import { alertOf, button, chip, confirm, copyButton, el, fill, heading, icon, tell, time } from "./dom.js"
import { makeForm } from "./form.js"

export async function showDomains(place, session, { signal, reload }) {
	const { data } = await get("/portal/domains", signal)
	const able = session.may("admin") && session.organization.features.custom_domains
	fill(place,
		heading("Domains", "Short URLs are on the default domain, or on custom domains that you have proved to be yours."),
		session.may("admin") && (able ? addForm(reload) : lockedCard(session)),
		el("ul", { class: "rows" }, data.map((domain) => domainCard(domain, session, reload))))
}

function lockedCard(session) {
	return el("div", { class: "card note" }, icon("globe"), el("p", {}, `The ${session.organization.plan ?? "missing"} plan does not include custom domains. `,
		el("a", { href: "#plan" }, "See the plans")))
}

function addForm(reload) {
	return makeForm({
		kind: "card inline", verb: "Add the domain",
		groups: [{ fields: [{
			name: "host", label: "Custom domain", example: "go.example.com", required: true, max: 253, hint: "A host name of yours that leads to our edges.",
			check: (value) => /^[^\s/:@]+\.[^\s/:@]+$/.test(value) ? "" : "Must be a host name alone, such as go.example.com.",
		}] }],
		submit: async ({ host }) => {
			const { answer } = await change("POST", "/portal/domains", { host })
			await reload()
			tell(`${answer.host} is added. Set its DNS record, then verify it.`)
		},
	}).element
}

function domainCard(domain, session, reload) {
	const said = el("div", { "aria-live": "polite" })
	const state = domain.isDefault ? chip("default", "accent") : domain.status === "verified" ? chip("verified", "good") : chip("pending", "warn")
	const pending = domain.status === "pending"
	const leaving = domain.transfer?.direction === "out"
	return el("li", { class: "card domain" },
		el("div", { class: "row" }, el("h2", { class: "anywhere" }, domain.host), state),
		domain.transfer ? transferNote(domain.transfer) : pending && domain.lostAt && el("div", { class: "warning" }, icon("warn"),
			el("p", {}, "This host moved to another organization, which proved it, on ", time(domain.lostAt), ". Your links on it are kept and do not resolve.")),
		domain.verification && (pending || leaving) && record(domain.verification),
		pending && el("p", { class: "soft small" }, "Links on it resolve once it is verified. A new DNS record can take a while to be seen. Keep the record afterwards: it keeps the host yours."), said,
		domain.isCustom && session.may("admin") && el("div", { class: "deeds" },
			button("Delete", () => askToDelete(domain, reload), { kind: "quiet", sign: "bin", name: `Delete ${domain.host}` }),
			(pending || leaving) && button(leaving ? "Check the record now" : "Verify now", () => verify(domain, said, reload),
				{ kind: "main", name: leaving ? `Check the record of ${domain.host} now` : `Verify ${domain.host} now` })))
}

function transferNote({ direction, completesAt }) {
	return el("div", { class: "warning" }, icon("warn"), direction === "out"
		? el("p", {}, "Another organization proved this host while your DNS record was gone. It moves to that organization on ", time(completesAt), ", and your links on it stop. Restore the record before then to keep it.")
		: el("p", {}, "Another organization has this host, but its DNS record is gone. It moves to you on ", time(completesAt), " unless that record is restored. Keep your own record until then."))
}

function record({ type, name, value }) {
	const part = (label, text) => el("div", {}, el("dt", {}, label), el("dd", {}, el("code", { class: "anywhere" }, text), copyButton(text, { label: "Copy", name: `Copy the ${label.toLowerCase()}` })))
	return el("dl", { class: "record" }, el("div", {}, el("dt", {}, "Type"), el("dd", {}, el("code", {}, type))), part("Name", name), part("Value", value))
}

async function verify(domain, said, reload) {
	said.replaceChildren()
	try {
		const { answer } = await change("POST", `/portal/domains/${domain.id}/verify`)
		if (answer.message === null || !answer.transfer !== !domain.transfer) {
			await reload()
			tell(answer.message ?? `${answer.host} is verified.`)
		} else said.replaceChildren(el("div", { class: "warning" }, icon("warn"), el("p", {}, answer.message)))
	} catch (problem) {
		said.replaceChildren(alertOf(orThrow(problem)))
	}
}

function askToDelete(domain, reload) {
	confirm("Delete this domain?", [`${domain.host} is given up. You can add it again, and prove it again.`], "Delete", async () => {
		await change("DELETE", `/portal/domains/${domain.id}`)
		await reload()
		tell(`${domain.host} is deleted.`)
	})
}
