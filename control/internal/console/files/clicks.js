// The page of clicks: of the organization, or of one link.
import { get, orThrow, query } from "./api.js"
import { alertOf, button, copyButton, counted, el, fill, heading, icon, number, webLink } from "./dom.js"
import { Chart } from "./chart.js"
import { readAddress, valuesOf, writeAddress } from "./clicksaddress.js"
import { firstClick } from "./clicksfirst.js"
import { classHelp, ClassFilter, RangeFilter } from "./clicksfilter.js"
import { Groups } from "./clicksgroups.js"
import { Latest } from "./clickslatest.js"
import { Completeness, missingNotice, notesOf } from "./clicksnotice.js"
import { addDays, datesOf, intervalsFor, utcDays, viewerZone } from "./clicksrange.js"
import { Refresher } from "./clicksrefresh.js"
import { setRoute } from "./route.js"
import { classWords } from "./clickswords.js"

export async function showClicks(place, session, { signal, values }) {
	const page = new ClicksPage(session, readAddress(values), signal)
	await page.open()
	fill(place, page.element)
	page.follow()
}

// groupsEvery is how often the cards are refreshed at most, in milliseconds: each of them is a query of its own.
const groupsEvery = 4000

// finalWithin is the age of asOf up to which the chart marks nothing as unfinished, in milliseconds.
const finalWithin = 60_000

class ClicksPage {
	constructor(session, state, signal) {
		Object.assign(this, { session, state, signal, link: null, groupsAt: 0 })
		this.own = viewerZone()
		this.formats = new Map()
		this.complete = new Completeness()
		this.body = el("div", { class: "page", hidden: true })
		this.tiles = el("div", { class: "tiles" })
		this.notice = el("div", { class: "notice" })
		this.first = el("div")
		this.notes = el("div", { class: "notes soft small" })
		this.problem = el("div")
		this.title = el("h2", {}, "")
		this.chart = new Chart("Clicks over time")
		this.range = new RangeFilter(this)
		this.filter = new ClassFilter(this)
		this.cards = this.makeCards()
		this.latest = new Latest(this)
	}

	makeCards() {
		const where = [["Where from", ["referrer", "country", "language"]], ["Devices", ["device", "os", "browser"]]]
		const all = this.state.linkId ? [...where, ["Responses", ["outcome"]]] : [["Links", ["link", "domain", "outcome"]], ["Campaigns", ["channel", "tag", "utmSource", "utmMedium", "utmCampaign"]], ...where]
		return all.map(([title, names]) => new Groups(title, names, this))
	}

	// open reads everything that the page shows at first; the cards follow.
	async open() {
		if (this.state.linkId) {
			try {
				await this.readLink()
			} catch (cause) {
				if (orThrow(cause).status !== 404) throw cause // the figures of a deleted link stay
			}
			document.title = `${this.link ? this.name() : "Deleted link"} · Clicks · ${this.session.organization.name} · Deeplink console`
		}
		await this.loadFigures()
		this.element = el("div", { class: "page" }, this.heading(), this.notice,
			el("div", { class: "card filters" }, this.range.element), this.first, this.body)
		fill(this.body, this.tiles,
			el("section", { class: "card", "aria-label": "Clicks over time" }, el("div", { class: "row apart" }, this.title, this.chart.toggle), this.problem, this.filter.element, this.chart.element, classHelp()),
			this.notes,
			el("div", { class: "breakdowns" }, this.cards.map((card) => card.element)),
			this.latest.element)
		this.loadCards()
		this.latest.load()
	}

	name() {
		return this.link.title ?? this.link.shortCode
	}

	heading() {
		if (!this.state.linkId) {
			const made = heading("Clicks", "Who opened your links, and from where.")
			made.firstChild.append(this.complete.element)
			return made
		}
		const made = heading(this.link ? this.name() : "Deleted link", "", el("div", { class: "deeds" },
			this.link && copyButton(this.link.url, { label: "Copy", name: `Copy the short URL: ${this.name()}` }),
			el("a", { class: "quiet main", href: writeAddress({ ...this.state, linkId: null }), id: "all-links" }, icon("clicks"), "All links")))
		made.querySelector("h1").classList.add("anywhere")
		made.querySelector("p").replaceWith(el("p", { class: "anywhere" }, this.link ? webLink(this.link.url) : "There is no such link any more. Its figures stay."), this.complete.element)
		return made
	}

	async readLink() {
		this.link = await get(`/portal/links/${this.state.linkId}?include=clicks`, this.signal)
	}

