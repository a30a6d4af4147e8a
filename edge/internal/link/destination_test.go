package link

import (
	"bytes"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"deeplink/shared/catalog"
)

func TestMergedQueryFollowsThePrecedence(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, fallback string
		utm            [5]string // source, medium, campaign, term, content
		sent, want     string
	}{
		{"nothing to merge", "https://a.example/p?x=1#f", [5]string{}, "", "https://a.example/p?x=1#f"},
		{"an empty query is kept", "https://a.example/p?#f", [5]string{}, "", "https://a.example/p?#f"},
		{"an empty query gets a utm field", "https://a.example/p?#f", [5]string{"s", "", "", "", ""}, "", "https://a.example/p?utm_source=s#f"},
		{"an empty query gets the visitor's parameter", "https://a.example/p?#f", [5]string{}, "a=1", "https://a.example/p?a=1#f"},
		{"a query that ends with an ampersand", "https://a.example/p?a&", [5]string{"s", "", "", "", ""}, "", "https://a.example/p?a&utm_source=s"},
		{"a question mark as a parameter", "https://a.example/p??", [5]string{}, "?=1&b", "https://a.example/p??=1&b"},
		{"no path", "https://a.example", [5]string{}, "a=1", "https://a.example?a=1"},
		{"utm fields are added before the fragment", "https://a.example/p#f", [5]string{"s", "m", "c", "t", "o"}, "",
			"https://a.example/p?utm_source=s&utm_medium=m&utm_campaign=c&utm_term=t&utm_content=o#f"},
		{"utm values are encoded", "https://a.example/", [5]string{"a b&c=d#é", "", "", "", ""}, "", "https://a.example/?utm_source=a+b%26c%3Dd%23%C3%A9"},
		{"own parameters win over utm fields", "https://a.example/?utm_source=own", [5]string{"link", "m", "", "", ""}, "",
			"https://a.example/?utm_source=own&utm_medium=m"},
		{"own parameters win in any encoding", "https://a.example/?utm%5Fsource=own", [5]string{"link", "", "", "", ""}, "",
			"https://a.example/?utm%5Fsource=own"},
		{"the visitor wins over own parameters and utm fields", "https://a.example/?a=own&b=own", [5]string{"link", "link", "", "", ""}, "utm_medium=v&a=v",
			"https://a.example/?b=own&utm_source=link&utm_medium=v&a=v"},
		{"the visitor wins in any encoding", "https://a.example/?a%20b=own&c=own", [5]string{}, "a+b=v&%63=v", "https://a.example/?a+b=v&%63=v"},
		{"a repeated parameter wins with all its values", "https://a.example/?a=1&a=2", [5]string{}, "a=3&a=4", "https://a.example/?a=3&a=4"},
		{"names differ in case", "https://a.example/?A=own", [5]string{}, "a=v", "https://a.example/?A=own&a=v"},
		{"a prefix is a different name", "https://a.example/?abc=own", [5]string{}, "ab=v", "https://a.example/?abc=own&ab=v"},
		{"without value", "https://a.example/?flag", [5]string{}, "flag=1&other", "https://a.example/?flag=1&other"},
		{"empty parameters are dropped", "https://a.example/?&a=1&", [5]string{}, "&&b=2&", "https://a.example/?a=1&b=2"},
		{"only empty parameters", "https://a.example/", [5]string{}, "&&", "https://a.example/"},
		{"a match token is never copied", "https://a.example/", [5]string{}, "mt=secret&a=1&%6dt=secret&m%74", "https://a.example/?a=1"},
		{"a match token overrides nothing", "https://a.example/?mt=own", [5]string{}, "mt=secret", "https://a.example/?mt=own"},
		{"names that contain mt are copied", "https://a.example/", [5]string{}, "amt=1&mtx=2&MT=3", "https://a.example/?amt=1&mtx=2&MT=3"},
		{"bytes that a URL must not contain are encoded", "https://a.example/", [5]string{}, "a=<\">\\^`{|}[] #\xff\x7f\u00e9",
			"https://a.example/?a=%3C%22%3E%5C%5E%60%7B%7C%7D%5B%5D%20%23%FF%7F%C3%A9"},
		{"line breaks are encoded", "https://a.example/", [5]string{}, "a=1\r\nSet-Cookie: x", "https://a.example/?a=1%0D%0ASet-Cookie:%20x"},
		{"escapes are kept", "https://a.example/", [5]string{}, "a=%0d%0A%c3%A9%00", "https://a.example/?a=%0d%0A%c3%A9%00"},
		{"invalid escapes are encoded", "https://a.example/", [5]string{}, "a=%&b=%4&c=%zz&d=100%", "https://a.example/?a=%25&b=%254&c=%25zz&d=100%25"},
		{"a semicolon separates nothing", "https://a.example/", [5]string{}, "a=1;mt=secret", "https://a.example/?a=1%3Bmt=secret"},
		{"no parameter changes the host", "https://a.example/", [5]string{}, "redirect=https://evil.example&url=//evil.example", "https://a.example/?redirect=https://evil.example&url=//evil.example"},
		{"the visitor's text stays within the query", "https://a.example", [5]string{}, "@evil.example/", "https://a.example?@evil.example/"},
		{"a question mark in the fragment starts no query", "https://a.example/#?a=1", [5]string{}, "a=2", "https://a.example/?a=2#?a=1"},
		{"a question mark in a query is part of it", "https://a.example/?a=1?2", [5]string{}, "b=?", "https://a.example/?a=1?2&b=?"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			d, ok := newDestination(test.fallback, linkWithUTM(test.utm))
			if !ok {
				t.Fatalf("%s was rejected", test.fallback)
			}
			got := string(d.Location)
			if test.sent != "" {
				got = string(d.AppendMerged(nil, []byte(test.sent)))
			}
			if got != test.want {
				t.Errorf("%s with utm %q and query %q:\n     got %s\nexpected %s", test.fallback, test.utm, test.sent, got, test.want)
			}
		})
	}
}

