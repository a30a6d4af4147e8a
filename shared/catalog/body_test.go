package catalog_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"deeplink/shared/catalog"
)

// sent is a body with one field, beside the path which a create needs.
func sent(field, value string) string {
	if field == "path" {
		return fmt.Sprintf(`{"path": %s}`, value)
	}
	return fmt.Sprintf(`{"path": "/x", %q: %s}`, field, value)
}

// field returns one member of the link's JSON form. name may be og.title.
func field(t *testing.T, l catalog.Link, name string) string {
	t.Helper()
	var value any = l
	for name := range strings.SplitSeq(name, ".") {
		body, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		var members map[string]json.RawMessage
		if err := json.Unmarshal(body, &members); err != nil {
			t.Fatal(err)
		}
		value = members[name]
	}
	return string(value.(json.RawMessage))
}

func chars(n int) string { return `"` + strings.Repeat("ü", n) + `"` }

func ascii(n int) string { return `"` + strings.Repeat("a", n) + `"` }

func list(n int) string {
	tags := make([]string, n)
	for i := range tags {
		tags[i] = fmt.Sprintf("%q", fmt.Sprint("tag", i))
	}
	return "[" + strings.Join(tags, ",") + "]"
}

func nested(depth int) string {
	return strings.Repeat(`{"a":[`, depth/2) + strings.Repeat(`{}`, depth%2) + strings.Repeat(`]}`, depth/2)
}

// accepted are values and what is kept of them; the empty string stands for the value itself.
var accepted = []struct{ field, value, kept string }{
	{"path", `"/product/1?x=1#y"`, ""},
	{"path", `"product:12/x"`, "refused"},
	{"path", `"12:30"`, ""},
	{"path", `"/a:b"`, ""},
	{"path", `"a/b:c//d"`, ""},
	{"path", `"?a:b"`, ""},
	{"path", `" /x y "`, `"/x y"`},
	{"path", ascii(2048), ""},
	{"path", chars(2048), ""},
	{"path", `"  ` + chars(2048)[1:], chars(2048)},
	{"domainId", `"AAAAAAAA-bbbb-4ccc-8ddd-0123456789aB"`, `"aaaaaaaa-bbbb-4ccc-8ddd-0123456789ab"`},
	{"domainId", `null`, `""`},
	{"shortCode", `"A-b_9"`, ""},
	{"shortCode", ascii(64), ""},
	{"shortCode", `null`, `""`},
	{"shortCode", `"datax"`, ""},
	{"channel", `"paid_search"`, ""},
	{"channel", `null`, ""},
	{"utmSource", chars(255), ""},
	{"utmSource", `" x "`, ""},
	{"utmSource", `""`, `null`},
	{"utmMedium", `" \u2003"`, `null`},
	{"title", chars(255), ""},
	{"title", `" "`, `null`},
	{"fallbackUrl", `null`, ""},
	{"og", `null`, ""},
	{"og", `{}`, `null`},
	{"og", `{"title": " ", "description": "", "imageUrl": null}`, `null`},
	{"og", `{"title": "t"}`, `{"title":"t","description":null,"imageUrl":null}`},
	{"og.title", chars(300), ""},
	{"og.description", chars(1000), ""},
	{"og.description", `"two\r\n\tlines"`, ""},
	{"tags", `null`, ""},
	{"tags", `[]`, ""},
	{"tags", `["b", " a ", "b", "B"]`, `["b","a","B"]`},
	{"tags", list(50), ""},
	{"tags", list(50)[:len(list(50))-1] + `, "tag0"]`, list(50)},
	{"tags", `[` + chars(64) + `]`, ""},
	{"expiry", `"2030-01-31T12:00:00Z"`, `"2030-01-31T12:00:00.000Z"`},
	{"expiry", `"2030-01-31T12:00:00.9999+02:00"`, `"2030-01-31T10:00:00.999Z"`},
	{"expiry", `"2030-01-31t12:00:00z"`, `"2030-01-31T12:00:00.000Z"`},
	{"expiry", `"1969-12-31T23:59:59.0006-00:00"`, `"1969-12-31T23:59:59.000Z"`},
	{"expiry", `"0001-01-01T00:00:00Z"`, `"0001-01-01T00:00:00.000Z"`},
	{"expiry", `"9999-12-31T23:59:59.999999Z"`, `"9999-12-31T23:59:59.999Z"`},
	{"externalId", `"SKU 42:é.v1"`, ""},
	{"externalId", `"..."`, ""},
	{"externalId", chars(255), ""},
	{"externalId", `null`, ""},
	{"templateId", chars(128), ""},
	{"params", `null`, ""},
	{"params", `{}`, ""},
	{"params", `{ "b": 1.0, "a": [ "\u00fc<", 1e400 ] }`, `{"b":1.0,"a":["\u00fc\u003c",1e400]}`},
	{"params", `{"a":"` + strings.Repeat("x", 8<<10-8) + `"}`, ""},
	{"params", nested(8), ""},
	{"params", `{"a":"{{{{{{{{[[[[[[[[\"{{{{{{{{\\"}`, ""},
	{"isActive", `false`, ""},
	{"isActive", `null`, `true`},
}

