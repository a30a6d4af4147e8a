package decode

import (
	"fmt"
	"net/url"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Query reads query parameters. It ignores parameters that no method asks for.
type Query struct {
	FieldErrors
	values url.Values
}

// ReadQuery reads a query as it is in a URL.
func ReadQuery(raw string) *Query {
	values, err := url.ParseQuery(raw)
	q := &Query{values: values}
	if err != nil {
		q.Add("query", "is not properly encoded")
	}
	return q
}

// value returns the value of a parameter. A parameter that is given twice is an error, because two readers could use different values.
func (q *Query) value(name string) (value string, ok bool) {
	switch values := q.values[name]; len(values) {
	case 0:
		return "", false
	case 1:
		return values[0], true
	default:
		q.Add(name, "must be given once")
		return "", false
	}
}

// Value returns a parameter as it is, empty when it is absent.
func (q *Query) Value(name string) (value string, ok bool) { return q.value(name) }

// Has reports whether a parameter was sent, even twice.
func (q *Query) Has(name string) bool { return len(q.values[name]) > 0 }

// Integer returns a whole number that is written as digits, or unset when it is absent.
func (q *Query) Integer(name string, unset, least, most int) int {
	value, ok := q.value(name)
	if !ok {
		return unset
	}
	return q.parseInteger(name, value, unset, least, most)
}

// Boolean returns true or false, nil when it is absent.
func (q *Query) Boolean(name string) *bool {
	value, ok := q.value(name)
	if !ok {
		return nil
	}
	if value != "true" && value != "false" {
		q.Add(name, "must be true or false")
		return nil
	}
	is := value == "true"
	return &is
}

// Text returns text without white space around it, and at most most characters long. Blank text counts as absent.
func (q *Query) Text(name string, most int) string {
	value, _ := q.value(name)
	value = strings.TrimSpace(value)
	switch {
	case !utf8.ValidString(value):
		q.Add(name, "must be valid UTF-8")
	case strings.ContainsFunc(value, unicode.IsControl):
		q.Add(name, "must not contain control characters")
	case utf8.RuneCountInString(value) > most:
		q.Add(name, fmt.Sprintf("must be at most %d characters", most))
	default:
		return value
	}
	return ""
}

// Parse returns the value that parse returns, or unset when the parameter is absent. otherwise is the error when parse returns false.
func Parse[T any](q *Query, name string, unset T, parse func(string) (T, bool), otherwise string) T {
	value, ok := q.value(name)
	if !ok {
		return unset
	}
	t, ok := parse(value)
	if !ok {
		q.Add(name, otherwise)
		return unset
	}
	return t
}
