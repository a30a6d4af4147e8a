package link

import (
	"bytes"
	"net/url"
	"strings"

	"deeplink/shared/catalog"
)

// A click copies the query of the short URL to the destination. If a parameter name occurs more than once after decoding, the visitor's
// value wins, then the value in the fallback URL, then the link's utm field. The visitor's parameters are only appended, after the first
// question mark and before the fragment, so they cannot change the host or path of the destination.

// The bounds of a visitor's query. Merging compares each of its parameters with each of the destination's.
const (
	MaxQuery      = 4 << 10 // bytes
	MaxParameters = 100
)

// tokenParameter carries a match token. It is never copied.
var tokenParameter = []byte("mt")

// Destination is where clicks on one link lead: a URL, and where its path and its query end.
type Destination struct {
	Location          []byte
	pathEnd, queryEnd int
}

// DestinationOf returns where the link leads on the web: its own fallback URL, or the organization's, with the link's utm fields.
func DestinationOf(link *catalog.Link, config catalog.AppConfig) (Destination, bool) {
	for _, fallback := range []*string{link.FallbackURL, config.FallbackURL} {
		if fallback == nil {
			continue
		}
		if to, ok := newDestination(*fallback, link); ok {
			return to, true
		}
	}
	return Destination{}, false
}

// newDestination adds the link's utm fields to a fallback URL. ok is false if a browser must not be sent to the URL: control rejects
// such URLs, but the row may have been written by hand.
func newDestination(fallbackURL string, link *catalog.Link) (d Destination, ok bool) {
	parsed, err := url.Parse(fallbackURL)
	if err != nil || parsed.Scheme != "http" && parsed.Scheme != "https" || parsed.Hostname() == "" || parsed.User != nil ||
		len(fallbackURL) > catalog.MaxURL {
		return Destination{}, false
	}
	rest, fragment := fallbackURL, ""
	if i := strings.IndexByte(rest, '#'); i >= 0 {
		rest, fragment = rest[:i], rest[i:]
	}
	path, query := rest, ""
	if i := strings.IndexByte(rest, '?'); i >= 0 {
		path, query = rest[:i], rest[i:]
	}
	own := []byte(strings.TrimPrefix(query, "?"))
	parameters := appendCopied(nil, own)
	location := []byte(path + query)
	for _, utm := range []struct {
		name  string
		value *string
	}{
		{"utm_source", link.UTMSource}, {"utm_medium", link.UTMMedium}, {"utm_campaign", link.UTMCampaign},
		{"utm_term", link.UTMTerm}, {"utm_content", link.UTMContent},
	} {
		if utm.value == nil || isOverridden([]byte(utm.name), own, parameters) {
			continue
		}
		location = append(appendSeparator(location, len(path)), utm.name+"="+url.QueryEscape(*utm.value)...)
	}
	return Destination{append(location, fragment...), len(path), len(location)}, true
}

// appendSeparator appends what must precede the next parameter of a URL whose query starts, or will start, at index query.
func appendSeparator(dst []byte, query int) []byte {
	switch last := len(dst) - 1; {
	case last < query:
		return append(dst, '?')
	case last == query, dst[last] == '&':
		return dst
	}
	return append(dst, '&')
}

// AppendMerged appends the destination of a click with this query, as sent and without its question mark. The query has at most
// MaxQuery bytes and MaxParameters parameters.
func (d Destination) AppendMerged(dst, sent []byte) []byte {
	dst = append(dst, d.Location[:d.pathEnd]...)
	query := len(dst)
	var buf [MaxParameters]span
	visitors := appendCopied(buf[:0], sent)
	own := d.Location[d.pathEnd:d.queryEnd]
	if len(own) > 0 {
		own = own[1:] // the question mark
	}
	for len(own) > 0 {
		var parameter []byte
		if parameter, own = cut(own, '&'); len(parameter) > 0 && !isOverridden(parameter, sent, visitors) {
			dst = append(appendSeparator(dst, query), parameter...)
		}
	}
	for _, v := range visitors {
		dst = appendEncoded(appendSeparator(dst, query), sent[v.start:v.end])
	}
	return append(dst, d.Location[d.queryEnd:]...)
}

// span is the position of a parameter in a query. With slices instead, the compiler would move what they point to to the heap.
type span struct{ start, end uint16 }

// appendCopied appends the parameters of a query that are copied: all but empty ones and match tokens.
func appendCopied(dst []span, query []byte) []span {
	for start := 0; start < len(query); {
		parameter, _ := cut(query[start:], '&')
		if len(parameter) > 0 && !sameName(parameter, tokenParameter) {
			dst = append(dst, span{uint16(start), uint16(start + len(parameter))})
		}
		start += len(parameter) + 1
	}
	return dst
}

// isOverridden reports whether one of the other parameters, which are in query, has the same name as parameter.
func isOverridden(parameter, query []byte, others []span) bool {
	for _, other := range others {
		if sameName(parameter, query[other.start:other.end]) {
			return true
		}
	}
	return false
}

// cut is bytes.Cut for a separator of one byte, without making a slice of it.
func cut(s []byte, sep byte) (before, after []byte) {
	if i := bytes.IndexByte(s, sep); i >= 0 {
		return s[:i], s[i+1:]
	}
	return s, nil
}

// sameName compares the decoded names of two parameters.
func sameName(a, b []byte) bool {
	// Nearly all names are plain: as long as they are equal, they need no decoding.
	for len(a) > 0 && len(b) > 0 && a[0] == b[0] && a[0] != '%' && a[0] != '+' && a[0] != '=' {
		a, b = a[1:], b[1:]
	}
	for {
		x, m := decodeName(a)
		y, n := decodeName(b)
		if x != y || x == endOfName {
			return x == y
		}
		a, b = a[m:], b[n:]
	}
}

// endOfName is not a byte value.
const endOfName = -1

// decodeName returns the first byte of a parameter's name and how many bytes encode it. A percent sign without two hex digits stands
// for itself.
func decodeName(s []byte) (c, n int) {
	switch {
	case len(s) == 0 || s[0] == '=':
		return endOfName, 0
	case s[0] == '+':
		return ' ', 1
	case isEscape(s):
		return int(unhex(s[1])<<4 | unhex(s[2])), 3
	}
	return int(s[0]), 1
}

func isEscape(s []byte) bool {
	return len(s) >= 3 && s[0] == '%' && isHex(s[1]) && isHex(s[2])
}

func isHex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'f'
}

func unhex(c byte) byte {
	if c <= '9' {
		return c - '0'
	}
	return c | 0x20 - 'a' + 10
}

// appendEncoded appends a parameter and percent-encodes the bytes that a query must not contain (RFC 3986, section 3.4).
func appendEncoded(dst, parameter []byte) []byte {
	const hex = "0123456789ABCDEF"
	rest := 0
	for i, c := range parameter {
		if !queryByte[c] && !isEscape(parameter[i:]) {
			dst = append(append(dst, parameter[rest:i]...), '%', hex[c>>4], hex[c&15])
			rest = i + 1
		}
	}
	return append(dst, parameter[rest:]...)
}

// queryByte marks the bytes that a query may contain unencoded. The semicolon is missing: some servers read it as an ampersand, and a
// parameter after it would escape the comparison of names.
var queryByte = func() (table [256]bool) {
	for _, c := range "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~!$'()*,:@/?=+" {
		table[c] = true
	}
	return table
}()
