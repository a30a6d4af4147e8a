package decode

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"deeplink/shared/catalog"
)

// FieldErrors collects the errors of the fields of a request, one for each bad field.
type FieldErrors struct{ Errors []catalog.FieldError }

// Add adds an error. The message is the name of the field and why.
func (f *FieldErrors) Add(name, why string) {
	f.Errors = append(f.Errors, FieldError(name, why).Fields...)
}

// Err returns a catalog.Invalid with all errors, nil when there are none.
func (f *FieldErrors) Err() error {
	if f.Errors == nil {
		return nil
	}
	return catalog.Invalid{Fields: f.Errors}
}

// integer parses digits without a sign. It adds an error and returns unset when the number is malformed or out of bounds.
func (f *FieldErrors) parseInteger(name, text string, unset, least, most int) int {
	n, err := strconv.Atoi(text) // accepts signs, which the next line refuses
	if err != nil || strings.Trim(text, "0123456789") != "" || n < least || n > most {
		f.Add(name, fmt.Sprintf("must be an integer from %d to %d", least, most))
		return unset
	}
	return n
}

// FieldError returns the error of a single field. The message is the name of the field and why.
func FieldError(name, why string) catalog.Invalid {
	return catalog.Invalid{Fields: []catalog.FieldError{{Field: name, Message: name + " " + why}}}
}

// Join joins the errors of the parts of a request, such as path and body. It returns the first error that is no catalog.Invalid,
// otherwise one catalog.Invalid with the fields of all.
func Join(errs ...error) error {
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
