// Deeplink for a web app: its session, the link behind a first visit, who the user is, and events that are not lost. The clients
// for iOS and Android have the same parts under the same names.

export interface Options {
	clientKey: string // svc_sdk_… . Every visitor can read it: a server key must never be here
	controlUrl: string // without /sdk. CONTROL_SDK_ORIGINS of control must list the page's origin; or "", if the page's own server passes /sdk on
	edgeUrl: string // without /match, which every origin may call
	appVersion?: string
	batchDelay?: number // how long an event may wait for others, in ms; all devices of a key share 600 requests a minute
	onDrop?: (entry: Entry, reason: string) => void // told of each entry that will not arrive
}

export interface Session {
	sessionId: string
	deviceId: string
	userId: string | null
	isFirstSession: boolean
	startedAt: string
	expiresAt: string
	link: Link | null // what openedUrl leads to
}

export interface Link {
	id: string
	url: string
	shortCode: string
	path: string // where to go in the app
	params: Record<string, unknown> | null
	[field: string]: unknown
}

/** What may be told of an event. The service judges it: what it rejects is dropped alone. */
export type Details = { linkId?: string; revenue?: number; currency?: string; properties?: Record<string, unknown> }

/** What waits to be sent: an event, or the user of the device from then on (null: an unknown user). */
export type Entry =
	| { at: number; session: string | undefined; event: Details & { id: string; name: string; timestamp: string } }
	| { at: number; user: string | null; traits?: Record<string, unknown> | undefined }

/** An answer other than success; status 0 is none at all. */
export class DeeplinkError extends Error {
	constructor(readonly status: number, message: string, readonly retryAfter = 0) {
		super(message)
	}
}

const maxBatch = 100 // events in a request
const maxBytes = 60_000 // of a request: control takes 64 KiB, and so does a browser from pages that are being left
const maxQueue = 1000 // events that wait; the oldest make room
const sessionIdle = 30 * 60_000
const tokenLife = 24 * 3_600_000
const timeout = 15_000
const backoffBase = 1000
const backoffMost = 10 * 60_000
const mostAsked = 3600 // seconds that a service may ask to wait

export class Deeplink {
	readonly deviceId: string
	private readonly store = new Store()
	private readonly born = Date.now()
	private sending = false
	private failures = 0
	private timer: ReturnType<typeof setTimeout> | undefined

	constructor(private readonly options: Options) {
		if (!options.clientKey.startsWith("svc_sdk_")) throw new DeeplinkError(0, "not a client key")
		this.deviceId = this.store.get("device") ?? newId()
		this.store.set("device", this.deviceId)
		// A page that is hidden may never be shown again, and no other event is sure to come.
		document.addEventListener("visibilitychange", () => void (document.hidden && this.flush()))
		addEventListener("pagehide", () => void this.flush())
		addEventListener("online", () => void this.flush())
		void this.flush() // what a visit before left
	}

	/** Events that were dropped in all visits: too many, too large, or rejected. */
	get dropped(): number {
		return Number(this.store.get("dropped") ?? 0)
	}

	get waiting(): number {
		return this.store.keys("queue.").length
	}

	/**
	 * Begins the session, or goes on with it: one lasts until nothing was heard of it for 30 minutes. The service is asked only when there
	 * is none, or when a link opened the page. Call it when the app comes to the front; when it fails, events are kept all the same.
	 */
	async start(openedUrl?: string): Promise<Session> {
		const known = this.session()
		if (known && openedUrl === undefined) return { ...known, link: null }
		const answer = await this.post(this.options.controlUrl + "/sdk/session", {
			deviceId: this.deviceId, platform: "web", appVersion: this.options.appVersion, locale: navigator.language,
			timezone: Intl.DateTimeFormat().resolvedOptions().timeZone, openedUrl,
		})
		if (!answer.isReceipt) throw answer.error()
		this.keepSession(answer.body)
		return answer.body
	}

	/**
	 * Returns the link behind a first visit, null when there is none. On the web its token can only stand in the page's own address, as ?mt=.
	 * It is removed from there at once, so that a copied address does not contain it. Without a token no request is sent; the clipboard is never read.
	 * When it fails, the token is kept: call it again.
	 */
	async match(): Promise<Link | null> {
		const address = new URL(location.href)
		const found = address.searchParams.get("mt")
		if (found) {
			this.store.set("match", JSON.stringify({ token: found, at: Date.now() }))
			address.searchParams.delete("mt")
			history.replaceState(history.state, "", address)
		}
		const kept = this.read<{ token: string; at: number }>("match")
		if (!kept || Date.now() - kept.at > tokenLife) return null
		const answer = await this.post(this.options.edgeUrl + "/match", {
			clipboardToken: kept.token, deviceId: this.deviceId, platform: "web", appVersion: this.options.appVersion,
		}, {})
		if (!answer.isReceipt && !answer.isInvalid) throw answer.error()
		this.store.set("match", undefined)
		return answer.body.link ?? null
	}

