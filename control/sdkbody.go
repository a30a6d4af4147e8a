package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"deeplink/control/internal/store"
	"deeplink/shared/catalog"
	"deeplink/shared/strictjson"
)

// The bounds of decisions.md 7, in characters but for those of objects, which are in bytes as sent and in levels.
const (
	maxDeviceField = 64
	maxOpenedURL   = 2048
	maxUserID      = 255
	maxEvents      = 100
	maxObjectBytes = 8 << 10
	maxObjectDepth = 8
	// maxRevenue is what numeric(18, 6) has room for, in any currency enough.
	maxRevenue = 1e12

	deviceIDPattern  = `^[A-Za-z0-9._:-]{1,128}$`
	eventNamePattern = `^[A-Za-z][A-Za-z0-9_.: -]{0,63}$`
	currencyPattern  = `^[A-Za-z]{3}$`
)

var (
	deviceID  = regexp.MustCompile(deviceIDPattern)
	eventName = regexp.MustCompile(eventNamePattern)
	currency  = regexp.MustCompile(currencyPattern)
	timestamp = regexp.MustCompile(`^\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]([01]\d|2[0-3]):[0-5]\d)$`)
)

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

// object returns an object to the letter but for white space, nil when there is none.
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
	case strictjson.Check(value, maxObjectDepth) != nil:
		// All else that Check demands was demanded of the body.
		o.refuse(name, fmt.Sprintf("must be at most %d levels deep", maxObjectDepth))
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
	at, err := time.Parse(time.RFC3339, strings.ToUpper(*text))
	at = at.UTC().Truncate(time.Millisecond)
	if err != nil || !timestamp.MatchString(*text) || at.Year() < 1 || at.Year() > 9999 {
		o.refuse(name, "must be an RFC 3339 time such as 2030-01-31T12:00:00Z")
		return nil
	}
	return &at
}

// amount returns a number of money as it was sent, nil when there is none.
func (o *object) amount(name string) *string {
	value, ok := o.value(name)
	if !ok {
		return nil
	}
	amount, err := strconv.ParseFloat(string(value), 64)
	if err != nil || math.Abs(amount) >= maxRevenue {
		o.refuse(name, fmt.Sprintf("must be a number of less than %.0f", float64(maxRevenue)))
		return nil
	}
	text := string(value)
	if strings.ContainsAny(text, "eE") {
		// Postgres does not know exponents as large as JSON does.
		text = strconv.FormatFloat(amount, 'f', 6, 64)
	}
	return &text
}

// report is the body of POST /sdk/session.
type report struct {
	device    store.Device
	openedURL *string
}

func readSessionReport(body []byte) (report, error) {
	o := readObject(body)
	r := report{
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
// only when no event is good there is one, about all of them. repeated is how many good ones had the id of an earlier one.
func readBatch(body []byte) (batch store.Batch, rejected []rejection, repeated int, err error) {
	// The entries of events are judged one by one.
	if err := strictjson.Check(withoutEvents(body), maxDepth); err != nil {
		return store.Batch{}, nil, 0, err
	}
	o := readObject(body)
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
		event, err := readEvent(entry)
		switch {
		case err != nil:
			rejected = append(rejected, rejection{i, err.Error()})
			o.bad = append(o.bad, catalog.FieldError{Field: fmt.Sprintf("events[%d]", i), Message: fmt.Sprintf("events[%d]: %v", i, err)})
		case event.ID != "" && seen[event.ID]:
			repeated++
		default:
			seen[event.ID] = true
			batch.Events = append(batch.Events, event)
		}
	}
	if len(batch.Events) == 0 {
		return store.Batch{}, nil, 0, o.err()
	}
	return batch, rejected, repeated, nil
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

// readEvent reads one event of a batch. Without an id it has an empty one.
func readEvent(entry json.RawMessage) (store.Event, error) {
	// The event is one level, its properties are the others.
	if err := strictjson.Check(entry, maxObjectDepth+1); err != nil {
		return store.Event{}, err
	}
	o := new(object)
	if json.Unmarshal(entry, &o.values) != nil || o.values == nil {
		return store.Event{}, errors.New("must be a JSON object")
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
	return e, o.err()
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
