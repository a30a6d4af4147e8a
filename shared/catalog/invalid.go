package catalog

import "strings"

// FieldError describes what is wrong with one field of a body. Field is its name, such as og.title. Message contains the name, too, and is
// written for the client's developer.
type FieldError struct {
	Field   string `json:"field"`
	Message string `json:"message"`
}

// Invalid is the error of a body with bad fields: all of them at once, in the order of the fields' table, then the unknown
// ones by name. It is returned as a value, never as a pointer.
type Invalid struct{ Fields []FieldError }

// Error implements error.
func (e Invalid) Error() string {
	messages := make([]string, len(e.Fields))
	for i, f := range e.Fields {
		messages[i] = f.Message
	}
	return strings.Join(messages, "; ")
}

// refuse returns the entry of a field that fails, with err as the rest of a sentence which begins with the field's name.
func refuse(field string, err error) FieldError {
	return FieldError{Field: field, Message: field + " " + err.Error()}
}
