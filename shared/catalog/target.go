package catalog

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"unicode"
)

var (
	errNotURL     = errors.New("must be an absolute http or https URL")
	errUserInfo   = errors.New("must not contain user info")
	errBackslash  = errors.New("must not contain a backslash")
	errCharacters = errors.New("must not contain control or direction characters, nor begin or end with white space")
	errURLHost    = errors.New("must name a valid host; send an international name in its punycode form (xn--…)")
	errLongURL    = atMost(MaxURL, "characters, percent-encoded")
	errPort       = errors.New("must have a port of 1 to 65535")
	errScheme     = errors.New("must be a path, not a URL with a scheme")
	errSlashes    = errors.New("must not begin with //")
)

var labels = regexp.MustCompile(fmt.Sprintf(`^[A-Za-z0-9_-]{1,%[1]d}(\.[A-Za-z0-9_-]{1,%[1]d})*$`, MaxHostLabel))

// hasScheme matches a text that starts with a scheme (RFC 3986). A colon after the first slash, ? or # does not end a scheme.
var hasScheme = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9+.-]*:`)

// readPath reads the destination inside the app. It rejects schemes and hosts, so the path cannot lead to another site.
func readPath(value json.RawMessage) (string, error) {
	s, err := trimmed(value, MaxPath)
	switch {
	case err != nil:
		return "", err
	case strings.Contains(s, `\`):
		return "", errBackslash
	case strings.HasPrefix(s, "//"):
		return "", errSlashes
	case hasScheme.MatchString(s):
		return "", errScheme
	}
	return s, nil
}

func readURL(value json.RawMessage) (*string, error) {
	s, err := readString(value)
	if err != nil {
		return nil, err
	}
	if s == "" {
		return nil, errEmpty
	}
	target, err := webURL(s)
	if err != nil {
		return nil, err
	}
	return &target, nil
}

// webURL checks a destination on the web and returns it fit for a Location header: the scheme in lower case, whatever a URL
// may not contain percent-encoded, all else to the letter. Go's parser is asked too, but its answer is not used: what it
// lets pass (javascript://host, https:host, user info) other parsers read otherwise, and its own form would rewrite what
// was sent.
func webURL(s string) (string, error) {
	switch {
	case strings.TrimSpace(s) != s || strings.ContainsFunc(s, invisible):
		return "", errCharacters
	case strings.Contains(s, `\`):
		return "", errBackslash
	}
	scheme, rest, found := strings.Cut(s, "://")
	scheme = strings.ToLower(scheme)
	if !found || scheme != "http" && scheme != "https" {
		return "", errNotURL
	}
	end := strings.IndexAny(rest, "/?#")
	if end < 0 {
		end = len(rest)
	}
	if err := checkAuthority(rest[:end]); err != nil {
		return "", err
	}
	target := scheme + "://" + rest[:end] + escape(rest[end:])
	if len(target) > MaxURL {
		return "", errLongURL
	}
	if _, err := url.Parse(target); err != nil {
		return "", errNotURL
	}
	return target, nil
}

// invisible reports control characters and those that change the direction of writing, which make a URL look like another.
func invisible(r rune) bool {
	return unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r)
}

func checkAuthority(authority string) error {
	if strings.Contains(authority, "@") {
		return errUserInfo
	}
	host, port := authority, ""
	if i := strings.LastIndexByte(authority, ':'); i > strings.LastIndexByte(authority, ']') {
		host, port = authority[:i], authority[i+1:]
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return errPort
		}
	}
	if inner, found := strings.CutPrefix(host, "["); found {
		inner, closed := strings.CutSuffix(inner, "]")
		if ip, err := netip.ParseAddr(inner); err != nil || !closed || !ip.Is6() || ip.Zone() != "" {
			return errURLHost
		}
		return nil
	}
	if !hostName(strings.TrimSuffix(host, ".")) {
		return errURLHost
	}
	return nil
}

// hostName reports whether s can be a host on the web: labels of letters, digits, hyphens and, as some have, underscores.
func hostName(s string) bool {
	return len(s) <= MaxHost && labels.MatchString(s)
}

// escape percent-encodes what RFC 3986 does not allow in path, query and fragment.
func escape(s string) string {
	const allowed = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789" + "-._~:/?#[]@!$&'()*+,;=%"
	const hex = "0123456789ABCDEF"
	var b strings.Builder
	for i := range len(s) {
		if c := s[i]; strings.IndexByte(allowed, c) >= 0 {
			b.WriteByte(c)
		} else {
			b.Write([]byte{'%', hex[c>>4], hex[c&15]})
		}
	}
	return b.String()
}

var (
	customHost = regexp.MustCompile(`^([A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?\.)+[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?$`)
	// numericEnd makes browsers read a host as an IPv4 address.
	numericEnd = regexp.MustCompile(`\.([0-9]+|0[Xx][0-9A-Fa-f]*)$`)
	errHost    = errors.New("must be a host name of two labels or more, without scheme, port or path; " +
		"send an international name in its punycode form (xn--…)")
)

// VerificationLabel and the host of a custom domain form the name of the TXT record that proves its ownership.
const VerificationLabel = "_deeplink."

// CheckHost reads the host of a custom domain and returns it in lower case without a trailing dot, as the database and the edges store it. The error is an [Invalid] of the field host.
func CheckHost(s string) (host string, err error) {
	s = strings.TrimSuffix(s, ".")
	// Lowered after the check: the lower case of some other characters (the Kelvin sign) is ASCII.
	if len(s) > MaxCustomHost || !hostName(s) || !customHost.MatchString(s) || numericEnd.MatchString(s) {
		return "", Invalid{[]FieldError{refuse("host", errHost)}}
	}
	return strings.ToLower(s), nil
}
