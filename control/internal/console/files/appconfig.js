// How the organization's apps are opened.
import { change, get } from "./api.js"
import { el, fill, heading, icon, tell } from "./dom.js"
import { checkWeb, makeForm } from "./form.js"
import { facts } from "./session.js"

const checkScheme = (value) => facts.reservedSchemes.includes(value) ? "Is reserved." : ""

const lines = (text) => text.split(/[\s,]+/).filter((line) => line !== "")

function checkFingerprints(value) {
	const bad = lines(value).findIndex((line) => !new RegExp(facts.patterns.fingerprint).test(line))
	return bad < 0 ? "" : `Line ${bad + 1} must be 32 pairs of hex digits with colons between them.`
}

export async function showAppConfig(place, session, { signal }) {
	const config = await get("/portal/app-config", signal)
	const registered = config.ios || config.android || config.fallbackUrl
	const form = makeForm({ groups: groupsOf(config), verb: "Save", kind: "card", locked: !session.may("admin"), submit: save })
	fill(place,
		heading("App config", "How a short URL opens your apps, and where it leads without them."),
		!registered && el("div", { class: "warning" }, icon("warn"), el("p", {}, "Register at least one app, or a fallback address, before the first link is made.")),
		!session.may("admin") && el("p", { class: "card note" }, icon("app"), "Your role may read this. Administrators change it."),
		form.element)
}

async function save(values) {
	const text = (name) => values[name] || null
	const member = (platform, names) => Object.fromEntries(names.map((name) => [name, text(`${platform}.${name}`)]))
	const fingerprints = lines(values["android.sha256CertFingerprints"])
	const { spread } = await change("PUT", "/portal/app-config", {
		ios: member("ios", ["bundleId", "teamId", "appStoreId", "scheme"]),
		android: { ...member("android", ["packageName", "scheme"]), sha256CertFingerprints: fingerprints.length ? fingerprints : null },
		fallbackUrl: text("fallbackUrl"),
		htmlErrorPages: values.htmlErrorPages,
	})
	tell(spread ? "Saved. Every edge goes by it." : "Saved. The edges follow within seconds.")
}

function groupsOf({ ios, android, fallbackUrl, htmlErrorPages }) {
	const { patterns } = facts
	const scheme = (platform, value) => ({
		name: `${platform}.scheme`, label: "URL scheme", value, size: "half", example: "example", hint: "What the app is opened by: example://…",
		pattern: patterns.scheme, wrong: "Must be 2 to 32 of a-z, 0-9, +, . and -, and begin with a letter.", check: checkScheme,
	})
	return [
		{ legend: "iOS", fields: [
			{ name: "ios.bundleId", label: "Bundle id", value: ios?.bundleId, size: "half", example: "com.example.app", pattern: patterns.bundleId, wrong: "Must be a bundle id such as com.example.app." },
			{ name: "ios.teamId", label: "Team id", value: ios?.teamId, size: "half", example: "ABCDE12345", pattern: patterns.teamId, wrong: "Must be 10 of A-Z and 0-9." },
			{ name: "ios.appStoreId", label: "App Store id", value: ios?.appStoreId, size: "half", example: "123456789", inputmode: "numeric", pattern: patterns.appStoreId, wrong: "Must be 5 to 12 digits." },
			scheme("ios", ios?.scheme),
		] },
		{ legend: "Android", fields: [
			{ name: "android.packageName", label: "Package name", value: android?.packageName, size: "half", example: "com.example.app", pattern: patterns.packageName, wrong: "Must be a package name such as com.example.app." },
			scheme("android", android?.scheme),
			{ name: "android.sha256CertFingerprints", label: "SHA-256 fingerprints of signing certificates", kind: "textarea", mono: true, value: android?.sha256CertFingerprints?.join("\n"), hint: "One a line, 10 at most.", check: checkFingerprints },
		] },
		{ legend: "Without the app", fields: [
			{ name: "fallbackUrl", label: "Fallback address", kind: "url", value: fallbackUrl, max: 2048, example: "https://example.com/", hint: "For links that have none of their own.", check: checkWeb },
			{ name: "htmlErrorPages", label: "Show people a page when a link is gone or unknown", kind: "checkbox", value: htmlErrorPages, hint: "Without it, browsers get the same JSON as programs do." },
		] },
	]
}
