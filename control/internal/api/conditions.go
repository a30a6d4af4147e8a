package api

import (
	"net/http"
	"slices"
	"strings"

	"deeplink/control/internal/decode"
)

// preconditions are If-Match and If-None-Match of a request (RFC 9110, 13.1). The zero value is always met.
type preconditions struct{ match, noneMatch *tagCondition }

// tagCondition is one of the headers: "*", or entity tags as sent.
type tagCondition struct {
	any  bool
	tags []string
}

// readPreconditions reads both headers. The error is a catalog.Invalid.
func readPreconditions(header http.Header) (p preconditions, err error) {
	var bad decode.FieldErrors
	read := func(name string) *tagCondition {
		lines := header.Values(name)
		if len(lines) == 0 {
			return nil
		}
		condition, ok := parseTags(strings.Join(lines, ","))
		if !ok {
			bad.Add(name, `must be * or a list of entity tags such as "abc", with their quotes`)
		}
		return &condition
	}
	p = preconditions{match: read("If-Match"), noneMatch: read("If-None-Match")}
	return p, bad.Err()
}

// parseTags reads "*" or a list with at least one entity tag (RFC 9110, 8.8.3). Empty members of a list count as absent (5.6.1.2).
func parseTags(value string) (c tagCondition, ok bool) {
	if strings.Trim(value, " \t") == "*" {
		return tagCondition{any: true}, true
	}
	rest := value
	for {
		rest = strings.TrimLeft(rest, " \t,")
		if rest == "" {
			return c, len(c.tags) > 0
		}
		tag, after, ok := cutTag(rest)
		if !ok {
			return tagCondition{}, false
		}
		c.tags = append(c.tags, tag)
		rest = strings.TrimLeft(after, " \t")
		if rest != "" && rest[0] != ',' {
			return tagCondition{}, false
		}
	}
}

// cutTag cuts an entity tag from the start of s.
func cutTag(s string) (tag, after string, ok bool) {
	opaque := strings.TrimPrefix(s, "W/")
	if opaque == "" || opaque[0] != '"' {
		return "", "", false
	}
	end := strings.IndexByte(opaque[1:], '"')
	if end < 0 || strings.ContainsFunc(opaque[1:1+end], func(r rune) bool { return r <= ' ' || r == 0x7f }) {
		return "", "", false
	}
	length := len(s) - len(opaque) + end + 2
	return s[:length], s[length:], true
}

// strongly reports whether the condition has the tag, by strong comparison: a weak tag matches nothing.
func (c *tagCondition) strongly(tag string) bool { return c.any || slices.Contains(c.tags, tag) }

// weakly reports whether the condition has the tag, by weak comparison.
func (c *tagCondition) weakly(tag string) bool {
	return c.any || slices.ContainsFunc(c.tags, func(candidate string) bool { return strings.TrimPrefix(candidate, "W/") == tag })
}

// ofRead evaluates the preconditions of a read of a link with the tag. If notModified, the response is 304.
func (p preconditions) ofRead(tag string) (notModified bool, err error) {
	if p.match != nil && !p.match.strongly(tag) {
		return false, errPrecondition
	}
	return p.noneMatch != nil && p.noneMatch.weakly(tag), nil
}

// ofWrite evaluates the preconditions of a write to a link with the tag, which is empty if there is no link yet.
func (p preconditions) ofWrite(tag string) error {
	exists := tag != ""
	switch {
	case p.match != nil && !(exists && p.match.strongly(tag)):
		return errPrecondition
	case p.noneMatch != nil && exists && p.noneMatch.weakly(tag):
		return errPrecondition
	}
	return nil
}
