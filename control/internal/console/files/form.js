// Forms whose fields show what is wrong with them: what is seen here at once, and what the service says.
import { alertOf, button, el, fill, icon, once } from "./dom.js"
import { orThrow, Problem } from "./api.js"

let forms = 0

// makeForm makes a form of groups of fields. A field is {name, label, hint, kind, value, options, required, max, pattern, wrong, check};
// name is that of the interface. submit gets the texts of all fields by name, and may throw a Problem.
export function makeForm({ groups, submit, verb, cancel = null, locked = false, kind = "", danger = false }) {
	const id = `form-${++forms}`
	const inputs = new Map(groups.flatMap((group) => group.fields).map((field) => [field.name, makeInput(id, field)]))
	const wrong = el("div")
	const send = el("button", { type: "submit", class: danger ? "danger" : "main" }, verb)
	const deeds = locked ? null : el("div", { class: "deeds" }, cancel && button("Cancel", cancel, { kind: "quiet" }), send)
	const form = el("form", { novalidate: true, class: kind }, groups.map((group) => makeGroup(group, inputs)), wrong, deeds)

	const values = () => Object.fromEntries([...inputs].map(([name, { input }]) => [name, input.type === "checkbox" ? input.checked : input.value.trim()]))
	const clear = () => {
		wrong.replaceChildren()
		for (const field of inputs.values()) field.show("")
	}
	const fail = (problem) => {
		const elsewhere = problem.details.filter((detail) => !placed(inputs, detail))
		const shown = problem.details.length > 0 && elsewhere.length === 0
		if (shown) wrong.replaceChildren(el("p", { class: "alert", role: "alert" }, icon("warn"), "Some fields need another value."))
		else wrong.replaceChildren(alertOf(Object.assign(problem, { details: elsewhere })))
		const first = form.querySelector('[aria-invalid="true"]')
		if (first) {
			first.closest("details")?.setAttribute("open", "")
			first.focus()
		} else wrong.scrollIntoView({ block: "nearest" })
	}
	// attempt does a deed with the values, unless one is under way or a field is seen to be wrong.
	const attempt = (deed) => once(send, async () => {
		clear()
		const details = [...inputs.values()].map((field) => field.judge()).filter((detail) => detail !== null)
		if (details.length) return fail(new Problem(400, { details }))
		try {
			await deed(values())
		} catch (cause) {
			if (cause.name !== "AbortError") fail(orThrow(cause)) // the visitor has gone elsewhere
		}
	})
	form.addEventListener("submit", (event) => {
		event.preventDefault()
		if (!locked) attempt(submit)
	})
	if (locked) for (const { input } of inputs.values()) input.disabled = true
	// say shows something where the form says what went wrong.
	const say = (element) => {
		fill(wrong, element)
		element.scrollIntoView({ block: "nearest" })
	}
	return { element: form, attempt, say, values, input: (name) => inputs.get(name).input }
}

function makeGroup(group, inputs) {
	const fields = el("div", { class: "fields" }, group.fields.map((field) => inputs.get(field.name).element))
	if (!group.legend) return fields
	if (group.folds) return el("details", { open: group.open }, el("summary", {}, group.legend), fields)
	return el("fieldset", {}, el("legend", {}, group.legend), fields)
}

// placed shows a detail at its field, or at the one it is a part of: params.a at params.
function placed(inputs, { field, message }) {
	for (let name = field ?? ""; name; name = name.slice(0, Math.max(0, name.lastIndexOf(".")))) {
		if (inputs.has(name)) {
			inputs.get(name).show(sentence(message, field))
			return true
		}
	}
	return false
}

// sentence is a message of the service without the name of the field, which it stands at.
function sentence(message, field) {
	const rest = message.startsWith(`${field} `) ? message.slice(field.length + 1) : message
	return rest.charAt(0).toUpperCase() + rest.slice(1) + (/[.!?]$/.test(rest) ? "" : ".")
}

function makeInput(formId, field) {
	const id = `${formId}-${field.name}`
	const input = makeControl(id, field)
	const error = el("p", { class: "error", id: `${id}-error` })
	const hint = field.hint && el("p", { class: "hint", id: `${id}-hint` }, field.hint)
	input.setAttribute("aria-describedby", `${hint ? `${id}-hint ` : ""}${id}-error`)
	const label = el("label", { for: id }, field.label, field.required && el("span", { class: "soft" }, " (required)"))
	const order = field.kind === "checkbox" ? [el("div", { class: "tick" }, input, label), hint, error] : [label, input, hint, error]
	const show = (message) => {
		error.replaceChildren(message)
		if (message) input.setAttribute("aria-invalid", "true")
		else input.removeAttribute("aria-invalid")
	}
	input.addEventListener("input", () => show(""))
	const judge = () => {
		const message = judged(field, input)
		return message ? { field: field.name, message } : null
	}
	return { input, show, judge, element: el("div", { class: `field ${field.size ?? ""}` }, order) }
}

function makeControl(id, field) {
	const attributes = { id, name: field.name, maxlength: field.max, required: field.required, autocomplete: "off", spellcheck: field.prose ? null : "false" }
	switch (field.kind) {
	case "select": {
		const select = el("select", { id, name: field.name }, field.options.map(([value, text]) => el("option", { value }, text)))
		select.value = field.value ?? ""
		return select
	}
	case "textarea": {
		const area = el("textarea", { ...attributes, rows: field.rows ?? 3, class: field.mono ? "mono" : null })
		area.value = field.value ?? ""
		return area
	}
	case "checkbox": {
		const box = el("input", { id, name: field.name, type: "checkbox" })
		box.checked = Boolean(field.value)
		return box
	}
	}
	const input = el("input", { ...attributes, type: field.kind ?? "text", min: field.least, inputmode: field.inputmode, placeholder: field.example, step: field.step })
	input.value = field.value ?? ""
	return input
}

// judged returns what is seen to be wrong with a field without asking the service.
function judged(field, input) {
	const value = input.type === "checkbox" ? "" : input.value.trim()
	if (input.validity.badInput) return "Is not complete."
	if (value === "") return field.required ? "Is required." : ""
	if (field.pattern && !new RegExp(field.pattern).test(value)) return field.wrong
	return field.check?.(value) ?? ""
}

// checkWeb is the check of a field that takes the address of a page.
export function checkWeb(value) {
	return /^https?:\/\/[^\s]+$/i.test(value) && URL.canParse(value) ? "" : "Must be an http or https address, such as https://example.com/welcome."
}

// instant is the time that a datetime-local field shows, as the interface has it; of nothing, nothing.
export function instant(local) {
	return local === "" ? "" : new Date(local).toISOString()
}

// localTime is the other way round, to the second, in the time of the browser's zone.
export function localTime(text) {
	if (!text) return ""
	const date = new Date(text)
	return new Date(date.getTime() - date.getTimezoneOffset() * 60000).toISOString().slice(0, 19)
}
