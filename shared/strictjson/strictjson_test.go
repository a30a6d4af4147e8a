package strictjson_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"deeplink/shared/strictjson"
)

const maxDepth = 8

func TestCheckAccepts(t *testing.T) {
	t.Parallel()
	for _, body := range []string{
		`{}`, `[]`, `""`, `0`, `-0`, `true`, `false`, `null`, " \t\r\n{ }\n",
		`{"a":1,"A":2,"":3,"a ":4}`,
		`{"a":{"b":1},"c":{"b":1}}`,
		`[{"a":1},{"a":1}]`,
		`"\"\\\/\b\f\n\r\t\u0001é\u00e9\ud83d\ude00😀\u2028"`,
		`[-1.5e+10, 1E-7, 1e308, 5e-324, 0e999, 0.0e-999, -0.0, 123456789012345678901234567890]`,
		strings.Repeat("[", maxDepth) + strings.Repeat("]", maxDepth),
		strings.Repeat(`{"a":`, maxDepth) + "1" + strings.Repeat("}", maxDepth),
		`["` + strings.Repeat("x", 100_000) + `"]`,
	} {
		if err := strictjson.Check([]byte(body), maxDepth); err != nil {
			t.Errorf("%.80s: %v", body, err)
		}
	}
}

func TestCheckRefuses(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		body, field, message string
	}{
		"empty":                     {``, "", "is not valid JSON: it ends where a value was expected"},
		"blank":                     {" \n", "", "is not valid JSON: it ends where a value was expected"},
		"byte order mark":           {"\ufeff{}", "", "is not valid JSON: expected a value at byte 0"},
		"two values":                {`{} {}`, "", "is not valid JSON: expected nothing more at byte 3"},
		"trailing comma":            {`{"a":1,}`, "", "is not valid JSON: expected a member name at byte 7"},
		"trailing comma in array":   {`{"a":[1,]}`, "a[1]", "is not valid JSON: expected a value at byte 8"},
		"no colon":                  {`{"a" 1}`, "a", "is not valid JSON: expected a colon at byte 5"},
		"no comma":                  {`{"a":1 "b":2}`, "a", "is not valid JSON: expected a comma or the end of the object at byte 7"},
		"no end":                    {`{"a":[1`, "a[0]", "is not valid JSON: it ends where a comma or the end of the array was expected"},
		"name that is no string":    {`{a:1}`, "", "is not valid JSON: expected a member name at byte 1"},
		"single quotes":             {`{"a":'b'}`, "a", "is not valid JSON: expected a value at byte 5"},
		"comment":                   {`{/**/}`, "", "is not valid JSON: expected a member name at byte 1"},
		"word":                      {`undefined`, "", "is not valid JSON: expected a value at byte 0"},
		"cut word":                  {`tru`, "", "is not valid JSON: expected a value at byte 0"},
		"longer word":               {`nullx`, "", "is not valid JSON: expected nothing more at byte 4"},
		"open string":               {`{"a":"b`, "a", "is not valid JSON: it ends where the end of a string was expected"},
		"open escape":               {`{"a":"b\`, "a", "is not valid JSON: it ends where an escape sequence was expected"},
		"unknown escape":            {`{"a":"\x41"}`, "a", "is not valid JSON: expected an escape sequence at byte 7"},
		"short unicode escape":      {`{"a":"\u12"}`, "a", "is not valid JSON: expected four hexadecimal digits at byte 8"},
		"signed unicode escape":     {`{"a":"\u+123"}`, "a", "is not valid JSON: expected four hexadecimal digits at byte 8"},
		"leading zero":              {`{"a":01}`, "a", "is not valid JSON: expected a comma or the end of the object at byte 6"},
		"plus":                      {`+1`, "", "is not valid JSON: expected a value at byte 0"},
		"minus alone":               {`-`, "", "is not valid JSON: it ends where a digit was expected"},
		"no digit after the point":  {`1.`, "", "is not valid JSON: it ends where a digit was expected"},
		"no digit before the point": {`.5`, "", "is not valid JSON: expected a value at byte 0"},
		"no exponent":               {`[1e]`, "[0]", "is not valid JSON: expected a digit at byte 3"},
		"hexadecimal number":        {`0x10`, "", "is not valid JSON: expected nothing more at byte 1"},
		"NaN":                       {`NaN`, "", "is not valid JSON: expected a value at byte 0"},
		"too great":                 {`{"params":{"n":1e309}}`, "params.n", "is a number out of range"},
		"too great, negative":       {`[-1e400]`, "[0]", "is a number out of range"},
		"too near to zero":          {`[1e-400]`, "[0]", "is a number out of range"},
		"huge exponent":             {`[1e999999999999]`, "[0]", "is a number out of range"},
		"huge exponent of zero":     {`[0e-20000]`, "[0]", "is a number out of range"},
		"huge number of digits":     {`[0.` + strings.Repeat("1", 60_000) + `]`, "[0]", "is a number out of range"},
		"new line in a string":      {"{\"a\":\"\n\"}", "a", "contains a control character that is not escaped"},
		"raw NUL":                   {"{\"a\":\"x\x00\"}", "a", "contains the character U+0000"},
		"escaped NUL":               {`{"og":{"title":"x\u0000"}}`, "og.title", "contains the character U+0000"},
		"NUL in a name":             {`{"og":{"t\u0000":1}}`, "og", "contains the character U+0000"},
		"NUL outside a string":      {"{}\x00", "", "is not valid JSON: expected nothing more at byte 2"},
		"broken UTF-8":              {"{\"tags\":[\"ok\",\"\xff\"]}", "tags[1]", "is not valid UTF-8"},
		"broken UTF-8 in a name":    {"{\"\xc3\":1}", "", "is not valid UTF-8"},
		"surrogate in UTF-8":        {"[\"\xed\xa0\x80\"]", "[0]", "is not valid UTF-8"},
		"overlong UTF-8":            {"[\"\xc0\xaf\"]", "[0]", "is not valid UTF-8"},
		"high surrogate alone":      {`{"a":"\ud800"}`, "a", "contains half of a surrogate pair"},
		"low surrogate alone":       {`{"a":"\udc00"}`, "a", "contains half of a surrogate pair"},
		"surrogates swapped":        {`{"a":"\ude00\ud83d"}`, "a", "contains half of a surrogate pair"},
		"two high surrogates":       {`{"a":"\ud83d\ud83d\ude00"}`, "a", "contains half of a surrogate pair"},
		"high surrogate and text":   {`{"a":"\ud83dx"}`, "a", "contains half of a surrogate pair"},
		"high surrogate and escape": {`{"a":"\ud83d\n"}`, "a", "contains half of a surrogate pair"},
		"duplicate":                 {`{"path":"a","path":"b"}`, "path", "is given more than once"},
		"duplicate, escaped":        {`{"path":"a","p\u0061th":"b"}`, "path", "is given more than once"},
		"duplicate, not adjacent":   {`{"a":1,"b":{"a":1},"a":2}`, "a", "is given more than once"},
		"duplicate inside":          {`{"a":[{},{"b":1,"c":2,"b":3}]}`, "a[1].b", "is given more than once"},
		"duplicate empty name":      {`{"":1,"":2}`, "", "is given more than once"},
		"too deep": {
			strings.Repeat("[", maxDepth+1) + strings.Repeat("]", maxDepth+1),
			strings.Repeat("[0]", maxDepth), "is nested too deeply",
		},
		"too deep object": {
			`{"params":` + strings.Repeat(`{"a":`, maxDepth), "params" + strings.Repeat(".a", maxDepth-1),
			"is nested too deeply",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := strictjson.Check([]byte(test.body), maxDepth)
			var got *strictjson.Error
			if !errors.As(err, &got) {
				t.Fatalf("%q: got %v, expected an *Error", test.body, err)
			}
			if got.Field != test.field || got.Message != test.message {
				t.Errorf("%q: got %q %q, expected %q %q", test.body, got.Field, got.Message, test.field, test.message)
			}
		})
	}
}

func TestCheckFormAcceptsOnlyWellFormedJSON(t *testing.T) {
	for _, body := range []string{`{"a":1,"a":2}`, `"\u0000"`, `"\ud800x"`, `"\ud83d\ude00"`, `1e999`, `[` + strings.Repeat("1", 2000) + `]`} {
		if err := strictjson.CheckForm([]byte(body), 2); err != nil {
			t.Errorf("%.40s: %v, expected no error", body, err)
		}
	}
	for _, body := range []string{``, `{"a":1,"a":2`, `{"a":1,}`, `"\u000"`, "\"\x00\"", "\"\xff\"", `01`, `1e`, `[[[1]]]`, `1 2`} {
		if strictjson.CheckForm([]byte(body), 2) == nil {
			t.Errorf("%q: no error", body)
		}
	}
}

func TestErrorTextNamesTheField(t *testing.T) {
	t.Parallel()
	for body, expected := range map[string]string{
		`{"a":{"b":"\u0000"}}`: "a.b contains the character U+0000",
		`nope`:                 "body is not valid JSON: expected a value at byte 0",
	} {
		if err := strictjson.Check([]byte(body), maxDepth); err == nil || err.Error() != expected {
			t.Errorf("%s: got %v, expected %s", body, err, expected)
		}
	}
}

func TestLongNamesAreCutInTheField(t *testing.T) {
	t.Parallel()
	body := `{"x` + strings.Repeat("é", 30_000) + `":nope}`
	var got *strictjson.Error
	if !errors.As(strictjson.Check([]byte(body), maxDepth), &got) {
		t.Fatal("it is accepted")
	}
	if expected := "x" + strings.Repeat("é", 99) + "…"; got.Field != expected {
		t.Errorf("got %d bytes %q, expected %q", len(got.Field), got.Field, expected)
	}
}

// The bodies that are the worst for each part of the check; a quadratic one would take minutes.
func TestHugeBodiesAreCheckedInLinearTime(t *testing.T) {
	t.Parallel()
	const size = 8 << 20
	var members strings.Builder
	members.WriteString("{")
	for i := 0; members.Len() < size; i++ {
		members.WriteString(`"` + strings.Repeat("k", i%7) + time.Duration(i).String() + `":0,`)
	}
	members.WriteString(`"last":0}`)
	for name, body := range map[string]string{
		"members": members.String(),
		"escapes": `"` + strings.Repeat(`\ud83d\ude00`, size/12) + `"`,
		"digits":  strings.Repeat("1", size) + "e-99999999999999999999",
		"spaces":  strings.Repeat(" ", size) + "0",
		"open":    strings.Repeat("[", size),
	} {
		started := time.Now()
		_ = strictjson.Check([]byte(body), 10_000)
		if took := time.Since(started); took > 30*time.Second {
			t.Errorf("%s: %d bytes took %s", name, len(body), took)
		}
	}
}

func FuzzCheck(f *testing.F) {
	for _, seed := range []string{
		`{"a":[1,-2.5e3,true,null,"\u00e9\ud83d\ude00"],"b":{"c":{}}}`, `{"a":1,"\u0061":2}`, `"\ud800"`, `[1e400]`, "\"\x00\"",
		"[\"\xff\"]", `{"a":1}{`, `[[[[[[[[[]]]]]]]]]`, `-`, `"\u`, `{"":{"":0}}`, `[0e-9999]`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		before := bytes.Clone(body)
		err := strictjson.Check(body, maxDepth)
		if !bytes.Equal(before, body) {
			t.Fatalf("%q was changed to %q", before, body)
		}
		if err != nil {
			var wrong *strictjson.Error
			if !errors.As(err, &wrong) || wrong.Message == "" {
				t.Fatalf("%q: error %#v", body, err)
			}
			if !json.Valid(body) {
				return
			}
			// What JSON allows and Check does not, by the errors' own words.
			for _, reason := range []string{"more than once", "U+0000", "out of range", "surrogate", "UTF-8", "too deeply"} {
				if strings.Contains(wrong.Message, reason) {
					return
				}
			}
			t.Fatalf("%q is valid JSON, but: %v", body, err)
		}
		if !json.Valid(body) {
			t.Fatalf("%q is not valid JSON", body)
		}
		once := decode(t, body)
		again, err := json.Marshal(once)
		if err != nil {
			t.Fatalf("%q: %v", body, err)
		}
		if twice := decode(t, again); !reflect.DeepEqual(once, twice) {
			t.Fatalf("%q is %#v, but %#v after %q", body, once, twice, again)
		}
		if bytes.Contains(again, []byte("\uFFFD")) != bytes.Contains(body, []byte("\uFFFD")) && !bytes.Contains(bytes.ToLower(body), []byte(`\ufffd`)) {
			t.Fatalf("%q lost a character: %q", body, again)
		}
	})
}

func decode(t *testing.T, body []byte) any {
	t.Helper()
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil {
		t.Fatalf("decode %q: %v", body, err)
	}
	return value
}

func BenchmarkCheck(b *testing.B) {
	body := []byte(`{"path":"/products/42?ref=mail","channel":"email","utmSource":"newsletter","utmCampaign":"spring",` +
		`"fallbackUrl":"https://example.com/products/42","og":{"title":"A title","description":"Some words","imageUrl":"https://example.com/i.png"},` +
		`"tags":["a","b","c"],"expiry":"2030-01-01T00:00:00Z","params":{"sku":"42","price":12.5}}`)
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		if err := strictjson.Check(body, maxDepth); err != nil {
			b.Fatal(err)
		}
	}
}
