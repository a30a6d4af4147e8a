// The words of the page of clicks for what the service counts.

export const classWords = {
	human: ["Human", "A browser in the hands of a person, as far as its request shows."],
	preview: ["Previews", "A chat or a social network fetched the link to show a card for it."],
	agent: ["AI agents", "An assistant fetched the link for a person."],
	bot: ["Bots", "Crawlers of search engines, and programs such as curl."],
	scanner: ["Scanners", "Security products that open links to check them."],
	prefetch: ["Prefetches", "A browser loaded the link in advance, before a person opened it."],
	head: ["HEAD checks", "A program requested the headers only, as link checkers do."],
}

const reasons = {
	head: "method HEAD", prefetch: "says that it prefetches", assistant: "names an AI assistant", "preview-bot": "names a preview bot",
	"scanner-name": "names a scanner", crawler: "names a crawler", automation: "a program, such as curl or a headless browser",
	"no-agent": "does not name its program", "not-a-browser": "not a known browser", list: "on the public list of crawlers",
	"no-browser-headers": "lacks the headers that browsers send", "hints-contradict": "its headers contradict each other", browser: "a browser",
}

export const reasonWords = (reason) => reasons[reason] ?? reason

const outcomes = {
	redirect: "Sent to the website", handoff: "Handed to the app or store", landing: "Shown the landing page", preview: "Shown the page for bots",
	inactive: "Link inactive", expired: "Link expired", suspended: "Organization suspended", unknown: "Unknown link",
}

export const outcomeWords = (outcome) => outcomes[outcome] ?? outcome

const systems = { ios: "iOS", android: "Android", windows: "Windows", macos: "macOS", linux: "Linux", chromeos: "ChromeOS", other: "Other" }
const browsers = {
	chrome: "Chrome", safari: "Safari", firefox: "Firefox", edge: "Edge", opera: "Opera", samsung: "Samsung Internet", facebook: "Facebook app",
	messenger: "Messenger app", instagram: "Instagram app", threads: "Threads app", tiktok: "TikTok app", snapchat: "Snapchat app", linkedin: "LinkedIn app",
	x: "X app", pinterest: "Pinterest app", line: "LINE app", wechat: "WeChat app", "google-app": "Google app", "in-app": "Another app's browser", other: "Other",
}
const devices = { mobile: "Phone", tablet: "Tablet", desktop: "Computer", other: "Other" }

const named = (names) => (key) => names[key] ?? key

// inLanguage names a code in the language of the viewer's browser.
function inLanguage(type) {
	const names = new Intl.DisplayNames(undefined, { type, fallback: "none" })
	return (key) => {
		try {
			const name = names.of(key)
			return name ? `${name} (${key})` : key
		} catch {
			return key // what looks like a code is not always one
		}
	}
}

// dimensions are what clicks can be grouped by: the name, the words for a key and for none, and whether there are figures per day (UTC) only.
export const dimensions = {
	link: { name: "Link", none: "No link" },
	domain: { name: "Domain", none: "No domain, or the link was deleted" },
	channel: { name: "Channel", none: "No channel" },
	tag: { name: "Tag", none: "No tag", words: (key) => `#${key}` },
	utmSource: { name: "Source", none: "No UTM source" },
	utmMedium: { name: "Medium", none: "No UTM medium" },
	utmCampaign: { name: "Campaign", none: "No UTM campaign" },
	country: { name: "Country", none: "Unknown", words: inLanguage("region"), daily: true },
	referrer: { name: "Referrer", none: "None (typed, an app, or hidden)", daily: true },
	language: { name: "Language", none: "Not stated", words: inLanguage("language"), daily: true },
	device: { name: "Device", none: "Unknown", words: named(devices), daily: true },
	os: { name: "System", none: "Unknown", words: named(systems), daily: true },
	browser: { name: "Browser", none: "Unknown", words: named(browsers), daily: true },
	outcome: { name: "Response", none: "Unknown", words: outcomeWords },
	class: { name: "Class", none: "Unknown", words: (key) => classWords[key]?.[0] ?? key },
}

// keyWords are the words for a key of a dimension.
export function keyWords(dimension, key) {
	const { none, words } = dimensions[dimension]
	if (key === null) return none
	if (key === "(other)") return "Other (too many values on one day)"
	if (key === "(unrecorded)") return "Counted without details"
	return words ? words(key) : key
}
