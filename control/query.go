package main

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"deeplink/control/internal/store"
	"deeplink/shared/catalog"
)

// The bounds of GET /links (interface.md 8). maxPage is what JSON numbers hold exactly: any page up to it has an offset in
// Postgres.
const (
	defaultLimit = 20
	maxLimit     = 100
	maxPage      = 1<<53 - 1
	maxSearch    = catalog.MaxPath
)

// query reads query parameters. Parameters nobody asks for are ignored.
type query struct {
	faults
	values url.Values
}

func readQuery(raw string) *query {
	values, err := url.ParseQuery(raw)
	q := &query{values: values}
	if err != nil {
		q.refuse("query", "is not properly encoded")
	}
	return q
}

// one returns the value of a parameter that is there. One that is there twice is bad: two readers could take it differently.
func (q *query) one(name string) (value string, ok bool) {
	switch values := q.values[name]; len(values) {
	case 0:
		return "", false
	case 1:
		return values[0], true
	default:
		q.refuse(name, "must be given once")
		return "", false
	}
}

func (q *query) integer(name string, unset, least, most int) int {
	value, ok := q.one(name)
	if !ok {
		return unset
	}
	return q.readInteger(name, value, unset, least, most)
}

func (q *query) boolean(name string) *bool {
	value, ok := q.one(name)
	if !ok {
		return nil
	}
	if value != "true" && value != "false" {
		q.refuse(name, "must be true or false")
		return nil
	}
	is := value == "true"
	return &is
}

// text returns trimmed text; blank text is none.
func (q *query) text(name string, most int) string {
	value, _ := q.one(name)
	value = strings.TrimSpace(value)
	switch {
	case !utf8.ValidString(value):
		q.refuse(name, "must be valid UTF-8")
	case strings.ContainsFunc(value, unicode.IsControl):
		q.refuse(name, "must not contain control characters")
	case utf8.RuneCountInString(value) > most:
		q.refuse(name, fmt.Sprintf("must be at most %d characters", most))
	default:
		return value
	}
	return ""
}

// parsed returns what parse makes of the value, or unset when it is not there or parse refuses it.
func parsed[T any](q *query, name string, unset T, parse func(string) (T, bool), otherwise string) T {
	value, ok := q.one(name)
	if !ok {
		return unset
	}
	t, ok := parse(value)
	if !ok {
		q.refuse(name, otherwise)
		return unset
	}
	return t
}

// readFilter reads the query of GET /links (interface.md 4.1, decisions.md 1). The error is a catalog.Invalid.
func readFilter(raw string) (store.LinkFilter, error) {
	q := readQuery(raw)
	filter := store.LinkFilter{
		Page:     q.integer("page", 1, 1, maxPage),
		Limit:    q.integer("limit", defaultLimit, 1, maxLimit),
		IsActive: q.boolean("isActive"),
		Search:   q.text("search", maxSearch),
		Tag:      q.text("tag", catalog.MaxTag),
		Channel:  parsed(q, "channel", "", parseChannel, "must be a known channel"),
		DomainID: parsed(q, "domainId", "", catalog.ValidUUID, "must be a UUID"),
	}
	return filter, q.err()
}

func parseChannel(s string) (string, bool) {
	return s, slices.Contains(catalog.Channels, s)
}
