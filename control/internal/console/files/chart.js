// A chart of stacked columns over time, drawn as SVG, and the same values as a table.
import { button, counted, el, fill, number } from "./dom.js"

const height = 240
const margin = { top: 12, right: 4, bottom: 26 }

let charts = 0

function svg(tag, attributes = {}, ...children) {
	const made = document.createElementNS("http://www.w3.org/2000/svg", tag)
	for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value)
	made.append(...children.flat(2).filter(Boolean))
	return made
}

// roundStep returns the distance of about n ticks up to most: 1, 2 or 5 times a power of ten, and a whole number.
export function roundStep(most, n) {
	const rough = Math.max(1, most / n)
	const power = 10 ** Math.floor(Math.log10(rough))
	return power * [1, 2, 5, 10].find((digit) => digit * power >= rough)
}

const compact = new Intl.NumberFormat(undefined, { notation: "compact", maximumFractionDigits: 1 })
const tickText = (n) => n < 10000 ? number(n) : compact.format(n)

// Chart shows rows {start, end, values, more} in a time zone. values has a number for each series, and series are {key, name}. more is text
// that belongs to the row, or empty.
export class Chart {
	constructor(title) {
		this.id = `chart-${++charts}`
		this.selected = null
		this.readout = el("p", { class: "readout small" })
		this.picture = el("div", { class: "picture" })
		this.slider = el("div", { class: "slider", role: "slider", tabindex: "0", "aria-label": "Values of the chart", "aria-orientation": "horizontal", "aria-valuemin": "0" })
		this.plot = el("div", { class: "plot" }, this.picture, this.slider)
		this.table = el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `${title}, as a table`, hidden: true })
		this.hint = el("p", { class: "soft small", hidden: true }, "The hatched columns can still change.")
		this.toggle = button("Show as table", () => this.flip(), { kind: "quiet small", id: "as-table" })
		this.element = el("div", { class: "chart" }, this.readout, this.plot, this.hint, this.table)
		this.listen()
		this.width = 0
		new ResizeObserver(([entry]) => {
			const width = Math.round(entry.contentRect.width)
			if (width === this.width || width === 0) return
			this.width = width
			if (this.data) this.draw()
		}).observe(this.plot)
	}

	// show draws data: {rows, series, interval, zone, title, about, finalUntil}. Columns that end after finalUntil can still change.
	show(data) {
		this.data = data
		this.readout.classList.toggle("many", data.series.length > 1)
		this.words = wordsOf(data)
		if (this.selected !== null && this.selected >= data.rows.length) this.selected = null
		this.draw()
		this.drawTable()
		this.read()
	}

	// setFinal changes finalUntil. It draws only if that changes the chart.
	setFinal(finalUntil) {
		const before = this.firstUnfinished()
		this.data.finalUntil = finalUntil
		if (before !== this.firstUnfinished()) this.draw()
	}

	firstUnfinished() {
		return this.data.rows.findIndex((row) => row.end > this.data.finalUntil)
	}

	flip() {
		const asTable = this.table.hidden
		this.table.hidden = !asTable
		this.plot.hidden = this.readout.hidden = asTable
		this.toggle.querySelector("span").replaceChildren(asTable ? "Show as chart" : "Show as table")
	}

	listen() {
		const at = (event) => {
			const box = this.slider.getBoundingClientRect()
			return Math.floor((event.clientX - box.left) / box.width * this.data.rows.length)
		}
		this.slider.addEventListener("pointermove", (event) => this.select(at(event)))
		this.slider.addEventListener("pointerdown", (event) => this.select(at(event)))
		this.slider.addEventListener("pointerleave", () => {
			if (document.activeElement !== this.slider) this.select(null)
		})
		this.slider.addEventListener("focus", () => this.select(this.selected ?? this.data.rows.length - 1))
		this.slider.addEventListener("blur", () => this.select(null))
		this.slider.addEventListener("keydown", (event) => {
			const last = this.data.rows.length - 1
			const now = this.selected ?? last
			const to = { ArrowLeft: now - 1, ArrowDown: now - 1, ArrowRight: now + 1, ArrowUp: now + 1, PageUp: now + 7, PageDown: now - 7, Home: 0, End: last, Escape: null }[event.key]
			if (to === undefined) return
			event.preventDefault()
			this.select(to)
		})
	}

	// select marks a column and shows its values; null marks none.
	select(index) {
		this.selected = index === null ? null : Math.min(Math.max(index, 0), this.data.rows.length - 1)
		this.mark()
		this.read()
	}

	mark() {
		const band = this.picture.querySelector(".band")
		if (!band) return
		const { left, step } = this.scale
		band.setAttribute("x", left + (this.selected ?? 0) * step)
		band.setAttribute("visibility", this.selected === null ? "hidden" : "visible")
	}

	// read shows the values of the marked column, or which column is the highest.
	read() {
		const { rows } = this.data
		const sums = rows.map(sumOf)
		const index = this.selected ?? (sums.some((sum) => sum > 0) ? sums.indexOf(Math.max(...sums)) : -1)
		this.slider.setAttribute("aria-valuemax", Math.max(0, rows.length - 1))
		this.slider.setAttribute("aria-valuenow", this.selected ?? Math.max(0, rows.length - 1))
		this.slider.setAttribute("aria-valuetext", this.textOf(this.selected ?? rows.length - 1))
		if (index < 0) return fill(this.readout, el("span", { class: "soft" }, "No clicks in this time."))
		fill(this.readout, this.selected === null && el("span", { class: "soft" }, "Most: "), el("strong", {}, number(sums[index])), " · ", this.words.span(rows[index]),
			el("span", { class: "soft" }, this.detailOf(rows[index])))
	}

	detailOf(row) {
		const parts = this.data.series.length > 1 ? this.data.series.filter(({ key }) => row.values[key] > 0).map(({ key, name }) => `${name} ${number(row.values[key])}`) : []
		if (row.more) parts.push(row.more)
		return parts.length ? ` · ${parts.join(", ")}` : ""
	}

	textOf(index) {
		const row = this.data.rows[index]
		return row ? `${this.words.span(row)}: ${counted(sumOf(row), "click")}${this.detailOf(row)}` : "No clicks"
	}

	draw() {
		if (this.width === 0) return
		const { rows, series, title, about } = this.data
		const most = Math.max(...rows.map(sumOf), 1)
		const step = roundStep(most, 4)
		const top = Math.ceil(most / step) * step
		const ticks = Array.from({ length: top / step + 1 }, (_, i) => i * step)
		// 7.5 is the width of a digit of the labels, at most.
		const left = Math.max(...ticks.map((tick) => tickText(tick).length)) * 7.5 + 10
		const wide = this.width - left - margin.right
		const high = height - margin.top - margin.bottom
		const y = (value) => margin.top + high * (1 - value / top)
		const bandStep = wide / rows.length
		this.scale = { left, step: bandStep }
		const gap = bandStep > 24 ? Math.min(bandStep * .25, 14) : bandStep > 5 ? bandStep * .2 : 0
		fill(this.picture, svg("svg", { class: "figure", width: this.width, height, viewBox: `0 0 ${this.width} ${height}`, role: "img", "aria-labelledby": `${this.id}-title ${this.id}-about` },
			svg("title", { id: `${this.id}-title` }, title), svg("desc", { id: `${this.id}-about` }, about),
			this.drawUnfinished(left, bandStep, high),
			svg("rect", { class: "band", x: left, y: margin.top, width: bandStep, height: high, visibility: "hidden" }),
			ticks.map((tick) => [
				svg("line", { class: tick === 0 ? "base" : "grid", x1: left, x2: this.width - margin.right, y1: y(tick), y2: y(tick) }),
				svg("text", { x: left - 8, y: y(tick) + 4, "text-anchor": "end" }, tickText(tick)),
			]),
			columns(rows, series, (i) => left + i * bandStep + gap / 2, bandStep - gap, y),
			this.words.labels(wide, bandStep).map(([i, text]) => svg("g", {},
				svg("line", { class: "base", x1: left + i * bandStep, x2: left + i * bandStep, y1: y(0), y2: y(0) + 5 }),
				svg("text", { x: left + i * bandStep + 2, y: height - 6 }, text)))))
		// The slider covers the columns only, so that a place on it is a column.
		this.slider.style.insetInlineStart = `${left}px`
		this.slider.style.inlineSize = `${wide}px`
		this.mark()
	}

	// drawUnfinished hatches the columns that can still change.
	drawUnfinished(left, step, high) {
		const { rows } = this.data
		const first = this.firstUnfinished()
		this.hint.hidden = first < 0
		if (first < 0) return null
		const pattern = `${this.id}-hatch`
		return [
			svg("defs", {}, svg("pattern", { id: pattern, width: 8, height: 8, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" },
				svg("line", { class: "hatch", x1: 0, x2: 0, y1: 0, y2: 8 }))),
			svg("rect", { class: "unfinished", x: left + first * step, y: margin.top, width: (rows.length - first) * step, height: high, fill: `url(#${pattern})` }),
		]
	}

	drawTable() {
		const { rows, series, title } = this.data
		const more = rows.some((row) => row.more)
		const top = this.table.scrollTop
		fill(this.table, el("table", {}, el("caption", { class: "soft small" }, title),
			el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "Time"), el("th", { scope: "col" }, "Clicks"),
				series.length > 1 && series.map(({ name }) => el("th", { scope: "col" }, name)), more && el("th", { scope: "col" }, "Visitors"))),
			el("tbody", {}, rows.map((row) => el("tr", {}, el("th", { scope: "row" }, this.words.span(row)), el("td", {}, number(sumOf(row))),
				series.length > 1 && series.map(({ key }) => el("td", {}, number(row.values[key]))), more && el("td", {}, row.more.replace(/ visitors?$/, "")))).reverse())))
		this.table.scrollTop = top
	}
}

