package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"deeplink/control/internal/decode"
	"deeplink/control/internal/store"
	"deeplink/shared/catalog"
	"deeplink/shared/strictjson"
)

// The bounds of SDK bodies. Those of strings are in characters, and those of objects in bytes as sent.
const (
	maxDeviceField = 64
	maxOpenedURL   = 2048
	MaxUserID      = 255
	maxEvents      = 100
	maxObjectBytes = 8 << 10
	// Revenue is stored as numeric(18, 6): revenueDigits digits before the point, so below maxRevenue.
	revenueDigits, revenueDecimals = 12, 6
	maxRevenue                     = 1e12

	deviceIDPattern  = `^[A-Za-z0-9._:-]{1,128}$`
	eventNamePattern = `^[A-Za-z][A-Za-z0-9_.: -]{0,63}$`
	currencyPattern  = `^[A-Za-z]{3}$`
)

var (
	DeviceID  = regexp.MustCompile(deviceIDPattern)
	eventName = regexp.MustCompile(eventNamePattern)
	currency  = regexp.MustCompile(currencyPattern)
)

// readSDKBody reads an SDK body, which must be a JSON object.
func readSDKBody(report []byte) (*decode.Object, error) {
	if err := decode.CheckJSON(report); err != nil {
		return nil, err
	}
	o := decode.ReadObject(report)
	return o, o.Err()
}

// readDeviceID returns the device id, which every SDK body must have.
func readDeviceID(o *decode.Object) string {
	return o.Required("deviceId", o.Matching("deviceId", DeviceID, "must be 1 to 128 letters, digits, or . _ : -"))
}

// readDeviceField returns a string about a device, nil when it is absent or empty.
func readDeviceField(o *decode.Object, name string) *string {
	text := o.String(name, 0, maxDeviceField)
	if text != nil && *text == "" {
		return nil
	}
	return text
}

// sessionBody is the body of POST /sdk/session.
type sessionBody struct {
	device    store.Device
	openedURL *string
}

func readSessionBody(report []byte) (sessionBody, error) {
	o, err := readSDKBody(report)
	if err != nil {
		return sessionBody{}, err
	}
	r := sessionBody{
		device: store.Device{
			ID: readDeviceID(o), Platform: readDeviceField(o, "platform"), OSVersion: readDeviceField(o, "osVersion"), AppVersion: readDeviceField(o, "appVersion"),
			SDKVersion: readDeviceField(o, "sdkVersion"), Model: readDeviceField(o, "model"), Locale: readDeviceField(o, "locale"), Timezone: readDeviceField(o, "timezone"),
		},
		openedURL: o.String("openedUrl", 0, maxOpenedURL),
	}
	return r, o.Err()
}

// rejectedEvent is an invalid event, by its index in the batch.
type rejectedEvent struct {
	Index   int    `json:"index"`
	Message string `json:"message"`
}

// readBatch reads the body of POST /sdk/events. It rejects invalid events one by one, so that one of them never blocks the queue of an app. Only when
// no event is valid it returns an error, about all of them, in addition to rejected. repeated counts valid events with the id of an earlier one.
func readBatch(report []byte) (batch store.Batch, rejected []rejectedEvent, repeated int, err error) {
	// readEvent checks the entries of events one by one.
	if err := decode.CheckJSON(withoutArray(report, "events")); err != nil {
		return store.Batch{}, nil, 0, err
	}
	o := decode.ReadObject(report)
	if err := o.Err(); err != nil {
		return store.Batch{}, nil, 0, err
	}
	batch = store.Batch{DeviceID: readDeviceID(o), SessionID: o.UUID("sessionId")}
	entries := o.Array("events", maxEvents)
	if err := o.Err(); err != nil {
		return store.Batch{}, nil, 0, err
	}
	seen := make(map[string]bool)
	for i, entry := range entries {
		event, bad := readEvent(entry)
		switch {
		case bad != nil:
			rejected = append(rejected, rejectedEvent{i, catalog.Invalid{Fields: bad}.Error()})
			o.Errors = append(o.Errors, inside(fmt.Sprintf("events[%d]", i), bad)...)
		case event.ID != "" && seen[event.ID]:
			repeated++
		default:
			seen[event.ID] = true
			batch.Events = append(batch.Events, event)
		}
	}
	if len(batch.Events) == 0 {
		return store.Batch{}, rejected, 0, o.Err()
	}
	return batch, rejected, repeated, nil
}

// inside returns the errors of a value with the name of the value before their fields. An error about the value itself has an empty field.
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

// readEvent reads one event of a batch, or returns its errors. The id is empty when the event has none.
func readEvent(entry json.RawMessage) (store.Event, []catalog.FieldError) {
	var offence *strictjson.Error
	if errors.As(decode.CheckJSON(entry), &offence) {
		message := offence.Message
		if offence.Field != "" {
			message = offence.Error()
		}
		return store.Event{}, []catalog.FieldError{{Field: offence.Field, Message: message}}
	}
	o, ok := decode.ParseObject(entry)
	if !ok {
		return store.Event{}, []catalog.FieldError{{Message: "must be a JSON object"}}
	}
	e := store.Event{
		Name: o.Required("name", o.Matching("name", eventName, "must be 1 to 64 letters, digits, spaces, or _ . : - and begin with a letter")),
		At:   o.Time("timestamp"), LinkID: o.UUID("linkId"), Revenue: o.Decimal("revenue", revenueDigits, revenueDecimals),
		Currency: o.Matching("currency", currency, "must be three letters such as EUR"), Properties: o.Object("properties", maxObjectBytes),
	}
	if id := o.UUID("id"); id != nil {
		e.ID = *id
	}
	if e.Currency != nil {
		*e.Currency = strings.ToUpper(*e.Currency)
	}
	return e, o.Errors
}

// withoutArray returns the body with null in place of the array that is its member with the name.
func withoutArray(body []byte, member string) []byte {
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
		if name == member && value[0] == '[' {
			end := int(decoder.InputOffset())
			return slices.Concat(body[:end-len(value)], []byte("null"), body[end:])
		}
	}
	return body
}
