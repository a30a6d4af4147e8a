// The Deeplink client for an Android app: the session, the link that led to the first run, the identity of the user, and a queue of events that
// survives the process. Of Android, this file uses org.json only; DeeplinkAndroid.kt contains the rest. The clients for the web and iOS
// have the same parts under the same names.
package com.example.deeplink

import java.io.File
import java.io.IOException
import java.net.HttpURLConnection
import java.net.URL
import java.text.SimpleDateFormat
import java.util.Date
import java.util.Locale
import java.util.TimeZone
import java.util.UUID
import java.util.concurrent.ConcurrentHashMap
import java.util.concurrent.Executor
import java.util.concurrent.Executors
import java.util.concurrent.Future
import java.util.concurrent.ScheduledExecutorService
import java.util.concurrent.TimeUnit
import java.util.concurrent.atomic.AtomicLong
import org.json.JSONArray
import org.json.JSONException
import org.json.JSONObject

class Options(
    val clientKey: String, // svc_sdk_… Every user of the app can read it: never put a server key here
    val controlUrl: String, // without /sdk
    val edgeUrl: String, // without /match
    val batchDelay: Long = 10_000, // how long an event may wait for others, in ms; all devices of a key share 600 requests a minute
    val onLink: (Link) -> Unit = {}, // gets the link of an opened URL if the service could not be reached when start was called with it
    val onDrop: (entry: JSONObject, reason: String) -> Unit = { _, _ -> } // gets each entry that will not arrive
)

class Session(val sessionId: String, val userId: String?, val isFirstSession: Boolean, val link: Link?) // link: that of openedUrl

class Link(val id: String, val url: String, val path: String, val params: JSONObject?, val json: JSONObject) // path: where to go in the app

/** The optional fields of an event. The service validates them; of a batch it rejects only the invalid events. */
class Details(val linkId: String? = null, val revenue: Double? = null, val currency: String? = null, val properties: Map<String, Any?>? = null)

/** A response other than success. Status 0: there was no response. */
class DeeplinkException(val status: Int, message: String, val retryAfter: Long = 0) : Exception(message)

/** Stores texts by key. When set has returned, the text survives the death of the process. Safe for use by several threads. */
interface Store {
    operator fun get(key: String): String?
    operator fun set(key: String, value: String?) // null removes the key
    fun keys(prefix: String): List<String> // sorted
}

/**
 * A folder with a file for each key. A text is written to another file first, which is then renamed: after the death of the process a key has
 * its old or its new text, never a part of one. What cannot be written, because the disk is full, is kept in memory. Use a folder with one
 * Files only.
 */
class Files(private val folder: File) : Store {
    private val memory = ConcurrentHashMap<String, String>()
    private val written = AtomicLong()

    init {
        folder.mkdirs()
        folder.listFiles { file -> file.name.startsWith(UNFINISHED) }?.forEach { it.delete() }
    }

    override fun get(key: String): String? = memory[key] ?: try {
        File(folder, key).readText()
    } catch (e: IOException) {
        null
    }

    override fun set(key: String, value: String?) {
        val file = File(folder, key)
        if (value == null) {
            file.delete()
            memory.remove(key)
            return
        }
        val unfinished = File(folder, UNFINISHED + written.incrementAndGet())
        val isWritten = try {
            unfinished.writeText(value)
            unfinished.renameTo(file)
        } catch (e: IOException) {
            unfinished.delete()
            false
        }
        if (isWritten) memory.remove(key) else memory[key] = value
    }

    override fun keys(prefix: String): List<String> =
        (folder.list().orEmpty().toSet() + memory.keys).filter { it.startsWith(prefix) }.sorted()
}

/** Finds out which click led to the installation. The client calls it once per installation. */
interface FirstRun {
    /** Calls back with the referrer, with "" if there is none, or with null if it cannot be read now. */
    fun referrer(then: (String?) -> Unit)
}

