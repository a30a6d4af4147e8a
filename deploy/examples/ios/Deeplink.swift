// Deeplink for an iOS app: its session, the link behind a first run, who the user is, and events that are not lost. This file is all that is
// not iOS's, in the language mode of Swift 5; DeeplinkIOS.swift is the rest. The clients for the web and Android have the same parts under the
// same names.

import Foundation

extension Deeplink {
    struct Options {
        var clientKey: String // svc_sdk_… . Everybody can read it: a server key must never be here
        var controlURL: String // before /sdk
        var edgeURL: String // before /match
        var linkHosts: [String] = [] // of the short URLs beside the edge's own: custom domains
        var batchDelay: TimeInterval = 10 // how long an event may wait for others; all devices of a key share 600 requests a minute
        var onDrop: (_ entry: [String: Any], _ reason: String) -> Void = { _, _ in } // told of each entry that will not arrive
    }

    struct Session {
        let sessionId: String, userId: String?, isFirstSession: Bool
        let link: Link? // what openedURL leads to
    }

    struct Link {
        let id: String, url: String, path: String // path: where to go in the app
        let json: [String: Any] // all of it
    }

    /// What may be told of an event. The service judges it: what it rejects is dropped alone.
    struct Details {
        var linkId: String?, revenue: Decimal?, currency: String?, properties: [String: Any]?
    }
}

/// An answer other than success; status 0 is none at all. retryAfter is in seconds.
struct DeeplinkError: Error {
    let status: Int, message: String, retryAfter: TimeInterval
}

/// Where things are kept: nothing in it is lost when the process ends. It is used by one thread at a time.
protocol Store: AnyObject {
    subscript(key: String) -> String? { get set } // nil: no longer
    func keys(_ prefix: String) -> [String] // sorted
}

/// Asked once in the life of an installation, how it came about.
protocol FirstRun {
    /// Returns the token of the click that led here, nil when there is none.
    func token() async -> String?
}

private let maxBatch = 100 // events in a request
private let maxBytes = 60_000 // of a request: control takes 64 KiB
private let maxQueue = 1000 // events that wait; the oldest make room
private let sessionIdle: TimeInterval = 30 * 60
private let tokenLife: TimeInterval = 24 * 3600
private let timeout: TimeInterval = 15
private let backoffBase: TimeInterval = 1
private let backoffMost: TimeInterval = 10 * 60
private let mostAsked: TimeInterval = 3600 // that a service may ask to wait

private typealias Entry = [String: Any]

/// Its methods may be called from any thread and return at once.
final class Deeplink: @unchecked Sendable {
    private let options: Options
    private let store: Store
    private let firstRun: FirstRun
    private let device: [String: String] // platform, appVersion and the like
    private let deviceId: String
    private let work = DispatchQueue(label: "deeplink") // all state is its own
    private let born = now()
    private var sending = false
    private var failures = 0
    private var lastMoment = 0
    private var timer: DispatchWorkItem?

    init(_ options: Options, store: Store, firstRun: FirstRun, device: [String: String]) throws {
        guard options.clientKey.hasPrefix("svc_sdk_") else { throw DeeplinkError(status: 0, message: "not a client key", retryAfter: 0) }
        self.options = options
        self.store = store
        self.firstRun = firstRun
        self.device = device
        deviceId = store["device"] ?? UUID().uuidString
        store["device"] = deviceId
        flush() // what a run before left
    }

    /// Events that were dropped in all runs: too many, too large, or rejected.
    var dropped: Int { work.sync { count() } }

    var waiting: Int { work.sync { store.keys("queue.").count } }

    /// Begins the session, or goes on with it: one lasts until nothing was heard of it for 30 minutes. The service is asked only when there
    /// is none, or when a link opened the app. Call it when the app comes to the front; when it fails, events are kept all the same.
    func start(openedURL: URL? = nil) async throws -> Session {
        if openedURL == nil, let known = work.sync(execute: { session() }) { return readSession(known, link: nil) }
        var report = device
        report["deviceId"] = deviceId
        report["openedUrl"] = openedURL?.absoluteString
        let answer = await post(options.controlURL + "/sdk/session", report)
        guard answer.isReceipt else { throw answer.error }
        work.sync { keepSession(answer.body) }
        return readSession(answer.body, link: answer.body["link"] as? [String: Any])
    }

