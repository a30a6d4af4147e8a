// The form of a link, to make one and to change one.
import { change, getTagged, Intent } from "./api.js"
import { conflict } from "./conflict.js"
import { el, openDialog } from "./dom.js"
import { checkWeb, instant, localTime, makeForm } from "./form.js"
import { facts } from "./session.js"

export const tagsOf = (text) => text.split(",").map((tag) => tag.trim()).filter((tag) => tag !== "")

function checkParams(text) {
	try {
		const value = JSON.parse(text)
		return value !== null && typeof value === "object" && !Array.isArray(value) ? "" : "Must be a JSON object."
	} catch {
		return 'Must be a JSON object, such as {"plan": "gold"}.'
	}
}

// draft is what was typed into a form to create a link that was closed by mistake, or to go elsewhere first. It is forgotten with the page.
let draft = null

export function createLink(domains, done) {
	const intent = new Intent()
	const before = textsOf({})
	const shown = { ...before, ...draft }
	const { form } = show("Create a link", "Create", shown, domains, {
		exists: false,
		save: async (values) => {
			const made = await change("POST", "/portal/links", bodyOf(values, {}), { intent })
			draft = null
			await done(made)
		},
		cancelled: () => { draft = null },
	})
	// Not when the dialog closes: that event comes after the dialog is gone, and the next key may open the form again before it.
	form.element.addEventListener("input", () => {
		const values = form.values()
		draft = Object.keys(before).every((name) => values[name] === before[name]) ? null : values
	})
	if (draft) form.say(el("p", { class: "note" }, "This is what you typed before. Cancel forgets it."))
}

// editLink sends what was changed alone. If another person changed the link meanwhile, it asks what to do. etag is that of link.
export function editLink(link, etag, domains, done) {
	const intent = new Intent()
	const before = textsOf(link)
	let required = etag
	const { form, dialog } = show("Edit the link", "Save", before, domains, {
		exists: true,
		save: async (values) => {
			try {
				await done(await change("PATCH", `/portal/links/${link.id}`, bodyOf(values, before), { intent, etag: required }))
			} catch (cause) {
				if (cause.status !== 412) throw cause
				const now = await getTagged(`/portal/links/${link.id}`)
				form.say(conflict(before, textsOf(now.answer), values, {
					overwrite: () => {
						required = now.etag
						form.element.requestSubmit()
					},
					reload: () => {
						dialog.close()
						editLink(now.answer, now.etag, domains, done)
					},
				}))
				return false
			}
		},
	})
}

// show shows the form of a link in a dialog. save returns false if the dialog must stay.
function show(title, verb, values, domains, { exists, save, cancelled = () => {} }) {
	const form = makeForm({
		groups: groupsOf(values, domains, exists), verb,
		cancel: () => {
			cancelled()
			dialog.close()
		},
		submit: async (typed) => {
			if (await save(typed) !== false) dialog.close()
		},
	})
	const dialog = openDialog(title, form.element, { wide: true })
	form.input("path").focus()
	return { form, dialog }
}

const texts = ["path", "shortCode", "domainId", "channel", "utmSource", "utmMedium", "utmCampaign", "utmTerm", "utmContent", "fallbackUrl", "title", "templateId"]
const previews = ["title", "description", "imageUrl"]

// textsOf is a link as the form has it.
function textsOf(link) {
	const all = Object.fromEntries(texts.map((name) => [name, link[name] ?? ""]))
	for (const name of previews) all[`og.${name}`] = link.og?.[name] ?? ""
	return {
		...all, tags: (link.tags ?? []).join(", "), expiry: localTime(link.expiry), isActive: link.isActive ?? true,
		params: link.params ? JSON.stringify(link.params, null, 2) : "",
	}
}

// bodyOf has what differs from before, as the interface wants it: what was emptied is null.
function bodyOf(values, before) {
	const body = {}
	for (const [name, value] of Object.entries(values)) {
		if (value === (before[name] ?? (name === "isActive" ? true : ""))) continue
		if (name.startsWith("og.")) body.og = { ...body.og, [name.slice(3)]: value || null }
		else if (name === "tags") body.tags = tagsOf(value)
		else if (name === "params") body.params = value === "" ? null : JSON.parse(value)
		else if (name === "expiry") body.expiry = instant(value) || null
		else body[name] = value === "" ? null : value
	}
	return body
}

function groupsOf(link, domains, exists) {
	const field = (name, label, more = {}) => ({ name, label, value: link[name], ...more })
	const half = (name, label, more = {}) => field(name, label, { size: "half", ...more })
	const filled = (...names) => names.some((name) => link[name] !== "")
	const named = (domain) => [domain.id, domain.status === "pending" ? `${domain.host} (pending)` : domain.host]
	const choices = exists ? domains.map(named) : [["", "Default domain"], ...domains.filter((domain) => !domain.isDefault).map(named)]
	const campaign = ["utmSource", "utmMedium", "utmCampaign", "utmTerm", "utmContent"]
	return [
		{ fields: [
			field("path", "Path in the app", { required: true, max: 2048, example: "/welcome" }),
			field("title", "Title", { max: 255, prose: true, hint: "For you alone: visitors do not see it." }),
			half("shortCode", "Short code", { max: 64, required: exists, pattern: facts.patterns.shortCode, wrong: "Must be 1 to 64 letters, digits, - or _, and begin with a letter or digit.", hint: exists ? null : "Left empty, one is made up." }),
			half("domainId", "Domain", { kind: "select", options: choices }),
			field("fallbackUrl", "Fallback address", { kind: "url", max: 2048, example: "https://example.com/welcome", hint: "Where the link leads without the app.", check: checkWeb }),
			half("channel", "Channel", { kind: "select", options: [["", "None"], ...facts.channels.map((name) => [name, name])] }),
			half("expiry", "Expires", { kind: "datetime-local", step: 1, hint: "In your time zone." }),
			field("tags", "Tags", { hint: "With commas between them." }),
			field("isActive", "Active", { kind: "checkbox", hint: "An inactive link answers that it is gone." }),
		] },
		{ legend: "Campaign", folds: true, open: filled(...campaign), fields: campaign.map((name) => half(name, `UTM ${name.slice(3).toLowerCase()}`, { max: 255 })) },
		{ legend: "Preview in chats and feeds", folds: true, open: filled("og.title", "og.description", "og.imageUrl"), fields: [
			field("og.title", "Preview title", { max: 300, prose: true }),
			field("og.description", "Preview description", { kind: "textarea", max: 1000, prose: true }),
			field("og.imageUrl", "Preview picture", { kind: "url", max: 2048, example: "https://example.com/picture.jpg", check: checkWeb }),
		] },
		{ legend: "For developers", folds: true, open: filled("templateId", "params"), fields: [
			field("params", "Parameters", { kind: "textarea", mono: true, rows: 4, hint: "A JSON object that the app gets.", check: checkParams }),
			field("templateId", "Template id", { max: 128 }),
		] },
	]
}
