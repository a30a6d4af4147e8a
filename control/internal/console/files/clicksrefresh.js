// Refreshing of a page while a person looks at it.
import { orThrow } from "./api.js"

// A click shows within two seconds while the page is in use: it takes up to one second until the service has counted it. A page that is
// only looked at is refreshed less often, so that many of them behind one address stay within the limit of requests.
const quick = 800
const slow = 4000
const inUse = 3 * 60_000

// Each request keeps the session from ending. A page that was left open must not do that all day.
const pausedAfter = 15 * 60_000

// share is the part of the time that requests may take: those of a large organization take longer.
const share = 1 / 4

const inputs = ["pointermove", "pointerdown", "keydown", "wheel", "touchstart"]

export class Refresher {
	// look refreshes the page. say shows why it is not refreshed, an empty text if it is.
	constructor(signal, { look, say }) {
		Object.assign(this, { signal, look, say, used: Date.now(), failures: 0, took: 0 })
		const passive = { signal, passive: true }
		for (const name of inputs) addEventListener(name, () => this.use(), passive)
		document.addEventListener("visibilitychange", () => document.visibilityState === "visible" && this.use(true), { signal })
		signal.addEventListener("abort", () => clearTimeout(this.timer))
		this.wait()
	}

	// use notes that a person uses the page. now: it was not shown before.
	use(now = false) {
		const paused = Date.now() - this.used > pausedAfter
		const idle = Date.now() - this.used > inUse
		this.used = Date.now()
		if (!this.busy && (now || paused || idle)) this.run()
	}

	wait() {
		clearTimeout(this.timer)
		if (this.signal.aborted) return
		const usual = Date.now() - this.used > inUse ? slow : quick
		this.timer = setTimeout(() => this.run(), Math.max(usual * 2 ** Math.min(this.failures, 5), this.took / share))
	}

	async run() {
		if (this.busy || this.signal.aborted) return
		// What ended the session has a dialog of its own, which goes away when the person is back.
		if (document.visibilityState !== "visible" || document.querySelector("dialog.interruption[open]")) return this.wait()
		if (Date.now() - this.used > pausedAfter) {
			this.say("Not refreshed while the page is not in use")
			return // until it is used
		}
		this.busy = true
		const begun = performance.now()
		try {
			await this.look()
			this.failures = 0
			this.say("")
		} catch (cause) {
			if (this.signal.aborted) return
			this.failures++
			this.say(`Could not refresh: ${orThrow(cause).message}`)
		} finally {
			this.busy = false
			this.took = performance.now() - begun
			this.wait()
		}
	}
}
