package decode

import (
	"testing"
	"time"

	"deeplink/shared/catalog"
)

// FuzzObject reads small bodies. What passes is within the bounds, and an error names each bad field once.
func FuzzObject(f *testing.F) {
	for _, seed := range []string{`{}`, `{"graceSeconds":604800,"host":"a.example"}`, `{"graceSeconds":-1}`, `{"graceSeconds":1e3,"x":1}`, `{"host":null}`, `[]`, `null`, `1`, `{"host":{}}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		if CheckJSON(body) != nil {
			return // no handler reads it
		}
		o := ReadKnown(body, "graceSeconds", "host")
		grace := o.Integer("graceSeconds", 7, 0, 604800)
		_, ok := o.RequiredString("host")
		err := o.Err()
		if grace < 0 || grace > 604800 || err == nil && !ok {
			t.Errorf("%s: %d seconds, with a host: %t, %v", body, grace, ok, err)
		}
		checkNamedOnce(t, string(body), err)
	})
}
func TestTimeIsReadAsRFC3339Defines(t *testing.T) {
	t.Parallel()
	for sent, expected := range map[string]string{
		"2030-01-31T12:00:00Z":           "2030-01-31T12:00:00Z",
		"2030-01-31t12:00:00.1239+02:00": "2030-01-31T10:00:00.1239Z",
		"2016-12-31T23:59:60Z":           "2017-01-01T00:00:00Z",
		"2017-01-01T00:59:60.5+01:00":    "2017-01-01T00:00:00.5Z",
		"9999-12-31T23:59:59-23:59":      "9999-12-31T23:59:59.999Z",
		"9999-12-31T23:59:60Z":           "9999-12-31T23:59:59.999Z",
		"0001-01-01T00:00:00+01:00":      "0001-01-01T00:00:00Z",
		"0000-01-01T00:00:00Z":           "0001-01-01T00:00:00Z",
	} {
		if at, ok := ParseTime(sent); !ok || at.Location() != time.UTC || at.Format(time.RFC3339Nano) != expected {
			t.Errorf("%s: %v, %t; expected %s", sent, at, ok, expected)
		}
	}
}

// checkNamedOnce fails unless err names each bad field once.
func checkNamedOnce(t *testing.T, sent string, err error) {
	t.Helper()
	if err == nil {
		return
	}
	seen := map[string]bool{}
	for _, field := range err.(catalog.Invalid).Fields {
		if seen[field.Field] || field.Message == "" {
			t.Errorf("%q: %v, expected each bad field once", sent, err)
		}
		seen[field.Field] = true
	}
}
