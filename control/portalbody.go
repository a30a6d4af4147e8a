package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"deeplink/shared/catalog"
)

// object is a small JSON body. Like query it collects what is wrong with its members: every bad one, once each.
type object struct {
	values map[string]json.RawMessage
	bad    []catalog.FieldError
}

// readObject reads a body that readBody returned. Members other than the known ones are bad.
func readObject(body []byte, known ...string) *object {
	o := new(object)
	if json.Unmarshal(body, &o.values) != nil || o.values == nil {
		o.refuse("body", "must be a JSON object")
		return o
	}
	for _, name := range slices.Sorted(maps.Keys(o.values)) {
		if !slices.Contains(known, name) {
			o.refuse(name, "is not a known field")
		}
	}
	return o
}

// err returns a catalog.Invalid when something is wrong.
func (o *object) err() error {
	if o.bad == nil {
		return nil
	}
	return catalog.Invalid{Fields: o.bad}
}

func (o *object) refuse(name, why string) {
	o.bad = append(o.bad, catalog.FieldError{Field: name, Message: name + " " + why})
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
	n, err := strconv.Atoi(string(value))
	if err != nil || strings.Trim(string(value), "0123456789") != "" || n < least || n > most {
		o.refuse(name, fmt.Sprintf("must be an integer from %d to %d", least, most))
		return unset
	}
	return n
}
