// Deeplink for an Android app: its session, the link behind a first run, who the user is, and events that are not lost. This file is all that is
// not Android's, beside org.json; DeeplinkAndroid.kt is the rest. The clients for the web and iOS have the same parts under the same names.
package com.example.deeplink

import java.io.IOException
import java.net.HttpURLConnection
import java.net.URL
import java.text.SimpleDateFormat
import java.util.Date
import java.util.Locale
import java.util.TimeZone
import java.util.UUID
import java.util.concurrent.Executor
import java.util.concurrent.Executors
import java.util.concurrent.Future
import java.util.concurrent.ScheduledExecutorService
import java.util.concurrent.TimeUnit
import org.json.JSONArray
import org.json.JSONException
import org.json.JSONObject

class Options(
    val clientKey: String, // svc_sdk_… . Everybody can read it: a server key must never be here
    val controlUrl: String, // before /sdk
    val edgeUrl: String, // before /match
    val batchDelay: Long = 10_000, // how long an event may wait for others, in ms; all devices of a key share 600 requests a minute
    val onDrop: (entry: JSONObject, reason: String) -> Unit = { _, _ -> } // told of each entry that will not arrive
)

class Session(val sessionId: String, val userId: String?, val isFirstSession: Boolean, val link: Link?) // link: what openedUrl leads to

class Link(val id: String, val url: String, val path: String, val params: JSONObject?, val json: JSONObject) // path: where to go in the app

/** What may be told of an event. The service judges it: what it rejects is dropped alone. */
class Details(val linkId: String? = null, val revenue: Double? = null, val currency: String? = null, val properties: Map<String, Any?>? = null)

/** An answer other than success; status 0 is none at all. */
class DeeplinkException(val status: Int, message: String, val retryAfter: Long = 0) : Exception(message)

/** Where things are kept: nothing in it is lost when the process ends. It is used by one thread at a time. */
interface Store {
    operator fun get(key: String): String?
    operator fun set(key: String, value: String?) // null: no longer
    fun keys(prefix: String): List<String> // sorted
}

/** Asks once in the life of an installation how it came about. */
interface FirstRun {
    /** Calls back with the referrer, with "" when there is none, or with null when that cannot be told now. */
    fun referrer(then: (String?) -> Unit)
}

private const val MAX_BATCH = 100 // events in a request
private const val MAX_BYTES = 60_000 // of a request: control takes 64 KiB
private const val MAX_QUEUE = 1000 // events that wait; the oldest make room
private const val SESSION_IDLE = 30 * 60_000L
private const val TOKEN_LIFE = 24 * 3_600_000L
private const val TIMEOUT = 15_000
private const val BACKOFF_BASE = 1000L
private const val BACKOFF_MOST = 10 * 60_000L
private const val MOST_ASKED = 3600L // seconds that a service may ask to wait

