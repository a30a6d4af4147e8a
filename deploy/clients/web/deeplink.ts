// The Deeplink client for a web app: the session, the link that led to the first visit, the identity of the user, and a queue of events that
// survives reloads. The clients for iOS and Android have the same parts under the same names.

export interface Options {
	clientKey: string // svc_sdk_… Every visitor can read it: never put a server key here
	controlUrl: string // without /sdk. CONTROL_SDK_ORIGINS of control must list the page's origin; or "", if the page's own server forwards /sdk to control
	edgeUrl: string // without /match, which every origin may call
	appVersion?: string
	batchDelay?: number // how long an event may wait for others, in ms; all devices of a key share 600 requests a minute
	onDrop?: (entry: Entry, reason: string) => void // gets each entry that will not arrive
}

export interface Session {
	sessionId: string
	deviceId: string
	userId: string | null
	isFirstSession: boolean
	startedAt: string
	expiresAt: string
	link: Link | null // that of openedUrl
}

export interface Link {
	id: string
	url: string
	shortCode: string
	path: string // where to go in the app
	params: Record<string, unknown> | null
	[field: string]: unknown
}

/** The optional fields of an event. The service validates them; of a batch it rejects only the invalid events. */
export type Details = { linkId?: string; revenue?: number; currency?: string; properties?: Record<string, unknown> }

/** An entry of the queue: an event, or the user of the device from then on (null: an unknown user). */
export type Entry =
	| { at: number; session: string | undefined; event: Details & { id: string; name: string; timestamp: string } }
	| { at: number; user: string | null; traits?: Record<string, unknown> | undefined }

/** A response other than success. Status 0: there was no response. */
export class DeeplinkError extends Error {
	constructor(readonly status: number, message: string, readonly retryAfter = 0) {
		super(message)
	}
}

const maxBatch = 100 // events in a request
const maxBytes = 60_000 // of a request: control accepts 64 KiB, and so do browsers from pages that unload
const maxQueue = 1000 // events in the queue; the oldest are dropped
const sessionIdle = 30 * 60_000
const tokenLife = 24 * 3_600_000
const timeout = 15_000
const backoffBase = 1000
const backoffMost = 10 * 60_000
const maxRequestedWait = 3600 // seconds that a service may request

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
		// A hidden page may never be shown again, and no later event is guaranteed.
		document.addEventListener("visibilitychange", () => void (document.hidden && this.flush()))
		addEventListener("pagehide", () => void this.flush())
		addEventListener("online", () => void this.flush())
		void this.flush() // what an earlier visit left
	}

	/** The number of events that were dropped in all visits: too many, too large, or rejected. */
	get dropped(): number {
		return Number(this.store.get("dropped") ?? 0)
	}

	get waiting(): number {
		return this.store.keys("queue.").length
	}

	/**
	 * Starts a session or continues it; it ends after 30 minutes without a call. The client sends a request only if there is no session, or if
	 * a link opened the page. Call it when the app comes to the foreground. If it fails, events are still queued.
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
	 * Returns the link that led to the first visit, or null if there is none. On the web the token can only be in the page's own address, as ?mt=.
	 * The client removes it from there at once, so that a copied address does not contain it. Without a token it sends no request; it never reads
	 * the clipboard. If it fails, the token is kept: call it again.
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

	/** Sets the user of the device. The client sends it in its place among the events, and only if it differs from the last one. */
	identify(userId: string, traits?: Record<string, unknown>): void {
		this.enlist({ at: Date.now(), user: userId, traits })
	}

	/** Removes the user of the device, who is unknown from then on. */
	clearIdentity(): void {
		this.enlist({ at: Date.now(), user: null })
	}

	/** Queues an event until it has arrived, across reloads. Its id and time are those of this call. */
	track(name: string, details: Details = {}): void {
		const at = Date.now()
		const event = { ...details, id: newId(), name, timestamp: new Date(at).toISOString() }
		this.enlist({ at, session: this.session()?.sessionId, event })
	}

	/** Sends the queue, unless the service told the client to wait. Resolves when the queue is empty or an attempt has failed. */
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
		// A new key per entry, so that tabs which share the queue never overwrite it.
		this.store.set("queue." + newId(), text)
		// After the entry: if the page dies between the two, the identity is sent twice, not never.
		if (identity !== undefined) this.store.set("identity", identity)
		for (const [key, oldest] of this.queue()) {
			if (this.waiting <= maxQueue) break
			if ("event" in oldest) this.drop(oldest, "queue full", key)
		}
		if (!this.sending) this.schedule(this.options.batchDelay ?? 10_000)
	}

	/** The queue in the order of the calls. */
	private *queue(): Generator<[key: string, Entry]> {
		for (const key of this.store.keys("queue.")) {
			const entry = this.read<Entry>(key)
			if (entry) yield [key, entry]
			else this.store.set(key, undefined)
		}
	}

	/** The first entry alone if it is no event; otherwise the events before the next such entry, as many of one session as fit into a request. */
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

	/** The session of an event. An event that was queued before the page's first response belongs to the session in that response. */
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

	/** Removes from the queue what the response settles, and nothing else. False: do not continue now. */
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

	/** Waits exponentially longer, with jitter, and at least as long as the service requested. A reload does not shorten the wait. */
	private pauseAfter(answer: Answer): void {
		const most = Math.min(backoffMost, backoffBase * 2 ** this.failures++)
		const pause = answer.retryAfter * 1000 + most * (0.5 + Math.random() / 2)
		if (answer.status !== 0) this.store.set("pause", String(Date.now() + pause))
		this.schedule(pause)
	}

	/** How long the client must not send, in milliseconds. A clock that was set back must not stop it forever. */
	private pause(): number {
		const left = Number(this.store.get("pause") ?? 0) - Date.now()
		return left > 0 && left < maxRequestedWait * 1000 + backoffMost ? left : 0
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

	/** The current session, by the clock of this device: that of the service may differ. */
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

	/** Never fails: without a response the status is 0. keepalive lets a request outlive its page; a beacon could not carry the key. */
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

/** A response, as far as it could be read. The login page of a network may respond with 200 as well. */
class Answer {
	readonly retryAfter: number // in seconds
	readonly isReceipt: boolean // the service dealt with everything sent
	readonly isInvalid: boolean // the service will never accept it
	readonly rejected = new Map<number, string>() // the events that the service will never accept, by their place, and why

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

/** localStorage, or memory if that is blocked or full. */
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

/** The seconds to wait, from a number or a date. */
function seconds(text = ""): number {
	const count = /^\d*$/.test(text) ? Number(text) : (Date.parse(text) - Date.now()) / 1000
	return Math.min(Math.max(count || 0, 0), maxRequestedWait)
}

let lastMoment = 0

/** A UUIDv7 with its own millisecond, so that ids sort in the order of the calls. */
function newId(): string {
	lastMoment = Math.max(Date.now(), lastMoment + 1)
	const hex = [...crypto.getRandomValues(new Uint8Array(10))].map((byte) => byte.toString(16).padStart(2, "0")).join("")
	const time = lastMoment.toString(16).padStart(12, "0")
	const variant = "89ab"[parseInt(hex.charAt(3), 16) & 3]
	return `${time.slice(0, 8)}-${time.slice(8)}-7${hex.slice(0, 3)}-${variant}${hex.slice(4, 7)}-${hex.slice(7, 19)}`
}
