// The Deeplink client for an iOS app: the session, the link that led to the first run, the identity of the user, and a queue of events that
// survives the process. This file does not depend on iOS and compiles in Swift 5 mode; DeeplinkIOS.swift contains the rest. The clients for the
// web and Android have the same parts under the same names.
//
// Every name is nested in Deeplink, so that none collides with a name of the app. Nested protocols need Swift 5.10 (Xcode 15.3).

import Foundation

extension Deeplink {
    struct Options {
        var clientKey: String // svc_sdk_… Every user of the app can read it: never put a server key here
        var controlURL: String // without /sdk
        var edgeURL: String // without /match
        var linkHosts: [String] = [] // more hosts of short URLs than the edge's own: custom domains
        var batchDelay: TimeInterval = 10 // how long an event may wait for others; all devices of a key share 600 requests a minute
        var onLink: (Link) -> Void = { _ in } // gets the link of an opened URL if the service could not be reached when start was called with it
        var onDrop: (_ entry: [String: Any], _ reason: String) -> Void = { _, _ in } // gets each entry that will not arrive
    }

    struct Session {
        let sessionId: String, userId: String?, isFirstSession: Bool
        let link: Link? // that of openedURL
    }

    struct Link {
        let id: String, url: String, path: String // path: where to go in the app
        let json: [String: Any] // the whole link
    }

    /// The optional fields of an event. The service validates them; of a batch it rejects only the invalid events.
    struct Details {
        var linkId: String?, revenue: Decimal?, currency: String?, properties: [String: Any]?
    }

    /// A response other than success. Status 0: there was no response. retryAfter is in seconds.
    struct Failure: Error {
        let status: Int, message: String, retryAfter: TimeInterval
    }

    /// Stores texts by key. A text that was set survives the death of the process. Safe for use by several threads.
    protocol Store: AnyObject {
        subscript(key: String) -> String? { get set } // nil removes the key
        func keys(_ prefix: String) -> [String] // sorted
    }

    /// Finds out which click led to the installation. The client calls it once per installation.
    protocol FirstRun {
        /// Returns the token of the click that led here, nil if there is none. Throws if it cannot be read now; the client calls again later.
        func token() async throws -> String?
    }
}

/// The methods may be called from any thread and do not wait for the network, except those that are async. track, identify and clearIdentity
/// write a small file before they return: when they have returned, the entry survives the death of the process.
final class Deeplink: @unchecked Sendable {
    private let options: Options
    private let store: Store
    private let firstRun: FirstRun
    private let device: [String: String] // platform, appVersion and the like
    private let deviceId: String
    private let work = DispatchQueue(label: "deeplink") // uses all state but lastMoment
    private let born = Deeplink.now()
    private var sending = false
    private var failures = 0
    private var timer: DispatchWorkItem?
    private var starting: Set<String> = [] // keys of opened URLs that start sends itself
    private var isReadingFirstRun = false
    private let appending = NSRecursiveLock() // guards lastMoment, and the decision whether an identity is new
    private var lastMoment: Int // the time in the last key of the queue: a clock that was set back must not produce the same key twice

    init(_ options: Options, store: Store, firstRun: FirstRun, device: [String: String]) throws {
        guard options.clientKey.hasPrefix("svc_sdk_") else { throw Failure(status: 0, message: "not a client key", retryAfter: 0) }
        self.options = options
        self.store = store
        self.firstRun = firstRun
        self.device = device
        deviceId = store["device"] ?? UUID().uuidString
        let last = store.keys(Deeplink.queuePrefix).last ?? ""
        lastMoment = Int(last.dropFirst(Deeplink.queuePrefix.count).prefix(while: { $0.isNumber })) ?? 0
        store["device"] = deviceId
        flush() // what an earlier run left
    }

    /// The number of events that were dropped in all runs: too many, too large, or rejected.
    var dropped: Int { work.sync { count() } }

    var waiting: Int { work.sync { store.keys(Deeplink.queuePrefix).count } }

