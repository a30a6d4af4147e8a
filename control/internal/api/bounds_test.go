package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"

	"deeplink/shared/catalog"
	"deeplink/shared/requestid"
)

// patient repeats a request while it is rate limited.
func (c *client) patient(method, path, body string, headers ...string) reply {
	c.T.Helper()
	for {
		r := c.Do(method, path, body, headers...)
		if r.Status != http.StatusTooManyRequests {
			return r
		}
		time.Sleep(time.Second)
	}
}

// TestDocumentedBoundsAreThoseOfTheAPI sends values at each documented bound, which control accepts, and just beyond it, which control
// rejects.
func TestDocumentedBoundsAreThoseOfTheAPI(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	p := w.serve()
	c := p.client(*w.Organization(catalog.Scale).ServerKey)
	doc := readDocument(t, c)
	link := c.CreateLink(`{"path":"/a"}`)

	checked := 0
	check := func(good bool, name, method, path, body, field string) {
		t.Helper()
		checked++
		r := c.patient(method, path, body)
		// 409: an earlier attempt used the short code, so its form is valid.
		if good && r.Status >= 300 && r.Status != http.StatusConflict {
			t.Errorf("%s: %s %.120s: %s, expected to pass", name, method, body, r)
		}
		if !good && (r.Status != http.StatusBadRequest || !strings.HasPrefix(r.Fields(), field)) {
			t.Errorf("%s: %s %.120s: %s, expected 400 with details of %s", name, method, body, r, field)
		}
	}
	for schema, send := range map[string][2]string{"LinkCreate": {"POST", "/links"}, "LinkPatch": {"PATCH", "/links/" + link.ID}} {
		properties := doc.Components.Schemas[schema].Value.Properties
		for name, property := range properties {
			if property.Value.ReadOnly {
				check(true, name+" is ignored", send[0], send[1], member(name, `"anything"`), name)
				continue
			}
			for _, attempt := range attempts(t, name, property.Value) {
				check(attempt.good, attempt.name, send[0], send[1], attempt.body, attempt.field)
			}
		}
		check(false, "another property", send[0], send[1], member("another", `1`), "another")
	}
	for path, url := range map[string]string{"/links": "/links", "/links/{id}/qr.svg": "/links/" + link.ID + "/qr.svg", "/links/{id}/qr.png": "/links/" + link.ID + "/qr.png"} {
		for _, parameter := range doc.Paths.Find(path).Get.Parameters {
			if name := parameter.Value.Name; parameter.Value.In != "query" || name == "after" || name == "total" {
				continue // no text but a cursor is good, and total without after is ignored
			}
			good, bad := queryAttempts(t, parameter.Value)
			for _, value := range good {
				check(true, parameter.Value.Name, "GET", url+"?"+parameter.Value.Name+"="+value, "", "")
			}
			for _, value := range bad {
				check(false, parameter.Value.Name, "GET", url+"?"+parameter.Value.Name+"="+value, "", parameter.Value.Name)
			}
		}
	}
	if checked < 250 {
		t.Errorf("only %d bounds were found in the document", checked)
	}
}

