// Ranges of dates, intervals and time zones of the page of clicks. A date is a text such as 2030-01-31.

export const rangeNames = [["1", "Today"], ["7", "Last 7 days"], ["30", "Last 30 days"], ["90", "Last 90 days"], ["month", "This month"],
	["365", "Last 12 months"], ["custom", "From – to…"]]

// quartersKept is for how many days there are figures that are finer than a day (UTC), less one for the time zone.
const quartersKept = 399

// viewerZone is the time zone of the browser. UTC stands for one that is not in the IANA database.
export function viewerZone() {
	const zone = Intl.DateTimeFormat().resolvedOptions().timeZone
	return zone && /^[A-Z]/.test(zone) && zone !== "Etc/Unknown" ? zone : "UTC"
}

// dateIn is the date of an instant in a time zone.
export function dateIn(at, zone) {
	const parts = Object.fromEntries(new Intl.DateTimeFormat("en-u-ca-gregory", { timeZone: zone, year: "numeric", month: "2-digit", day: "2-digit" })
		.formatToParts(at).map(({ type, value }) => [type, value]))
	return `${parts.year}-${parts.month}-${parts.day}`
}

export const addDays = (date, days) => new Date(Date.parse(date) + days * 86400000).toISOString().slice(0, 10)

export const daysBetween = (from, to) => Math.round((Date.parse(to) - Date.parse(from)) / 86400000)

// datesOf returns the dates of a range: from inclusive, to exclusive, in a time zone that has figures for them. running: the range is not over.
export function datesOf(range, zone, now) {
	const today = dateIn(now, zone)
	if (typeof range !== "string") {
		const old = range.from < addDays(dateIn(now, "UTC"), -quartersKept)
		return { from: range.from, to: addDays(range.to, 1), zone: old ? "UTC" : zone, old, running: range.to >= today }
	}
	const from = range === "month" ? `${today.slice(0, 8)}01` : addDays(today, 1 - Number(range))
	return { from, to: addDays(today, 1), zone, old: false, running: true }
}

// utcDays returns the days (UTC) for figures that exist per day only: the same dates, and the present day if the range is not over.
export function utcDays({ from, to, running }, now) {
	const today = dateIn(now, "UTC")
	if (!running) return { from, to }
	return { from: from < today ? from : today, to: to > today ? to : addDays(today, 1) }
}

// intervalsFor returns the intervals that fit the number of days, the usual one first.
export function intervalsFor({ from, to, old }) {
	const days = daysBetween(from, to)
	const fits = [
		!old && days <= 31 && ["hour", "Hour"], days > 1 && days <= 400 && ["day", "Day"], days > 13 && ["week", "Week"], days > 59 && ["month", "Month"],
	].filter(Boolean)
	const usual = days <= 2 && !old ? "hour" : days <= 120 ? "day" : days <= 800 ? "week" : "month"
	return { fits: fits.length ? fits : [["day", "Day"]], usual }
}
