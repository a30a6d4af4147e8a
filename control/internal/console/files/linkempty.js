// What the list of links says when it has none: why, and what to do next.
import { get } from "./api.js"
import { button, el, icon } from "./dom.js"
import { isFiltered } from "./linkfilter.js"

// emptyList returns what a LinkList without links says.
export async function emptyList(list) {
	if (isFiltered(list.filters)) return noMatch(list)
	const config = await get("/portal/app-config", list.signal)
	return config.ios || config.android || config.fallbackUrl ? firstLink(list) : noAppConfig(list)
}

const card = (sign, title, ...content) => el("div", { class: "card empty" }, icon(sign), el("h2", {}, title), content)

const names = { search: "Search", isActive: "State", channel: "Channel", tag: "Tag", domainId: "Domain" }

function noMatch(list) {
	const text = (name, value) => ({ isActive: value === "true" ? "active" : "inactive", domainId: list.domains.find(({ id }) => id === value)?.host })[name] ?? value
	const set = Object.entries(list.filters).filter(([, value]) => value !== "").map(([name, value]) => `${names[name]}: ${text(name, value)}`)
	return card("link", "No link matches",
		el("p", { class: "soft anywhere" }, set.join(" · ")),
		el("p", { class: "soft" }, "Search finds a part of the title, the path or the short code. The tag must be complete."),
		el("p", {}, el("a", { class: "main quiet", id: "all-links", href: "#links" }, "Show all links")))
}

function firstLink(list) {
	const api = list.session.organization.features.api_access
	return card("link", "No links yet",
		el("p", { class: "soft" }, "A link is a short URL that opens a screen of your app."),
		el("ol", { class: "steps" },
			el("li", {}, "Give it the path that your app opens, such as ", el("code", {}, "/sale"), "."),
			el("li", {}, "Give it a fallback address, for people without the app."),
			el("li", {}, "Copy its short URL, or its QR code, to where people find it.")),
		el("p", {}, button("Create your first link", () => list.create(), { kind: "main", sign: "plus", id: "create-first" })),
		el("p", { class: "soft small" }, api ? ["Programs create links with the API: ", el("a", { href: "/docs" }, "read how"), "."]
			: ["Your plan has no API keys, so links are made here. ", el("a", { href: "#plan" }, "See the plans")]))
}

function noAppConfig({ session }) {
	const may = session.may("admin")
	return card("app", "No links yet: first register your app",
		el("p", { class: "soft" }, "Links need to know which app they open, or where they lead without one."),
		el("ol", { class: "steps" },
			el("li", {}, may ? "Register your iOS app, your Android app, or a fallback address." : "Ask an administrator to register your app, or a fallback address."),
			el("li", {}, "Come back and create your first link.")),
		el("p", {}, el("a", { class: "main", id: "to-app-config", href: "#app" }, may ? "Go to the app config" : "See the app config")))
}
