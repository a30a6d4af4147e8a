// The filters of the list of links. They are in the address, so that a filtered list can be kept and shared.
import { makeForm } from "./form.js"
import { facts } from "./session.js"

const states = [["", "All"], ["true", "Active"], ["false", "Inactive"]]

// filtersOf returns the filters in the values of an address. Values that the service would refuse are left out.
export function filtersOf(values, domains) {
	const { search = "", isActive = "", channel = "", tag = "", domainId = "" } = values
	const oneOf = (value, known) => known.includes(value) ? value : ""
	return {
		search: search.trim().slice(0, 2048), isActive: oneOf(isActive, ["true", "false"]), channel: oneOf(channel, facts.channels), tag: tag.trim().slice(0, 64),
		domainId: oneOf(domainId, domains.map((domain) => domain.id)),
	}
}

export const isFiltered = (filters) => Object.values(filters).some((value) => value !== "")

// filterForm is the form of the filters of a LinkList. Choosing from a list filters at once.
export function filterForm(list) {
	const channels = [["", "All channels"], ...facts.channels.map((name) => [name, name])]
	const domains = [["", "All domains"], ...list.domains.map((domain) => [domain.id, domain.host])]
	const field = (name, label, more) => ({ name, label, value: list.filters[name], ...more })
	const form = makeForm({
		kind: "filter", verb: "Search",
		groups: [{ fields: [
			field("search", "Search", { kind: "search", size: "broad", example: "Title, path or short code", max: 2048 }),
			field("isActive", "State", { kind: "select", options: states }),
			field("channel", "Channel", { kind: "select", options: channels }),
			field("tag", "Tag", { max: 64 }),
			list.domains.length > 1 && field("domainId", "Domain", { kind: "select", options: domains }),
		].filter(Boolean) }],
		submit: (values) => list.filter({ domainId: "", ...values }),
	})
	form.input("search").setAttribute("aria-keyshortcuts", "/")
	form.element.addEventListener("change", (event) => {
		if (event.target.tagName === "SELECT") form.element.requestSubmit()
	})
	return form.element
}