	get zone() {
		return this.dates().zone
	}

	dates() {
		return datesOf(this.state.range, this.state.utc ? "UTC" : this.own, Date.now())
	}

	interval() {
		const { fits, usual } = intervalsFor(this.dates())
		return fits.some(([name]) => name === this.state.interval) ? this.state.interval : fits.some(([name]) => name === usual) ? usual : fits[0][0]
	}

	rangeQuery() {
		const { from, to, zone } = this.dates()
		return { from, to, timezone: zone, linkId: this.state.linkId }
	}

	// groupQuery is the query of the cards. What is counted per day is counted by days of UTC.
	groupQuery(daily) {
		const chosen = { class: this.state.classes.join(",") }
		if (!daily || this.zone === "UTC") return { ...this.rangeQuery(), ...chosen }
		return { ...this.rangeQuery(), ...utcDays(this.dates(), Date.now()), timezone: "UTC", ...chosen }
	}

	// dayNote says for which days a card is, if they are not those of the page.
	dayNote(daily) {
		if (!daily || this.zone === "UTC") return ""
		const { from, to } = utcDays(this.dates(), Date.now())
		const day = new Intl.DateTimeFormat(undefined, { timeZone: "UTC", day: "numeric", month: "short", year: "numeric" })
		return `Counted by whole days of UTC: ${day.formatRange(new Date(from), new Date(addDays(to, -1)))}. The total can therefore differ a little.`
	}

	// loadFigures reads the series and the totals, and shows them.
	async loadFigures() {
		const { state, own } = this
		const classes = state.classes.join(",")
		try {
			this.figures = await get(`/portal/analytics/clicks${query({ ...this.rangeQuery(), interval: this.interval(), class: classes, limit: 1000 })}`, this.signal)
		} catch (cause) {
			// The browser may have a time zone that the service does not know.
			if (own === "UTC" || !orThrow(cause).details.some(({ field }) => field === "timezone")) throw cause
			this.own = "UTC"
			return this.loadFigures()
		}
		await this.loadVisitors()
		if (state.linkId && this.link) await this.readLink()
		this.draw()
	}

	// loadVisitors reads the visitor-days, which are counted by days of UTC and of class human only.
	async loadVisitors() {
		const { totals } = this.figures
		this.visitors = totals.visitorDays
		if (this.visitors !== null) return
		const { totals: daily, approximate } = await get(`/portal/analytics/clicks${query({ ...this.groupQuery(true), class: "human" })}`, this.signal)
		this.visitors = daily.visitorDays
		this.figures.approximate ||= approximate
	}

	loadCards() {
		this.groupsAt = Date.now()
		return Promise.all(this.cards.map((card) => card.load()))
	}

	// at is an instant in the time zone of the page. dated: always with the date.
	at = (text, { dated = true, milliseconds = false } = {}) => {
		const key = `${this.zone} ${dated} ${milliseconds}`
		if (!this.formats.has(key)) this.formats.set(key, new Intl.DateTimeFormat(undefined, {
			timeZone: this.zone, hour: "2-digit", minute: "2-digit", second: "2-digit", ...milliseconds && { fractionalSecondDigits: 3 },
			...dated && { day: "numeric", month: "short", year: "numeric" },
		}))
		return el("time", { datetime: text, title: text }, this.formats.get(key).format(new Date(text)))
	}

	draw() {
		const { figures, state } = this
		this.drawFreshness(figures)
		this.drawTiles()
		this.filter.count(figures.totals.byClass)
		const { zone, old } = this.dates()
		fill(this.notes, notesOf(figures, { at: this.at, old, zone }).map((note) => el("p", {}, note)))
		const empty = !this.hasClicks()
		this.body.hidden = empty
		if (empty) firstClick(this.first, this)
		else fill(this.first)
		const others = Object.entries(figures.totals.byClass).filter(([name]) => !state.classes.includes(name)).reduce((sum, [, n]) => sum + n, 0)
		fill(this.problem, !empty && figures.totals.clicks === 0 && el("div", { class: "note hidden-clicks" }, icon("warn"),
			el("p", {}, `No ${state.classes.length === 1 ? classWords[state.classes[0]][0].toLowerCase() : "such"} clicks in this time, but ${counted(others, "click")} of other classes.`),
			button("Show all classes", () => this.change({ classes: Object.keys(classWords) }), { kind: "quiet small" })))
		this.drawChart()
	}

