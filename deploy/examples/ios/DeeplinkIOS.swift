// What Deeplink.swift needs of iOS: a folder, the clipboard, and to know when the app is left. Needs iOS 15.

import UIKit

/// Makes the app's one Deeplink; call it when the app has launched.
@MainActor func deeplink(_ options: Deeplink.Options) throws -> Deeplink {
    let device = [
        "platform": "ios", "osVersion": UIDevice.current.systemVersion, "model": UIDevice.current.model,
        "appVersion": Bundle.main.object(forInfoDictionaryKey: "CFBundleShortVersionString") as? String ?? "",
        "locale": Locale.current.identifier, "timezone": TimeZone.current.identifier,
    ].mapValues { String($0.prefix(64)) }
    let hosts = options.linkHosts + [URL(string: options.edgeURL)?.host ?? ""]
    let made = try Deeplink(options, store: Folder(), firstRun: Clipboard(hosts: hosts), device: device)
    Leaving.watch(made)
    return made
}

/// A folder with a file for each key. It is in no backup, or a new phone believes that it is the old one.
private final class Folder: Store {
    private let folder: URL

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
        get { try? String(contentsOf: folder.appendingPathComponent(key), encoding: .utf8) }
        set {
            let file = folder.appendingPathComponent(key)
            if let text = newValue {
                try? Data(text.utf8).write(to: file, options: .atomic)
            } else {
                try? FileManager.default.removeItem(at: file)
            }
        }
    }

    func keys(_ prefix: String) -> [String] {
        let names = (try? FileManager.default.contentsOfDirectory(atPath: folder.path)) ?? []
        return names.filter { $0.hasPrefix(prefix) }.sorted()
    }
}

/// The short URL that the page of a link copied when it was tapped.
private struct Clipboard: FirstRun {
    let hosts: [String] // of short URLs

    /// Asks first whether there seems to be a URL: iOS tells that without a word to the user, who is asked or told when the clipboard is
    /// read. What is no short URL stays where it is.
    @MainActor func token() async -> String? {
        guard let seen = try? await UIPasteboard.general.detectedPatterns(for: [\.probableWebURL]), seen.contains(\.probableWebURL) else { return nil }
        guard let copied = UIPasteboard.general.string?.trimmingCharacters(in: .whitespacesAndNewlines), let url = URLComponents(string: copied),
              let host = url.host?.lowercased(), hosts.contains(host),
              let token = url.queryItems?.first(where: { $0.name == "mt" })?.value, (1...100).contains(token.count) else { return nil }
        return token
    }
}

/// Sends when the app is left, in the seconds that iOS still gives it. It may be ended at any time after that.
@MainActor private enum Leaving {
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