func TestValuesWithinTheBoundsAreKept(t *testing.T) {
	t.Parallel()
	for _, c := range accepted {
		name := c.field
		body := sent(name, c.value)
		if object, member, found := strings.Cut(name, "."); found {
			body = sent(object, fmt.Sprintf(`{%q: %s}`, member, c.value))
		}
		l, err := catalog.ReadLink([]byte(body))
		if c.kept == "refused" {
			if err == nil {
				t.Errorf("%.200s: accepted", body)
			}
			continue
		}
		if err != nil {
			t.Errorf("%.200s: %v", body, err)
			continue
		}
		expected := c.kept
		if expected == "" {
			expected = c.value
		}
		if got := field(t, l, name); got != expected {
			t.Errorf("%.200s: kept %.200s, expected %.200s", body, got, expected)
		}
	}
}

// refused are values and how the message about them begins and ends.
var refused = []struct{ field, value, message string }{
	{"path", `null`, "path is required"},
	{"path", `""`, "path must not be empty"},
	{"path", `" \u00a0 "`, "path must not be empty"},
	{"path", `7`, "path must be a string"},
	{"path", `["/x"]`, "path must be a string"},
	{"path", ascii(2049), "path must be at most 2048 characters"},
	{"path", chars(2049), "path must be at most 2048 characters"},
	{"path", `"//host/x"`, "path must not begin with //"},
	{"path", `" //host/x"`, "path must not begin with //"},
	{"path", `"/\\host"`, `path must not contain a backslash`},
	{"path", `"javascript:alert(1)"`, "path must be a path, not a URL with a scheme"},
	{"path", `"HTTPS://host/x"`, "path must be a path, not a URL with a scheme"},
	{"path", `"a+b.c-1:"`, "path must be a path, not a URL with a scheme"},
	{"path", `"/x\ny"`, "path must not contain control characters"},
	{"path", `"/x\r\n"`, "path must not contain control characters"},
	{"path", `"/x\u0000"`, "path must not contain control characters"},
	{"path", `"/x\u007f"`, "path must not contain control characters"},
	{"path", `"/x\u0085"`, "path must not contain control characters"},
	{"domainId", `""`, "domainId must be a UUID"},
	{"domainId", `7`, "domainId must be a string"},
	{"domainId", `"aaaaaaaabbbb4ccc8ddd0123456789ab"`, "domainId must be a UUID"},
	{"domainId", `"{aaaaaaaa-bbbb-4ccc-8ddd-0123456789ab}"`, "domainId must be a UUID"},
	{"domainId", `"urn:uuid:aaaaaaaa-bbbb-4ccc-8ddd-0123456789ab"`, "domainId must be a UUID"},
	{"domainId", `"xaaaaaaaa-bbbb-4ccc-8ddd-0123456789abx"`, "domainId must be a UUID"},
	{"domainId", `"aaaaaaaa-bbbb-4ccc-8ddd-0123456789ab\n"`, "domainId must be a UUID"},
	{"shortCode", `""`, "shortCode must be 1 to 64 letters, digits, - or _, and begin with a letter or digit"},
	{"shortCode", `"-a"`, "shortCode must be 1 to 64 letters, digits, - or _, and begin with a letter or digit"},
	{"shortCode", `"a.b"`, "shortCode must be 1 to 64 letters, digits, - or _, and begin with a letter or digit"},
	{"shortCode", `"a\n"`, "shortCode must be 1 to 64 letters, digits, - or _, and begin with a letter or digit"},
	{"shortCode", `"ü"`, "shortCode must be 1 to 64 letters, digits, - or _, and begin with a letter or digit"},
	{"shortCode", ascii(65), "shortCode must be 1 to 64 letters, digits, - or _, and begin with a letter or digit"},
	{"shortCode", `7`, "shortCode must be a string"},
	{"shortCode", `"data"`, "shortCode is reserved"},
	{"shortCode", `"Match"`, "shortCode is reserved"},
	{"shortCode", `"HEALTHZ"`, "shortCode is reserved"},
	{"shortCode", `"readyz"`, "shortCode is reserved"},
	{"shortCode", `"assets"`, "shortCode is reserved"},
	{"shortCode", `"robots"`, "shortCode is reserved"},
	{"shortCode", `"favicon"`, "shortCode is reserved"},
	{"channel", `""`, "channel must be a known channel"},
	{"channel", `"Email"`, "channel must be a known channel"},
	{"channel", `"carrier-pigeon"`, "channel must be a known channel"},
	{"channel", `1`, "channel must be a string"},
	{"utmSource", chars(256), "utmSource must be at most 255 characters"},
	{"utmMedium", chars(256), "utmMedium must be at most 255 characters"},
	{"utmCampaign", chars(256), "utmCampaign must be at most 255 characters"},
	{"utmTerm", chars(256), "utmTerm must be at most 255 characters"},
	{"utmContent", chars(256), "utmContent must be at most 255 characters"},
	{"utmSource", `true`, "utmSource must be a string"},
	{"utmSource", `"a\r\nb"`, "utmSource must not contain control characters"},
	{"utmSource", `"\n"`, "utmSource must not contain control characters"},
	{"title", chars(256), "title must be at most 255 characters"},
	{"title", `{}`, "title must be a string"},
	{"fallbackUrl", `""`, "fallbackUrl must not be empty"},
	{"fallbackUrl", `"/x"`, "fallbackUrl must be an absolute http or https URL"},
	{"og", `[]`, "og must be a JSON object"},
	{"og", `"x"`, "og must be a JSON object"},
	{"og.title", chars(301), "og.title must be at most 300 characters"},
	{"og.title", `"a\nb"`, "og.title must not contain control characters"},
	{"og.description", chars(1001), "og.description must be at most 1000 characters"},
	{"og.description", `"\u0000"`, "og.description must not contain control characters"},
	{"og.imageUrl", `"ftp://host/"`, "og.imageUrl must be an absolute http or https URL"},
	{"og.imageUrl", `""`, "og.imageUrl must not be empty"},
	{"og.foo", `1`, "og.foo is not a known field"},
	{"tags", `"a"`, "tags must be an array of strings"},
	{"tags", `{"0": "a"}`, "tags must be an array of strings"},
	{"tags", `["a", 1]`, "tags entry 2 must be a string"},
	{"tags", `["a", null]`, "tags entry 2 must be a string"},
	{"tags", `["a", "b", " "]`, "tags entry 3 must not be empty"},
	{"tags", `["a\u0000"]`, "tags entry 1 must not contain control characters"},
	{"tags", `["a\n"]`, "tags entry 1 must not contain control characters"},
	{"tags", `[` + chars(65) + `]`, "tags entry 1 must be at most 64 characters"},
	{"tags", list(51), "tags must be at most 50 tags"},
	{"expiry", `""`, "expiry must be an RFC 3339 time such as 2030-01-31T12:00:00Z"},
	{"expiry", `1893456000`, "expiry must be a string"},
	{"expiry", `"2030-01-31"`, "expiry must be an RFC 3339 time such as 2030-01-31T12:00:00Z"},
	{"expiry", `"2030-01-31T12:00:00"`, "expiry must be an RFC 3339 time such as 2030-01-31T12:00:00Z"},
	{"expiry", `"2030-01-31 12:00:00Z"`, "expiry must be an RFC 3339 time such as 2030-01-31T12:00:00Z"},
	{"expiry", `"2030-01-31T1:00:00Z"`, "expiry must be an RFC 3339 time such as 2030-01-31T12:00:00Z"},
	{"expiry", `"2030-01-31T12:00:00,5Z"`, "expiry must be an RFC 3339 time such as 2030-01-31T12:00:00Z"},
	{"expiry", `"2030-02-30T12:00:00Z"`, "expiry must be an RFC 3339 time such as 2030-01-31T12:00:00Z"},
	{"expiry", `"2030-01-31T24:00:00Z"`, "expiry must be an RFC 3339 time such as 2030-01-31T12:00:00Z"},
	{"expiry", `"2030-01-31T12:00:00+25:00"`, "expiry must be an RFC 3339 time such as 2030-01-31T12:00:00Z"},
	{"expiry", `"2030-01-31T12:00:00+24:00"`, "expiry must be an RFC 3339 time such as 2030-01-31T12:00:00Z"},
	{"expiry", `"2030-01-31T12:00:00+01:60"`, "expiry must be an RFC 3339 time such as 2030-01-31T12:00:00Z"},
	{"expiry", `"2030-01-31T12:00:60Z"`, "expiry must be an RFC 3339 time such as 2030-01-31T12:00:00Z"},
	{"expiry", `"+12030-01-31T12:00:00Z"`, "expiry must be an RFC 3339 time such as 2030-01-31T12:00:00Z"},
	{"expiry", `"0001-01-01T00:00:00+01:00"`, "expiry must be in the years 1 to 9999"},
	{"expiry", `"9999-12-31T23:59:59-01:00"`, "expiry must be in the years 1 to 9999"},
	{"externalId", `""`, "externalId must not be empty"},
	{"externalId", `" a"`, "externalId must not begin or end with white space"},
	{"externalId", `"a\u2003"`, "externalId must not begin or end with white space"},
	{"externalId", `"a\u0085b"`, "externalId must not contain control characters"},
	{"externalId", `"a/b"`, "externalId must not be . or .. and must not contain / or a backslash"},
	{"externalId", `"a\\b"`, "externalId must not be . or .. and must not contain / or a backslash"},
	{"externalId", `"."`, "externalId must not be . or .. and must not contain / or a backslash"},
	{"externalId", `".."`, "externalId must not be . or .. and must not contain / or a backslash"},
	{"externalId", chars(256), "externalId must be at most 255 characters"},
	{"externalId", `1`, "externalId must be a string"},
	{"templateId", `""`, "templateId must not be empty"},
	{"templateId", `"  "`, "templateId must not be empty"},
	{"templateId", chars(129), "templateId must be at most 128 characters"},
	{"templateId", `5`, "templateId must be a string"},
	{"params", `[]`, "params must be a JSON object"},
	{"params", `"{}"`, "params must be a JSON object"},
	{"params", `{"a":"` + strings.Repeat("x", 8<<10-7) + `"}`, "params must be at most 8192 bytes"},
	{"params", `{` + strings.Repeat(" ", 8<<10) + `}`, "params must be at most 8192 bytes"},
	{"params", nested(9), "params must be at most 8 levels deep"},
	{"isActive", `"true"`, "isActive must be true or false"},
	{"isActive", `1`, "isActive must be true or false"},
	{"Path", `"/x"`, "Path is not a known field"},
	{"quota", `null`, "quota is not a known field"},
}