    /// Starts a session or continues it; it ends after 30 minutes without a call. The client sends a request only if there is no session, or if
    /// a link opened the app. Call it when the app comes to the foreground. If it throws, events are still queued, and openedURL is kept as
    /// well: the queue sends it until there is a response, also after a restart, and Options.onLink gets the link.
    func start(openedURL: URL? = nil) async throws -> Session {
        if openedURL == nil, let known = session() { return Deeplink.readSession(known, link: nil) }
        let kept = openedURL.map { url in keep(url) }
        let answer = await post(options.controlURL + "/sdk/session", sessionReport(openedURL?.absoluteString))
        work.sync { self.started(kept, answer) }
        guard answer.isReceipt else { throw answer.failure }
        return Deeplink.readSession(answer.body, link: answer.body["link"] as? [String: Any])
    }

    /// Queues an opened URL that start sends itself, and returns its key.
    private func keep(_ url: URL) -> String {
        work.sync { () -> String in
            let key = append(["at": Deeplink.now(), "opened": url.absoluteString])
            starting.insert(key)
            return key
        }
    }

    private func started(_ kept: String?, _ answer: Answer) {
        if let key = kept {
            starting.remove(key)
            if answer.isReceipt || answer.isInvalid {
                store[key] = nil
            } else if !sending {
                schedule(options.batchDelay)
            }
        }
        if answer.isReceipt { keepSession(answer.body) }
    }

    private func sessionReport(_ openedURL: String?) -> [String: Any] {
        var report: [String: Any] = device
        report["deviceId"] = deviceId
        report["openedUrl"] = openedURL
        return report
    }

    /// Returns the link that led to the first run, nil if there is none. The client reads the clipboard once, ever: call this when the app is active.
    /// If it throws, the token is kept: call it again. A link that opened the app must not depend on it: see the example in README.md.
    func match() async throws -> Link? {
        let isFirst = work.sync { () -> Bool in
            if isReadingFirstRun || store["asked"] != nil { return false }
            isReadingFirstRun = true
            return true
        }
        if isFirst {
            do {
                let token = try await firstRun.token()
                work.sync { self.keepToken(token) }
            } catch {
                work.sync { self.isReadingFirstRun = false }
            }
        }
        guard let kept = read("match"), let token = kept["token"] as? String,
              Deeplink.now() - (kept["at"] as? TimeInterval ?? 0) <= Deeplink.tokenLife else { return nil }
        var claim: [String: Any] = ["clipboardToken": token, "deviceId": deviceId, "platform": "ios"]
        claim["appVersion"] = device["appVersion"]
        let answer = await post(options.edgeURL + "/match", claim, withKey: false)
        guard answer.isReceipt || answer.isInvalid else { throw answer.failure }
        store["match"] = nil
        return Deeplink.readLink(answer.body["link"] as? [String: Any])
    }

    private func keepToken(_ token: String?) {
        if let token = token { store["match"] = Deeplink.encode(["token": token, "at": Deeplink.now()]) }
        // After the clipboard was read and the token is kept: if the process dies before this, the next run reads the clipboard again.
        store["asked"] = "1"
        isReadingFirstRun = false
    }

    /// Sets the user of the device. The client sends it in its place among the events, and only if it differs from the last one.
    func identify(_ userId: String, traits: [String: Any]? = nil) {
        var entry: Entry = ["at": Deeplink.now(), "user": userId]
        entry["traits"] = traits
        enlist(entry)
    }

    /// Removes the user of the device, who is unknown from then on.
    func clearIdentity() {
        enlist(["at": Deeplink.now(), "user": NSNull()])
    }

    /// Queues an event until it has arrived, across restarts. Its id and time are those of this call.
    func track(_ name: String, _ details: Details = Details()) {
        let at = Deeplink.now()
        var event: [String: Any] = ["id": UUID().uuidString, "name": name, "timestamp": Deeplink.rfc3339(at)]
        event["linkId"] = details.linkId
        event["revenue"] = details.revenue.map { $0 as NSDecimalNumber }
        event["currency"] = details.currency
        event["properties"] = details.properties
        var entry: Entry = ["at": at, "event": event]
        entry["session"] = session()?["sessionId"]
        enlist(entry)
    }

