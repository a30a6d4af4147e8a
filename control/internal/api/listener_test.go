package api

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"deeplink/control/internal/testenv"
	"deeplink/shared/catalog"
	"deeplink/shared/envelope"
)

func TestMalformedHTTPGetsTheEnvelope(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	p := w.serve()
	key := "Authorization: Bearer " + *w.Organization(catalog.Growth).ServerKey + "\r\n"
	post := "POST /links HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n" + key
	for _, test := range []struct {
		name, request string
		status        int
	}{
		{"no request line", "hello\r\n\r\n", 400},
		{"a request line of two words", "GET /\r\nHost: x\r\n\r\n", 400},
		{"a lower-case version", "GET / http/1.1\r\nHost: x\r\n\r\n", 400},
		{"an unknown version", "GET / HTTP/9.9\r\nHost: x\r\n\r\n", 505},
		{"HTTP/2 without TLS", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505},
		{"a method with a space", "GE T / HTTP/1.1\r\nHost: x\r\n\r\n", 400},
		{"a method with a control character", "GET\x01 / HTTP/1.1\r\nHost: x\r\n\r\n", 400},
		{"a bad escape in the path", "GET /%zz HTTP/1.1\r\nHost: x\r\n\r\n", 400},
		{"a NUL in the path", "GET /\x00 HTTP/1.1\r\nHost: x\r\n\r\n", 400},
		{"a header without colon", "GET / HTTP/1.1\r\nHost: x\r\nBroken\r\n\r\n", 400},
		{"a header name with a space", "GET / HTTP/1.1\r\nHost: x\r\nBad Name: y\r\n\r\n", 400},
		{"a header name with a space before the colon", "GET / HTTP/1.1\r\nHost: x\r\nName : y\r\n\r\n", 400},
		{"a header with a NUL", "GET / HTTP/1.1\r\nHost: x\r\nName: a\x00b\r\n\r\n", 400},
		{"no Host", "GET / HTTP/1.1\r\n\r\n", 400},
		{"two Hosts", "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400},
		{"a Host with a slash", "GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", 400},
		{"a header of 32 KiB", "GET / HTTP/1.1\r\nHost: x\r\nName: " + repeat("a", 32<<10) + "\r\n\r\n", 431},
		{"a path of 32 KiB", "GET /" + repeat("a", 32<<10) + " HTTP/1.1\r\nHost: x\r\n\r\n", 431},
		{"ten thousand headers", "GET / HTTP/1.1\r\nHost: x\r\n" + repeat("A: b\r\n", 10_000) + "\r\n", 431},
		{"an unknown transfer coding", "POST /links HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\n", 501},
		{"two transfer codings", "POST /links HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked, chunked\r\n\r\n", 501},
		{"two transfer encodings", "POST /links HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n", 501},
		{"two lengths", "POST /links HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", 400},
		{"a negative length", "POST /links HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n", 400},
		{"a length with a sign", "POST /links HTTP/1.1\r\nHost: x\r\nContent-Length: +1\r\n\r\na", 400},
		{"a huge length", post + "Content-Length: 9999999999999999999999\r\n\r\n", 400},
		{"a large length", post + "Content-Length: 1000000000\r\n\r\n", 413},
		{"a large length to continue", post + "Expect: 100-continue\r\nContent-Length: 1000000000\r\n\r\n", 413},
		{"another expectation", "GET / HTTP/1.1\r\nHost: x\r\nExpect: miracles\r\n\r\n", 417},
		{"a bad chunk", post + "Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n", 400},
		{"a chunk that is too long", post + "Transfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n{}\r\n0\r\n\r\n", 400},
		{"a chunk without an end", post + "Transfer-Encoding: chunked\r\n\r\n2\r\n{}xx\r\n0\r\n\r\n", 400},
		{"chunks that are too large in total", post + "Transfer-Encoding: chunked\r\n\r\n" + repeat("1000\r\n"+repeat(" ", 4096)+"\r\n", 17) + "0\r\n\r\n", 413},
		{"an absolute target", "GET http://evil.example/healthz HTTP/1.1\r\nHost: x\r\n\r\n", 400},
		{"an absolute target of this host", "GET http://x/links HTTP/1.1\r\nHost: x\r\n\r\n", 400},
		{"a target with another scheme", "GET javascript:alert(1) HTTP/1.1\r\nHost: x\r\n\r\n", 400},
		{"an authority", "CONNECT evil.example:443 HTTP/1.1\r\nHost: evil.example:443\r\n\r\n", 400},
		{"an asterisk", "OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n", 404},
		{"a target without slash", "GET links HTTP/1.1\r\nHost: x\r\n\r\n", 400},
		{"two slashes", "GET //evil.example/%2e%2e HTTP/1.1\r\nHost: x\r\n\r\n", 404},
		{"a backslash", "GET /\\evil.example HTTP/1.1\r\nHost: x\r\n\r\n", 404},
		{"a fragment", "GET /nothing#a HTTP/1.1\r\nHost: x\r\n\r\n", 404},
		{"a Host with a port, a dot and capitals", "GET /nothing HTTP/1.1\r\nHost: EXAMPLE.com.:8081\r\n\r\n", 404},
		{"HTTP/1.0 without Host", "GET /nothing HTTP/1.0\r\n\r\n", 404},
	} {
		replies := testenv.ExchangeRaw(t, p.Control, test.request, 1)
		if len(replies) != 1 {
			t.Errorf("%s: %.200q: no response, expected %d", test.name, test.request, test.status)
			continue
		}
		r := replies[0]
		var e envelope.Envelope
		err := json.Unmarshal(r.Body, &e)
		if err != nil || r.Status != test.status || e.StatusCode != test.status || e.Error != http.StatusText(test.status) || e.Message == "" ||
			r.Header.Get("Content-Type") != "application/json" || r.Header.Get("X-Request-Id") == "" || r.Header.Get("Deeplink-Version") != "1" {
			t.Errorf("%s: %.200q: %s, expected an envelope of %d", test.name, test.request, r, test.status)
		}
	}
}

// TestConnectionIsReadInOneWay sends what two servers in a row could divide differently: by either interpretation, control must not respond
// to the request inside a body.
func TestConnectionIsReadInOneWay(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	p := w.serve()
	const smuggled = "GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n"
	const last = "GET /last HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
	const first = "POST /first HTTP/1.1\r\nHost: x\r\n"
	chunked := fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(smuggled), smuggled)
	for name, request := range map[string]string{
		"by its length more than its chunks": first + fmt.Sprintf("Content-Length: %d\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n%s", 5+len(smuggled), smuggled),
		"by its chunks more than its length": first + "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n" + chunked,
		"a body that no handler reads":       first + fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(smuggled), smuggled),
		"chunks that no handler reads":       first + "Transfer-Encoding: chunked\r\n\r\n" + chunked,
	} {
		replies := testenv.ExchangeRaw(t, p.Control, request+last, 3)
		if len(replies) == 0 || !bytes.Contains(replies[0].Body, []byte("/first")) && replies[0].Status != http.StatusBadRequest {
			t.Errorf("%s: %v, expected a response to the first request", name, replies)
		}
		for _, r := range replies {
			if bytes.Contains(r.Body, []byte("smuggled")) {
				t.Errorf("%s: %s, expected no response to the request in the body", name, r)
			}
		}
	}
}

