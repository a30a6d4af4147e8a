package main

import (
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

var (
	sentDate  = regexp.MustCompile(`Date: [A-Z][a-z]{2}, \d{2} [A-Z][a-z]{2} \d{4} \d{2}:\d{2}:\d{2} GMT\r\n`)
	sentNonce = regexp.MustCompile(`'nonce-[A-Za-z0-9_-]{22}'`)
	sentTime  = regexp.MustCompile(`"timestamp":"[^"]+"`)
)

// Two places pass several header lines to fasthttp as the name of one header (commonHeaders and the headers of a language), because one
// call costs less than one per header. fasthttp writes a name as given. A release that validates, encodes or normalizes names
// would merge or drop these headers, so this test compares every byte that a client receives.
func TestHeadersAreSentByteForByte(t *testing.T) {
	t.Parallel()
	e := startEdge(t, nil)
	r := rows{t, e.owner}
	organization := r.organization("abcd")
	r.link(organization, "x", map[string]any{"fallback_url": "https://shop.example.com/"})
	r.link(organization, "page", nil)
	const common = "Referrer-Policy: strict-origin-when-cross-origin\r\n" +
		"X-Content-Type-Options: nosniff\r\n" +
		"Vary: User-Agent, Sec-CH-UA-Platform\r\n" +
		"Cache-Control: private, no-store\r\n" +
		"Deeplink-Version: 1\r\n" +
		"X-Request-Id: raw-1\r\n"
	for _, test := range []struct{ name, path, expected string }{
		{"redirect", "/abcd/x", "HTTP/1.1 302 Found\r\nDate: D\r\nContent-Length: 0\r\n" + common +
			"Location: https://shop.example.com/\r\nConnection: close\r\n\r\n"},
		{"envelope", "/abcd/none", "HTTP/1.1 404 Not Found\r\nDate: D\r\nContent-Type: application/json\r\nContent-Length: N\r\n" + common +
			"Connection: close\r\n\r\n" +
			`{"statusCode":404,"error":"Not Found","message":"Link not found.","timestamp":"T","path":"/abcd/none","requestId":"raw-1"}`},
		{"page", "/abcd/page", "HTTP/1.1 200 OK\r\nDate: D\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: N\r\n" + common +
			"Vary: Accept-Language, Purpose, Sec-Purpose\r\nContent-Language: en\r\nCross-Origin-Opener-Policy: same-origin\r\n" +
			"Content-Security-Policy: POLICY\r\nConnection: close\r\n\r\n"},
	} {
		c := e.dial(t)
		fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: go.example.com\r\nUser-Agent: %s\r\nX-Request-Id: raw-1\r\nConnection: close\r\n\r\n", test.path, windowsChrome)
		raw, err := io.ReadAll(c)
		if err != nil {
			t.Fatal(err)
		}
		header, body, _ := strings.Cut(string(raw), "\r\n\r\n")
		header = strings.Replace(header, "Content-Length: "+strconv.Itoa(len(body))+"\r\n", "Content-Length: N\r\n", min(1, len(body)))
		got := sentDate.ReplaceAllString(header+"\r\n\r\n", "Date: D\r\n") + sentTime.ReplaceAllString(body, `"timestamp":"T"`)
		if test.name == "page" {
			// The policy has its own test; here it must be one line that names the nonce.
			got = regexp.MustCompile(`Content-Security-Policy: default-src 'none'[^\r\n]*\r\n`).ReplaceAllStringFunc(strings.TrimSuffix(got, body),
				func(line string) string {
					if !sentNonce.MatchString(line) {
						return line
					}
					return "Content-Security-Policy: POLICY\r\n"
				})
		}
		if got != test.expected {
			t.Errorf("%s:\n%q\nexpected\n%q", test.name, got, test.expected)
		}
	}
}
