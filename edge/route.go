package main

import (
	"bytes"
	"strings"

	"deeplink/shared/catalog"
)

// kind is what a path is for, and a label of the metrics.
type kind uint8

const (
	kindNone kind = iota
	kindLink
	kindData
	kindMatch
	kindHealth
	kindRobots
	kindFavicon
	kindWellKnown
	kinds
)

var kindNames = [kinds]string{"none", "link", "data", "match", "healthz", "robots", "favicon", "wellknown"}

const (
	orgKeyLength = 4
	// maxKey is the length of the longest key: domain, slash, code.
	maxKey = catalog.MaxHost + 1 + catalog.MaxShortCode
	// maxQuery and maxParameters bound the query of a short URL, in bytes and in parameters. Merging compares each of them with
	// each one of the destination.
	maxQuery      = 4 << 10
	maxParameters = 100
)

// route is what a request asks for.
type route struct {
	kind kind
	// refused says why nothing is done; nil when all is well.
	refused *problem
	// key is that of the catalog, domain the length of its first part; only of links, data and association
	// files.
	key    []byte
	domain int
	// query is as sent, without its question mark.
	query []byte
}

// route reads a request target as it came over the wire: nothing is decoded, nothing cleaned, so that no other reading of the
// path can lead to the same link. The key is appended to buf.
//
//	every host    /match  /healthz  /robots.txt  /favicon.ico
//	              /.well-known/apple-app-site-association  /.well-known/assetlinks.json
//	shared host   /{orgKey}/{code}  /{orgKey}/{code}/data
//	custom host   /{code}  /{code}/data
func (h *hosts) route(buf, host, target []byte) route {
	if len(target) == 0 || target[0] != '/' {
		return route{refused: &notPath}
	}
	path, query := cut(target, '?')
	switch string(path) {
	case "/match":
		return route{kind: kindMatch}
	case "/healthz":
		return route{kind: kindHealth}
	case "/robots.txt":
		return route{kind: kindRobots}
	case "/favicon.ico":
		return route{kind: kindFavicon}
	case appleAssociation, googleAssociation:
		return h.associationRoute(buf, host, path)
	}
	key, place := h.find(buf, host)
	rest := path[1:]
	switch {
	case place == nowhere:
		return route{refused: &noLink}
	case place == sharedHost:
		key, rest = appendOrgKey(key, rest)
		if rest == nil {
			return strayed(path)
		}
	}
	domain := len(key)
	key, rest = appendCode(append(key, '/'), rest)
	r := route{kind: kindLink, key: key, domain: domain, query: query}
	switch {
	case len(key) == domain+1:
		return route{refused: &noRoute}
	case string(rest) == "/data":
		r.kind = kindData
	case len(rest) > 0:
		return route{refused: &noRoute}
	}
	if len(query) > maxQuery || bytes.Count(query, []byte("&")) >= maxParameters {
		r.refused = &longQuery
	}
	return r
}

// appendOrgKey appends the organization key that a path of the shared host, without its slash, begins with, and returns what
// follows its slash; nil when there is none.
func appendOrgKey(dst, path []byte) (key, rest []byte) {
	if len(path) <= orgKeyLength || path[orgKeyLength] != '/' {
		return dst, nil
	}
	for _, c := range path[:orgKeyLength] {
		if c = codeByte[c]; c == 0 || c == '-' || c == '_' {
			return dst, nil
		}
		dst = append(dst, c)
	}
	return dst, path[orgKeyLength+1:]
}

// appendCode appends the short code that path begins with, in lower case, and returns what follows it. It appends nothing when
// there is none.
func appendCode(dst, path []byte) (key, rest []byte) {
	n := 0
	for n < len(path) && n <= catalog.MaxShortCode && codeByte[path[n]] != 0 {
		dst = append(dst, codeByte[path[n]])
		n++
	}
	if n == 0 || n > catalog.MaxShortCode || path[0] == '-' || path[0] == '_' {
		return dst[:len(dst)-n], path
	}
	return dst, path[n:]
}

// codeByte has for each byte of a short code the one it is compared as, for others 0.
var codeByte = func() (table [256]byte) {
	for _, c := range "abcdefghijklmnopqrstuvwxyz0123456789-_" {
		table[c] = byte(c)
	}
	for c := 'A'; c <= 'Z'; c++ {
		table[c] = byte(c) | 0x20
	}
	return table
}()

// strayed answers a path of the shared host that has no organization key. It is a malformed key, and 400 (interface.md 7), when
// all but the key is there: two segments, or three of which the last is data. What could be read as another path is only unknown,
// and so are well-known files, whose place is on every host.
func strayed(path []byte) route {
	segments := strings.Split(string(path[1:]), "/")
	isData := len(segments) == 3 && segments[2] == "data"
	if len(segments) != 2 && !isData || segments[0] == ".well-known" {
		return route{refused: &noRoute}
	}
	for _, segment := range segments {
		if segment == "" || isAmbiguous(segment) {
			return route{refused: &noRoute}
		}
	}
	if isData {
		return route{kind: kindData, refused: &badOrgKey}
	}
	return route{kind: kindLink, refused: &badOrgKey}
}

// isAmbiguous reports whether a segment is, or may be decoded to, a dot segment or several segments.
func isAmbiguous(segment string) bool {
	segment = strings.ToLower(segment)
	if strings.Contains(segment, "%2f") || strings.Contains(segment, "%5c") || strings.Contains(segment, `\`) {
		return true
	}
	segment = strings.ReplaceAll(segment, "%2e", ".")
	return segment == "." || segment == ".."
}