func TestValuesOutOfBoundsAreRejectedByNameInCreatesAndPatches(t *testing.T) {
	t.Parallel()
	for _, c := range refused {
		body := sent(c.field, c.value)
		if object, member, found := strings.Cut(c.field, "."); found {
			body = sent(object, fmt.Sprintf(`{%q: %s}`, member, c.value))
		}
		expected := catalog.Invalid{Fields: []catalog.FieldError{{Field: c.field, Message: c.message}}}
		_, err := catalog.ReadLink([]byte(body))
		invalid(t, body, err, expected)
		if c.value == "null" && c.field == "path" {
			expected.Fields[0].Message = "path cannot be null"
		}
		_, err = catalog.ReadPatch([]byte(body))
		invalid(t, "patch "+body, err, expected)
	}
}

func invalid(t *testing.T, body string, err error, expected catalog.Invalid) {
	t.Helper()
	var got catalog.Invalid
	if !errors.As(err, &got) {
		t.Errorf("%.200s: %v, expected a catalog.Invalid", body, err)
	} else if diff := cmp.Diff(expected, got); diff != "" {
		t.Errorf("%.200s (-expected +got):\n%s", body, diff)
	}
}

func TestEveryBadFieldIsNamedAtOnceInTheOrderOfTheTable(t *testing.T) {
	t.Parallel()
	body := `{"zeta": 1, "isActive": 0, "params": 1, "og": {"zz": 1, "imageUrl": 1, "aa": 1, "title": 1}, "tags": 1, "channel": "pigeon",
		"alpha": 1, "id": 5, "url": null, "domain": {"id": 1}, "createdAt": "", "updatedAt": [], "organizationId": 0}`
	_, err := catalog.ReadLink([]byte(body))
	var got catalog.Invalid
	if !errors.As(err, &got) {
		t.Fatalf("got %v, expected a catalog.Invalid", err)
	}
	var fields []string
	for _, f := range got.Fields {
		fields = append(fields, f.Field)
	}
	expected := []string{"path", "channel", "og.title", "og.imageUrl", "og.aa", "og.zz", "tags", "params", "isActive", "alpha", "zeta"}
	if diff := cmp.Diff(expected, fields); diff != "" {
		t.Errorf("(-expected +got):\n%s", diff)
	}
}

func TestBodyThatIsNotAnObjectIsRejected(t *testing.T) {
	t.Parallel()
	expected := catalog.Invalid{Fields: []catalog.FieldError{{Field: "body", Message: "body must be a JSON object"}}}
	for _, body := range []string{"", "null", "[]", `"x"`, "7", "{"} {
		_, err := catalog.ReadLink([]byte(body))
		invalid(t, body, err, expected)
		_, err = catalog.ReadPatch([]byte(body))
		invalid(t, body, err, expected)
		_, err = catalog.ReadAppConfig([]byte(body))
		invalid(t, body, err, expected)
	}
}

func TestPatchRejectsNullForRequiredFields(t *testing.T) {
	t.Parallel()
	_, err := catalog.ReadPatch([]byte(`{"path": null, "shortCode": null, "domainId": null, "isActive": null}`))
	invalid(t, "nulls", err, catalog.Invalid{Fields: []catalog.FieldError{
		{Field: "path", Message: "path cannot be null"}, {Field: "shortCode", Message: "shortCode cannot be null"},
	}})
}
