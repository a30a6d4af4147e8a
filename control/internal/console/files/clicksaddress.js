// What the page of clicks shows, as the values of its address. A sign-in leads back to addresses of at most 64 characters, so the values are
// short: the longest address has 64.
import { hashOf } from "./route.js"

// classes are the classes of a click in the order of the page, each with its letter in the address.
export const classes = { human: "h", preview: "p", agent: "a", bot: "b", scanner: "s", prefetch: "f", head: "e" }

const intervals = { hour: "h", day: "d", week: "w", month: "m" }
const ranges = ["1", "7", "30", "90", "365", "month"]

export const standard = { linkId: null, range: "30", interval: null, classes: ["human"], utc: false }

// readAddress returns what the values of an address show. A value that is not valid counts as absent. range is a name, or {from, to}: the first
// and the last date.
export function readAddress({ l = "", r = "", i, c = "", u = "" }) {
	return {
		linkId: readId(l), range: readRange(r) ?? standard.range, interval: nameOf(intervals, i) ?? standard.interval, classes: readClasses(c), utc: u !== "",
	}
}

// valuesOf is the reverse of readAddress. It leaves out what is standard.
export function valuesOf({ linkId, range, interval, classes: chosen, utc }) {
	const letters = chosen.length === Object.keys(classes).length ? "all" : chosen.map((name) => classes[name]).join("")
	return {
		l: linkId && shortId(linkId),
		r: typeof range !== "string" ? `${shortDate(range.from)}-${shortDate(range.to)}` : range !== standard.range ? range : "",
		i: interval && intervals[interval], c: letters !== "h" ? letters : "", u: utc ? "1" : "",
	}
}

export const writeAddress = (state) => hashOf("clicks", valuesOf(state))

// linkAddress is the address of the page of one link.
export const linkAddress = (id) => writeAddress({ ...standard, linkId: id })

function nameOf(letters, letter) {
	return Object.keys(letters).find((name) => letters[name] === letter)
}

function readClasses(text) {
	if (text === "all") return Object.keys(classes)
	const chosen = Object.keys(classes).filter((name) => text.includes(classes[name]))
	return chosen.length ? chosen : standard.classes
}

function readRange(text) {
	if (ranges.includes(text)) return text
	const dates = /^(\d{6})-(\d{6})$/.exec(text)?.slice(1).map((six) => `20${six.slice(0, 2)}-${six.slice(2, 4)}-${six.slice(4)}`)
	return dates && dates.every(isDate) && dates[0] <= dates[1] ? { from: dates[0], to: dates[1] } : null
}

// isDate reports whether a text is a date of the years for which there are figures, 2000 to 2099.
export function isDate(text) {
	const at = new Date(`${text}T00:00:00Z`)
	return /^20\d\d-\d\d-\d\d$/.test(text) && !Number.isNaN(at.getTime()) && at.toISOString().startsWith(text)
}

const shortDate = (date) => date.replaceAll("-", "").slice(2)

// shortId is a UUID in 22 characters: base64url.
function shortId(id) {
	const bytes = id.replaceAll("-", "").match(/../g).map((two) => Number.parseInt(two, 16))
	return btoa(String.fromCharCode(...bytes)).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "")
}

// readId accepts a short id and a UUID.
function readId(text) {
	if (/^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/.test(text)) return text
	if (!/^[A-Za-z0-9_-]{22}$/.test(text)) return null
	const hex = [...atob(text.replaceAll("-", "+").replaceAll("_", "/"))].map((char) => char.charCodeAt(0).toString(16).padStart(2, "0")).join("")
	return [hex.slice(0, 8), hex.slice(8, 12), hex.slice(12, 16), hex.slice(16, 20), hex.slice(20)].join("-")
}