    /// Sends the queue, unless the service told the client to wait. Calls back when the queue is empty or an attempt has failed, on a thread of its own.
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

    /// Stores the entry before it returns. All the rest happens on the queue `work`.
    private func enlist(_ entry: Entry) {
        guard let text = Deeplink.encode(entry), text.utf8.count <= Deeplink.maxBytes else {
            work.async { self.drop(entry, "too large, or not JSON") }
            return
        }
        appending.lock()
        let isNew = Deeplink.isEvent(entry) || Deeplink.identity(of: entry) != lastIdentity()
        if isNew { _ = append(entry) }
        appending.unlock()
        if isNew { work.async { self.appended() } }
    }

    private func appended() {
        if store.keys(Deeplink.queuePrefix).count > Deeplink.maxQueue, let oldest = queue().first(where: { Deeplink.isEvent($0.entry) }) {
            drop(oldest.entry, "queue full", key: oldest.key)
        }
        if !sending { schedule(options.batchDelay) }
    }

    /// Adds the entry to the queue and returns its key. Each key has its own millisecond, so that keys sort in the order of the calls.
    private func append(_ entry: Entry) -> String {
        appending.lock()
        defer { appending.unlock() }
        lastMoment = max(Int(Deeplink.now() * 1000), lastMoment + 1)
        let key = Deeplink.queuePrefix + String(format: "%015ld", lastMoment) + (entry["user"] == nil ? "" : Deeplink.userSuffix)
        store[key] = Deeplink.encode(entry)
        return key
    }

    /// The last identity in the queue, or else the last one that left it.
    private func lastIdentity() -> String? {
        if let key = store.keys(Deeplink.queuePrefix).last(where: { $0.hasSuffix(Deeplink.userSuffix) }), let entry = read(key) {
            return Deeplink.identity(of: entry)
        }
        return store["identity"]
    }

    /// The queue in the order of the calls, without what start is sending itself. It reads an entry only when it gets there.
    private func queue() -> AnySequence<Queued> {
        let keys = store.keys(Deeplink.queuePrefix).filter { !starting.contains($0) }
        return AnySequence(keys.lazy.compactMap { (key: String) -> Queued? in
            guard let entry = self.read(key) else {
                self.store[key] = nil // a power failure can leave an empty file
                return nil
            }
            return (key: key, entry: entry)
        })
    }

    /// The first entry alone if it is no event; otherwise the events before the next such entry, as many of one session as fit into a request.
    private func nextBatch() -> [Queued] {
        var batch: [Queued] = []
        var session: String?
        var size = 0
        for (key, entry) in queue() {
            size += (Deeplink.encode(entry)?.utf8.count ?? 0) + 1
            if batch.isEmpty {
                session = sessionOf(entry)
            } else if !Deeplink.isEvent(entry) || batch.count == Deeplink.maxBatch || size > Deeplink.maxBytes || sessionOf(entry) != session {
                break
            }
            batch.append((key: key, entry: entry))
            if !Deeplink.isEvent(entry) { break }
        }
        return batch
    }

    /// The session of an event. An event that was queued before the first response of this run belongs to the session in that response.
    private func sessionOf(_ entry: Entry) -> String? {
        guard Deeplink.isEvent(entry) else { return nil }
        if let session = entry["session"] as? String { return session }
        return entry["at"] as? TimeInterval ?? 0 >= born ? session()?["sessionId"] as? String : nil
    }

    private func request(_ entries: [Entry]) -> (path: String, body: [String: Any])? {
        guard let first = entries.first else { return nil }
        var body: [String: Any] = ["deviceId": deviceId]
        if Deeplink.isEvent(first) {
            body["sessionId"] = sessionOf(first)
            body["events"] = entries.compactMap { $0["event"] }
            return (path: "/sdk/events", body: body)
        }
        if let opened = first["opened"] as? String { return (path: "/sdk/session", body: sessionReport(opened)) }
        guard let user = first["user"] as? String else { return (path: "/sdk/identity/clear", body: body) }
        body["userId"] = user
        body["traits"] = first["traits"]
        return (path: "/sdk/identity", body: body)
    }

