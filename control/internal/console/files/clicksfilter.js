// The controls of the page of clicks: range, interval, time zone and classes.
import { button, el, fill, number } from "./dom.js"
import { classes, isDate } from "./clicksaddress.js"
import { addDays, intervalsFor, rangeNames, viewerZone } from "./clicksrange.js"
import { classWords } from "./clickswords.js"

const zoneName = (zone) => zone.replaceAll("_", " ")

function select(id, label, options, value, changed) {
	const made = el("select", { id }, options.map(([key, text]) => el("option", { value: key }, text)))
	made.value = value
	made.addEventListener("change", () => changed(made.value))
	return el("div", { class: "field" }, el("label", { for: id }, label), made)
}

// RangeFilter changes the range, the interval and the time zone of a page.
export class RangeFilter {
	constructor(page) {
		this.page = page
		this.selects = el("div", { class: "selects" })
		this.custom = el("form", { class: "custom", novalidate: true, hidden: true })
		this.element = el("div", { class: "range" }, this.selects, this.custom)
		this.custom.addEventListener("submit", (event) => {
			event.preventDefault()
			this.submit()
		})
		this.draw()
	}

	draw() {
		const { page } = this
		const { range, interval, utc } = page.state
		const own = viewerZone()
		const { fits, usual } = intervalsFor(page.dates())
		const focused = this.selects.contains(document.activeElement) ? document.activeElement.id : ""
		fill(this.selects,
			select("range", "Time", rangeNames, typeof range === "string" ? range : "custom", (value) => value === "custom" ? this.openCustom() : page.change({ range: value, interval: null })),
			fits.length > 1 && select("interval", "Per", fits, fits.some(([key]) => key === interval) ? interval : usual, (value) => page.change({ interval: value === usual ? null : value })),
			own !== "UTC" && select("zone", "Time zone", [["own", zoneName(own)], ["utc", "UTC"]], utc ? "utc" : "own", (value) => page.change({ utc: value === "utc" })))
		this.custom.hidden = typeof range === "string"
		const shown = [...this.custom.querySelectorAll("input")].map(({ value }) => value)
		if (!this.custom.hidden && (shown[0] !== range.from || shown[1] !== range.to)) this.drawCustom(range)
		if (focused) document.getElementById(focused)?.focus({ preventScroll: true })
	}

	openCustom() {
		const { from, to } = this.page.dates()
		this.drawCustom({ from, to: addDays(to, -1) })
		this.custom.hidden = false
		this.custom.querySelector("input").focus()
	}

	drawCustom({ from, to }) {
		const input = (id, label, value) => {
			const made = el("input", { id, type: "date", min: "2000-01-01", max: "2099-12-30", "aria-describedby": "range-error" })
			made.value = value
			return el("div", { class: "field" }, el("label", { for: id }, label), made)
		}
		this.wrong = el("p", { class: "error", id: "range-error", role: "alert" })
		fill(this.custom, input("from", "From", from), input("to", "To, inclusive", to), el("button", { type: "submit", class: "main" }, "Show"), this.wrong)
	}

	submit() {
		const [from, to] = ["from", "to"].map((id) => this.custom.querySelector(`#${id}`))
		const mistake = (input, text) => {
			fill(this.wrong, text)
			input.setAttribute("aria-invalid", "true")
			input.focus()
		}
		for (const input of [from, to]) {
			input.removeAttribute("aria-invalid")
			if (!isDate(input.value) || input.value > "2099-12-30") return mistake(input, "Enter a date in the years 2000 to 2099.")
		}
		if (from.value > to.value) return mistake(to, "The last day must not be before the first.")
		if (addDays(from.value, 3660) <= to.value) return mistake(to, "A range has at most 3,660 days.")
		fill(this.wrong)
		return this.page.change({ range: { from: from.value, to: to.value }, interval: null })
	}
}

// ClassFilter changes the classes of a page. It is also the legend of the chart, and shows how many clicks each class has.
export class ClassFilter {
	constructor(page) {
		this.page = page
		this.counts = {}
		this.boxes = {}
		const item = (name) => {
			const box = el("input", { type: "checkbox", id: `class-${name}` })
			this.boxes[name] = box
			this.counts[name] = el("span", { class: "count" })
			box.addEventListener("change", () => this.changed())
			return el("label", { class: `class ${name}`, for: box.id, title: classWords[name][1] }, box, el("span", { class: "swatch", "aria-hidden": "true" }), `${classWords[name][0]} `, this.counts[name])
		}
		this.all = button("All classes", () => page.change({ classes: this.allChosen() ? ["human"] : Object.keys(classes) }), { kind: "quiet small", id: "all-classes" })
		this.element = el("fieldset", { class: "classes" }, el("legend", { class: "unseen" }, "Classes of clicks"), Object.keys(classes).map(item), this.all)
		this.draw()
	}

	allChosen() {
		return this.page.state.classes.length === Object.keys(classes).length
	}

	changed() {
		const chosen = Object.keys(classes).filter((other) => this.boxes[other].checked)
		// Without any class there is nothing to show: people are what the page is for.
		if (chosen.length === 0) chosen.push("human")
		this.page.change({ classes: chosen })
	}

	draw() {
		for (const [name, box] of Object.entries(this.boxes)) box.checked = this.page.state.classes.includes(name)
		this.all.querySelector("span").replaceChildren(this.allChosen() ? "Only human" : "All classes")
	}

	count(byClass) {
		for (const [name, place] of Object.entries(this.counts)) {
			const text = number(byClass[name] ?? 0)
			if (place.textContent !== text) place.replaceChildren(text)
		}
	}
}

// classHelp explains the classes.
export function classHelp() {
	return el("details", { class: "help small" }, el("summary", {}, "What the classes mean"),
		el("dl", {}, Object.values(classWords).map(([name, about]) => el("div", {}, el("dt", {}, name), el("dd", { class: "soft" }, about)))),
		el("p", { class: "soft" }, "A click gets its class from its request headers. The latest clicks, below, show the reason for each."))
}
