package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"deeplink/control/internal/store"
	"deeplink/shared/catalog"
	"deeplink/shared/strictjson"
)

// The bounds of decisions.md 7, in characters but for those of objects, which are in bytes as sent.
const (
	maxDeviceField = 64
	maxOpenedURL   = 2048
	maxUserID      = 255
	maxEvents      = 100
	maxObjectBytes = 8 << 10
	// A revenue is stored as numeric(18, 6): that is revenueDigits before the point, in any currency enough, and below maxRevenue.
	revenueDigits, revenueDecimals = 12, 6
	maxRevenue                     = 1e12

	deviceIDPattern  = `^[A-Za-z0-9._:-]{1,128}$`
	eventNamePattern = `^[A-Za-z][A-Za-z0-9_.: -]{0,63}$`
	currencyPattern  = `^[A-Za-z]{3}$`
)

var (
	deviceID  = regexp.MustCompile(deviceIDPattern)
	eventName = regexp.MustCompile(eventNamePattern)
	currency  = regexp.MustCompile(currencyPattern)
	timestamp = regexp.MustCompile(`^(\d{4}-\d\d-\d\dT\d\d:\d\d:)(\d\d)((?:\.\d+)?(?:Z|[+-](?:[01]\d|2[0-3]):[0-5]\d))$`)
)

// readReport reads a report.
func readReport(report []byte) (*object, error) {
	if err := strictjson.Check(report, maxDepth); err != nil {
		return nil, err
	}
	o := readObject(report)
	return o, o.err()
}

// sized returns a string of so many characters, nil when there is none.
func (o *object) sized(name string, least, most int) *string {
	value, ok := o.value(name)
	if !ok {
		return nil
	}
	var text string
	if value[0] != '"' || json.Unmarshal(value, &text) != nil {
		o.refuse(name, "must be a string")
		return nil
	}
	if n := utf8.RuneCountInString(text); n < least || n > most {
		o.refuse(name, fmt.Sprintf("must have %d to %d characters", least, most))
		return nil
	}
	return &text
}

// fitting returns a string of the form, nil when there is none.
func (o *object) fitting(name string, form *regexp.Regexp, otherwise string) *string {
	text := o.sized(name, 0, maxBody)
	if text != nil && !form.MatchString(*text) {
		o.refuse(name, otherwise)
		return nil
	}
	return text
}

// needed returns what another reader of the member found; it has to be there.
func (o *object) needed(name string, text *string) string {
	if text != nil {
		return *text
	}
	if _, there := o.value(name); !there && o.values != nil {
		o.refuse(name, "is required")
	}
	return ""
}

// deviceID returns the device that every body names.
func (o *object) deviceID() string {
	return o.needed("deviceId", o.fitting("deviceId", deviceID, "must be 1 to 128 letters, digits, or . _ : -"))
}

// blankable returns a string about a device, nil for an empty one.
func (o *object) blankable(name string) *string {
	text := o.sized(name, 0, maxDeviceField)
	if text != nil && *text == "" {
		return nil
	}
	return text
}

// uuid returns a UUID in lower case, nil when there is none.
func (o *object) uuid(name string) *string {
	text := o.sized(name, 0, maxBody)
	if text == nil {
		return nil
	}
	id, ok := catalog.ValidUUID(*text)
	if !ok {
		o.refuse(name, "must be a UUID")
		return nil
	}
	return &id
}

// object returns an object to the letter but for white space, nil when there is none. How deep it is was judged with what it is in.
func (o *object) object(name string) json.RawMessage {
	value, ok := o.value(name)
	if !ok {
		return nil
	}
	var compact bytes.Buffer
	switch {
	case value[0] != '{':
		o.refuse(name, "must be a JSON object")
	case len(value) > maxObjectBytes:
		o.refuse(name, fmt.Sprintf("must be at most %d bytes", maxObjectBytes))
	case json.Compact(&compact, value) == nil:
		return compact.Bytes()
	}
	return nil
}

// instant returns a time, nil when there is none.
func (o *object) instant(name string) *time.Time {
	text := o.sized(name, 0, maxBody)
	if text == nil {
		return nil
	}
	at, ok := parseInstant(*text)
	if !ok {
		o.refuse(name, "must be an RFC 3339 time such as 2030-01-31T12:00:00Z")
		return nil
	}
	at = at.Truncate(time.Millisecond)
	return &at
}

// The first and the last time that RFC 3339 can tell in UTC.
var (
	firstInstant = time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC)
	lastInstant  = time.Date(9999, 12, 31, 23, 59, 59, 999e6, time.UTC)
)

