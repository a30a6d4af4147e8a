// The address of a view: the name of its section and what the section shows, in the fragment, such as #links?tag=spring&page=2.

// kept is where a fragment that is too long for a sign-in waits for its end. It is for this tab alone.
const kept = "deeplink.return"

// passes matches the fragments that a sign-in takes with it.
const passes = /^[A-Za-z0-9_?=&%-]{1,64}$/

// readRoute returns the name of the section and its values, all of them texts.
export function readRoute(fragment = location.hash.slice(1)) {
	const [name, query = ""] = fragment.split(/\?(.*)/s)
	return { name, values: Object.fromEntries(new URLSearchParams(query)) }
}

// hashOf returns the address of a view. What is empty is left out.
export function hashOf(name, values = {}) {
	const set = Object.entries(values).filter(([, value]) => value !== "" && value !== null && value !== undefined)
	return `#${[name, set.map(([key, value]) => `${key}=${encoded(value)}`).join("&")].filter((part) => part !== "").join("?")}`
}

// encoded leaves only characters that a sign-in takes with it.
const encoded = (value) => encodeURIComponent(value).replace(/[.!~*'()]/g, (character) => `%${character.charCodeAt(0).toString(16).toUpperCase()}`)

// setRoute names the view in the address without showing it again. The browser's Back leads to the view before.
export function setRoute(name, values) {
	const hash = hashOf(name, values)
	if (hash !== location.hash) history.pushState(null, "", hash)
}

// returnAddress is where a sign-in in this tab comes back to.
export function returnAddress() {
	const fragment = location.hash.slice(1)
	if (fragment === "") return "/console"
	if (passes.test(fragment)) return `/console#${fragment}`
	const { name } = readRoute()
	if (!passes.test(name)) return "/console"
	try {
		sessionStorage.setItem(kept, fragment)
	} catch {
		// Without storage, the filters are lost and the section is not.
	}
	return `/console#${name}`
}

// restoreRoute names the view from before the sign-in again, if the sign-in came back to its section.
export function restoreRoute() {
	let fragment = null
	try {
		fragment = sessionStorage.getItem(kept)
		sessionStorage.removeItem(kept)
	} catch {
		return
	}
	if (fragment !== null && readRoute(fragment).name === location.hash.slice(1)) history.replaceState(null, "", `#${fragment}`)
}