/** Its methods may be called from any thread and return at once; what they call back is called on [callbacks]. */
class Deeplink(
    private val options: Options,
    private val store: Store,
    private val firstRun: FirstRun,
    private val device: Map<String, String>, // platform, appVersion and the like
    private val callbacks: Executor
) {
    private val work: ScheduledExecutorService = Executors.newSingleThreadScheduledExecutor(::daemon) // all state is its own
    private val network: Executor = Executors.newCachedThreadPool(::daemon)
    private val born = now()
    private var sending = false
    private var failures = 0
    private var lastMoment = 0L
    private var timer: Future<*>? = null
    private val deviceId: String

    init {
        require(options.clientKey.startsWith("svc_sdk_")) { "not a client key" }
        deviceId = store["device"] ?: UUID.randomUUID().toString()
        store["device"] = deviceId
        flush() // what a run before left
    }

    /** Events that were dropped in all runs: too many, too large, or rejected. */
    fun dropped(then: (Int) -> Unit) = work.execute { val n = count(); callbacks.execute { then(n) } }

    fun waiting(then: (Int) -> Unit) = work.execute { val n = store.keys("queue.").size; callbacks.execute { then(n) } }

    /**
     * Begins the session, or goes on with it: one lasts until nothing was heard of it for 30 minutes. The service is asked only when there
     * is none, or when a link opened the app. Call it when the app comes to the front; when it fails, events are kept all the same.
     */
    fun start(openedUrl: String? = null, then: (Result<Session>) -> Unit = {}) = work.execute {
        val known = session()
        if (known != null && openedUrl == null) {
            callbacks.execute { then(Result.success(readSession(known, null))) }
        } else {
            post(options.controlUrl + "/sdk/session", JSONObject(device).put("deviceId", deviceId).putOpt("openedUrl", openedUrl)) { answer ->
                if (answer.isReceipt) keepSession(answer.body)
                callbacks.execute { then(answer.result { readSession(it, it.optJSONObject("link")) }) }
            }
        }
    }

    /**
     * Calls back with the link behind the first run, null when there is none. Google Play is asked once for the install referrer; when that
     * has no token, nobody else is asked. When it fails, the token is kept: call it again.
     */
    fun match(then: (Result<Link?>) -> Unit) = work.execute {
        if (store["asked"] != null) return@execute redeem(then)
        firstRun.referrer { referrer ->
            work.execute {
                if (referrer != null) store["asked"] = "1"
                if (referrer != null && Regex("mt(=|%3D)").containsMatchIn(referrer)) {
                    store["match"] = JSONObject().put("referrer", referrer).put("at", now()).toString()
                }
                redeem(then)
            }
        }
    }

    private fun redeem(then: (Result<Link?>) -> Unit) {
        val kept = read("match")
        if (kept == null || now() - kept.getLong("at") > TOKEN_LIFE) return callbacks.execute { then(Result.success(null)) }
        val claim = JSONObject().put("installReferrer", kept.getString("referrer")).put("deviceId", deviceId).put("platform", "android")
        post(options.edgeUrl + "/match", claim.putOpt("appVersion", device["appVersion"]), withKey = false) { answer ->
            if (answer.isReceipt || answer.isInvalid) store["match"] = null
            callbacks.execute { then(if (answer.isInvalid) Result.success(null) else answer.result { readLink(it.optJSONObject("link")) }) }
        }
    }

    /** Says who uses the device. Sent in its place among the events, and only when it is news. */
    fun identify(userId: String, traits: Map<String, Any?>? = null) =
        enlist(JSONObject().put("at", now()).put("user", userId).putOpt("traits", traits?.let { JSONObject(it) }))

    /** Says that nobody known uses the device any more. */
    fun clearIdentity() = enlist(JSONObject().put("at", now()).put("user", JSONObject.NULL))

    /** Keeps an event until it has arrived, across restarts. Its id and time are those of now. */
    fun track(name: String, details: Details = Details()) {
        val at = now()
        val event = JSONObject().put("id", UUID.randomUUID().toString()).put("name", name).put("timestamp", rfc3339(at)).putOpt("linkId", details.linkId)
            .putOpt("currency", details.currency).putOpt("properties", details.properties?.let { JSONObject(it) })
        if (details.revenue?.isFinite() == true) event.put("revenue", details.revenue)
        enlist(JSONObject().put("at", at).put("event", event))
    }

    /** Sends what waits, unless the service asked to wait. */
    fun flush() = work.execute { drain() }

    private fun drain() {
        if (sending) return
        if (pause() > 0) return schedule(pause())
        timer?.cancel(false)
        timer = null
        val batch = nextBatch()
        if (batch.isEmpty()) return
        sending = true
        send(batch.values.toList()) { answer ->
            sending = false
            if (settle(batch, answer)) drain()
        }
    }

    private fun enlist(entry: JSONObject) = work.execute {
        if (isEvent(entry)) entry.putOpt("session", session()?.getString("sessionId"))
        val text: String? = entry.toString() // null: a number in it is none of JSON
        val identity = JSONArray().put(entry.opt("user")).put(entry.opt("traits")).toString()
        if (text == null || bytes(text) > MAX_BYTES) return@execute drop(entry, "too large, or no JSON")
        if (!isEvent(entry)) {
            if (identity == store["identity"]) return@execute
            store["identity"] = identity
        }
        lastMoment = maxOf(now(), lastMoment + 1) // a millisecond of its own, so that keys sort as they were made
        store["queue.%015d".format(Locale.ROOT, lastMoment)] = text
        if (store.keys("queue.").size > MAX_QUEUE) {
            queue().firstOrNull { (_, oldest) -> isEvent(oldest) }?.let { (key, oldest) -> drop(oldest, "queue full", key) }
        }
        if (!sending) schedule(options.batchDelay)
    }

    /** What waits, in the order in which it happened. */
    private fun queue(): Sequence<Pair<String, JSONObject>> = store.keys("queue.").asSequence().mapNotNull { key -> read(key)?.let { key to it } }

    /** The first change of identity, or the events before it: as many of one session as fit into a request. */
    private fun nextBatch(): Map<String, JSONObject> {
        val batch = LinkedHashMap<String, JSONObject>()
        var session: String? = null
        var size = 0
        for ((key, entry) in queue()) {
            size += bytes(entry.toString()) + 1
            if (batch.isEmpty()) session = sessionOf(entry)
            else if (!isEvent(entry) || batch.size == MAX_BATCH || size > MAX_BYTES || sessionOf(entry) != session) break
            batch[key] = entry
            if (!isEvent(entry)) break
        }
        return batch
    }

    /** The session of an event; what happened while this run's was being asked for belongs to that one. */
    private fun sessionOf(entry: JSONObject): String? = when {
        !isEvent(entry) -> null
        entry.has("session") -> entry.getString("session")
        entry.getLong("at") >= born -> session()?.getString("sessionId")
        else -> null
    }

    private fun send(entries: List<JSONObject>, then: (Answer) -> Unit) {
        val first = entries.first()
        val body = JSONObject().put("deviceId", deviceId)
        if (isEvent(first)) {
            body.putOpt("sessionId", sessionOf(first)).put("events", JSONArray(entries.map { it.getJSONObject("event") }))
            return post(options.controlUrl + "/sdk/events", body, then = then)
        }
        if (first.isNull("user")) return post(options.controlUrl + "/sdk/identity/clear", body, then = then)
        post(options.controlUrl + "/sdk/identity", body.put("userId", first.getString("user")).putOpt("traits", first.opt("traits")), then = then)
    }

    /** Takes out of the queue what an answer is about, and nothing else. False: there is no use in going on now. */
    private fun settle(batch: Map<String, JSONObject>, answer: Answer): Boolean {
        val first = batch.values.first()
        val rejected = answer.rejected
        if (answer.isInvalid && !isEvent(first)) rejected[0] = answer.message
        batch.entries.forEachIndexed { place, (key, entry) ->
            val reason = rejected[place]
            if (reason != null) drop(entry, reason, key) else if (answer.isReceipt) store[key] = null
        }
        if (!answer.isReceipt && rejected.isEmpty()) {
            pauseAfter(answer)
            return false
        }
        failures = 0
        val known = session()
        if (answer.body.optInt("accepted") > 0 && known != null && sessionOf(first) == known.getString("sessionId")) keepSession(known)
        return true
    }

    /** Exponential, with jitter, behind what the service asked for. Kept, so that no restart comes too early; offline nobody asked. */
    private fun pauseAfter(answer: Answer) {
        val most = minOf(BACKOFF_MOST, BACKOFF_BASE shl minOf(failures++, 20))
        val pause = answer.retryAfter * 1000 + (most * (0.5 + Math.random() / 2)).toLong()
        if (answer.status != 0) store["pause"] = (now() + pause).toString()
        schedule(pause)
    }

    /** How long nothing may be sent, in milliseconds. A clock that was set back does not make it forever. */
    private fun pause(): Long {
        val left = (store["pause"]?.toLongOrNull() ?: 0) - now()
        return if (left > 0 && left < MOST_ASKED * 1000 + BACKOFF_MOST) left else 0
    }

    private fun schedule(delay: Long) {
        if (timer != null) return
        timer = work.schedule({ timer = null; drain() }, delay, TimeUnit.MILLISECONDS)
    }

    private fun drop(entry: JSONObject, reason: String, key: String? = null) {
        if (key != null) store[key] = null
        store["dropped"] = (count() + 1).toString()
        callbacks.execute { options.onDrop(entry, reason) }
    }

    private fun count(): Int = store["dropped"]?.toIntOrNull() ?: 0

    /** The session that goes on, by this device's clock: the service's may differ. */
    private fun session(): JSONObject? {
        val kept = read("session") ?: return null
        val idle = now() - kept.getLong("heard")
        return if (idle in 0 until SESSION_IDLE) kept.getJSONObject("session") else null
    }

    private fun keepSession(session: JSONObject) {
        store["session"] = JSONObject().put("session", session).put("heard", now()).toString()
    }

    private fun read(key: String): JSONObject? = store[key]?.let(::parse)

    /** Never fails: no answer is one of status 0. It is called back on the thread of [work]. */
    private fun post(url: String, body: JSONObject, withKey: Boolean = true, then: (Answer) -> Unit) = network.execute {
        val answer = try {
            request(url, body.toString().toByteArray(), if (withKey) options.clientKey else null)
        } catch (e: IOException) {
            Answer(0)
        }
        work.execute { then(answer) }
    }
}

