package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"deeplink/shared/requestid"
)

// Malicious and malformed requests get the envelope, never a 500.
func TestHostileRequests(t *testing.T) {
	t.Parallel()
	e := startEdge(t, nil)
	r := rows{t, e.owner}
	organization := r.organization("abcd")
	r.link(organization, "Promo", map[string]any{"fallback_url": "https://shop.example.com/"})

	host := "Host: go.example.com\r\n"
	for _, test := range []struct {
		name, sent string
		status     int
		path       string // in the envelope
	}{
		{"the link itself", "GET /abcd/Promo HTTP/1.1\r\n" + host + "\r\n", 302, ""},

		// The request line.
		{"absolute form", "GET http://go.example.com/abcd/Promo HTTP/1.1\r\n" + host + "\r\n", 400, "/abcd/Promo"},
		{"absolute form of another host", "GET http://evil.example/abcd/Promo HTTP/1.1\r\n" + host + "\r\n", 400, "/abcd/Promo"},
		{"asterisk form", "OPTIONS * HTTP/1.1\r\n" + host + "\r\n", 400, "*"},
		{"authority form", "CONNECT go.example.com:443 HTTP/1.1\r\n" + host + "\r\n", 400, "go.example.com:443"},
		{"target without slash", "GET abcd/Promo HTTP/1.1\r\n" + host + "\r\n", 400, ""},
		{"NUL in the target", "GET /abcd/Pro\x00mo HTTP/1.1\r\n" + host + "\r\n", 400, "/abcd/Pro\x00mo"},
		{"control character in the target", "GET /abcd/Pro\x01mo HTTP/1.1\r\n" + host + "\r\n", 400, "/abcd/Pro\x01mo"},
		{"bare CR in the target", "GET /abcd/Pro\rmo HTTP/1.1\r\n" + host + "\r\n", 400, "/abcd/Pro\rmo"},
		{"space in the target", "GET /abcd/Pro mo HTTP/1.1\r\n" + host + "\r\n", 400, ""},
		{"no version", "GET /abcd/Promo\r\n" + host + "\r\n", 400, "/abcd/Promo"},
		{"another protocol", "GET /abcd/Promo FTP/1.1\r\n" + host + "\r\n", 400, "/abcd/Promo"},
		{"no method", " /abcd/Promo HTTP/1.1\r\n" + host + "\r\n", 400, ""},
		{"bytes of TLS", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400, ""},
		{"invalid method", "GE(T /abcd/Promo HTTP/1.1\r\n" + host + "\r\n", 400, "/abcd/Promo"},
		{"unknown method", "BREW /abcd/Promo HTTP/1.1\r\n" + host + "\r\n", 405, "/abcd/Promo"},
		{"method in lower case", "get /abcd/Promo HTTP/1.1\r\n" + host + "\r\n", 405, "/abcd/Promo"},
		{"TRACE", "TRACE /abcd/Promo HTTP/1.1\r\n" + host + "\r\n", 405, "/abcd/Promo"},

		// The path is never decoded.
		{"encoded slash", "GET /abcd%2fPromo HTTP/1.1\r\n" + host + "\r\n", 404, "/abcd%2fPromo"},
		{"encoded slash in the code", "GET /abcd/Promo%2Fdata HTTP/1.1\r\n" + host + "\r\n", 404, "/abcd/Promo%2Fdata"},
		{"encoded letter", "GET /abcd/%50romo HTTP/1.1\r\n" + host + "\r\n", 404, "/abcd/%50romo"},
		{"encoded NUL", "GET /abcd/Promo%00 HTTP/1.1\r\n" + host + "\r\n", 404, "/abcd/Promo%00"},
		{"encoded line break", "GET /abcd/Promo%0d%0aX:1 HTTP/1.1\r\n" + host + "\r\n", 404, "/abcd/Promo%0d%0aX:1"},
		{"dot segment", "GET /abcd/x/../Promo HTTP/1.1\r\n" + host + "\r\n", 404, "/abcd/x/../Promo"},
		{"dot segment first", "GET /../abcd/Promo HTTP/1.1\r\n" + host + "\r\n", 404, "/../abcd/Promo"},
		{"dot segment for an organization key", "GET /../Promo HTTP/1.1\r\n" + host + "\r\n", 404, "/../Promo"},
		{"encoded dot segment", "GET /%2e%2E/Promo HTTP/1.1\r\n" + host + "\r\n", 404, "/%2e%2E/Promo"},
		{"single dot", "GET /./abcd/Promo HTTP/1.1\r\n" + host + "\r\n", 404, "/./abcd/Promo"},
		{"empty segment first", "GET //abcd/Promo HTTP/1.1\r\n" + host + "\r\n", 404, "//abcd/Promo"},
		{"empty segment between", "GET /abcd//Promo HTTP/1.1\r\n" + host + "\r\n", 404, "/abcd//Promo"},
		{"slash at the end", "GET /abcd/Promo/ HTTP/1.1\r\n" + host + "\r\n", 404, "/abcd/Promo/"},
		{"backslash", "GET /abcd\\Promo HTTP/1.1\r\n" + host + "\r\n", 404, "/abcd\\Promo"},
		{"fragment", "GET /abcd/Promo#x HTTP/1.1\r\n" + host + "\r\n", 404, "/abcd/Promo#x"},
		{"broken UTF-8", "GET /abcd/Pr\xffmo HTTP/1.1\r\n" + host + "\r\n", 404, "/abcd/Pr\ufffdmo"},
		{"code of 65 characters", "GET /abcd/" + strings.Repeat("a", 65) + " HTTP/1.1\r\n" + host + "\r\n", 404, "/abcd/" + strings.Repeat("a", 65)},
		{"code of 7,000 characters", "GET /abcd/" + strings.Repeat("a", 7000) + " HTTP/1.1\r\n" + host + "\r\n", 404, "/abcd/" + strings.Repeat("a", 7000)},

		// Host.
		{"no Host", "GET /abcd/Promo HTTP/1.1\r\n\r\n", 400, "/abcd/Promo"},
		{"empty Host", "GET /abcd/Promo HTTP/1.1\r\nHost: \r\n\r\n", 400, "/abcd/Promo"},
		{"no Host in HTTP/1.0", "GET /abcd/Promo HTTP/1.0\r\n\r\n", 404, "/abcd/Promo"},
		{"two Hosts", "GET /abcd/Promo HTTP/1.1\r\n" + host + "Host: evil.example\r\n\r\n", 400, "/abcd/Promo"},
		{"the same Host twice", "GET /abcd/Promo HTTP/1.1\r\n" + host + host + "\r\n", 400, "/abcd/Promo"},
		{"Host with port", "GET /abcd/Promo HTTP/1.1\r\nHost: go.example.com:8443\r\n\r\n", 302, ""},
		{"Host with a trailing dot", "GET /abcd/Promo HTTP/1.1\r\nHost: go.example.com.\r\n\r\n", 302, ""},
		{"Host with a trailing dot and port", "GET /abcd/Promo HTTP/1.1\r\nHost: go.example.com.:80\r\n\r\n", 302, ""},
		{"Host in upper case", "GET /abcd/Promo HTTP/1.1\r\nHost: GO.Example.COM\r\n\r\n", 302, ""},
		{"Host that is an address", "GET /abcd/Promo HTTP/1.1\r\nHost: 192.0.2.7:8080\r\n\r\n", 302, ""},
		{"Host that is an IPv6 address", "GET /abcd/Promo HTTP/1.1\r\nHost: [2001:db8::1]:8080\r\n\r\n", 302, ""},
		{"Host localhost", "GET /abcd/Promo HTTP/1.1\r\nHost: localhost:8080\r\n\r\n", 302, ""},
		{"Host with user info", "GET /abcd/Promo HTTP/1.1\r\nHost: me@go.example.com\r\n\r\n", 404, "/abcd/Promo"},
		{"Host with a path", "GET /abcd/Promo HTTP/1.1\r\nHost: go.example.com/abcd\r\n\r\n", 400, "/abcd/Promo"},
		{"Host with a bad port", "GET /abcd/Promo HTTP/1.1\r\nHost: go.example.com:http\r\n\r\n", 400, "/abcd/Promo"},
		{"Host with two trailing dots", "GET /abcd/Promo HTTP/1.1\r\nHost: go.example.com..\r\n\r\n", 404, "/abcd/Promo"},
		{"Host with a broken bracket", "GET /abcd/Promo HTTP/1.1\r\nHost: [::1\r\n\r\n", 400, "/abcd/Promo"},
		{"another Host", "GET /abcd/Promo HTTP/1.1\r\nHost: evil.example\r\n\r\n", 404, "/abcd/Promo"},
		{"Host of 300 characters", "GET /abcd/Promo HTTP/1.1\r\nHost: " + strings.Repeat("a.", 150) + "b\r\n\r\n", 404, "/abcd/Promo"},
		{"space before the colon", "GET /abcd/Promo HTTP/1.1\r\nHost : go.example.com\r\n\r\n", 400, "/abcd/Promo"},

		// Framing.
		{"both lengths", "POST /abcd/Promo HTTP/1.1\r\n" + host + "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400, "/abcd/Promo"},
		{"both lengths, the other way round", "GET /abcd/Promo HTTP/1.1\r\n" + host + "transfer-encoding: chunked\r\ncontent-length: 5\r\n\r\n1\r\nx\r\n0\r\n\r\n", 400, "/abcd/Promo"},
		{"both lengths with identity", "GET /abcd/Promo HTTP/1.1\r\n" + host + "Transfer-Encoding: identity\r\nContent-Length: 0\r\n\r\n", 400, "/abcd/Promo"},
		{"two Content-Lengths", "GET /abcd/Promo HTTP/1.1\r\n" + host + "Content-Length: 0\r\nContent-Length: 1\r\n\r\n", 400, "/abcd/Promo"},
		{"negative Content-Length", "GET /abcd/Promo HTTP/1.1\r\n" + host + "Content-Length: -1\r\n\r\n", 400, "/abcd/Promo"},
		{"Content-Length with a sign", "GET /abcd/Promo HTTP/1.1\r\n" + host + "Content-Length: +0\r\n\r\n", 400, "/abcd/Promo"},
		{"unknown Transfer-Encoding", "POST /abcd/Promo HTTP/1.1\r\n" + host + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 501, "/abcd/Promo"},
		{"broken chunk", "POST /abcd/Promo HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n\r\nxyz\r\n\r\n", 400, "/abcd/Promo"},
		{"NUL in a header", "GET /abcd/Promo HTTP/1.1\r\n" + host + "X: a\x00b\r\n\r\n", 400, "/abcd/Promo"},
		{"bare CR in a header", "GET /abcd/Promo HTTP/1.1\r\n" + host + "X: a\rb\r\n\r\n", 400, "/abcd/Promo"},
		{"header without colon", "GET /abcd/Promo HTTP/1.1\r\n" + host + "nothing\r\n\r\n", 400, "/abcd/Promo"},
		{"header without name", "GET /abcd/Promo HTTP/1.1\r\n" + host + ": x\r\n\r\n", 400, "/abcd/Promo"},

		// Sizes.
		{"header of 9 KiB", "GET /abcd/Promo HTTP/1.1\r\n" + host + "X: " + strings.Repeat("a", 9<<10) + "\r\n\r\n", 431, "/abcd/Promo"},
		{"target of 9 KiB", "GET /abcd/" + strings.Repeat("a", 9<<10) + " HTTP/1.1\r\n" + host + "\r\n", 431, ""},
		{"query of 4 KiB", "GET /abcd/Promo?" + strings.Repeat("a", 4096) + " HTTP/1.1\r\n" + host + "\r\n", 302, ""},
		{"query of more than 4 KiB", "GET /abcd/Promo?" + strings.Repeat("a", 4097) + " HTTP/1.1\r\n" + host + "\r\n", 414, "/abcd/Promo"},
		{"100 parameters", "GET /abcd/Promo?a" + strings.Repeat("&a", 99) + " HTTP/1.1\r\n" + host + "\r\n", 302, ""},
		{"101 parameters", "GET /abcd/Promo?a" + strings.Repeat("&a", 100) + " HTTP/1.1\r\n" + host + "\r\n", 414, "/abcd/Promo"},
		{"body of 16 KiB", "POST /abcd/Promo HTTP/1.1\r\n" + host + "Content-Length: 16384\r\n\r\n" + strings.Repeat("x", 16384), 405, "/abcd/Promo"},
		{"body of more than 16 KiB", "POST /abcd/Promo HTTP/1.1\r\n" + host + "Content-Length: 16385\r\n\r\n" + strings.Repeat("x", 16385), 413, "/abcd/Promo"},
		{"chunked body of more than 16 KiB", "POST /abcd/Promo HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n\r\n4001\r\n" + strings.Repeat("x", 0x4001) + "\r\n0\r\n\r\n", 413, "/abcd/Promo"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			sent := strings.Replace(test.sent, "\r\n\r\n", "\r\nConnection: close\r\n\r\n", 1)
			a, err := roundTrip(e.addr, sent)
			if err != nil {
				t.Fatalf("sent %.300q: %v", sent, err)
			}
			if a.status != test.status {
				t.Fatalf("sent %.300q: status %d, expected %d\n%s", sent, a.status, test.status, a.body)
			}
			checkHeaders(t, a)
			if test.status < 400 {
				return
			}
			checkEnvelope(t, a, test.path)
		})
	}
}