	/** Says who uses the device. Sent in its place among the events, and only when it is news. */
	identify(userId: string, traits?: Record<string, unknown>): void {
		this.enlist({ at: Date.now(), user: userId, traits })
	}

	/** Says that the user of the device is unknown from now on. */
	clearIdentity(): void {
		this.enlist({ at: Date.now(), user: null })
	}

	/** Keeps an event until it has arrived, across reloads. Its id and time are those of now. */
	track(name: string, details: Details = {}): void {
		const at = Date.now()
		const event = { ...details, id: newId(), name, timestamp: new Date(at).toISOString() }
		this.enlist({ at, session: this.session()?.sessionId, event })
	}

	/** Sends what waits, unless the service asked to wait. Resolves when nothing waits or a try has failed. */
	async flush(): Promise<void> {
		if (this.sending) return
		if (this.pause() > 0) return this.schedule(this.pause())
		clearTimeout(this.timer)
		this.timer = undefined
		this.sending = true
		for (let batch = this.nextBatch(); batch.size > 0; batch = this.nextBatch()) {
			if (!this.settle(batch, await this.send([...batch.values()]))) break
		}
		this.sending = false
	}

	private enlist(entry: Entry): void {
		const text = JSON.stringify(entry)
		if (bytes(text) > maxBytes) return this.drop(entry, "too large")
		const identity = "event" in entry ? undefined : JSON.stringify([entry.user, entry.traits])
		if (identity !== undefined && identity === this.store.get("identity")) return
		// A key of its own, so that tabs which share the queue never overwrite it.
		this.store.set("queue." + newId(), text)
		// After the entry: if the page dies between the two, the identity is sent twice, not never.
		if (identity !== undefined) this.store.set("identity", identity)
		for (const [key, oldest] of this.queue()) {
			if (this.waiting <= maxQueue) break
			if ("event" in oldest) this.drop(oldest, "queue full", key)
		}
		if (!this.sending) this.schedule(this.options.batchDelay ?? 10_000)
	}

	/** What waits, in the order in which it happened. */
	private *queue(): Generator<[key: string, Entry]> {
		for (const key of this.store.keys("queue.")) {
			const entry = this.read<Entry>(key)
			if (entry) yield [key, entry]
			else this.store.set(key, undefined)
		}
	}

	/** The first change of identity, or the events before it: as many of one session as fit into a request. */
	private nextBatch(): Map<string, Entry> {
		const batch = new Map<string, Entry>()
		let session: string | undefined
		let size = 0
		for (const [key, entry] of this.queue()) {
			size += bytes(JSON.stringify(entry)) + 1
			if (batch.size === 0) session = this.sessionOf(entry)
			else if (!("event" in entry) || batch.size === maxBatch || size > maxBytes || this.sessionOf(entry) !== session) break
			batch.set(key, entry)
			if (!("event" in entry)) break
		}
		return batch
	}

	/** The session of an event; what happened while this page's was being asked for belongs to that one. */
	private sessionOf(entry: Entry): string | undefined {
		return "event" in entry ? (entry.session ?? (entry.at >= this.born ? this.session()?.sessionId : undefined)) : undefined
	}

	private send(entries: Entry[]): Promise<Answer> {
		const { deviceId, options: { controlUrl } } = this
		const first = entries[0]!
		if ("event" in first) {
			const events = entries.flatMap((entry) => ("event" in entry ? [entry.event] : []))
			return this.post(controlUrl + "/sdk/events", { deviceId, sessionId: this.sessionOf(first), events })
		}
		if (first.user === null) return this.post(controlUrl + "/sdk/identity/clear", { deviceId })
		return this.post(controlUrl + "/sdk/identity", { deviceId, userId: first.user, traits: first.traits })
	}

	/** Takes out of the queue what an answer is about, and nothing else. False: there is no use in going on now. */
	private settle(batch: Map<string, Entry>, answer: Answer): boolean {
		const [first] = batch.values()
		const { rejected } = answer
		if (answer.isInvalid && first && !("event" in first)) rejected.set(0, answer.body.message)
		;[...batch].forEach(([key, entry], place) => {
			const reason = rejected.get(place)
			if (reason !== undefined) this.drop(entry, reason, key)
			else if (answer.isReceipt) this.store.set(key, undefined)
		})
		if (!answer.isReceipt && rejected.size === 0) {
			this.pauseAfter(answer)
			return false
		}
		this.failures = 0
		const known = this.session()
		if (answer.body.accepted > 0 && known && first && this.sessionOf(first) === known.sessionId) this.keepSession(known)
		return true
	}

	/** Exponential, with jitter, and at least as long as the service asked for. Stored, so that a reload does not shorten it. */
	private pauseAfter(answer: Answer): void {
		const most = Math.min(backoffMost, backoffBase * 2 ** this.failures++)
		const pause = answer.retryAfter * 1000 + most * (0.5 + Math.random() / 2)
		if (answer.status !== 0) this.store.set("pause", String(Date.now() + pause))
		this.schedule(pause)
	}

