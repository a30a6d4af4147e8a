package catalog_test

import (
	"errors"
	"net/url"
	"strings"
	"testing"

	"deeplink/shared/catalog"
)

const (
	notURL   = "must be an absolute http or https URL"
	badHost  = "must name a valid host; send an international name in its punycode form (xn--…)"
	badRunes = "must not contain control or direction characters, nor begin or end with white space"
)

// urls are destinations and what is kept of them (nothing: the URL itself), or the complaint.
var urls = []struct{ url, kept, complaint string }{
	{url: "https://shop.example"},
	{url: "http://shop.example/"},
	{url: "https://Shop.Example:8443/A%2fb//c/../d?x=a+b&y=100%25#frag"},
	{url: "https://localhost:3000/?utm_source=x"},
	{url: "https://shop.example?x=1"},
	{url: "https://shop.example#x"},
	{url: "https://shop.example./x"},
	{url: "https://192.0.2.1/x"},
	{url: "https://[2001:db8::1]:8080/x"},
	{url: "https://xn--mnchen-3ya.example/"},
	{url: "https://my_shop.example/"},
	{url: "https://shop.example/?broken=100%"},
	{url: "https://shop.example/;a,b=c!$&'()*+@:[]~"},
	{url: "https://shop.example/https://user:pw@evil.example/"},
	{url: "https://shop.example/" + strings.Repeat("a", 2048-21)},
	{url: "HTTPS://shop.example/X", kept: "https://shop.example/X"},
	{url: "https://shop.example/a b", kept: "https://shop.example/a%20b"},
	{url: "https://shop.example/ü?ü=日#ü", kept: "https://shop.example/%C3%BC?%C3%BC=%E6%97%A5#%C3%BC"},
	{url: "https://shop.example/\"<>^`{|}", kept: "https://shop.example/%22%3C%3E%5E%60%7B%7C%7D"},

	{url: "shop.example", complaint: notURL},
	{url: "//shop.example/", complaint: notURL},
	{url: "/x", complaint: notURL},
	{url: "https:shop.example", complaint: notURL},
	{url: "https:/shop.example", complaint: notURL},
	{url: "https:///x", complaint: badHost},
	{url: "https://", complaint: badHost},
	{url: "https://?x", complaint: badHost},
	{url: "ftp://shop.example/", complaint: notURL},
	{url: "javascript:alert(1)", complaint: notURL},
	{url: "javascript://shop.example/%0aalert(1)", complaint: notURL},
	{url: "data:text/html,x", complaint: notURL},
	{url: "intent://shop.example/#Intent;end", complaint: notURL},
	{url: "httpsx://shop.example/", complaint: notURL},
	{url: "https://ok@evil.example/", complaint: "must not contain user info"},
	{url: "https://a:b@evil.example/", complaint: "must not contain user info"},
	{url: "https://@evil.example/", complaint: "must not contain user info"},
	{url: `https://shop.example\@evil.example/`, complaint: "must not contain a backslash"},
	{url: `https:/\evil.example/`, complaint: "must not contain a backslash"},
	{url: "https://shop.example/%zz", complaint: notURL},
	{url: "https://münchen.example/", complaint: badHost},
	{url: "https://shop.examplе/", complaint: badHost}, // a Cyrillic e
	{url: "https://sh%6fp.example/", complaint: badHost},
	{url: "https://shop example/", complaint: badHost},
	{url: "https://shop..example/", complaint: badHost},
	{url: "https://.example/", complaint: badHost},
	{url: "https://./", complaint: badHost},
	{url: "https://" + strings.Repeat("a", 64) + ".example/", complaint: badHost},
	{url: "https://" + strings.Repeat("a.", 127) + "a/", complaint: badHost},
	{url: "https://[::1/", complaint: badHost},
	{url: "https://[::1]x/", complaint: badHost},
	{url: "https://[fe80::1%25eth0]/", complaint: badHost},
	{url: "https://[192.0.2.1]/", complaint: badHost},
	{url: "https://2001:db8::1/", complaint: badHost},
	{url: "https://shop.example:/", complaint: "must have a port of 1 to 65535"},
	{url: "https://shop.example:0/", complaint: "must have a port of 1 to 65535"},
	{url: "https://shop.example:65536/", complaint: "must have a port of 1 to 65535"},
	{url: "https://shop.example:x/", complaint: "must have a port of 1 to 65535"},
	{url: " https://shop.example/", complaint: badRunes},
	{url: "https://shop.example/\n", complaint: badRunes},
	{url: "https://shop.example/\r\nSet-Cookie: x", complaint: badRunes},
	{url: "https://shop.example/\t", complaint: badRunes},
	{url: "https://shop.example/\x00", complaint: badRunes},
	{url: "https://shop.example/\u202egnp.exe", complaint: badRunes},
	{url: "https://shop.example/\u2066x", complaint: badRunes},
	{url: "https://shop.example/" + strings.Repeat("a", 2048-20), complaint: "must be at most 2048 characters, percent-encoded"},
	{url: "https://shop.example/" + strings.Repeat("ü", 500), complaint: "must be at most 2048 characters, percent-encoded"},
}