func TestURLThatIsNotOnTheWebIsNoDestination(t *testing.T) {
	t.Parallel()
	for _, target := range []string{"", "/path", "//evil.example", "javascript:alert(1)", "javascript://a.example/%0aalert(1)", "https:", "https:///x", "https:a.example",
		"ftp://a.example", "data:text/html,x", "intent://x#Intent;end", "https://ok.example@evil.example/", "https://a.example/" + strings.Repeat("x", 2048), "https://a.example/\r\nSet-Cookie: x", "https://a.example/\x00", "http://[::1"} {
		if d, ok := newDestination(target, new(catalog.Link)); ok {
			t.Errorf("%q was accepted as %s", target, d.Location)
		}
	}
}

func linkWithUTM(utm [5]string) *catalog.Link {
	l := new(catalog.Link)
	for i, field := range []**string{&l.UTMSource, &l.UTMMedium, &l.UTMCampaign, &l.UTMTerm, &l.UTMContent} {
		if utm[i] != "" {
			*field = &utm[i]
		}
	}
	return l
}

// parameter is a name and a value in the model.
type parameter struct{ name, value string }

var percent = regexp.MustCompile(`%[0-9A-Fa-f]{2}|%`)

// parseQuery parses a query for the model. net/url would drop invalid escapes, so they are encoded first.
func parseQuery(query string) (parameters []parameter) {
	query = percent.ReplaceAllStringFunc(query, func(escape string) string {
		if escape == "%" {
			return "%25"
		}
		return escape
	})
	for _, part := range strings.Split(query, "&") {
		if part == "" {
			continue
		}
		name, value, _ := strings.Cut(part, "=")
		var p parameter
		var err error
		if p.name, err = url.QueryUnescape(name); err != nil {
			panic(err)
		}
		if p.value, err = url.QueryUnescape(value); err != nil {
			panic(err)
		}
		parameters = append(parameters, p)
	}
	return parameters
}

// merge is the model: the visitor's parameters win, then those of the fallback URL, then the utm fields.
func merge(own string, utm [5]string, sent string) (merged []parameter) {
	visitors := slices.DeleteFunc(parseQuery(sent), func(p parameter) bool { return p.name == "mt" })
	named := func(parameters []parameter, name string) bool {
		return slices.ContainsFunc(parameters, func(p parameter) bool { return p.name == name })
	}
	for _, p := range parseQuery(own) {
		if !named(visitors, p.name) {
			merged = append(merged, p)
		}
	}
	for i, name := range []string{"utm_source", "utm_medium", "utm_campaign", "utm_term", "utm_content"} {
		if utm[i] != "" && !named(visitors, name) && !named(parseQuery(own), name) {
			merged = append(merged, parameter{name, utm[i]})
		}
	}
	return append(merged, visitors...)
}

