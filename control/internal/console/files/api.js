// Requests to the portal, and what went wrong with them. The browser sends the session cookie, which no script can read.

let organizationId = ""
let interrupted = () => {}

// lastCall is when the service was called last, by the browser's clock: it keeps the session from ending.
export let lastCall = Date.now()

// showsOrganization names the organization that the page shows, so that a tab from before a switch cannot write into another one.
export function showsOrganization(id) {
	organizationId = id
}

// onInterruption sets what is called when a request fails because of the session: it has ended, it needs the person, the identity provider is
// away, or it is for another organization.
export function onInterruption(deed) {
	interrupted = deed
}

const interrupts = (problem) => problem.status === 401 || ["IDENTITY_PROVIDER_UNAVAILABLE", "ORGANIZATION_CHANGED"].includes(problem.code)

// Problem is an answer other than success, in the envelope of the interface; or none at all, which has the status 0.
export class Problem extends Error {
	constructor(status, envelope, requestId = "") {
		super(envelope.message || `The service answered with status ${status}.`)
		this.status = status
		this.code = envelope.code
		this.feature = envelope.feature
		this.billingEndpoint = envelope.billingEndpoint
		this.details = Array.isArray(envelope.details) ? envelope.details : []
		this.requestId = requestId
	}

	// lines say it all, for places that have no fields.
	lines() {
		const all = [this.message, ...this.details.map((detail) => detail.message)]
		if (this.status >= 500) all.push(`Request id: ${this.requestId}`)
		return all
	}
}

// orThrow returns a Problem; anything else is a mistake in here, and is thrown on.
export function orThrow(cause) {
	if (cause instanceof Problem) return cause
	throw cause
}

// send asks the portal and returns the response, or throws a Problem. An aborted request throws what fetch throws.
async function send(method, path, { body, signal, quiet = false, more = {} } = {}) {
	const headers = { "Deeplink-Console": "1", ...more }
	if (organizationId && !quiet) headers["Deeplink-Organization"] = organizationId
	if (body !== undefined) headers["Content-Type"] = "application/json"
	const response = await reach(path, {
		method, headers, signal, body: body === undefined ? undefined : JSON.stringify(body),
		credentials: "same-origin", cache: "no-store", redirect: "error",
	})
	lastCall = Date.now()
	if (response.ok) return response
	const problem = new Problem(response.status, await envelopeOf(response), response.headers.get("X-Request-Id"))
	if (!quiet && interrupts(problem)) interrupted(problem)
	throw problem
}

// reach is fetch, whose failures are Problems.
export async function reach(address, options) {
	try {
		return await fetch(address, options)
	} catch (cause) {
		if (cause.name === "AbortError") throw cause
		throw new Problem(0, { message: "The service could not be reached. Check the connection and try again." })
	}
}

async function envelopeOf(response) {
	try {
		return await response.json() ?? {}
	} catch {
		return {}
	}
}

// read finishes an answer. What is cut off half-way is a failure of the network, too.
async function read(response, how) {
	try {
		return await response[how]()
	} catch (cause) {
		if (cause.name === "AbortError") throw cause
		throw new Problem(0, { message: "The answer was cut off. Check the connection and try again." })
	}
}

export const get = async (path, signal) => read(await send("GET", path, { signal }), "json")

// getTagged returns an answer with its ETag, which a later change can require.
export async function getTagged(path, signal) {
	const response = await send("GET", path, { signal })
	return { answer: await read(response, "json"), etag: response.headers.get("ETag") }
}

export const getBlob = async (path, signal) => read(await send("GET", path, { signal }), "blob")

// readSession returns who is signed in. It interrupts nothing: the caller decides what a failure means.
export const readSession = async (signal) => read(await send("GET", "/portal/session", { signal, quiet: true }), "json")

// choose chooses the organization of the session.
export const choose = async (externalId) => read(await send("PUT", "/portal/session/organization", { body: { externalId }, quiet: true }), "json")

// Intent is what a person wants to be done once. Sent again without a change, for instance because no answer came, it has the same
// Idempotency-Key: the service then does it once only, and repeats its answer.
export class Intent {
	#sent = null
	#key = ""

	keyOf(sent) {
		if (sent !== this.#sent) [this.#sent, this.#key] = [sent, crypto.randomUUID()]
		return this.#key
	}
}

// change sends a change and returns its answer. spread tells whether every edge goes by it already. The service refuses it with 412 if the link
// has another ETag than etag.
export async function change(method, path, body, { intent = null, etag = null } = {}) {
	const more = {}
	if (etag) more["If-Match"] = etag
	if (intent) more["Idempotency-Key"] = intent.keyOf(JSON.stringify([method, path, etag, body]))
	const response = await send(method, path, { body, more })
	return { answer: await read(response, "json"), spread: response.headers.get("Deeplink-Propagation") !== "pending" }
}

// query makes the query of a path; what is empty is left out.
export function query(values) {
	const set = Object.entries(values).filter(([, value]) => value !== "" && value !== null && value !== undefined)
	return set.length ? `?${new URLSearchParams(set)}` : ""
}