// TestDocumentedRequestIDsAreThoseOfTheAPI sends ids that the served document allows, which control echoes, and others, which it ignores.
func TestDocumentedRequestIDsAreThoseOfTheAPI(t *testing.T) {
	t.Parallel()
	c := newTestEnv(t).serve().client("")
	doc := readDocument(t, c)
	for path, item := range doc.Paths.Map() {
		if item.Parameters.GetByInAndName("header", requestid.Header) == nil {
			t.Errorf("%s does not document the header %s of a request", path, requestid.Header)
		}
	}
	if t.Failed() {
		return
	}
	allowed := doc.Paths.Find("/links").Parameters.GetByInAndName("header", requestid.Header).Schema.Value
	for header, schema := range map[string]*openapi3.Schema{
		"response": doc.Components.Headers["RequestId"].Value.Schema.Value,
		"envelope": doc.Components.Schemas["Error"].Value.Properties["requestId"].Value,
	} {
		if schema.Pattern != allowed.Pattern || schema.MinLength != allowed.MinLength || schema.MaxLength == nil || *schema.MaxLength != *allowed.MaxLength {
			t.Errorf("%s: pattern %q, expected the pattern and bounds of the request, %q", header, schema.Pattern, allowed.Pattern)
		}
	}
	for _, id := range []string{"a", "a b", "~!", `"a": \`, repeat("a", 255), repeat("a", 256), "a\tb", "é", "a\xff"} {
		documented := allowed.VisitJSON(id) == nil
		if got := c.Do("GET", "/healthz", "", requestid.Header, id).Header.Get(requestid.Header); (got == id) != documented {
			t.Errorf("X-Request-Id %q: got %q back; allowed by the document: %v", id, got, documented)
		}
	}
}

// member returns a body with path and one more member.
func member(name, value string) string {
	if name == "path" {
		return `{"path":` + value + `}`
	}
	return fmt.Sprintf(`{"path":"/a",%q:%s}`, name, value)
}

type attempt struct {
	good              bool
	name, body, field string
}

// attempts returns values at and beyond each bound of a property.
func attempts(t *testing.T, name string, schema *openapi3.Schema) (all []attempt) {
	t.Helper()
	try := func(good bool, what, value string) {
		all = append(all, attempt{good, name + " " + what, member(name, value), name})
	}
	schema, nullable := nonNull(schema)
	try(nullable, "null", "null")
	switch {
	case schema.Type.Includes("string"):
		try(false, "as a number", "1")
		for _, value := range schema.Enum {
			if value != nil {
				try(true, "in the list", quoted(t, value.(string)))
			}
		}
		if schema.Enum != nil {
			try(false, "beyond the list", `"Email"`)
		}
		if schema.Format == "date-time" {
			try(true, "as a time", `"2030-01-01T00:00:00.5+02:00"`)
			try(false, "as a date", `"2030-01-01"`)
		}
		if schema.Format == "uuid" {
			try(false, "as another form", `"00000000000070008000000000000000"`)
		}
		if schema.MaxLength != nil {
			try(true, "at its longest", quoted(t, filled(schema, int(*schema.MaxLength))))
			try(false, "one longer", quoted(t, filled(schema, int(*schema.MaxLength)+1)))
		}
		if schema.MinLength > 0 {
			try(false, "empty", `""`)
		} else if schema.MaxLength != nil {
			try(true, "empty", `""`)
		}
	case schema.Type.Includes("boolean"):
		try(true, "true", "true")
		try(true, "false", "false")
		try(false, "as text", `"true"`)
	case schema.Type.Includes("array"):
		try(true, "empty", "[]")
		try(true, "at its most", "["+numbers(int(*schema.MaxItems))+"]")
		try(false, "one more", "["+numbers(int(*schema.MaxItems)+1)+"]")
		items := schema.Items.Value
		try(true, "with the longest", "["+quoted(t, filled(items, int(*items.MaxLength)))+"]")
		try(false, "with one longer", "["+quoted(t, filled(items, int(*items.MaxLength)+1))+"]")
		try(false, "with an empty one", `[""]`)
	case schema.Properties != nil:
		try(false, "as text", `"x"`)
		for inner, property := range schema.Properties {
			for _, a := range attempts(t, inner, property.Value) {
				if inner != "path" {
					a.body = member(name, "{"+strings.TrimPrefix(a.body, `{"path":"/a",`))
				}
				all = append(all, attempt{a.good, name + "." + a.name, a.body, name + "." + a.field})
			}
		}
		try(false, "with another member", `{"another":1}`)
	case schema.Type.Includes("object"):
		try(true, "empty", "{}")
		try(true, "at its largest", `{"a":"`+repeat("a", catalog.MaxParamsBytes-8)+`"}`)
		try(false, "one byte larger", `{"a":"`+repeat("a", catalog.MaxParamsBytes-7)+`"}`)
		try(true, "at its deepest", repeat(`{"a":`, catalog.MaxParamsDepth-1)+"{}"+repeat("}", catalog.MaxParamsDepth-1))
		try(false, "one deeper", repeat(`{"a":`, catalog.MaxParamsDepth)+"{}"+repeat("}", catalog.MaxParamsDepth))
	default:
		t.Errorf("%s: the document gives no type", name)
	}
	return all
}

// nonNull returns the schema of the values other than null, and whether null is one.
func nonNull(schema *openapi3.Schema) (other *openapi3.Schema, nullable bool) {
	if len(schema.OneOf) == 2 && schema.OneOf[1].Value.Type.Is("null") {
		return schema.OneOf[0].Value, true
	}
	return schema, schema.Type.Includes("null")
}

// queryAttempts returns values of a query parameter at and beyond its bounds.
func queryAttempts(t *testing.T, parameter *openapi3.Parameter) (good, bad []string) {
	t.Helper()
	schema := parameter.Schema.Value
	switch {
	case schema.Type.Includes("integer"):
		return []string{fmt.Sprintf("%.0f", *schema.Min), fmt.Sprintf("%.0f", *schema.Max)},
			[]string{fmt.Sprintf("%.0f", *schema.Min-1), fmt.Sprintf("%.0f", *schema.Max+1), "x"}
	case schema.Type.Includes("boolean"):
		return []string{"true", "false"}, []string{"1"}
	case schema.Enum != nil:
		for _, value := range schema.Enum {
			good = append(good, value.(string))
		}
		return good, []string{"beyond"}
	case schema.Format == "uuid":
		return []string{"00000000-0000-7000-8000-000000000000"}, []string{"1"}
	case schema.MaxLength != nil:
		return []string{repeat("a", int(*schema.MaxLength))}, []string{repeat("a", int(*schema.MaxLength)+1)}
	case schema.Pattern == "^[0-9A-Fa-f]{6}$":
		return []string{"00ff99"}, []string{"00ff9", "00ff999", "red"}
	}
	t.Errorf("%s: the document gives no bounds", parameter.Name)
	return nil, nil
}

// filled returns a text of n characters that fits the other constraints of the schema.
func filled(schema *openapi3.Schema, n int) string {
	if schema.Format == "uri" {
		const start = "https://a.example/"
		return start + repeat("a", n-len(start))
	}
	return repeat("a", n)
}

func quoted(t *testing.T, s string) string {
	t.Helper()
	b, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
