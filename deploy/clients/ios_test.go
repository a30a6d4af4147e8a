package clients_test

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// readText returns a file without whole-line comments.
func readText(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return regexp.MustCompile(`(?m)^\s*//.*\n`).ReplaceAllString(string(text), "")
}

// TestIOSClientDeclaresAllNamesInsideDeeplink: apps copy the files and may have their own types Store, Link or Session.
func TestIOSClientDeclaresAllNamesInsideDeeplink(t *testing.T) {
	outermost := regexp.MustCompile(`^[@a-z]`)
	nested := regexp.MustCompile(`^(import \w+|(private )?extension Deeplink \{|final class Deeplink: @unchecked Sendable \{)$`)
	for _, file := range []string{"ios/Deeplink.swift", "ios/DeeplinkIOS.swift"} {
		for line := range strings.Lines(readText(t, file)) {
			line = strings.TrimSuffix(line, "\n")
			if outermost.MatchString(line) && !nested.MatchString(line) {
				t.Errorf("%s declares outside of Deeplink: %s", file, line)
			}
		}
	}
}

// TestIOSClientStoresBeforeItSends checks the order of steps between which a failure or a kill must lose nothing. No Swift compiler is
// available here; android_test.go runs the same steps of the Android client.
func TestIOSClientStoresBeforeItSends(t *testing.T) {
	client, readme := readText(t, "ios/Deeplink.swift"), readText(t, "ios/README.md")
	for what, steps := range map[string]*regexp.Regexp{
		"match stores the token first, then that the clipboard was read": regexp.MustCompile(
			`(?s)func match\(\).*?try await firstRun\.token\(\)\s+work\.sync \{ self\.keepToken\(token\) \}.*?func keepToken.*?store\["match"\] = .*?store\["asked"\] = "1"`),
		"start stores the opened URL before it sends it": regexp.MustCompile(
			`(?s)func start\(.*?openedURL\.map \{ url in keep\(url\) \}.*?await post\(.*?func keep\(.*?append\(\["at": Deeplink\.now\(\), "opened": `),
		"an opened URL leaves the queue only with a response": regexp.MustCompile(`(?s)func started\(.*?if answer\.isReceipt \|\| answer\.isInvalid \{\s+store\[key\] = nil\s+\}`),
		"the queue sends opened URLs":                         regexp.MustCompile(`(?s)func request\(.*?first\["opened"\] as\? String \{ return \(path: "/sdk/session"`),
		"enlist stores the entry before it returns": regexp.MustCompile(
			`(?s)func enlist\(.*?appending\.lock\(\).*?append\(entry\).*?appending\.unlock\(\)\s+if isNew \{ work\.async`),
	} {
		if !steps.MatchString(client) {
			t.Errorf("ios/Deeplink.swift: not found: %s", what)
		}
	}
	if n := strings.Count(client, `store["asked"] = `); n != 1 {
		t.Errorf("ios/Deeplink.swift: store[\"asked\"] is set %d times, expected once", n)
	}
	// `try? await a() ?? b` is nil when a throws: b is lost.
	if lost := regexp.MustCompile(`try\? await client\.match\(\) *\?\?`).FindString(readme); lost != "" {
		t.Errorf("ios/README.md: %s drops the opened link when match throws", lost)
	}
}