func TestDestinationsOnTheWeb(t *testing.T) {
	t.Parallel()
	for _, c := range urls {
		body := jsonForm(t, map[string]any{"path": "x", "fallbackUrl": c.url})
		l, err := catalog.ReadLink(body)
		if c.complaint != "" {
			invalid(t, c.url, err, catalog.Invalid{Fields: []catalog.FieldError{{Field: "fallbackUrl", Message: "fallbackUrl " + c.complaint}}})
			continue
		}
		if c.kept == "" {
			c.kept = c.url
		}
		if err != nil || *l.FallbackURL != c.kept {
			t.Errorf("%q: kept %v, %v; expected %q", c.url, l.FallbackURL, err, c.kept)
		}
	}
}

// FuzzDestination holds what a Location header needs of every accepted URL.
func FuzzDestination(f *testing.F) {
	for _, c := range urls {
		f.Add(c.url)
	}
	f.Fuzz(func(t *testing.T, s string) {
		l, err := catalog.ReadLink(jsonForm(t, map[string]any{"path": "x", "fallbackUrl": s}))
		if err != nil {
			return
		}
		kept := *l.FallbackURL
		if strings.ContainsFunc(kept, func(r rune) bool { return r <= ' ' || r >= 0x7f || r == '\\' }) {
			t.Errorf("%q was kept as %q, which no header should have", s, kept)
		}
		u, err := url.Parse(kept)
		if err != nil {
			t.Fatalf("%q was kept as %q: %v", s, kept, err)
		}
		if u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.User != nil || u.Opaque != "" || !strings.HasPrefix(kept, u.Scheme+"://"+u.Host) {
			t.Errorf("%q was kept as %q, which is parsed as %#v", s, kept, u)
		}
		again, err := catalog.ReadLink(jsonForm(t, map[string]any{"path": "x", "fallbackUrl": kept}))
		if err != nil || *again.FallbackURL != kept {
			t.Errorf("%q was kept as %q, and that as %v, %v", s, kept, again.FallbackURL, err)
		}
	})
}

func TestHostsOfCustomDomains(t *testing.T) {
	t.Parallel()
	for host, expected := range map[string]string{
		"go.acme.example": "go.acme.example", "Go.ACME.Example.": "go.acme.example", "xn--mnchen-3ya.example": "xn--mnchen-3ya.example",
		"a.b": "a.b", "1.acme": "1.acme", "a-b.0x": "", strings.Repeat("a", 63) + ".example": strings.Repeat("a", 63) + ".example",
		strings.Repeat("a.", 121) + "a": strings.Repeat("a.", 121) + "a",
		"":                              "", ".": "", "localhost": "", "acme.": "", "go..example": "", ".acme.example": "", "go.acme.example..": "",
		"-go.acme.example": "", "go-.acme.example": "", "go_.acme.example": "", "go.acme.example:443": "", "https://go.acme.example": "",
		"go.acme.example/x": "", "münchen.example": "", "go acme.example": "", "go.acme.example\n": "", "192.0.2.1": "", "1.2": "",
		"a.0x7f": "", "[::1]": "", "2001:db8::1": "", "*.acme.example": "", "\u212a.example": "", "K.example": "k.example", strings.Repeat("a", 64) + ".example": "",
		strings.Repeat("a.", 122) + "a": "",
	} {
		got, err := catalog.CheckHost(host)
		if got != expected || (err == nil) != (expected != "") {
			t.Errorf("%q: got %q and %v, expected %q", host, got, err, expected)
		}
		var invalid catalog.Invalid
		if err != nil && (!errors.As(err, &invalid) || invalid.Fields[0].Field != "host") {
			t.Errorf("%q: error %v, expected a catalog.Invalid of the field host", host, err)
		}
	}
}
