// The parts of Deeplink.swift that depend on iOS: a folder, the clipboard, and a call when the user leaves the app. Needs iOS 15.

import UIKit

extension Deeplink {
    /// Creates the app's one Deeplink; call it when the app has launched.
    @MainActor convenience init(_ options: Options) throws {
        let device = [
            "platform": "ios", "osVersion": UIDevice.current.systemVersion, "model": UIDevice.current.model,
            "appVersion": Bundle.main.object(forInfoDictionaryKey: "CFBundleShortVersionString") as? String ?? "",
            "locale": Locale.current.identifier, "timezone": TimeZone.current.identifier,
        ].mapValues { String($0.prefix(64)) }
        let hosts = options.linkHosts + [URL(string: options.edgeURL)?.host ?? ""]
        try self.init(options, store: Folder(), firstRun: Clipboard(hosts: hosts), device: device)
        Leaving.watch(self)
    }
}

private extension Deeplink {
    /// A folder with a file for each key, in no backup: restored to a new phone, it would make that phone the old device. What cannot be written,
    /// because the disk is full or the phone has not been unlocked since it started, is kept in memory.
    final class Folder: Store {
        private let folder: URL
        private let lock = NSLock()
        private var memory: [String: String] = [:]

        init() throws {
            let support = try FileManager.default.url(for: .applicationSupportDirectory, in: .userDomainMask, appropriateFor: nil, create: true)
            var folder = support.appendingPathComponent("deeplink", isDirectory: true)
            try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
            var values = URLResourceValues()
            values.isExcludedFromBackup = true
            try folder.setResourceValues(values)
            self.folder = folder
        }

        subscript(key: String) -> String? {
            get {
                lock.lock()
                defer { lock.unlock() }
                return memory[key] ?? (try? String(contentsOf: folder.appendingPathComponent(key), encoding: .utf8))
            }
            set {
                lock.lock()
                defer { lock.unlock() }
                let file = folder.appendingPathComponent(key)
                memory[key] = newValue
                if let text = newValue {
                    // Atomic: after the death of the process a key has its old or its new text, never a part of one.
                    if (try? Data(text.utf8).write(to: file, options: .atomic)) != nil { memory[key] = nil }
                } else {
                    try? FileManager.default.removeItem(at: file)
                }
            }
        }

        func keys(_ prefix: String) -> [String] {
            lock.lock()
            defer { lock.unlock() }
            let names = (try? FileManager.default.contentsOfDirectory(atPath: folder.path)) ?? []
            return Set(names).union(memory.keys).filter { $0.hasPrefix(prefix) }.sorted()
        }
    }

    /// The short URL that the page of a link copied when the user tapped it.
    struct Clipboard: FirstRun {
        let hosts: [String] // of short URLs

        /// Checks first whether the clipboard seems to hold a URL, which iOS does not show to the user; iOS notifies or asks the user when the text is
        /// read. Any other text stays on the phone. Throws while the app is not active: the text cannot be read then.
        @MainActor func token() async throws -> String? {
            guard UIApplication.shared.applicationState == .active else { throw CancellationError() }
            let seen = try await UIPasteboard.general.detectedPatterns(for: [\.probableWebURL])
            guard seen.contains(\.probableWebURL) else { return nil }
            guard let copied = UIPasteboard.general.string?.trimmingCharacters(in: .whitespacesAndNewlines), let url = URLComponents(string: copied),
                  let host = url.host?.lowercased(), hosts.contains(host),
                  let token = url.queryItems?.first(where: { $0.name == "mt" })?.value, (1...100).contains(token.count) else { return nil }
            return token
        }
    }

    /// Sends the queue when the user leaves the app, in the seconds that iOS still gives it. iOS may end the process at any time after that.
    @MainActor enum Leaving {
        private static var task = UIBackgroundTaskIdentifier.invalid

        static func watch(_ deeplink: Deeplink) {
            NotificationCenter.default.addObserver(forName: UIApplication.didEnterBackgroundNotification, object: nil, queue: .main) { _ in
                Task { @MainActor in
                    end()
                    task = UIApplication.shared.beginBackgroundTask { end() }
                    deeplink.flush { Task { @MainActor in end() } }
                }
            }
        }

        private static func end() {
            if task != .invalid { UIApplication.shared.endBackgroundTask(task) }
            task = .invalid
        }
    }
}
