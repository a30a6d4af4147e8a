package requestid_test

import (
	"regexp"
	"strings"
	"testing"

	"deeplink/shared/requestid"
)

const most = 255

func TestValidAcceptsPrintableASCII(t *testing.T) {
	t.Parallel()
	for b := range 256 {
		id := "a" + string([]byte{byte(b)}) + "z"
		want := b >= 0x20 && b <= 0x7E
		if requestid.Valid(id) != want || requestid.Valid([]byte(id)) != want {
			t.Errorf("Valid(%q) = %v, expected %v", id, !want, want)
		}
	}
	for id, want := range map[string]bool{
		"": false, "a": true, " ": true, "550e8400-e29b-41d4-a716-446655440000": true, "Root=1-67891233-abcdef": true,
		strings.Repeat("x", most): true, strings.Repeat("x", most+1): false, "a\r\nX-Evil: 1": false, "é": false,
	} {
		if requestid.Valid(id) != want || requestid.Valid([]byte(id)) != want {
			t.Errorf("Valid(%q) = %v, expected %v", id, !want, want)
		}
	}
}

func TestSentIsTheOneValidValue(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		values []string
		want   string
	}{
		{nil, ""}, {[]string{"a, \"b\""}, "a, \"b\""}, {[]string{""}, ""}, {[]string{"a\tb"}, ""},
		{[]string{"a", "b"}, ""}, {[]string{"a", "a"}, ""}, {[]string{"", "a"}, ""}, {[]string{"a", ""}, ""},
	} {
		if got := requestid.Sent(test.values); got != test.want {
			t.Errorf("Sent(%q) = %q, expected %q", test.values, got, test.want)
		}
	}
}

func FuzzValidIsTheRuleAsWritten(f *testing.F) {
	rule := regexp.MustCompile(`\A[ -~]{1,255}\z`)
	f.Add("abc")
	f.Add("a\n")
	f.Add("a b")
	f.Fuzz(func(t *testing.T, id string) {
		if got, expected := requestid.Valid(id), rule.MatchString(id); got != expected {
			t.Errorf("%q: got %v, expected %v", id, got, expected)
		}
	})
}

func TestNewIsARandomUUID(t *testing.T) {
	t.Parallel()
	form := regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
	seen := make(map[string]bool)
	var differs [36]map[byte]bool
	for range 2000 {
		id := requestid.New()
		if !form.MatchString(id) || seen[id] || !requestid.Valid(id) {
			t.Fatalf("%q is malformed or not new", id)
		}
		seen[id] = true
		for i := range differs {
			if differs[i] == nil {
				differs[i] = make(map[byte]bool)
			}
			differs[i][id[i]] = true
		}
	}
	for i, values := range differs {
		expected := 16
		switch i {
		case 8, 13, 14, 18, 23: // hyphens and the version
			expected = 1
		case 19: // the variant
			expected = 4
		}
		if len(values) != expected {
			t.Errorf("character %d has %d values in 2000 ids, expected %d", i, len(values), expected)
		}
	}
}

func TestAppendKeepsTheExistingBytes(t *testing.T) {
	t.Parallel()
	if got := string(requestid.Append([]byte("id="))); len(got) != 39 || !strings.HasPrefix(got, "id=") {
		t.Errorf("got %q", got)
	}
}

func TestNothingIsAllocated(t *testing.T) {
	id := []byte("550e8400-e29b-41d4-a716-446655440000")
	buffer := make([]byte, 0, 64)
	if n := testing.AllocsPerRun(100, func() { requestid.Valid(id) }); n != 0 {
		t.Errorf("Valid: %v allocations", n)
	}
	if n := testing.AllocsPerRun(100, func() { requestid.Append(buffer) }); n != 0 {
		t.Errorf("Append: %v allocations", n)
	}
}

func BenchmarkAppend(b *testing.B) {
	buffer := make([]byte, 0, 64)
	b.ReportAllocs()
	for b.Loop() {
		requestid.Append(buffer)
	}
}

func BenchmarkValid(b *testing.B) {
	id := []byte("550e8400-e29b-41d4-a716-446655440000")
	for b.Loop() {
		requestid.Valid(id)
	}
}
