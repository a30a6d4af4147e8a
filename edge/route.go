package main

import (
	"bytes"
	"strings"

	"deeplink/edge/internal/link"
	"deeplink/edge/internal/wellknown"
	"deeplink/shared/catalog"
	"deeplink/shared/feed"
)

// kind is the purpose of a path. It is also a label of the metrics.
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
)

// route is the target of a request.
type route struct {
	kind kind
	// refused is the response if the request has no valid target, otherwise nil.
	refused *refusal
	// key is the catalog's key, domain + "/" + code, and domain the length of its first part. Only links, /data and association
	// files have one.
	key    []byte
	domain int
	// query is the query as sent, without its question mark.
	query []byte
}

// route parses a request target as sent. It decodes and normalizes nothing, so that exactly one spelling of a path, except for case,
// leads to a link. The key is appended to buf.
//
//	every host    /match  /healthz  /robots.txt  /favicon.ico
//	              /.well-known/apple-app-site-association  /.well-known/assetlinks.json
//	shared host   /{orgKey}/{code}  /{orgKey}/{code}/data
//	custom host   /{code}  /{code}/data
func (h *hosts) route(buf, host, target []byte) route {
	if len(target) == 0 || target[0] != '/' {
		return route{refused: &notPath}
	}
	path, query := target, []byte(nil)
	if i := bytes.IndexByte(target, '?'); i >= 0 { // on every click; bytes.Cut takes longer
		path, query = target[:i], target[i+1:]
	}
	switch string(path) {
	case "/match":
		return route{kind: kindMatch}
	case "/healthz":
		return route{kind: kindHealth}
	case "/robots.txt":
		return route{kind: kindRobots}
	case "/favicon.ico":
		return route{kind: kindFavicon}
	case wellknown.ApplePath, wellknown.GooglePath:
		return h.wellKnownRoute(buf, host, path)
	}
	key, kind := h.find(buf, host)
	rest := path[1:]
	switch {
	case kind == unknownHost:
		return route{refused: &noLink}
	case kind == sharedHost:
		key, rest = appendOrgKey(key, rest)
		if rest == nil {
			return malformedOrgKey(path)
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
	if len(query) > link.MaxQuery || bytes.Count(query, []byte("&")) >= link.MaxParameters {
		r.refused = &longQuery
	}
	return r
}

// appendOrgKey appends the organization key at the start of a path on the shared host, and returns what follows the key and its slash.
// path has no leading slash. rest is nil if path does not start with an organization key.
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

// appendCode appends the short code at the start of path, in lower case, and returns what follows it. It appends nothing if there is no
// short code.
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

// codeByte maps each byte of a short code to the byte that it is compared as, and all other bytes to 0.
var codeByte = func() (table [256]byte) {
	for _, c := range "abcdefghijklmnopqrstuvwxyz0123456789-_" {
		table[c] = byte(c)
	}
	for c := 'A'; c <= 'Z'; c++ {
		table[c] = byte(c) | 0x20
	}
	return table
}()

// wellKnownRoute returns the route of an association file.
func (h *hosts) wellKnownRoute(buf, host, path []byte) route {
	key, kind := h.find(buf, host)
	switch kind {
	case unknownHost:
		return route{kind: kindWellKnown, refused: &noRoute}
	case sharedHost:
		key = append(key, feed.SharedDomain...)
	}
	return route{kind: kindWellKnown, key: append(key, path...), domain: len(key)}
}

// malformedOrgKey returns the route of a path on the shared host without a valid organization key. If everything but the key is there
// (two segments, or three of which the last is data), the key is malformed: 400. Everything else is 404: paths that another program could
// read as a different path, and files under /.well-known, which belong to the host.
func malformedOrgKey(path []byte) route {
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

// isAmbiguous reports whether a segment is a dot segment or several segments, possibly after decoding.
func isAmbiguous(segment string) bool {
	segment = strings.ToLower(segment)
	if strings.Contains(segment, "%2f") || strings.Contains(segment, "%5c") || strings.Contains(segment, `\`) {
		return true
	}
	segment = strings.ReplaceAll(segment, "%2e", ".")
	return segment == "." || segment == ".."
}