    /// Returns the link behind the first run, nil when there is none. The clipboard is looked at once, ever: call it when the app is active.
    /// When it fails, the token is kept: call it again.
    func match() async throws -> Link? {
        let isFirst = work.sync { () -> Bool in
            defer { store["asked"] = "1" }
            return store["asked"] == nil
        }
        if isFirst, let token = await firstRun.token() {
            work.sync { store["match"] = encode(["token": token, "at": now()]) }
        }
        guard let kept = work.sync(execute: { read("match") }), let token = kept["token"] as? String,
              now() - (kept["at"] as? TimeInterval ?? 0) <= tokenLife else { return nil }
        var claim = ["clipboardToken": token, "deviceId": deviceId, "platform": "ios"]
        claim["appVersion"] = device["appVersion"]
        let answer = await post(options.edgeURL + "/match", claim, withKey: false)
        guard answer.isReceipt || answer.isInvalid else { throw answer.error }
        work.sync { store["match"] = nil }
        return readLink(answer.body["link"] as? [String: Any])
    }

    /// Says who uses the device. Sent in its place among the events, and only when it is news.
    func identify(_ userId: String, traits: [String: Any]? = nil) {
        var entry: Entry = ["at": now(), "user": userId]
        entry["traits"] = traits
        enlist(entry)
    }

    /// Says that nobody known uses the device any more.
    func clearIdentity() {
        enlist(["at": now(), "user": NSNull()])
    }

    /// Keeps an event until it has arrived, across restarts. Its id and time are those of now.
    func track(_ name: String, _ details: Details = Details()) {
        let at = now()
        var event: [String: Any] = ["id": UUID().uuidString, "name": name, "timestamp": rfc3339(at)]
        event["linkId"] = details.linkId
        event["revenue"] = details.revenue.map { $0 as NSDecimalNumber }
        event["currency"] = details.currency
        event["properties"] = details.properties
        enlist(["at": at, "event": event])
    }

    /// Sends what waits, unless the service asked to wait. Calls back when nothing waits or a try has failed, on a thread of its own.
    func flush(then done: @escaping () -> Void = {}) {
        work.async { self.drain(then: done) }
    }

    private func drain(then done: @escaping () -> Void) {
        if sending { return done() }
        if pause() > 0 {
            schedule(pause())
            return done()
        }
        timer?.cancel()
        timer = nil
        let batch = nextBatch()
        guard let (path, body) = request(batch.map { $0.entry }) else { return done() }
        sending = true
        Task {
            let answer = await post(options.controlURL + path, body)
            work.async {
                self.sending = false
                if self.settle(batch, answer) { self.drain(then: done) } else { done() }
            }
        }
    }

    private func enlist(_ made: Entry) {
        work.async { [self] in
            var entry = made
            if isEvent(entry) { entry["session"] = session()?["sessionId"] }
            guard let text = encode(entry), text.utf8.count <= maxBytes else { return drop(entry, "too large, or no JSON") }
            if !isEvent(entry) {
                let identity = encode(["user": entry["user"] ?? NSNull(), "traits": entry["traits"] ?? NSNull()])
                if identity == store["identity"] { return }
                store["identity"] = identity
            }
            lastMoment = max(Int(now() * 1000), lastMoment + 1) // a millisecond of its own, so that keys sort as they were made
            store[String(format: "queue.%015ld", lastMoment)] = text
            if store.keys("queue.").count > maxQueue, let oldest = queue().first(where: { isEvent($0.entry) }) {
                drop(oldest.entry, "queue full", key: oldest.key)
            }
            if !sending { schedule(options.batchDelay) }
        }
    }

    /// What waits, in the order in which it happened.
    private func queue() -> AnySequence<(key: String, entry: Entry)> {
        AnySequence(store.keys("queue.").lazy.compactMap { key in self.read(key).map { (key: key, entry: $0) } })
    }

