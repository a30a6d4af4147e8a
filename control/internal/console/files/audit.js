// Who changed what.
import { get, query } from "./api.js"
import { chip, el, fill, guard, heading, pager, time } from "./dom.js"
import { instant, makeForm } from "./form.js"

const actions = {
	"link.create": "made a link", "link.update": "changed a link", "link.delete": "deleted a link", "domain.create": "added a domain",
	"domain.verify": "verified a domain", "domain.delete": "deleted a domain", "domainTransfer.start": "began the transfer of a domain",
	"domainTransfer.cancel": "ended the transfer of a domain", "domainTransfer.complete": "moved a domain", "key.regenerate": "regenerated a key",
	"appConfig.update": "changed the app config", "plan.update": "changed the plan", "organization.create": "made the organization",
	"organization.suspend": "suspended the organization", "organization.resume": "resumed the organization",
	"session.create": "signed in", "session.switch": "switched the organization of a session", "session.end": "ended a session",
	"consoleLink.create": "made a sign-in link", "consoleLink.spend": "used a sign-in link",
	"device.delete": "deleted the data of a device or a user",
}

export async function showAudit(place, session, { signal }) {
	const list = el("div", { "aria-live": "polite" })
	let span = { since: "", until: "" }
	const turn = async (page) => {
		const answer = await get(`/portal/audit-log${query({ page, limit: 20, since: instant(span.since), until: instant(span.until) })}`, signal)
		fill(list,
			answer.data.length ? el("ol", { class: "rows" }, answer.data.map(entryRow)) : el("p", { class: "card empty soft" }, "Nothing was changed in this time."),
			pager({ ...answer, shown: answer.data.length }, (to) => guard(list, signal, () => turn(to))))
	}
	const filter = makeForm({
		kind: "filter", verb: "Show",
		groups: [{ fields: [
			{ name: "since", label: "Since", kind: "datetime-local", size: "broad" }, { name: "until", label: "Until", kind: "datetime-local", size: "broad" },
		] }],
		submit: async (values) => {
			span = values
			await turn(1)
		},
	})
	await turn(1)
	place.replaceChildren(heading("Audit log", "Every change of the last 400 days, the newest first."), filter.element, list)
}

function entryRow(entry) {
	const who = entry.actor.displayKey ?? entry.actor.id ?? "an unknown user"
	const known = Object.keys(entry.detail ?? {}).length > 0
	return el("li", { class: "card entry" },
		el("p", {}, el("strong", { class: "anywhere" }, who), ` ${actions[entry.action] ?? entry.action} `, chip(entry.actor.type)),
		el("p", { class: "soft small" }, time(entry.at), entry.ip && ` · ${entry.ip}`, el("span", { class: "anywhere" }, ` · ${entry.target.type} ${entry.target.id}`)),
		known && el("dl", { class: "facts small" }, Object.entries(entry.detail).map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, typeof value === "string" ? value : JSON.stringify(value))))))
}
