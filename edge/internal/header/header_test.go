package header

import (
	"bufio"
	"strings"
	"testing"

	"github.com/valyala/fasthttp"

	"deeplink/shared/click"
)

func read(t testing.TB, lines ...string) (f Fields) {
	t.Helper()
	var request fasthttp.RequestHeader
	raw := strings.Join(append([]string{"GET / HTTP/1.1", "Host: go.example.com"}, lines...), "\r\n") + "\r\n\r\n"
	if err := request.Read(bufio.NewReader(strings.NewReader(raw))); err != nil {
		t.Fatalf("read %q: %v", raw, err)
	}
	f.Read(&request)
	return f
}

func TestFieldsAreReadWhateverTheSpellingOfTheirNames(t *testing.T) {
	f := read(t, "user-agent: a", "ACCEPT: b", "accept-language: c", "referer: d", "sec-ch-ua: e", "sec-ch-ua-platform: f", "x-request-id: g",
		"x-forwarded-for: h", "X-Forwarded-For: i", "Cookie: j", "Accept: text/html", "Accept-Encoding: gzip")
	got := []string{string(f.UserAgent), string(f.Accept), string(f.Language), string(f.Referer), string(f.Brands), string(f.Platform), string(f.RequestID),
		string(f.Forwarded)}
	if want := "a b c d e f g h"; strings.Join(got, " ") != want || f.Forwards != 2 || f.Closes {
		t.Errorf("%s, %d lines of X-Forwarded-For, closes: %v; expected %s, 2 and false", got, f.Forwards, f.Closes, want)
	}
	if want := click.EvidenceLanguage | click.EvidenceHTML; f.Evidence != want {
		t.Errorf("evidence %b, expected %b", f.Evidence, want)
	}
}

func TestPurposeHeadersAreEvidence(t *testing.T) {
	for _, line := range []string{"Purpose: prefetch", "X-Purpose: preview", "Sec-Purpose: prefetch;prerender", "X-Moz: prefetch"} {
		if f := read(t, "Referer: https://example.com/", "Sec-Ch-Ua: a", line); f.Evidence != click.EvidencePrefetch {
			t.Errorf("%s: evidence %b, expected that of a prefetch", line, f.Evidence)
		}
	}
}

func TestOnlyOneValidRequestIDCounts(t *testing.T) {
	for _, test := range []struct {
		want  string
		lines []string
	}{
		{"", nil},
		{"a", []string{"X-Request-Id: a"}},
		{"", []string{"X-Request-Id: a", "X-Request-Id: a"}},
		{"", []string{"X-Request-Id:", "X-Request-Id: a"}},
		{"", []string{"X-Request-Id: \xff"}},
	} {
		if f := read(t, test.lines...); string(f.RequestID) != test.want {
			t.Errorf("%q: %q, expected %q", test.lines, f.RequestID, test.want)
		}
	}
}

func TestConnectionCloseIsRecognizedInEverySpelling(t *testing.T) {
	for line, want := range map[string]bool{
		"Connection: close": true, "Connection: Close": true, "Connection: x, close": true, "Connection: keep-alive": false, "Connection: closed": false,
		"Accept: close": false,
	} {
		if f := read(t, line); f.Closes != want {
			t.Errorf("%s: %v, expected %v", line, f.Closes, want)
		}
	}
}
