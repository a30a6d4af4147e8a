package main

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
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

// query reads query parameters and collects what is wrong with them: every bad one, once each. Parameters nobody asks for
// are ignored.
type query struct {
	values url.Values
	bad    []catalog.FieldError
}

func readQuery(raw string) *query {
	values, err := url.ParseQuery(raw)
	q := &query{values: values}
	if err != nil {
		q.refuse("query", "is not properly encoded")
	}
	return q
}

// err returns a catalog.Invalid when something is wrong.
func (q *query) err() error {
	if q.bad == nil {
		return nil
	}
	return catalog.Invalid{Fields: q.bad}
}

// invalid is everything that is wrong with a request whose parts were read one by one: the first error that is no
// catalog.Invalid, otherwise all of those as one.
func invalid(errs ...error) error {
	var all catalog.Invalid
	for _, err := range errs {
		var bad catalog.Invalid
		switch {
		case errors.As(err, &bad):
			all.Fields = append(all.Fields, bad.Fields...)
		case err != nil:
			return err
		}
	}
	if all.Fields == nil {
		return nil
	}
	return all
}

func (q *query) refuse(name, why string) {
	q.bad = append(q.bad, catalog.FieldError{Field: name, Message: name + " " + why})
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
	// ParseInt takes signs too.
	n, err := strconv.Atoi(value)
	if err != nil || strings.Trim(value, "0123456789") != "" || n < least || n > most {
		q.refuse(name, fmt.Sprintf("must be an integer from %d to %d", least, most))
		return unset
	}
	return n
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
