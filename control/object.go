package main

import (
	"encoding/json"
	"maps"
	"slices"
)

// object is a small JSON body.
type object struct {
	faults
	values map[string]json.RawMessage
}

// readObject reads a body that readBody returned. Members nobody asks for are let pass: phones in the field are not updated when the
// service is.
func readObject(body []byte) *object {
	o := new(object)
	if json.Unmarshal(body, &o.values) != nil || o.values == nil {
		o.refuse("body", "must be a JSON object")
	}
	return o
}

// readKnown is readObject where members other than the known ones are bad.
func readKnown(body []byte, known ...string) *object {
	o := readObject(body)
	for _, name := range slices.Sorted(maps.Keys(o.values)) {
		if !slices.Contains(known, name) {
			o.refuse(name, "is not a known field")
		}
	}
	return o
}

// value returns a member that is there and is not null.
func (o *object) value(name string) (value json.RawMessage, ok bool) {
	value, ok = o.values[name]
	return value, ok && string(value) != "null"
}

// text returns a string that has to be there.
func (o *object) text(name string) (text string, ok bool) {
	if o.values == nil {
		return "", false // the body is refused as a whole
	}
	value, ok := o.value(name)
	if !ok {
		o.refuse(name, "is required")
		return "", false
	}
	if json.Unmarshal(value, &text) != nil {
		o.refuse(name, "must be a string")
		return "", false
	}
	return text, true
}

// integer returns a whole number, written as digits alone, or unset when there is none.
func (o *object) integer(name string, unset, least, most int) int {
	value, ok := o.value(name)
	if !ok {
		return unset
	}
	return o.readInteger(name, string(value), unset, least, most)
}
