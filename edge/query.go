package main

import (
	"bytes"
	"net/url"
	"strings"

	"deeplink/shared/catalog"
)

// A click carries the query of the short URL to the destination. Of parameters with the same decoded name the visitor's win, then
// those of the fallback URL, then the link's utm fields (decisions.md 3). What was sent is only ever appended after the first
// question mark and before the fragment, so that it cannot change where the click leads.

// tokenParameter carries a match token, which is nobody's but ours.
var tokenParameter = []byte("mt")

// destination is where clicks on one link lead: a URL, with the places where its path and its query end.
type destination struct {
	location          []byte
	pathEnd, queryEnd int
}

// newDestination adds the link's utm fields to a fallback URL. ok is false when the URL is not one that a browser may be sent to;
// control lets none of that kind in, but the row may have been written by hand.
func newDestination(fallbackURL string, link *catalog.Link) (d destination, ok bool) {
	parsed, err := url.Parse(fallbackURL)
	if err != nil || parsed.Scheme != "http" && parsed.Scheme != "https" || parsed.Hostname() == "" || parsed.User != nil ||
		len(fallbackURL) > catalog.MaxURL {
		return destination{}, false
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
	parameters := carried(nil, own)
	location := []byte(path + query)
	for _, utm := range []struct {
		name  string
		value *string
	}{
		{"utm_source", link.UTMSource}, {"utm_medium", link.UTMMedium}, {"utm_campaign", link.UTMCampaign},
		{"utm_term", link.UTMTerm}, {"utm_content", link.UTMContent},
	} {
		if utm.value == nil || overruled([]byte(utm.name), own, parameters) {
			continue
		}
		location = append(separate(location, len(path)), utm.name+"="+url.QueryEscape(*utm.value)...)
	}
	return destination{append(location, fragment...), len(path), len(location)}, true
}

// separate appends what must stand before the next parameter of a URL whose query begins, or will begin, at the given place.
func separate(dst []byte, query int) []byte {
	switch last := len(dst) - 1; {
	case last < query:
		return append(dst, '?')
	case last == query, dst[last] == '&':
		return dst
	}
	return append(dst, '&')
}

// appendMerged appends the destination of a click that came with a query, as sent and without its question mark: at most maxQuery
// bytes and maxParameters parameters.
func (d destination) appendMerged(dst, sent []byte) []byte {
	dst = append(dst, d.location[:d.pathEnd]...)
	query := len(dst)
	var buf [maxParameters]span
	visitors := carried(buf[:0], sent)
	own := d.location[d.pathEnd:d.queryEnd]
	if len(own) > 0 {
		own = own[1:] // its question mark
	}
	for len(own) > 0 {
		var parameter []byte
		if parameter, own = cut(own, '&'); len(parameter) > 0 && !overruled(parameter, sent, visitors) {
			dst = append(separate(dst, query), parameter...)
		}
	}
	for _, v := range visitors {
		dst = appendClean(separate(dst, query), sent[v.start:v.end])
	}
	return append(dst, d.location[d.queryEnd:]...)
}

// span is where a parameter stands in a query. Slices in its place would make the compiler put what they point to on the heap.
type span struct{ start, end uint16 }

// carried appends the parameters of a query that are carried on: not empty ones, and no match token.
func carried(dst []span, query []byte) []span {
	for start := 0; start < len(query); {
		parameter, _ := cut(query[start:], '&')
		if len(parameter) > 0 && !sameName(parameter, tokenParameter) {
			dst = append(dst, span{uint16(start), uint16(start + len(parameter))})
		}
		start += len(parameter) + 1
	}
	return dst
}

// overruled reports whether one of the parameters of a query has the name of this one.
func overruled(parameter, query []byte, others []span) bool {
	for _, other := range others {
		if sameName(parameter, query[other.start:other.end]) {
			return true
		}
	}
	return false
}

// cut returns what comes before the first sep, and what comes after it.
func cut(s []byte, sep byte) (before, after []byte) {
	if i := bytes.IndexByte(s, sep); i >= 0 {
		return s[:i], s[i+1:]
	}
	return s, nil
}

// sameName compares the names of two parameters as they are decoded.
func sameName(a, b []byte) bool {
	// Nearly all names are plain, and need no decoding for as long as they are equal.
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

// endOfName is no byte.
const endOfName = -1

// decodeName returns the first byte of a parameter's name, and how many bytes stand for it. A percent sign without two hex digits
// stands for itself.
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

// appendClean appends a parameter, percent-encoding what may not stand in a query (RFC 3986, 3.4).
func appendClean(dst, parameter []byte) []byte {
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

// queryByte marks what a query may have as it is. A semicolon is not among it: some servers read it as an ampersand, behind which a
// parameter could hide from the comparison of names.
var queryByte = func() (table [256]bool) {
	for _, c := range "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~!$'()*,:@/?=+" {
		table[c] = true
	}
	return table
}()
