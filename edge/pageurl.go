package main

import (
	"regexp"
	"slices"
	"strings"

	"deeplink/shared/catalog"
)

// An app is opened by a URL of its own scheme: the scheme, "://", and the link's path as it stands. So /sale of the scheme shop is
// shop:///sale, with an empty host, and sale is shop://sale, with sale for a host: which of them an app knows is up to who wrote it.
// What a URL cannot have is percent-encoded, and what is encoded already stays. On Android the same URL is wrapped into an intent
// (developer.chrome.com/docs/android/intents).

// appPath encodes a path for its place behind the scheme. Behind the fragment it has no semicolon, so that
// nothing in it can be read as the end of an intent's data and the begin of its extras.
func appPath(path string) string {
	const hex = "0123456789ABCDEF"
	var b strings.Builder
	// Up to the first slash stands what is read as a host. A port, a user or brackets there would be read as such, or not at all.
	host, fragment := true, false
	for i := range len(path) {
		c := path[i]
		switch {
		case c == '/' || c == '?' || c == '#':
			host = false
			if c != '#' || !fragment {
				b.WriteByte(c)
				fragment = fragment || c == '#'
				continue
			}
		case c == '%' && isEscape([]byte(path[i:])):
			b.WriteByte(c)
			continue
		case host && strings.IndexByte(":@", c) >= 0, fragment && c == ';':
		case isLetter(c), '0' <= c && c <= '9', strings.IndexByte("-._~!$&'()*+,;=:@", c) >= 0:
			b.WriteByte(c)
			continue
		}
		b.Write([]byte{'%', hex[c>>4], hex[c&15]})
	}
	return b.String()
}

// What a URL is made of is checked again: control lets nothing else in, but the row may have been written by hand.
var (
	appSchemePattern   = regexp.MustCompile(catalog.AppSchemePattern)
	packageNamePattern = regexp.MustCompile(catalog.PackageNamePattern)
	appStoreIDPattern  = regexp.MustCompile(catalog.AppStoreIDPattern)
	// browserSchemes mean something to a browser.
	browserSchemes = []string{
		"about", "blob", "chrome", "content", "data", "file", "filesystem", "ftp", "http", "https", "intent", "jar", "javascript",
		"mailto", "resource", "sms", "tel", "vbscript", "view-source", "ws", "wss",
	}
)

// ifMatches returns a value that has the form it should have, otherwise nothing.
func ifMatches(pattern *regexp.Regexp, value *string) string {
	if value == nil || len(*value) > catalog.MaxAppID || !pattern.MatchString(*value) {
		return ""
	}
	return *value
}

func appScheme(value *string) string {
	scheme := ifMatches(appSchemePattern, value)
	if slices.Contains(browserSchemes, scheme) {
		return ""
	}
	return scheme
}