func TestResponsesOfHandlersPassTheListenerUnchanged(t *testing.T) {
	t.Parallel()
	for _, written := range []string{
		"HTTP/1.1 200 OK\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\nfine",
		"HTTP/1.1 404 Not Found\r\nCache-Control: no-store\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n404",
		"HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\n\r\n\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n",
		"HTTP/1.1 \r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n",
		"HTTP/1.1 abc\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n",
		"HTTP/1.1 417 Expectation",
		"",
	} {
		if status, message, refused := parseRefusal([]byte(written)); refused {
			t.Errorf("%q: recognized as a refusal, %d %q", written, status, message)
		}
	}
	status, message, refused := parseRefusal([]byte("HTTP/1.1 400 Bad Request: missing required Host header\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n400 Bad Request: missing required Host header"))
	if !refused || status != 400 || message != "missing required Host header" {
		t.Errorf("a refusal by net/http: %d %q %v, expected 400 with its cause", status, message, refused)
	}
}

func TestSlowHeaderIsCutOff(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	p := w.serve()
	conn, err := net.Dial("tcp", strings.TrimPrefix(p.Base, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\n")
	began := time.Now()
	conn.SetReadDeadline(began.Add(3 * readHeaderTimeout))
	if _, err := io.ReadAll(conn); err != nil {
		t.Fatalf("a header that never ends: %v, expected the connection closed", err)
	}
	if took := time.Since(began); took < readHeaderTimeout-time.Second {
		t.Errorf("closed after %v, expected about %v", took, readHeaderTimeout)
	}
}

func TestSlowBodyGets408(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	p := w.serve()
	began := time.Now()
	replies := testenv.ExchangeRaw(t, p.Control, "POST /links HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 100\r\n"+
		"Authorization: Bearer "+*w.Organization(catalog.Growth).ServerKey+"\r\n\r\n{", 1)
	if len(replies) != 1 || replies[0].Status != http.StatusRequestTimeout {
		t.Fatalf("a body that never ends: %v after %v, expected 408", replies, time.Since(began))
	}
	testenv.CheckEnvelope(t, "a body that never ends", replies[0], "/links")
}

// TestSlowSDKBodiesAreAccepted sends reports as on a slow line: they take longer than any other body, and longer than the work on a request,
// may take.
func TestSlowSDKBodiesAreAccepted(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	p := w.serve()
	key := *w.Organization(catalog.Growth).ClientKey
	var phones sync.WaitGroup
	for _, route := range sdkRoutes {
		phones.Go(func() {
			conn, err := net.Dial("tcp", strings.TrimPrefix(p.Base, "http://"))
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			conn.SetDeadline(time.Now().Add(sdkBodyTimeout + requestTimeout))
			fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\nAuthorization: Bearer %s\r\n\r\n{", route.path, len(route.body), key)
			time.Sleep(max(readTimeout, requestTimeout) + time.Second)
			io.WriteString(conn, route.body[1:])
			response, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil || response.StatusCode != http.StatusOK {
				t.Errorf("%s: %v, %v; expected 200", route.path, response, err)
			}
		})
	}
	phones.Wait()
}