private fun request(url: String, body: ByteArray, key: String?): Answer {
    val connection = URL(url).openConnection() as HttpURLConnection
    try {
        connection.requestMethod = "POST"
        connection.connectTimeout = TIMEOUT
        connection.readTimeout = TIMEOUT
        connection.doOutput = true
        connection.setFixedLengthStreamingMode(body.size)
        connection.setRequestProperty("Content-Type", "application/json")
        if (key != null) connection.setRequestProperty("Authorization", "Bearer $key")
        connection.outputStream.use { it.write(body) }
        val status = connection.responseCode
        val text = (if (status < 400) connection.inputStream else connection.errorStream)?.use { String(it.readBytes()) }
        return Answer(status, text?.let(::parse) ?: JSONObject(), connection.getHeaderField("Retry-After"))
    } finally {
        connection.disconnect()
    }
}

/** What the service said, as far as it could be read. A network that answers in its place may say 200 as well. */
private class Answer(val status: Int, val body: JSONObject = JSONObject(), header: String? = null) {
    val message: String = body.optString("message", "no answer")
    val retryAfter: Long = minOf((header ?: Regex("Retry after (\\d+) second").find(message)?.groupValues?.get(1))?.toLongOrNull() ?: 0, MOST_ASKED) // in seconds
    val isReceipt = status == 200 && listOf("accepted", "deviceId", "matched").any(body::has) // all that was sent is dealt with
    val isInvalid = status == 400 && body.optInt("statusCode") == 400 // it will never be taken
    val rejected = HashMap<Int, String>() // the events that will never be taken, by their place, and why