const sumOf = (row) => Object.values(row.values).reduce((sum, value) => sum + value, 0)

// columns draws one path for each series, which is cheaper than one element for each value.
function columns(rows, series, x, width, y) {
	const below = rows.map(() => 0)
	return series.map(({ key }) => {
		const path = rows.map((row, i) => {
			const value = row.values[key]
			if (!value) return ""
			const [low, high] = [y(below[i]), y(below[i] + value)]
			below[i] += value
			// A value is at least one pixel high: it must not look like none. The line between two series is one pixel, if there is room.
			const part = Math.max(1, low - high - (low - high > 3 && series.length > 1 ? 1 : 0))
			return `M${x(i).toFixed(2)} ${low.toFixed(2)}h${width.toFixed(2)}v${(-part).toFixed(2)}h${(-width).toFixed(2)}z`
		}).join("")
		return path && svg("path", { class: `series ${key}`, d: path })
	})
}

// wordsOf returns the words for the times of rows, in their time zone.
function wordsOf({ rows, interval, zone }) {
	const form = (options) => {
		const format = new Intl.DateTimeFormat(undefined, { timeZone: zone, ...options })
		return (at) => format.format(at)
	}
	const date = form({ weekday: "short", day: "numeric", month: "short", year: "numeric" })
	const short = form({ day: "numeric", month: "short" })
	const clock = form({ hour: "2-digit", minute: "2-digit" })
	const month = form({ month: "long", year: "numeric" })
	const names = { hour: clock, day: short, week: short, month: form({ month: "short" }) }
	const range = new Intl.DateTimeFormat(undefined, { timeZone: zone, day: "numeric", month: "short", year: "numeric" })
	const shortMonth = form({ month: "short" })
	const span = ({ start, end }) => {
		if (interval === "hour") return `${date(start)}, ${clock(start)}`
		if (interval === "month") return month(start)
		return interval === "week" ? range.formatRange(start, new Date(end - 1)) : date(start)
	}
	const parts = new Intl.DateTimeFormat("en-u-ca-gregory-hc-h23", { timeZone: zone, year: "numeric", month: "numeric", day: "numeric", weekday: "short", hour: "numeric", minute: "numeric" })
	const partsOf = (at) => Object.fromEntries(parts.formatToParts(at).map(({ type, value }) => [type, value]))
	// labels returns the columns to label, [index, text]: the finest of the round distances for which there is room.
	const labels = (wide, step) => {
		if (rows.length === 0) return []
		const all = rows.map(({ start }) => partsOf(start))
		const firstOf = (...names) => (p, i) => i === 0 ? false : names.some((name) => p[name] !== all[i - 1][name])
		const newMonth = firstOf("month", "year")
		const quarter = (p, i) => newMonth(p, i) && (p.month - 1) % 3 === 0
		const year = (p, i) => i > 0 && p.year !== all[i - 1].year
		const hours = (n) => (p) => p.minute === "0" || p.minute === "00" ? Number(p.hour) % n === 0 : false
		const newDay = firstOf("day", "month")
		const monthName = (at, p) => p.month === "1" ? p.year : shortMonth(at)
		const levels = {
			hour: [[hours(1)], [hours(2)], [hours(3)], [hours(6)], [hours(12)], [newDay, short], [(p, i) => newDay(p, i) && p.weekday === "Mon", short]],
			day: [[() => true], [(p, i) => i % 2 === 0], [(p) => p.weekday === "Mon"], [(p) => p.weekday === "Mon" && Math.floor(p.day / 7) % 2 === 0], [newMonth, monthName], [quarter, monthName], [year, monthName]],
			week: [[() => true], [(p, i) => i % 2 === 0], [newMonth, monthName], [quarter, monthName], [year, monthName]],
			month: [[() => true, monthName], [quarter, monthName], [year, monthName]],
		}[interval]
		const name = (i, how) => {
			if (interval === "hour" && how === clock && Number(all[i].hour) === 0) return short(rows[i].start)
			return how(rows[i].start, all[i])
		}
		for (const [which, how = names[interval]] of levels) {
			const chosen = all.map((p, i) => i).filter((i) => which(all[i], i))
			const texts = chosen.map((i) => [i, name(i, how)])
			// 7 is the width of a character of the labels, and 14 the distance between two labels, at least.
			const room = texts.every(([i, text], n) => (n + 1 < texts.length ? (texts[n + 1][0] - i) * step : wide - i * step + 14) >= text.length * 7 + 14)
			if (texts.length > 0 && room) return texts
		}
		return [[0, name(0, names[interval])]]
	}
	return { span, labels }
}