private const val MAX_BATCH = 100 // events in a request
private const val MAX_BYTES = 60_000 // of a request: control accepts 64 KiB
private const val MAX_QUEUE = 1000 // events in the queue; the oldest are dropped
private const val SESSION_IDLE = 30 * 60_000L
private const val TOKEN_LIFE = 24 * 3_600_000L
private const val OPENED_LIFE = 24 * 3_600_000L // after that, following an opened URL would surprise the user
private const val TIMEOUT = 15_000
private const val BACKOFF_BASE = 1000L
private const val BACKOFF_MOST = 10 * 60_000L
private const val MOST_ASKED = 3600L // seconds that a service may ask to wait
private const val QUEUE = "queue."
private const val USER = ".user" // ends the key of an identity in the queue
private const val UNFINISHED = "unfinished."

/**
 * The methods may be called from any thread and do not wait for the network. [track], [identify] and [clearIdentity] write a small file before
 * they return: when they have returned, the entry survives the death of the process. Callbacks run on [callbacks].
 */
class Deeplink(
    private val options: Options,
    private val store: Store,
    private val firstRun: FirstRun,
    private val device: Map<String, String>, // platform, appVersion and the like
    private val callbacks: Executor
) {
    private val work: ScheduledExecutorService = Executors.newSingleThreadScheduledExecutor(::daemon) // uses all state but lastMoment
    private val network: Executor = Executors.newCachedThreadPool(::daemon)
    private val born = now()
    private var sending = false
    private var failures = 0
    private var timer: Future<*>? = null
    private val starting = HashSet<String>() // keys of opened URLs that start sends itself
    private val deviceId: String
    private val appending = Any() // the lock of lastMoment, and of the decision whether an identity is new

    // The time in the last key of the queue. A clock that was set back must not produce the same key twice.
    private var lastMoment = store.keys(QUEUE).lastOrNull()?.removePrefix(QUEUE)?.removeSuffix(USER)?.toLongOrNull() ?: 0

    init {
        require(options.clientKey.startsWith("svc_sdk_")) { "not a client key" }
        deviceId = store["device"] ?: UUID.randomUUID().toString()
        store["device"] = deviceId
        flush() // what an earlier run left
    }

    /** The number of events that were dropped in all runs: too many, too large, or rejected. */
    fun dropped(then: (Int) -> Unit) = work.execute { val n = count(); callbacks.execute { then(n) } }

    fun waiting(then: (Int) -> Unit) = work.execute { val n = store.keys(QUEUE).size; callbacks.execute { then(n) } }

    /**
     * Starts a session or continues it; it ends after 30 minutes without a call. The client sends a request only if there is no session, or if a
     * link opened the app. Call it when the app comes to the foreground. If it fails, events are still queued, and openedUrl is kept as well: the
     * queue sends it until there is a response, also after a restart, and [Options.onLink] gets the link.
     */
    fun start(openedUrl: String? = null, then: (Result<Session>) -> Unit = {}) = work.execute {
        val known = session()
        if (known != null && openedUrl == null) {
            callbacks.execute { then(Result.success(readSession(known, null))) }
        } else {
            val kept = openedUrl?.let { append(JSONObject().put("at", now()).put("opened", it)) }
            if (kept != null) starting.add(kept)
            post(options.controlUrl + "/sdk/session", sessionReport(openedUrl)) { answer ->
                if (kept != null) {
                    starting.remove(kept)
                    if (answer.isReceipt || answer.isInvalid) store[kept] = null else if (!sending) schedule(options.batchDelay)
                }
                if (answer.isReceipt) keepSession(answer.body)
                callbacks.execute { then(answer.result { readSession(it, it.optJSONObject("link")) }) }
            }
        }
    }

    private fun sessionReport(openedUrl: String?) = JSONObject(device).put("deviceId", deviceId).putOpt("openedUrl", openedUrl)

    /**
     * Calls back with the link that led to the first run, or null if there is none. The client reads the install referrer from Google Play once, and calls
     * the service only if that has a token. If it fails, the token is kept: call it again.
     */
    fun match(then: (Result<Link?>) -> Unit) = work.execute {
        if (store["asked"] != null) return@execute redeem(then)
        firstRun.referrer { referrer ->
            work.execute {
                if (referrer != null && Regex("mt(=|%3D)").containsMatchIn(referrer)) {
                    store["match"] = JSONObject().put("referrer", referrer).put("at", now()).toString()
                }
                // After the token: if the process dies between the two, the client asks Google Play again.
                if (referrer != null) store["asked"] = "1"
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

    /** Sets the user of the device. The client sends it in its place among the events, and only if it differs from the last one. */
    fun identify(userId: String, traits: Map<String, Any?>? = null) =
        enlist(JSONObject().put("at", now()).put("user", userId).putOpt("traits", traits?.let { JSONObject(it) }))

    /** Removes the user of the device, who is unknown from then on. */
    fun clearIdentity() = enlist(JSONObject().put("at", now()).put("user", JSONObject.NULL))

    /** Queues an event until it has arrived, across restarts. Its id and time are those of this call. */
    fun track(name: String, details: Details = Details()) {
        val at = now()
        val event = JSONObject().put("id", UUID.randomUUID().toString()).put("name", name).put("timestamp", rfc3339(at)).putOpt("linkId", details.linkId)
            .putOpt("currency", details.currency).putOpt("properties", details.properties?.let { JSONObject(it) })
        if (details.revenue?.isFinite() == true) event.put("revenue", details.revenue)
        enlist(JSONObject().put("at", at).put("event", event))
    }

    /** Sends the queue, unless the service told the client to wait. */
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

    /** Stores the entry before it returns. All the rest happens on the thread of [work]. */
    private fun enlist(entry: JSONObject) {
        if (isEvent(entry)) entry.putOpt("session", session()?.getString("sessionId"))
        val text: String? = entry.toString() // null: JSON cannot express a number in it
        if (text == null || bytes(text) > MAX_BYTES) return work.execute { drop(entry, "too large, or not JSON") }
        synchronized(appending) {
            if (!isEvent(entry) && identityOf(entry) == lastIdentity()) return
            append(entry)
        }
        work.execute {
            if (store.keys(QUEUE).size > MAX_QUEUE) {
                queue().firstOrNull { (_, oldest) -> isEvent(oldest) }?.let { (key, oldest) -> drop(oldest, "queue full", key) }
            }
            if (!sending) schedule(options.batchDelay)
        }
    }

    /** Adds the entry to the queue and returns its key. Each key has its own millisecond, so that keys sort in the order of the calls. */
    private fun append(entry: JSONObject): String = synchronized(appending) {
        lastMoment = maxOf(now(), lastMoment + 1)
        val key = QUEUE + "%015d".format(Locale.ROOT, lastMoment) + if (entry.has("user")) USER else ""
        store[key] = entry.toString()
        key
    }

    /** The last identity in the queue, or else the last one that left it. */
    private fun lastIdentity(): String? = store.keys(QUEUE).lastOrNull { it.endsWith(USER) }?.let(::read)?.let(::identityOf) ?: store["identity"]

    /** The queue in the order of the calls, without what start is sending itself. */
    private fun queue(): Sequence<Pair<String, JSONObject>> = store.keys(QUEUE).asSequence().filter { it !in starting }.mapNotNull { key ->
        val entry = read(key)
        if (entry == null) store[key] = null // a power failure can leave an empty file
        entry?.let { key to it }
    }

    /** The first entry alone if it is no event; otherwise the events before the next such entry, as many of one session as fit into a request. */
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

    /** The session of an event. An event that was queued before the first response of this run belongs to the session in that response. */
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
        if (first.has("opened")) return post(options.controlUrl + "/sdk/session", sessionReport(first.getString("opened")), then = then)
        if (first.isNull("user")) return post(options.controlUrl + "/sdk/identity/clear", body, then = then)
        post(options.controlUrl + "/sdk/identity", body.put("userId", first.getString("user")).putOpt("traits", first.opt("traits")), then = then)
    }

    /** Removes from the queue what the response settles, and nothing else. False: do not continue now. */
    private fun settle(batch: Map<String, JSONObject>, answer: Answer): Boolean {
        val first = batch.values.first()
        val rejected = answer.rejected
        if (answer.isInvalid && !isEvent(first)) rejected[0] = answer.message
        batch.entries.forEachIndexed { place, (key, entry) ->
            val reason = rejected[place]
            // Before the entry leaves the queue: if the process dies between the two, the identity is sent twice, not never.
            if (entry.has("user") && (reason != null || answer.isReceipt)) store["identity"] = identityOf(entry)
            if (reason != null) drop(entry, reason, key) else if (answer.isReceipt) store[key] = null
        }
        if (!answer.isReceipt && rejected.isEmpty()) {
            pauseAfter(answer)
            return false
        }
        failures = 0
        if (first.has("opened") && answer.isReceipt) opened(first, answer)
        val known = session()
        if (answer.body.optInt("accepted") > 0 && known != null && sessionOf(first) == known.getString("sessionId")) keepSession(known)
        return true
    }

    private fun opened(entry: JSONObject, answer: Answer) {
        keepSession(answer.body)
        val link = readLink(answer.body.optJSONObject("link"))
        if (link != null && now() - entry.getLong("at") <= OPENED_LIFE) callbacks.execute { options.onLink(link) }
    }

    /** Waits exponentially longer, with jitter, starting with the wait that the service requested. The requested wait survives a restart. */
    private fun pauseAfter(answer: Answer) {
        val most = minOf(BACKOFF_MOST, BACKOFF_BASE shl minOf(failures++, 20))
        val pause = answer.retryAfter * 1000 + (most * (0.5 + Math.random() / 2)).toLong()
        if (answer.status != 0) store["pause"] = (now() + pause).toString()
        schedule(pause)
    }

    /** How long the client must not send, in milliseconds. A clock that was set back must not stop it forever. */
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

    /** The current session, by the clock of this device: that of the service may differ. */
    private fun session(): JSONObject? {
        val kept = read("session") ?: return null
        val idle = now() - kept.getLong("heard")
        return if (idle in 0 until SESSION_IDLE) kept.getJSONObject("session") else null
    }

    private fun keepSession(session: JSONObject) {
        store["session"] = JSONObject().put("session", session).put("heard", now()).toString()
    }

    private fun read(key: String): JSONObject? = store[key]?.let(::parse)

    /** Never fails: without a response the status is 0. Calls back on the thread of [work]. */
    private fun post(url: String, body: JSONObject, withKey: Boolean = true, then: (Answer) -> Unit) = network.execute {
        val answer = try {
            request(url, body.toString().toByteArray(), if (withKey) options.clientKey else null)
        } catch (e: IOException) {
            Answer(0)
        } catch (e: SecurityException) { // the permission INTERNET is missing, or the device's owner forbids it
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

/** A response, as far as it could be read. The login page of a network may respond with 200 as well. */
private class Answer(val status: Int, val body: JSONObject = JSONObject(), header: String? = null) {
    val message: String = body.optString("message", "no answer")
    val retryAfter: Long = minOf((header ?: Regex("Retry after (\\d+) second").find(message)?.groupValues?.get(1))?.toLongOrNull() ?: 0, MOST_ASKED) // in seconds
    val isReceipt = status == 200 && listOf("accepted", "deviceId", "matched").any(body::has) // the service dealt with everything sent
    val isInvalid = status == 400 && body.optInt("statusCode") == 400 // the service will never accept it
    val rejected = HashMap<Int, String>() // the events that the service will never accept, by their place, and why

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

private fun identityOf(entry: JSONObject) = JSONArray().put(entry.opt("user")).put(entry.opt("traits")).toString()

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
