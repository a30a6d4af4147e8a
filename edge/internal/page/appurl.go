package page

import (
	"encoding/hex"
	"regexp"
	"slices"
	"strings"

	"deeplink/shared/catalog"
)

// A page opens an app by a URL of the app's scheme: the scheme, "://", and the link's path unchanged. So the path /sale of the scheme
// shop gives shop:///sale, with an empty host, and the path sale gives shop://sale, with the host sale; the app's developer decides which
// form to use. Characters that a URL must not contain are percent-encoded, and existing escapes stay. On Android the same URL is
// wrapped in an intent (developer.chrome.com/docs/android/intents).

// appPath encodes a path to follow the scheme. After the fragment starts, semicolons are encoded too, so that nothing in it can be read
// as the end of an intent's data and the start of its extras.
func appPath(path string) string {
	const digits = "0123456789ABCDEF"
	var b strings.Builder
	// Everything up to the first slash is read as the host. A colon, an at sign or a bracket there would be read as part of a port, of
	// user information or of an IPv6 address, or make the URL invalid.
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
		case c == '%' && isEscape(path[i:]):
			b.WriteByte(c)
			continue
		case host && strings.IndexByte(":@", c) >= 0, fragment && c == ';':
		case isLetter(c), '0' <= c && c <= '9', strings.IndexByte("-._~!$&'()*+,;=:@", c) >= 0:
			b.WriteByte(c)
			continue
		}
		b.Write([]byte{'%', digits[c>>4], digits[c&15]})
	}
	return b.String()
}

// The parts of app URLs are checked again here: control validates them, but the row may have been written by hand.
var (
	appSchemePattern   = regexp.MustCompile(catalog.AppSchemePattern)
	packageNamePattern = regexp.MustCompile(catalog.PackageNamePattern)
	appStoreIDPattern  = regexp.MustCompile(catalog.AppStoreIDPattern)
)

// ifMatches returns the value if it has the required form, otherwise "".
func ifMatches(pattern *regexp.Regexp, value *string) string {
	if value == nil || len(*value) > catalog.MaxAppID || !pattern.MatchString(*value) {
		return ""
	}
	return *value
}

// appScheme returns the value if it is a scheme that an app may have, otherwise "". Earlier releases of control accepted some reserved
// schemes, so rows may still have one.
func appScheme(value *string) string {
	scheme := ifMatches(appSchemePattern, value)
	if slices.Contains(catalog.ReservedAppSchemes, scheme) {
		return ""
	}
	return scheme
}

func isEscape(s string) bool {
	if len(s) < 3 || s[0] != '%' {
		return false
	}
	_, err := hex.DecodeString(s[1:3])
	return err == nil
}

func isLetter(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }
