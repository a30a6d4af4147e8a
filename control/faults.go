package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"deeplink/shared/catalog"
)

// faults collects what is wrong with the fields of a request: every bad one, once each.
type faults struct{ bad []catalog.FieldError }

func (f *faults) refuse(name, why string) { f.bad = append(f.bad, fault(name, why).Fields...) }

// err returns a catalog.Invalid when something is wrong.
func (f *faults) err() error {
	if f.bad == nil {
		return nil
	}
	return catalog.Invalid{Fields: f.bad}
}

// readInteger returns a whole number that is written as digits alone, or unset when it is bad.
func (f *faults) readInteger(name, text string, unset, least, most int) int {
	n, err := strconv.Atoi(text) // takes signs too
	if err != nil || strings.Trim(text, "0123456789") != "" || n < least || n > most {
		f.refuse(name, fmt.Sprintf("must be an integer from %d to %d", least, most))
		return unset
	}
	return n
}

// fault is what is wrong with a single field.
func fault(name, why string) catalog.Invalid {
	return catalog.Invalid{Fields: []catalog.FieldError{{Field: name, Message: name + " " + why}}}
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
