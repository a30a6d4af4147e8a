package decode

import (
	"strings"
	"testing"

	"golang.org/x/net/idna"

	"deeplink/shared/catalog"
)

func TestCustomHostIsAValidInternationalName(t *testing.T) {
	t.Parallel()
	// puny returns the punycode of a name without checking the name.
	puny := func(name string) string {
		t.Helper()
		ascii, err := idna.Punycode.ToASCII(name)
		if err != nil {
			t.Fatal(err)
		}
		return ascii
	}
	for _, test := range []struct {
		name, host string
		good       bool
	}{
		{"ASCII only", "go.example.com", true},
		{"accents", puny("bücher.example"), true},
		{"Cyrillic", puny("пример.example"), true},
		{"Greek", puny("παράδειγμα.example"), true},
		{"Japanese in three scripts and Latin", puny("テストと漢字a.example"), true},
		{"Korean", puny("한국漢字.example"), true},
		{"Hebrew", puny("דוגמה.example"), true},
		{"Arabic with digits", puny("مثال1.example"), true},
		{"a combining mark", puny("नमस्ते.example"), true},
		{"Latin and Cyrillic", puny("pаypal.example"), true},
		{"Latin and Greek", puny("gοogle.example"), true},
		{"Cyrillic and Greek", puny("приμер.example"), true},
		{"a direction that changes in one label of several", "www." + puny("אa") + ".example", false},
		{"a direction that changes", puny("אa.example"), false},
		{"digits before Hebrew", puny("1דוגמה.example"), false},
		{"a character that turns the direction", puny("a\u202eb.example"), false},
		{"an invisible character", puny("a\u200bb.example"), false},
		{"a joiner where none may be", puny("a\u200db.example"), false},
		{"a full-width letter", puny("ａ.example"), false},
		{"a symbol", puny("☃\u2044.example"), false},
		{"capitals inside punycode", puny("Ünder.example"), false},
		{"ASCII in punycode", "xn--abc-.example", false},
		{"invalid punycode", "xn--\x7f.example", false},
		{"punycode of nothing", "xn--.example", false},
		{"punycode that ends early", "xn--a.example", false},
	} {
		host, err := CustomHost(test.host)
		if (err == nil) != test.good || test.good && host != strings.ToLower(test.host) {
			t.Errorf("%s: %q: %q, %v; expected good to be %v", test.name, test.host, host, err, test.good)
		}
	}
}

// browsers decodes a host as browsers do (URL Standard, 3.3): hyphens are allowed everywhere.
var browsers = idna.New(idna.MapForLookup(), idna.CheckHyphens(false), idna.BidiRule(), idna.CheckJoiners(true))

func FuzzCustomHost(f *testing.F) {
	for _, host := range []string{"a.example", "xn--bcher-kva.example", "xn--pypal-4ve.example", "XN--A.b", "a..b", "1.2.3.4", "a_b.example"} {
		f.Add(host)
	}
	f.Fuzz(func(t *testing.T, sent string) {
		host, err := CustomHost(sent)
		if err != nil {
			return
		}
		if again, err := CustomHost(host); err != nil || again != host {
			t.Errorf("%q becomes %q, which becomes %q, %v", sent, host, again, err)
		}
		if strings.Trim(host, "abcdefghijklmnopqrstuvwxyz0123456789-.") != "" || len(host) > catalog.MaxCustomHost {
			t.Errorf("%q becomes %q", sent, host)
		}
		if text, err := browsers.ToUnicode(host); err != nil {
			t.Errorf("%q is not shown by browsers: %q, %v", host, text, err)
		}
	})
}
