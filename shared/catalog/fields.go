package catalog

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"reflect"
	"slices"
)

// field is one member of a JSON object that becomes a T. A table of them is all there is to know about a body: creates and
// patches are read by the same one.
type field[T any] struct {
	name string
	// required: a create must have it. fixed: a patch cannot set it to null.
	required, fixed bool
	// read returns what the value does to a T, or what is wrong with it. name is the field's full name.
	read func(name string, value json.RawMessage) (edit[T], []FieldError)
}

// edit is what a value of a body does to a T. It may be applied any number of times.
type edit[T any] func(*T)

// kind is how a body is meant.
type kind bool

const (
	create kind = false
	patch  kind = true
)

var (
	errRequired  = errors.New("is required")
	errFixed     = errors.New("cannot be null")
	errUnknown   = errors.New("is not a known field")
	errNotObject = errors.New("must be a JSON object")
)

// readObject reads a JSON object. ignored names are let pass. prefix stands before each name in errors: it is empty or ends
// in a dot.
func readObject[T any](body []byte, prefix string, fields []field[T], ignored []string, as kind) ([]edit[T], []FieldError) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(body, &members); err != nil || members == nil {
		name := "body"
		if prefix != "" {
			name = prefix[:len(prefix)-1]
		}
		return nil, []FieldError{refuse(name, errNotObject)}
	}
	var edits []edit[T]
	var bad []FieldError
	for _, f := range fields {
		name := prefix + f.name
		value, sent := members[f.name]
		delete(members, f.name)
		null := isNull(value)
		switch {
		case as == create && f.required && (!sent || null):
			bad = append(bad, refuse(name, errRequired))
		case as == patch && f.fixed && sent && null:
			bad = append(bad, refuse(name, errFixed))
		case sent:
			edit, problems := f.read(name, value)
			bad = append(bad, problems...)
			edits = append(edits, edit)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(members)) {
		if !slices.Contains(ignored, name) {
			bad = append(bad, refuse(prefix+name, errUnknown))
		}
	}
	if bad != nil {
		return nil, bad
	}
	return edits, nil
}

// member is a field whose value is read by parse and kept at the given place. Null sets it to its zero value.
func member[T, V any](name string, at func(*T) *V, parse func(json.RawMessage) (V, error)) field[T] {
	var unset V
	return memberOr(name, at, unset, parse)
}

// memberOr is member with another value for null.
func memberOr[T, V any](name string, at func(*T) *V, unset V, parse func(json.RawMessage) (V, error)) field[T] {
	return field[T]{name: name, read: func(name string, value json.RawMessage) (edit[T], []FieldError) {
		parsed := unset
		if !isNull(value) {
			var err error
			if parsed, err = parse(value); err != nil {
				return nil, []FieldError{refuse(name, err)}
			}
		}
		return func(t *T) { *at(t) = parsed }, nil
	}}
}

// object is a field which is an object of fields of its own. It is merged into what is there member by member (RFC 7396),
// and is nil when none of its members is set.
func object[T, V any](name string, at func(*T) **V, fields []field[V]) field[T] {
	return field[T]{name: name, read: func(name string, value json.RawMessage) (edit[T], []FieldError) {
		if isNull(value) {
			return func(t *T) { *at(t) = nil }, nil
		}
		edits, bad := readObject(value, name+".", fields, nil, patch)
		return func(t *T) {
			var merged V
			if old := *at(t); old != nil {
				merged = *old
			}
			for _, edit := range edits {
				edit(&merged)
			}
			*at(t) = &merged
			if reflect.ValueOf(merged).IsZero() {
				*at(t) = nil
			}
		}, bad
	}}
}

func required[T any](f field[T]) field[T] {
	f.required = true
	return f
}

func fixed[T any](f field[T]) field[T] {
	f.fixed = true
	return f
}

func isNull(value json.RawMessage) bool {
	return bytes.Equal(value, []byte("null"))
}
