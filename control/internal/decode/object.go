package decode

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"math/big"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"deeplink/shared/catalog"
)

// Object reads the members of a JSON object. A member that is null counts as absent.
type Object struct {
	FieldErrors
	members map[string]json.RawMessage
}

// ReadObject reads a body that passed CheckJSON. It ignores members that no method asks for: apps in the field send members of SDK
// versions that this control does not know.
func ReadObject(body []byte) *Object {
	o, ok := ParseObject(body)
	if !ok {
		o.Add("body", "must be a JSON object")
	}
	return o
}

// ParseObject is ReadObject for a value whose error the caller reports. ok is false when the value is not an object.
func ParseObject(value []byte) (o *Object, ok bool) {
	o = new(Object)
	ok = json.Unmarshal(value, &o.members) == nil && o.members != nil
	return o, ok
}

// ReadKnown is ReadObject, but adds an error for each member that is not among known.
func ReadKnown(body []byte, known ...string) *Object {
	o := ReadObject(body)
	for _, name := range slices.Sorted(maps.Keys(o.members)) {
		if !slices.Contains(known, name) {
			o.Add(name, "is not a known field")
		}
	}
	return o
}

// value returns a member that is present and not null.
func (o *Object) value(name string) (value json.RawMessage, ok bool) {
	value, ok = o.members[name]
	return value, ok && string(value) != "null"
}

// RequiredString returns a required string.
func (o *Object) RequiredString(name string) (text string, ok bool) {
	if o.members == nil {
		return "", false // the body as a whole has an error
	}
	value, ok := o.value(name)
	if !ok {
		o.Add(name, "is required")
		return "", false
	}
	if json.Unmarshal(value, &text) != nil {
		o.Add(name, "must be a string")
		return "", false
	}
	return text, true
}

// Integer returns a whole number that is written as digits, or unset when it is absent.
func (o *Object) Integer(name string, unset, least, most int) int {
	value, ok := o.value(name)
	if !ok {
		return unset
	}
	return o.parseInteger(name, string(value), unset, least, most)
}

// RequiredBoolean returns a required true or false.
func (o *Object) RequiredBoolean(name string) bool {
	value, ok := o.value(name)
	var b bool
	if !ok {
		o.Required(name, nil)
		return false
	}
	if json.Unmarshal(value, &b) != nil {
		o.Add(name, "must be true or false")
	}
	return b
}

// String returns a string of least to most characters, nil when it is absent.
func (o *Object) String(name string, least, most int) *string {
	value, ok := o.value(name)
	if !ok {
		return nil
	}
	var text string
	if value[0] != '"' || json.Unmarshal(value, &text) != nil {
		o.Add(name, "must be a string")
		return nil
	}
	if n := utf8.RuneCountInString(text); n < least || n > most {
		o.Add(name, fmt.Sprintf("must have %d to %d characters", least, most))
		return nil
	}
	return &text
}

// Matching returns a string that matches form, nil when it is absent. otherwise is the error of a string that does not match.
func (o *Object) Matching(name string, form *regexp.Regexp, otherwise string) *string {
	text := o.String(name, 0, MaxBody)
	if text != nil && !form.MatchString(*text) {
		o.Add(name, otherwise)
		return nil
	}
	return text
}

// Required returns what another method read of a member, and adds an error when the member is absent.
func (o *Object) Required(name string, text *string) string {
	if text != nil {
		return *text
	}
	if _, present := o.value(name); !present && o.members != nil {
		o.Add(name, "is required")
	}
	return ""
}

// UUID returns a UUID in lower case, nil when it is absent.
func (o *Object) UUID(name string) *string {
	text := o.String(name, 0, MaxBody)
	if text == nil {
		return nil
	}
	id, ok := catalog.ValidUUID(*text)
	if !ok {
		o.Add(name, "must be a UUID")
		return nil
	}
	return &id
}

// Object returns an object of at most maxBytes as it was sent, without white space, nil when it is absent. CheckJSON has already checked its
// depth, as part of the body.
func (o *Object) Object(name string, maxBytes int) json.RawMessage {
	value, ok := o.value(name)
	if !ok {
		return nil
	}
	var compact bytes.Buffer
	switch {
	case value[0] != '{':
		o.Add(name, "must be a JSON object")
	case len(value) > maxBytes:
		o.Add(name, fmt.Sprintf("must be at most %d bytes", maxBytes))
	case json.Compact(&compact, value) == nil:
		return compact.Bytes()
	}
	return nil
}

// Array returns an array of 1 to most values.
func (o *Object) Array(name string, most int) []json.RawMessage {
	value, ok := o.value(name)
	if !ok {
		o.Add(name, "is required")
		return nil
	}
	var entries []json.RawMessage
	if value[0] != '[' || json.Unmarshal(value, &entries) != nil {
		o.Add(name, "must be an array")
	} else if len(entries) < 1 || len(entries) > most {
		o.Add(name, fmt.Sprintf("must have 1 to %d entries", most))
	}
	return entries
}

// Time returns a time in UTC, cut to milliseconds, nil when it is absent.
func (o *Object) Time(name string) *time.Time {
	text := o.String(name, 0, MaxBody)
	if text == nil {
		return nil
	}
	at, ok := ParseTime(*text)
	if !ok {
		o.Add(name, "must be an RFC 3339 time such as 2030-01-31T12:00:00Z")
		return nil
	}
	at = at.Truncate(time.Millisecond)
	return &at
}

var timestamp = regexp.MustCompile(`^(\d{4}-\d\d-\d\dT\d\d:\d\d:)(\d\d)((?:\.\d+)?(?:Z|[+-](?:[01]\d|2[0-3]):[0-5]\d))$`)

// The first and the last time that RFC 3339 can write in UTC.
var (
	firstInstant = time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC)
	lastInstant  = time.Date(9999, 12, 31, 23, 59, 59, 999e6, time.UTC)
)

// ParseTime parses an RFC 3339 time and returns it in UTC. It reads a leap second as the following second. A time that its zone moves
// out of the years 1 to 9999 becomes the first or the last time of them.
func ParseTime(text string) (at time.Time, ok bool) {
	form := timestamp.FindStringSubmatch(strings.ToUpper(text))
	if form == nil {
		return time.Time{}, false
	}
	second := form[2]
	if second == "60" {
		second = "59"
	}
	at, err := time.Parse(time.RFC3339, form[1]+second+form[3])
	if err != nil {
		return time.Time{}, false
	}
	if second != form[2] {
		at = at.Add(time.Second)
	}
	at = at.UTC()
	switch {
	case at.Before(firstInstant):
		at = firstInstant
	case at.After(lastInstant):
		at = lastInstant
	}
	return at, true
}

// Decimal returns a number with at most digits digits before the point, rounded to decimals digits after it, nil when it is absent.
func (o *Object) Decimal(name string, digits, decimals int) *string {
	value, ok := o.value(name)
	if !ok {
		return nil
	}
	// A float64 would lose digits. The text as sent may have an exponent that Postgres refuses.
	amount, ok := new(big.Rat).SetString(string(value))
	if ok {
		text := amount.FloatString(decimals)
		if whole, _, _ := strings.Cut(strings.TrimPrefix(text, "-"), "."); len(whole) <= digits {
			return &text
		}
	}
	o.Add(name, fmt.Sprintf("must be a number of less than %.0f", math.Pow10(digits)))
	return nil
}