// checkHeaders checks the headers of every response.
func checkHeaders(t *testing.T, a answer) {
	t.Helper()
	for name, want := range map[string]string{
		"Deeplink-Version":       "1",
		"Cache-Control":          "private, no-store",
		"Vary":                   "User-Agent, Sec-CH-UA-Platform",
		"X-Content-Type-Options": "nosniff",
		"Referrer-Policy":        "strict-origin-when-cross-origin",
		"Server":                 "",
	} {
		if got := strings.Join(a.header.Values(name), " | "); got != want {
			t.Errorf("%s: %q, expected %q", name, got, want)
		}
	}
	if ids := a.header.Values(requestid.Header); len(ids) != 1 || !requestid.Valid(ids[0]) {
		t.Errorf("%s: %q, expected one that is valid", requestid.Header, ids)
	}
	if a.header.Get("Date") == "" {
		t.Error("a response without Date")
	}
}

// checkEnvelope requires the error envelope for a path, without unknown fields.
func checkEnvelope(t *testing.T, a answer, path string) {
	t.Helper()
	var e struct {
		StatusCode            *int
		Error, Message        string
		Details               []struct{ Field, Message string }
		Timestamp             time.Time
		Path, RequestID, Code *string
	}
	decoder := json.NewDecoder(strings.NewReader(a.body))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&e); err != nil {
		t.Fatalf("not an envelope: %q: %v", a.body, err)
	}
	if e.StatusCode == nil || *e.StatusCode != a.status || e.Error != http.StatusText(a.status) || e.Message == "" ||
		e.Path == nil || *e.Path != path || e.Code != nil || time.Since(e.Timestamp).Abs() > time.Minute {
		t.Errorf("envelope %s, expected status %d and path %q", a.body, a.status, path)
	}
	if got := a.header.Get("Content-Type"); got != "application/json" {
		t.Errorf("Content-Type %q, expected application/json", got)
	}
	if a.header.Get("Retry-After") != "" {
		t.Error("a response with Retry-After")
	}
}