	/** How long nothing may be sent, in milliseconds. A clock that was set back does not make it forever. */
	private pause(): number {
		const left = Number(this.store.get("pause") ?? 0) - Date.now()
		return left > 0 && left < mostAsked * 1000 + backoffMost ? left : 0
	}

	private schedule(delay: number): void {
		this.timer ??= setTimeout(() => {
			this.timer = undefined
			void this.flush()
		}, delay)
	}

	private drop(entry: Entry, reason: string, key?: string): void {
		if (key) this.store.set(key, undefined)
		this.store.set("dropped", String(this.dropped + 1))
		attempt(() => this.options.onDrop?.(entry, reason))
	}

	/** The session that goes on, by this device's clock: the service's may differ. */
	private session(): Session | undefined {
		const kept = this.read<{ session: Session; heard: number }>("session")
		const idle = Date.now() - (kept?.heard ?? 0)
		return idle >= 0 && idle < sessionIdle ? kept?.session : undefined
	}

	private keepSession(session: Session): void {
		this.store.set("session", JSON.stringify({ session, heard: Date.now() }))
	}

	private read<T>(key: string): T | undefined {
		return attempt(() => JSON.parse(this.store.get(key) ?? "") as T)
	}

	/** Never fails: no answer is one of status 0. A beacon could not carry the key; keepalive lets a request outlive its page. */
	private async post(url: string, body: unknown, key: HeadersInit = { Authorization: "Bearer " + this.options.clientKey }): Promise<Answer> {
		try {
			const response = await fetch(url, {
				method: "POST", headers: { ...key, "Content-Type": "application/json" }, body: JSON.stringify(body),
				keepalive: true, credentials: "omit", signal: AbortSignal.timeout(timeout),
			})
			const text = await response.text()
			return new Answer(response.status, attempt(() => Object(JSON.parse(text))), response.headers.get("Retry-After"))
		} catch {
			return new Answer(0)
		}
	}
}

/** What the service said, as far as it could be read. A network that answers in its place may say 200 as well. */
class Answer {
	readonly retryAfter: number // in seconds
	readonly isReceipt: boolean // all that was sent is dealt with
	readonly isInvalid: boolean // it will never be taken
	readonly rejected = new Map<number, string>() // the events that will never be taken, by their place, and why

	constructor(readonly status: number, readonly body: any = {}, header: string | null = null) {
		this.retryAfter = seconds(header ?? /Retry after (\d+) second/.exec(body.message)?.[1])
		this.isReceipt = status === 200 && ["accepted", "deviceId", "matched"].some((field) => field in body)
		this.isInvalid = status === 400 && body.statusCode === 400
		if (this.isReceipt) for (const { index, message } of body.rejected ?? []) this.rejected.set(index, message)
		for (const { field, message } of (this.isInvalid && body.details) || []) {
			const place = /^events\[(\d+)\]/.exec(field)?.[1]
			if (place !== undefined) this.rejected.set(Number(place), message)
		}
	}

	error(): DeeplinkError {
		return new DeeplinkError(this.status, this.body.message ?? "no answer", this.retryAfter)
	}
}

/** localStorage; memory where that is blocked or full. */
class Store {
	private readonly rest = new Map<string, string>()

	get(key: string): string | undefined {
		return this.rest.get(key) ?? attempt(() => localStorage.getItem("deeplink." + key)) ?? undefined
	}

	set(key: string, value: string | undefined): void {
		this.rest.delete(key)
		attempt(() => localStorage.removeItem("deeplink." + key))
		if (value !== undefined && attempt(() => localStorage.setItem("deeplink." + key, value) ?? true) !== true) this.rest.set(key, value)
	}

	keys(prefix: string): string[] {
		const stored = attempt(() => Object.keys(localStorage)) ?? []
		const names = stored.flatMap((key) => (key.startsWith("deeplink.") ? [key.slice("deeplink.".length)] : []))
		return [...names, ...this.rest.keys()].filter((key) => key.startsWith(prefix)).sort()
	}
}

function attempt<T>(f: () => T): T | undefined {
	try {
		return f()
	} catch {
		return undefined
	}
}

const bytes = (text: string) => new TextEncoder().encode(text).length

/** Seconds to wait, told as a number or as a date. */
function seconds(text = ""): number {
	const count = /^\d*$/.test(text) ? Number(text) : (Date.parse(text) - Date.now()) / 1000
	return Math.min(Math.max(count || 0, 0), mostAsked)
}

let lastMoment = 0

/** A UUIDv7 with a millisecond of its own, so that ids sort as they were made. */
function newId(): string {
	lastMoment = Math.max(Date.now(), lastMoment + 1)
	const hex = [...crypto.getRandomValues(new Uint8Array(10))].map((byte) => byte.toString(16).padStart(2, "0")).join("")
	const time = lastMoment.toString(16).padStart(12, "0")
	const variant = "89ab"[parseInt(hex.charAt(3), 16) & 3]
	return `${time.slice(0, 8)}-${time.slice(8)}-7${hex.slice(0, 3)}-${variant}${hex.slice(4, 7)}-${hex.slice(7, 19)}`
}
