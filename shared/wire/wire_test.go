package wire

import (
	"bufio"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"deeplink/shared/envelope"
	"deeplink/shared/requestid"
)

func TestParseReadsOnlyUnambiguousParts(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		head string
		want Request
	}{
		{"", Request{}},
		{"GET /a HTTP/1.1\r\nX-Request-Id: one\r\n\r\n", Request{Path: "/a", ID: "one"}},
		{"\r\nGET /a?secret HTTP/1.0\nx-request-id:\tone \n\n", Request{Path: "/a", ID: "one", Old: true}},
		{"GET /a\r\n", Request{Path: "/a"}},
		{"GET /a", Request{}}, // who knows how it goes on
		{"GET /a?b", Request{Path: "/a"}},
		{"GET /a HTT", Request{Path: "/a"}},
		{"GET  /a HTTP/1.1\r\n", Request{}},
		{"GET /a b HTTP/1.1\r\n", Request{}},
		{"GET http://a.example/a HTTP/1.1\r\n", Request{}},
		{"GET /a HTTP/1.1\r\nX-Request-Id: one\r\nX-Request-Id: two\r\n\r\n", Request{Path: "/a"}},
		{"GET /a HTTP/1.1\r\nX-Request-Id: \t a: \"b\",  c \t\r\n\r\n", Request{Path: "/a", ID: `a: "b",  c`}},
		{"GET /a HTTP/1.1\r\nX-Request-Id: a\tb\r\n\r\n", Request{Path: "/a"}},
		{"GET /a HTTP/1.1\r\nX-Request-Id: a\r\n b\r\n\r\n", Request{Path: "/a"}},
		{"GET /a HTTP/1.1\r\nX-Request-Id: a\r\nX: y\r\n z\r\n\r\n", Request{Path: "/a", ID: "a"}},
		{"GET /a HTTP/1.1\r\nX-Request-Id:\r\nX-Request-Id: a\r\n\r\n", Request{Path: "/a"}},
		{"GET /a HTTP/1.1\r\nX-Request-Id: hal", Request{Path: "/a"}},
		{"GET /a HTTP/1.1\r\n\r\nX-Request-Id: body\r\n", Request{Path: "/a"}},
		{"POST /a HTTP/1.1\r\ncontent-length: 1\r\nTRANSFER-ENCODING: x\r\n\r\n", Request{Path: "/a", Length: true, Encoding: true}},
	} {
		if got := Parse([]byte(test.head)); got != test.want {
			t.Errorf("%q: %+v, expected %+v", test.head, got, test.want)
		}
	}
}

func TestHeadHoldsTheCurrentRequest(t *testing.T) {
	t.Parallel()
	var h Head
	add := func(s string) { h.Add([]byte(s), 40) }
	add("GET /a HTTP/1.1\r\nX-Req")
	add("uest-Id: a\r\n\r\n" + strings.Repeat("x", 100))
	if got := h.Request(); got != (Request{Path: "/a", ID: "a"}) {
		t.Errorf("%+v, expected path and id of a request read in two pieces", got)
	}
	if len(*h.raw) != 40 {
		t.Errorf("%d bytes are kept, expected 40", len(*h.raw))
	}
	h.Idle()
	if got := h.Request(); got != (Request{Path: "/a", ID: "a"}) {
		t.Errorf("%+v, expected path and id of a request that is not answered yet", got)
	}
	h.Answered()
	if got := h.Request(); got != (Request{}) {
		t.Errorf("after the answer %+v, expected nothing: what came with the request is not known apart", got)
	}
	add("GET /b HTTP/1.1\r\n\r\n")
	if got := h.Request(); got != (Request{Path: "/b"}) {
		t.Errorf("%+v, expected the next request alone", got)
	}
}

func TestHeadReleasesItsBufferWhileTheConnectionIsIdle(t *testing.T) {
	t.Parallel()
	var one, two Head
	one.Add([]byte("GET /one HTTP/1.1\r\n"), 100)
	one.Answered()
	one.Idle()
	if one.raw != nil {
		t.Errorf("an idle connection keeps %q", *one.raw)
	}
	// What was given back may be used by any other connection.
	two.Add([]byte("GET /two HTTP/1.1\r\n"), 100)
	one.Add([]byte("GET /new HTTP/1.1\r\n"), 100)
	if a, b := one.Request().Path, two.Request().Path; a != "/new" || b != "/two" {
		t.Errorf("paths %q and %q, expected /new and /two", a, b)
	}
}

func TestGateRefusesConnectionsOverTheLimit(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	connect := func() (client, server net.Conn) {
		if client, err = net.Dial("tcp", ln.Addr().String()); err != nil {
			t.Fatal(err)
		}
		if server, err = ln.Accept(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { client.Close(); server.Close() })
		return client, server
	}
	gate := NewGate(1)
	_, first := connect()
	client, second := connect()
	if !gate.Admit(first) || gate.Admit(second) {
		t.Fatal("expected the first to be let in, the second not")
	}
	response, err := http.ReadResponse(bufio.NewReader(client), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	var e envelope.Envelope
	if err := json.NewDecoder(response.Body).Decode(&e); err != nil || e.StatusCode != 503 || response.StatusCode != 503 || !response.Close ||
		!requestid.Valid(response.Header.Get(requestid.Header)) {
		t.Errorf("%v %+v %v, expected the envelope of 503 and the end", response, e, err)
	}
	if _, err := io.ReadAll(client); err != nil {
		t.Errorf("the connection ended with %v", err)
	}
	gate.Leave()
	if _, third := connect(); !gate.Admit(third) {
		t.Error("no connection is admitted after the first one left")
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("GET /a?b HTTP/1.1\r\nHost: x\r\nX-Request-Id: one\r\n\r\n"))
	f.Add([]byte("\r\n\r\nPOST http://a HTTP/1.0\nTransfer-Encoding: chunked\n\n"))
	f.Fuzz(func(t *testing.T, head []byte) {
		r := Parse(head)
		if r.Path != "" && (r.Path[0] != '/' || strings.ContainsAny(r.Path, " ?\n")) || r.ID != "" && !requestid.Valid(r.ID) {
			t.Errorf("%q: %+v", head, r)
		}
		answer := Refusal(http.StatusBadRequest, "", r, time.Now())
		response, err := http.ReadResponse(bufio.NewReader(strings.NewReader(string(answer))), nil)
		if err != nil {
			t.Fatalf("%q: %q: %v", head, answer, err)
		}
		var e envelope.Envelope
		if err := json.NewDecoder(response.Body).Decode(&e); err != nil || e.RequestID != r.ID {
			t.Errorf("%q: %q: %v", head, answer, err)
		}
	})
}