func TestConnectionClosesAfterARequestWithTwoLengths(t *testing.T) {
	t.Parallel()
	e := startEdge(t, nil)
	c := e.dial(t)
	// What follows is a second request by Transfer-Encoding, but part of the body by Content-Length.
	fmt.Fprint(c, "GET /healthz HTTP/1.1\r\nHost: go.example.com\r\nContent-Length: 60\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"+
		"GET /healthz HTTP/1.1\r\nHost: go.example.com\r\n\r\n")
	a, err := readAnswer(c, "GET")
	if err != nil || a.status != 400 || !a.last {
		t.Errorf("status %d, last %v, error %v; expected 400, the last answer and nothing after it", a.status, a.last, err)
	}
}

func TestRequestIDs(t *testing.T) {
	t.Parallel()
	e := startEdge(t, nil)
	for _, test := range []struct {
		sent []string
		want string // empty: a fresh one, and none in the body
	}{
		{nil, ""},
		{[]string{"X-Request-Id: abc.DEF-1:/+=@_"}, "abc.DEF-1:/+=@_"},
		{[]string{"x-request-id: lower"}, "lower"},
		{[]string{"X-Request-Id: " + strings.Repeat("a", 255)}, strings.Repeat("a", 255)},
		{[]string{"X-Request-Id: " + strings.Repeat("a", 256)}, ""},
		{[]string{"X-Request-Id: \t a  b \t"}, "a  b"},
		{[]string{"X-Request-Id: one, two: \"three\"; <4> \\r\\n %0d%0a"}, "one, two: \"three\"; <4> \\r\\n %0d%0a"},
		{[]string{"X-Request-Id: a\tb"}, ""},
		{[]string{"X-Request-Id: \xff"}, ""},
		{[]string{"X-Request-Id:"}, ""},
		{[]string{"X-Request-Id: one", "X-Request-Id: two"}, ""},
		{[]string{"X-Request-Id: one", "x-request-id: one"}, ""},
		{[]string{"X-Request-Id:", "X-Request-Id: two"}, ""},
	} {
		a := e.get(t, "/nothing", test.sent...)
		inHeader := a.header.Get(requestid.Header)
		inBody, isInBody := a.envelope(t)["requestId"]
		if test.want != "" {
			if inHeader != test.want || inBody != test.want {
				t.Errorf("sent %q: header %q, body %v; expected both %q", test.sent, inHeader, inBody, test.want)
			}
			continue
		}
		if len(inHeader) != 36 || isInBody {
			t.Errorf("sent %q: header %q, body %v; expected a fresh UUID and none", test.sent, inHeader, inBody)
		}
	}
}