// parseInstant reads a time of RFC 3339, in UTC. A leap second is the one after it; a time that only its zone puts
// beyond the years 1 to 9999 is the first or last there is.
func parseInstant(text string) (at time.Time, ok bool) {
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

// amount returns a number of money, rounded as it is stored, nil when there is none.
func (o *object) amount(name string) *string {
	value, ok := o.value(name)
	if !ok {
		return nil
	}
	// Not as a float64, which has no room for all the digits, nor as it was sent: Postgres does not know exponents as large as JSON does.
	amount, ok := new(big.Rat).SetString(string(value))
	if ok {
		text := amount.FloatString(revenueDecimals)
		if whole, _, _ := strings.Cut(strings.TrimPrefix(text, "-"), "."); len(whole) <= revenueDigits {
			return &text
		}
	}
	o.refuse(name, fmt.Sprintf("must be a number of less than %.0f", maxRevenue))
	return nil
}

// sessionReport is the body of POST /sdk/session.
type sessionReport struct {
	device    store.Device
	openedURL *string
}

func readSessionReport(report []byte) (sessionReport, error) {
	o, err := readReport(report)
	if err != nil {
		return sessionReport{}, err
	}
	r := sessionReport{
		device: store.Device{
			ID: o.deviceID(), Platform: o.blankable("platform"), OSVersion: o.blankable("osVersion"), AppVersion: o.blankable("appVersion"),
			SDKVersion: o.blankable("sdkVersion"), Model: o.blankable("model"), Locale: o.blankable("locale"), Timezone: o.blankable("timezone"),
		},
		openedURL: o.sized("openedUrl", 0, maxOpenedURL),
	}
	return r, o.err()
}

// rejection is an event that is not taken, by its place in the batch.
type rejection struct {
	Index   int    `json:"index"`
	Message string `json:"message"`
}

// readBatch reads the body of POST /sdk/events. What is wrong with one event is no error, so that it never blocks the queue of a phone:
// only when no event is good there is one, about all of them, beside rejected. repeated is how many good ones had the id of an earlier one.
func readBatch(report []byte) (batch store.Batch, rejected []rejection, repeated int, err error) {
	// The entries of events are judged one by one.
	if err := strictjson.Check(withoutEvents(report), maxDepth); err != nil {
		return store.Batch{}, nil, 0, err
	}
	o := readObject(report)
	if err := o.err(); err != nil {
		return store.Batch{}, nil, 0, err
	}
	batch = store.Batch{DeviceID: o.deviceID(), SessionID: o.uuid("sessionId")}
	entries := o.entries("events", maxEvents)
	if err := o.err(); err != nil {
		return store.Batch{}, nil, 0, err
	}
	seen := make(map[string]bool)
	for i, entry := range entries {
		event, bad := readEvent(entry)
		switch {
		case bad != nil:
			rejected = append(rejected, rejection{i, catalog.Invalid{Fields: bad}.Error()})
			o.bad = append(o.bad, inside(fmt.Sprintf("events[%d]", i), bad)...)
		case event.ID != "" && seen[event.ID]:
			repeated++
		default:
			seen[event.ID] = true
			batch.Events = append(batch.Events, event)
		}
	}
	if len(batch.Events) == 0 {
		return store.Batch{}, rejected, 0, o.err()
	}
	return batch, rejected, repeated, nil
}

// inside are the errors of a value, as those of the body that the value is in. The field of the value itself is empty.
func inside(name string, bad []catalog.FieldError) []catalog.FieldError {
	all := make([]catalog.FieldError, len(bad))
	for i, e := range bad {
		all[i] = catalog.FieldError{Field: name + "." + e.Field, Message: name + "." + e.Message}
		if e.Field == "" {
			all[i] = catalog.FieldError{Field: name, Message: name + " " + e.Message}
		}
	}
	return all
}

// entries returns an array of 1 to most values.
func (o *object) entries(name string, most int) []json.RawMessage {
	value, ok := o.value(name)
	if !ok {
		o.refuse(name, "is required")
		return nil
	}
	var entries []json.RawMessage
	if value[0] != '[' || json.Unmarshal(value, &entries) != nil {
		o.refuse(name, "must be an array")
	} else if len(entries) < 1 || len(entries) > most {
		o.refuse(name, fmt.Sprintf("must have 1 to %d entries", most))
	}
	return entries
}

// readEvent reads one event of a batch, or returns what is wrong with it. Without an id it has an empty one.
func readEvent(entry json.RawMessage) (store.Event, []catalog.FieldError) {
	var offence *strictjson.Error
	if errors.As(strictjson.Check(entry, maxDepth), &offence) {
		message := offence.Message
		if offence.Field != "" {
			message = offence.Error()
		}
		return store.Event{}, []catalog.FieldError{{Field: offence.Field, Message: message}}
	}
	o := new(object)
	if json.Unmarshal(entry, &o.values) != nil || o.values == nil {
		return store.Event{}, []catalog.FieldError{{Message: "must be a JSON object"}}
	}
	e := store.Event{
		Name: o.needed("name", o.fitting("name", eventName, "must be 1 to 64 letters, digits, spaces, or _ . : - and begin with a letter")),
		At:   o.instant("timestamp"), LinkID: o.uuid("linkId"), Revenue: o.amount("revenue"),
		Currency: o.fitting("currency", currency, "must be three letters such as EUR"), Properties: o.object("properties"),
	}
	if id := o.uuid("id"); id != nil {
		e.ID = *id
	}
	if e.Currency != nil {
		*e.Currency = strings.ToUpper(*e.Currency)
	}
	return e, o.bad
}

// withoutEvents returns the body with null for the array of events, where there is one.
func withoutEvents(body []byte) []byte {
	decoder := json.NewDecoder(bytes.NewReader(body))
	if start, err := decoder.Token(); err != nil || start != json.Delim('{') {
		return body
	}
	for decoder.More() {
		name, err := decoder.Token()
		if err != nil {
			return body
		}
		var value json.RawMessage
		if decoder.Decode(&value) != nil {
			return body
		}
		if name == "events" && value[0] == '[' {
			end := int(decoder.InputOffset())
			return slices.Concat(body[:end-len(value)], []byte("null"), body[end:])
		}
	}
	return body
}
