// The columns of the list of links, and which of them a person wants to see.
import { linkAddress } from "./clicksaddress.js"
import { chip, el, number, openDialog, time, webLink } from "./dom.js"
import { hashOf } from "./route.js"
import { readSetting, saveSetting } from "./settings.js"

// A column is {name, title, cell}; cell returns what is shown of a link, or nothing. Those that are unlisted are not shown until they are chosen.
const columns = [
	{ name: "clicks", title: "Human clicks", cell: (link) => link.clicks && clicksLink(link) },
	{ name: "path", title: "Path in the app", cell: (link) => el("code", {}, link.path) },
	{ name: "fallbackUrl", title: "Fallback address", cell: (link) => link.fallbackUrl && webLink(link.fallbackUrl) },
	{ name: "channel", title: "Channel", cell: (link) => link.channel && chip(link.channel) },
	{ name: "tags", title: "Tags", cell: (link) => link.tags?.length > 0 && el("span", { class: "chips" }, link.tags.map(tagLink)) },
	{ name: "createdAt", title: "Made", cell: (link) => time(link.createdAt) },
	{ name: "expiry", title: "Expires", cell: (link) => link.expiry && time(link.expiry) },
	{ name: "updatedAt", title: "Changed", unlisted: true, cell: (link) => time(link.updatedAt) },
	{ name: "utmCampaign", title: "Campaign", unlisted: true, cell: (link) => link.utmCampaign },
	{ name: "externalId", title: "External id", unlisted: true, cell: (link) => link.externalId && el("code", {}, link.externalId) },
]

// tagLink leads to the links with a tag.
const tagLink = (tag) => el("a", { class: "chip", href: hashOf("links", { tag }), title: `Links with the tag ${tag}` }, `#${tag}`)

// clicksLink leads to the clicks of a link.
const clicksLink = ({ id, title, path, clicks }) => el("a", { class: "clicks-of", href: linkAddress(id), "aria-label": `${number(clicks.human)} human clicks: ${title ?? path}` }, number(clicks.human))

// read returns by name what a person chose otherwise than we do.
function read() {
	const saved = readSetting("columns")
	return saved !== null && typeof saved === "object" ? saved : {}
}

const listed = ({ name, unlisted = false }, chosen) => typeof chosen[name] === "boolean" ? chosen[name] : !unlisted

// shownColumns returns the columns to show, in their order.
export function shownColumns() {
	const chosen = read()
	return columns.filter((column) => listed(column, chosen))
}

// showsColumn reports whether a column is shown, for what is read for it alone.
export const showsColumn = (name) => shownColumns().some((column) => column.name === name)

// chooseColumns lets a person choose. changed is called after each change.
export function chooseColumns(changed) {
	const tick = (column) => {
		const id = `column-${column.name}`
		const box = el("input", { type: "checkbox", id })
		box.checked = listed(column, read())
		box.addEventListener("change", () => {
			const chosen = { ...read(), [column.name]: box.checked }
			const differing = Object.fromEntries(columns.filter(({ name, unlisted = false }) => name in chosen && chosen[name] === unlisted).map(({ name }) => [name, chosen[name]]))
			saveSetting("columns", Object.keys(differing).length ? differing : null)
			changed()
		})
		return el("div", { class: "tick" }, box, el("label", { for: id }, column.title))
	}
	return openDialog("Columns", el("div", {},
		el("p", { class: "soft" }, "Choose what the list shows of each link. This browser keeps the choice."),
		el("fieldset", { class: "ticks" }, el("legend", { class: "unseen" }, "Columns"), columns.map(tick))))
}