    /// Removes from the queue what the response settles, and nothing else. False: do not continue now.
    private func settle(_ batch: [Queued], _ answer: Answer) -> Bool {
        let first = batch[0].entry
        var rejected = answer.rejected
        if answer.isInvalid, !Deeplink.isEvent(first) { rejected[0] = answer.message }
        for (place, (key, entry)) in batch.enumerated() {
            let reason = rejected[place]
            // Before the entry leaves the queue: if the process dies between the two, the identity is sent twice, not never.
            if entry["user"] != nil, reason != nil || answer.isReceipt { store["identity"] = Deeplink.identity(of: entry) }
            if let reason = reason {
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
        if first["opened"] != nil, answer.isReceipt { opened(first, answer) }
        if answer.body["accepted"] as? Int ?? 0 > 0, let known = session(), sessionOf(first) == known["sessionId"] as? String {
            keepSession(known)
        }
        return true
    }

    private func opened(_ entry: Entry, _ answer: Answer) {
        keepSession(answer.body)
        guard let link = Deeplink.readLink(answer.body["link"] as? [String: Any]),
              Deeplink.now() - (entry["at"] as? TimeInterval ?? 0) <= Deeplink.openedLife else { return }
        DispatchQueue.main.async { self.options.onLink(link) }
    }

    /// Waits exponentially longer, with jitter, starting with the wait that the service requested. The requested wait survives a restart.
    private func pauseAfter(_ answer: Answer) {
        let most = min(Deeplink.backoffMost, Deeplink.backoffBase * pow(2, Double(failures)))
        failures += 1
        let pause = answer.retryAfter + most * Double.random(in: 0.5...1)
        if answer.status != 0 { store["pause"] = String(Deeplink.now() + pause) }
        schedule(pause)
    }

    /// How long the client must not send. A clock that was set back must not stop it forever.
    private func pause() -> TimeInterval {
        let left = (Double(store["pause"] ?? "") ?? 0) - Deeplink.now()
        return left > 0 && left < Deeplink.maxRequestedWait + Deeplink.backoffMost ? left : 0
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

    /// The current session, by the clock of this device: that of the service may differ.
    private func session() -> [String: Any]? {
        guard let kept = read("session"), let heard = kept["heard"] as? TimeInterval else { return nil }
        return (0..<Deeplink.sessionIdle).contains(Deeplink.now() - heard) ? kept["session"] as? [String: Any] : nil
    }

    private func keepSession(_ session: [String: Any]) {
        store["session"] = Deeplink.encode(["session": session, "heard": Deeplink.now()])
    }

    private func read(_ key: String) -> [String: Any]? { store[key].flatMap { Deeplink.decode(Data($0.utf8)) } }

    /// Never fails: without a response the status is 0.
    private func post(_ url: String, _ body: [String: Any], withKey: Bool = true) async -> Answer {
        guard let url = URL(string: url), let text = Deeplink.encode(body) else { return Answer(status: 0) }
        var request = URLRequest(url: url, timeoutInterval: Deeplink.timeout)
        request.httpMethod = "POST"
        request.httpBody = Data(text.utf8)
        request.setValue("application/json", forHTTPHeaderField: "Content-Type")
        if withKey { request.setValue("Bearer " + options.clientKey, forHTTPHeaderField: "Authorization") }
        guard let (data, response) = try? await Deeplink.network.data(for: request), let http = response as? HTTPURLResponse else { return Answer(status: 0) }
        return Answer(status: http.statusCode, body: Deeplink.decode(data) ?? [:], header: http.value(forHTTPHeaderField: "Retry-After"))
    }
}

private extension Deeplink {
    typealias Entry = [String: Any]
    typealias Queued = (key: String, entry: Entry)

    static let maxBatch = 100 // events in a request
    static let maxBytes = 60_000 // of a request: control accepts 64 KiB
    static let maxQueue = 1000 // events in the queue; the oldest are dropped
    static let sessionIdle: TimeInterval = 30 * 60
    static let tokenLife: TimeInterval = 24 * 3600
    static let openedLife: TimeInterval = 24 * 3600 // after that, following an opened URL would surprise the user
    static let timeout: TimeInterval = 15
    static let backoffBase: TimeInterval = 1
    static let backoffMost: TimeInterval = 10 * 60
    static let maxRequestedWait: TimeInterval = 3600 // that a service may ask to wait
    static let queuePrefix = "queue."
    static let userSuffix = ".user" // ends the key of an identity in the queue
    static let network = URLSession(configuration: .ephemeral)

    /// A response, as far as it could be read. The login page of a network may respond with 200 as well.
    struct Answer {
        let status: Int
        let body: [String: Any]
        let message: String
        let retryAfter: TimeInterval
        let isReceipt: Bool // the service dealt with everything sent
        let isInvalid: Bool // the service will never accept it
        var rejected: [Int: String] = [:] // the events that the service will never accept, by their place, and why

        init(status: Int, body: [String: Any] = [:], header: String? = nil) {
            self.status = status
            self.body = body
            message = body["message"] as? String ?? "no response"
            let seconds = header.flatMap { Int($0) } ?? Deeplink.number(after: "Retry after ", in: message) ?? 0
            retryAfter = min(TimeInterval(seconds), Deeplink.maxRequestedWait)
            isReceipt = status == 200 && ["accepted", "deviceId", "matched"].contains { body[$0] != nil }
            isInvalid = status == 400 && body["statusCode"] as? Int == 400
            for bad in body[isReceipt ? "rejected" : isInvalid ? "details" : ""] as? [[String: Any]] ?? [] {
                let place = bad["index"] as? Int ?? Deeplink.number(after: "events[", in: bad["field"] as? String ?? "")
                if let place = place { rejected[place] = bad["message"] as? String ?? "" }
            }
        }

        var failure: Failure { Failure(status: status, message: message, retryAfter: retryAfter) }
    }

    static func isEvent(_ entry: Entry) -> Bool { entry["event"] != nil }

    static func identity(of entry: Entry) -> String? {
        encode(["user": entry["user"] ?? NSNull(), "traits": entry["traits"] ?? NSNull()])
    }

    static func readSession(_ json: [String: Any], link: [String: Any]?) -> Session {
        Session(sessionId: json["sessionId"] as? String ?? "", userId: json["userId"] as? String,
                isFirstSession: json["isFirstSession"] as? Bool ?? false, link: readLink(link))
    }

    static func readLink(_ json: [String: Any]?) -> Link? {
        guard let json = json, let id = json["id"] as? String, let url = json["url"] as? String, let path = json["path"] as? String else { return nil }
        return Link(id: id, url: url, path: path, json: json)
    }

    static func number(after words: String, in text: String) -> Int? {
        text.range(of: words).flatMap { Int(text[$0.upperBound...].prefix(while: { $0.isNumber })) }
    }

    static func encode(_ json: [String: Any]) -> String? {
        guard JSONSerialization.isValidJSONObject(json), let data = try? JSONSerialization.data(withJSONObject: json, options: .sortedKeys) else { return nil }
        return String(decoding: data, as: UTF8.self)
    }

    static func decode(_ data: Data) -> [String: Any]? { (try? JSONSerialization.jsonObject(with: data)) as? [String: Any] }

    static func now() -> TimeInterval { Date().timeIntervalSince1970 }

    static func rfc3339(_ at: TimeInterval) -> String {
        ISO8601DateFormatter.string(
            from: Date(timeIntervalSince1970: at), timeZone: TimeZone(secondsFromGMT: 0)!, formatOptions: [.withInternetDateTime, .withFractionalSeconds]
        )
    }
}