// checkMerge compares a merged URL with the model, and requires that everything but the query is unchanged.
func checkMerge(t interface {
	Helper()
	Fatalf(string, ...any)
}, fallback string, utm [5]string, sent string) {
	t.Helper()
	d, ok := newDestination(fallback, linkWithUTM(utm))
	if !ok {
		return
	}
	got := string(d.AppendMerged(nil, []byte(sent)))
	if i := strings.IndexFunc(got, func(r rune) bool { return r <= ' ' || r >= 0x7f }); i >= 0 {
		t.Fatalf("%q with %q: %q has a byte at %d that a URL must not contain", fallback, sent, got, i)
	}
	before, err := url.Parse(fallback)
	if err != nil {
		t.Fatalf("%q: %v", fallback, err)
	}
	after, err := url.Parse(got)
	if err != nil {
		t.Fatalf("%q with %q: %q: %v", fallback, sent, got, err)
	}
	if read, want := parseQuery(after.RawQuery), merge(before.RawQuery, utm, sent); !slices.Equal(read, want) {
		t.Fatalf("%q with utm %q and query %q:\n     got %q\nexpected %q", fallback, utm, sent, read, want)
	}
	before.RawQuery, after.RawQuery, before.ForceQuery, after.ForceQuery = "", "", false, false
	if before.String() != after.String() {
		t.Fatalf("%q with query %q becomes %q", fallback, sent, got)
	}
}

func TestMergeMatchesTheModel(t *testing.T) {
	t.Parallel()
	name := rapid.SampledFrom([]string{"a", "b", "%61", "a+b", "a%20b", "mt", "%6Dt", "utm_source", "utm%5fmedium", "utm_term", "", "é", "%zz", "x%", "a;b", "A", "ab"})
	value := rapid.OneOf(rapid.SampledFrom([]string{"", "=1", "=", "=a=b", "=%", "=%4", "=+", "=%26", "=\r\n", "=#", "=//evil.example/?", "=;mt=1"}),
		rapid.Map(rapid.String(), func(s string) string { return "=" + s }))
	separator := rapid.SampledFrom([]string{"&", "&", "&", "&&", "?"})
	query := rapid.Custom(func(t *rapid.T) string {
		var b strings.Builder
		for range rapid.IntRange(0, 6).Draw(t, "parameters") {
			b.WriteString(name.Draw(t, "name") + strings.ReplaceAll(value.Draw(t, "value"), "&", "") + separator.Draw(t, "separator"))
		}
		return b.String()
	})
	// As control stores it: percent-encoded where a URL requires it.
	encoded := rapid.Map(query, func(s string) string { return string(appendEncoded(nil, []byte(strings.ReplaceAll(s, "&", "\x00")))) })
	rapid.Check(t, func(t *rapid.T) {
		own := strings.ReplaceAll(encoded.Draw(t, "own"), "%00", "&")
		fallback := rapid.SampledFrom([]string{"https://a.example", "http://a.example:8080/", "https://a.example/p/q", "https://[2001:db8::1]/"}).Draw(t, "target") +
			rapid.SampledFrom([]string{"", "?" + own}).Draw(t, "query") + rapid.SampledFrom([]string{"", "#", "#top", "#?a=1&b"}).Draw(t, "fragment")
		var utm [5]string
		for i := range utm {
			utm[i] = rapid.SampledFrom([]string{"", "", "x", "a b&c", "é=%"}).Draw(t, "utm")
		}
		checkMerge(t, fallback, utm, query.Draw(t, "sent"))
	})
}

func FuzzMerge(f *testing.F) {
	f.Add("https://a.example/p?x=1#f", "s", "a=1&mt=2&utm_source=v")
	f.Add("https://a.example", "", "%zz&=&;&\xff\r\n#")
	f.Add("https://a.example/?%61=1&a+b", "é", "a=2&a%20b=%")
	f.Fuzz(func(t *testing.T, fallback, source, sent string) {
		// Only URLs that control accepts, and only queries that the route accepts.
		clean := string(appendEncoded(nil, []byte(fallback)))
		for _, c := range []string{"&", "#"} {
			clean = strings.ReplaceAll(clean, url.QueryEscape(c), c)
		}
		if len(sent) > MaxQuery || strings.Count(sent, "&") >= MaxParameters || strings.Count(clean, "#") > 1 {
			t.Skip()
		}
		checkMerge(t, clean, [5]string{source}, sent)
	})
}

func TestMergedURLIsBounded(t *testing.T) {
	t.Parallel()
	own := "https://a.example/?" + strings.Repeat("a&", 1000)
	d, ok := newDestination(own, new(catalog.Link))
	if !ok {
		t.Fatal("the destination was rejected")
	}
	sent := bytes.Repeat([]byte("\xff&"), MaxParameters)
	if got := len(d.AppendMerged(nil, sent[:len(sent)-1])); got != len(own)-1+MaxParameters*4 {
		t.Errorf("%d bytes, expected %d", got, len(own)-1+MaxParameters*4)
	}
}