    /// The first change of identity, or the events before it: as many of one session as fit into a request.
    private func nextBatch() -> [(key: String, entry: Entry)] {
        var batch: [(key: String, entry: Entry)] = []
        var session: String?
        var size = 0
        for (key, entry) in queue() {
            size += (encode(entry)?.utf8.count ?? 0) + 1
            if batch.isEmpty {
                session = sessionOf(entry)
            } else if !isEvent(entry) || batch.count == maxBatch || size > maxBytes || sessionOf(entry) != session {
                break
            }
            batch.append((key: key, entry: entry))
            if !isEvent(entry) { break }
        }
        return batch
    }

    /// The session of an event; what happened while this run's was being asked for belongs to that one.
    private func sessionOf(_ entry: Entry) -> String? {
        guard isEvent(entry) else { return nil }
        if let session = entry["session"] as? String { return session }
        return entry["at"] as? TimeInterval ?? 0 >= born ? session()?["sessionId"] as? String : nil
    }

    private func request(_ entries: [Entry]) -> (path: String, body: [String: Any])? {
        guard let first = entries.first else { return nil }
        var body: [String: Any] = ["deviceId": deviceId]
        if isEvent(first) {
            body["sessionId"] = sessionOf(first)
            body["events"] = entries.compactMap { $0["event"] }
            return (path: "/sdk/events", body: body)
        }
        guard let user = first["user"] as? String else { return (path: "/sdk/identity/clear", body: body) }
        body["userId"] = user
        body["traits"] = first["traits"]
        return (path: "/sdk/identity", body: body)
    }

    /// Takes out of the queue what an answer is about, and nothing else. False: there is no use in going on now.
    private func settle(_ batch: [(key: String, entry: Entry)], _ answer: Answer) -> Bool {
        var rejected = answer.rejected
        if answer.isInvalid, !isEvent(batch[0].entry) { rejected[0] = answer.message }
        for (place, (key, entry)) in batch.enumerated() {
            if let reason = rejected[place] {
                drop(entry, reason, key: key)
            } else if answer.isReceipt {
                store[key] = nil
            }
        }
        if !answer.isReceipt, rejected.isEmpty {
            pauseAfter(answer)
            return false
        }
        failures = 0
        if answer.body["accepted"] as? Int ?? 0 > 0, let known = session(), sessionOf(batch[0].entry) == known["sessionId"] as? String {
            keepSession(known)
        }
        return true
    }

    /// Exponential, with jitter, behind what the service asked for. Kept, so that no restart comes too early; offline nobody asked.
    private func pauseAfter(_ answer: Answer) {
        let most = min(backoffMost, backoffBase * pow(2, Double(failures)))
        failures += 1
        let pause = answer.retryAfter + most * Double.random(in: 0.5...1)
        if answer.status != 0 { store["pause"] = String(now() + pause) }
        schedule(pause)
    }

    /// How long nothing may be sent. A clock that was set back does not make it forever.
    private func pause() -> TimeInterval {
        let left = (Double(store["pause"] ?? "") ?? 0) - now()
        return left > 0 && left < mostAsked + backoffMost ? left : 0
    }

    private func schedule(_ delay: TimeInterval) {
        if timer != nil { return }
        let item = DispatchWorkItem { [weak self] in
            self?.timer = nil
            self?.drain {}
        }
        timer = item
        work.asyncAfter(deadline: .now() + delay, execute: item)
    }

    private func drop(_ entry: Entry, _ reason: String, key: String? = nil) {
        if let key = key { store[key] = nil }
        store["dropped"] = String(count() + 1)
        DispatchQueue.main.async { self.options.onDrop(entry, reason) }
    }

    private func count() -> Int { Int(store["dropped"] ?? "") ?? 0 }

    /// The session that goes on, by this device's clock: the service's may differ.
    private func session() -> [String: Any]? {
        guard let kept = read("session"), let heard = kept["heard"] as? TimeInterval else { return nil }
        return (0..<sessionIdle).contains(now() - heard) ? kept["session"] as? [String: Any] : nil
    }

