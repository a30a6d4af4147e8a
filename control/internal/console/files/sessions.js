// Who is signed in, and the end of a session.
import { change, get } from "./api.js"
import { button, chip, confirm, el, fill, heading, tell, time } from "./dom.js"

export async function showSessions(place, session, { signal, reload }) {
	const all = session.may("owner")
	const { data } = await get(`/portal/sessions${all ? "?all=true" : ""}`, signal)
	fill(place,
		heading("Sessions", all ? "Everyone who is signed in to the console for this organization." : "Where you are signed in to the console for this organization."),
		el("ul", { class: "rows" }, data.map((one) => row(one, reload))))
}

function row(one, reload) {
	const who = one.name ?? one.email ?? one.subject ?? "Sign-in link"
	return el("li", { class: "card link" },
		el("div", { class: "about" },
			el("div", { class: "row" }, el("h2", { class: "anywhere" }, who), chip(one.role ?? "no role"), one.current ? chip("this session", "good") : ""),
			el("p", { class: "soft small anywhere" }, one.email && one.email !== who ? `${one.email} · ` : "", "signed in ", time(one.createdAt), " · last used ", time(one.lastSeenAt), " · ends ", time(one.endsAt)),
			el("p", { class: "soft small anywhere" }, one.ip ?? "", one.ip && one.userAgent ? " · " : "", one.userAgent)),
		el("div", { class: "deeds" }, button("Revoke", () => confirm("Revoke this session?", [`“${who}” is signed out at once${one.current ? ": that is you" : ""}.`], "Revoke", async () => {
			await change("DELETE", `/portal/sessions/${one.id}`)
			tell("The session has ended.")
			await reload()
		}), { kind: "quiet", sign: "out", name: `Revoke the session of ${who}` })))
}