	drawChart() {
		const { figures, state } = this
		const interval = this.interval()
		const series = state.classes.map((key) => ({ key, name: classWords[key][0] }))
		fill(this.title, `Clicks per ${interval}`)
		this.chart.show({
			series, interval, zone: this.zone, finalUntil: this.finalUntil(figures),
			title: `${state.linkId ? `Clicks of ${this.link ? this.name() : "a deleted link"}` : "Clicks of all links"} per ${interval}`,
			about: `${counted(figures.totals.clicks, "click")} (${series.map(({ key, name }) => `${name} ${number(figures.totals.byClass[key])}`).join(", ")}). “Show as table” has the same values as a table.`,
			rows: figures.data.map(({ start, end, byClass, visitorDays }) => ({
				start: new Date(start), end: new Date(end), values: Object.fromEntries(state.classes.map((key) => [key, byClass[key]])),
				more: visitorDays === null ? "" : counted(visitorDays, "visitor"),
			})),
		})
	}

	// finalUntil is the time from which on the chart marks its columns as unfinished. While all edges run, it marks none.
	finalUntil({ asOf, complete }) {
		return complete || Date.now() - Date.parse(asOf) <= finalWithin ? Infinity : Date.parse(asOf)
	}

	hasClicks() {
		return Object.values(this.figures.totals.byClass).some((n) => n > 0)
	}

	drawFreshness({ asOf, complete, missing }) {
		this.complete.show({ asOf, complete }, this.at)
		const drawn = JSON.stringify([missing, this.zone])
		if (drawn === this.missingDrawn) return
		this.missingDrawn = drawn
		fill(this.notice, missingNotice(missing, this.at))
	}

	drawTiles() {
		const { totals } = this.figures
		const { byClass } = totals
		const others = Object.values(byClass).reduce((sum, n) => sum + n, 0) - byClass.human
		const tile = (id, value, name, about) => el("div", { class: "card tile", id: `tile-${id}` }, el("p", { class: "value" }, value), el("p", { class: "name" }, name), el("p", { class: "soft small" }, about))
		const visitors = this.visitors === null ? "–" : number(this.visitors)
		const days = this.zone === "UTC" ? "" : " Days of UTC."
		const lifetime = this.link?.clicks
		fill(this.tiles,
			tile("human", number(byClass.human), "Human clicks", "In the time chosen above."),
			tile("visitors", visitors, "Visitor-days", `Different visitors on each day, added up over the days: who comes on three days counts three times.${days}`),
			tile("others", number(others), "Other clicks", "Previews, bots and the like. They are never among the human clicks."),
			lifetime && tile("lifetime", number(lifetime.human), "Human clicks ever", lifetime.lastHumanAt ? ["The last one: ", this.at(lifetime.lastHumanAt, { dated: true }), "."] : "There is none yet."))
	}

	// change shows something else, without moving the focus, and puts it into the address.
	async change(what) {
		Object.assign(this.state, what)
		setRoute("clicks", valuesOf(this.state))
		this.range.draw()
		this.filter.draw()
		const wanted = writeAddress(this.state)
		try {
			await this.loadFigures()
			if (wanted !== writeAddress(this.state) || this.signal.aborted) return
			await Promise.all([this.loadCards(), this.latest.load()])
		} catch (cause) {
			if (this.signal.aborted) return
			fill(this.problem, alertOf(orThrow(cause), button("Try again", () => this.change({}), { kind: "quiet" })))
		}
	}

	// follow keeps the page up to date for as long as it is shown.
	follow() {
		new Refresher(this.signal, {
			// look asks for the totals, which are cheap, and reads the rest only if they have changed.
			look: async () => {
				const address = writeAddress(this.state)
				const now = await get(`/portal/analytics/clicks${query({ ...this.rangeQuery(), class: this.state.classes.join(",") })}`, this.signal)
				if (address !== writeAddress(this.state)) return
				this.drawFreshness(now)
				this.chart.setFinal(this.finalUntil(now))
				const same = (of) => JSON.stringify([of.from, of.to, of.totals.byClass, of.totals.lateClicks, of.countedSince, of.reclassifiedAt])
				if (same(now) !== same(this.figures)) {
					await this.loadFigures()
					this.stale = true
					await this.latest.load()
				}
				if (this.stale && Date.now() - this.groupsAt >= groupsEvery) {
					this.stale = false
					await this.loadCards()
				}
			},
			say: (text) => this.complete.say(text),
		})
	}
}