// The request id is one header value: it must not add or change another header.
func TestRequestIDChangesNoOtherHeader(t *testing.T) {
	t.Parallel()
	e := startEdge(t, nil)
	for _, path := range []string{"/nothing", "/healthz", "/abcd/x/data"} {
		without := e.get(t, path).header
		for _, id := range []string{"a, b", "a: b, Cache-Control: public", `a\r\nX-Evil: 1`, "%0d%0aX-Evil:%201", ": a", `"a`, ";a=b"} {
			with := e.get(t, path, "X-Request-Id: "+id).header
			if got := with.Get(requestid.Header); got != id {
				t.Errorf("%s with X-Request-Id %q: %q came back", path, id, got)
			}
			for _, its := range []string{"Date", "Content-Length", requestid.Header} {
				with.Set(its, without.Get(its))
			}
			if diff := cmp.Diff(without, with); diff != "" {
				t.Errorf("%s with X-Request-Id %q (-without +with):\n%s", path, id, diff)
			}
		}
	}
}

func TestRoutesWithoutALinkRespond(t *testing.T) {
	t.Parallel()
	e := startEdge(t, nil)
	for _, host := range []string{"go.example.com", "links.customer.example", "no_host!"} {
		for _, test := range []struct {
			method, path string
			status       int
			body, kind   string
		}{
			{"GET", "/healthz", 200, `{"status":"ok"}`, "application/json"},
			{"HEAD", "/healthz", 200, "", "application/json"},
			{"GET", "/healthz?deep=1", 200, `{"status":"ok"}`, "application/json"},
			{"GET", "/robots.txt", 200, "User-agent: *\nDisallow:\n", "text/plain; charset=utf-8"},
			{"GET", "/favicon.ico", 204, "", ""},
		} {
			a := e.ask(t, test.method, test.path, "Host: "+host)
			if a.status != test.status || a.body != test.body || a.header.Get("Content-Type") != test.kind {
				t.Errorf("%s %s on %s: %d %q %q, expected %d %q %q",
					test.method, test.path, host, a.status, a.header.Get("Content-Type"), a.body, test.status, test.kind, test.body)
			}
			checkHeaders(t, a)
		}
		for _, path := range []string{"/healthz", "/robots.txt", "/favicon.ico"} {
			a := e.ask(t, "POST", path, "Host: "+host)
			if a.status != 405 || a.header.Get("Allow") != "GET, HEAD" {
				t.Errorf("POST %s on %s: %d, Allow %q; expected 405 and GET, HEAD", path, host, a.status, a.header.Get("Allow"))
			}
			checkEnvelope(t, a, path)
		}
	}
}
