// What a person chose for this browser. It is no secret, belongs to no organization, and may be lost at any time.
const prefix = "deeplink."

// readSetting returns a setting, or null if there is none that can be read.
export function readSetting(name) {
	try {
		return JSON.parse(localStorage.getItem(prefix + name))
	} catch {
		return null
	}
}

// saveSetting keeps a setting. Null forgets it.
export function saveSetting(name, value) {
	try {
		if (value === null) localStorage.removeItem(prefix + name)
		else localStorage.setItem(prefix + name, JSON.stringify(value))
	} catch {
		// Without storage, the choice lasts until the page is loaded again.
	}
}