    init {
        val bad = body.optJSONArray(if (isReceipt) "rejected" else if (isInvalid) "details" else "")
        for (entry in (0 until (bad?.length() ?: 0)).mapNotNull { bad?.optJSONObject(it) }) {
            val place = Regex("^events\\[(\\d+)\\]").find(entry.optString("field"))?.groupValues?.get(1)
            if (place != null || entry.has("index")) rejected[place?.toInt() ?: entry.getInt("index")] = entry.optString("message")
        }
    }

    fun <T> result(read: (JSONObject) -> T): Result<T> =
        if (isReceipt) Result.success(read(body)) else Result.failure(DeeplinkException(status, message, retryAfter))
}

private fun isEvent(entry: JSONObject) = entry.has("event")

private fun readSession(json: JSONObject, link: JSONObject?) =
    Session(json.getString("sessionId"), if (json.isNull("userId")) null else json.getString("userId"), json.optBoolean("isFirstSession"), readLink(link))

private fun readLink(json: JSONObject?): Link? =
    json?.let { Link(it.getString("id"), it.getString("url"), it.getString("path"), it.optJSONObject("params"), it) }

private fun parse(text: String): JSONObject? = try {
    JSONObject(text)
} catch (e: JSONException) {
    null
}

private fun bytes(text: String) = text.toByteArray().size

private fun now() = System.currentTimeMillis()

private fun rfc3339(at: Long): String =
    SimpleDateFormat("yyyy-MM-dd'T'HH:mm:ss.SSS'Z'", Locale.ROOT).apply { timeZone = TimeZone.getTimeZone("UTC") }.format(Date(at))

private fun daemon(task: Runnable) = Thread(task, "deeplink").apply { isDaemon = true }