    private func keepSession(_ session: [String: Any]) {
        store["session"] = encode(["session": session, "heard": now()])
    }

    private func read(_ key: String) -> [String: Any]? { store[key].flatMap { decode(Data($0.utf8)) } }

    /// Never fails: no answer is one of status 0.
    private func post(_ url: String, _ body: [String: Any], withKey: Bool = true) async -> Answer {
        guard let url = URL(string: url), let text = encode(body) else { return Answer(status: 0) }
        var request = URLRequest(url: url, timeoutInterval: timeout)
        request.httpMethod = "POST"
        request.httpBody = Data(text.utf8)
        request.setValue("application/json", forHTTPHeaderField: "Content-Type")
        if withKey { request.setValue("Bearer " + options.clientKey, forHTTPHeaderField: "Authorization") }
        guard let (data, response) = try? await network.data(for: request), let http = response as? HTTPURLResponse else { return Answer(status: 0) }
        return Answer(status: http.statusCode, body: decode(data) ?? [:], header: http.value(forHTTPHeaderField: "Retry-After"))
    }
}

/// What the service said, as far as it could be read. A network that answers in its place may say 200 as well.
private struct Answer {
    let status: Int
    let body: [String: Any]
    let message: String
    let retryAfter: TimeInterval
    let isReceipt: Bool // all that was sent is dealt with
    let isInvalid: Bool // it will never be taken
    var rejected: [Int: String] = [:] // the events that will never be taken, by their place, and why

    init(status: Int, body: [String: Any] = [:], header: String? = nil) {
        self.status = status
        self.body = body
        message = body["message"] as? String ?? "no answer"
        retryAfter = min(TimeInterval(header.flatMap { Int($0) } ?? number(after: "Retry after ", in: message) ?? 0), mostAsked)
        isReceipt = status == 200 && ["accepted", "deviceId", "matched"].contains { body[$0] != nil }
        isInvalid = status == 400 && body["statusCode"] as? Int == 400
        for bad in body[isReceipt ? "rejected" : isInvalid ? "details" : ""] as? [[String: Any]] ?? [] {
            let place = bad["index"] as? Int ?? number(after: "events[", in: bad["field"] as? String ?? "")
            if let place = place { rejected[place] = bad["message"] as? String ?? "" }
        }
    }

    var error: DeeplinkError { DeeplinkError(status: status, message: message, retryAfter: retryAfter) }
}

private let network = URLSession(configuration: .ephemeral)

private func isEvent(_ entry: Entry) -> Bool { entry["event"] != nil }

private func readSession(_ json: [String: Any], link: [String: Any]?) -> Deeplink.Session {
    Deeplink.Session(sessionId: json["sessionId"] as? String ?? "", userId: json["userId"] as? String, isFirstSession: json["isFirstSession"] as? Bool ?? false,
            link: readLink(link))
}

private func readLink(_ json: [String: Any]?) -> Deeplink.Link? {
    guard let json = json, let id = json["id"] as? String, let url = json["url"] as? String, let path = json["path"] as? String else { return nil }
    return Deeplink.Link(id: id, url: url, path: path, json: json)
}

private func number(after words: String, in text: String) -> Int? {
    text.range(of: words).flatMap { Int(text[$0.upperBound...].prefix(while: { $0.isNumber })) }
}

private func encode(_ json: [String: Any]) -> String? {
    guard JSONSerialization.isValidJSONObject(json), let data = try? JSONSerialization.data(withJSONObject: json, options: .sortedKeys) else { return nil }
    return String(decoding: data, as: UTF8.self)
}

private func decode(_ data: Data) -> [String: Any]? { (try? JSONSerialization.jsonObject(with: data)) as? [String: Any] }

private func now() -> TimeInterval { Date().timeIntervalSince1970 }

private func rfc3339(_ at: TimeInterval) -> String {
    ISO8601DateFormatter.string(
        from: Date(timeIntervalSince1970: at), timeZone: TimeZone(secondsFromGMT: 0)!, formatOptions: [.withInternetDateTime, .withFractionalSeconds]
    )
}
