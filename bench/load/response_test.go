package load

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
)

// readAll reads responses to requests, at most step bytes at a time. It returns their statuses, the number of bytes read, and the error
// that ended the last read.
func readAll(text string, head bool, step int) (statuses []int, used int, err error) {
	from := strings.NewReader(text)
	r := responseReader{buffer: make([]byte, bufferSize), fill: func(to []byte) (int, error) {
		return from.Read(to[:min(step, len(to))])
	}}
	for {
		a, err := r.read(head)
		if err != nil {
			return statuses, used, err
		}
		statuses = append(statuses, a.status)
		used = len(text) - from.Len() - (r.end - r.at)
		if a.last {
			return statuses, used, nil
		}
	}
}

func TestResponsesAreReadToTheirEnd(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, text string
		head       bool
		want       []int
	}{
		{"two with a length", "HTTP/1.1 302 Found\r\nLocation: /x\r\ncontent-LENGTH: 3\r\n\r\nabcHTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", false, []int{302, 404}},
		{"no reason", "HTTP/1.1 200 \r\nContent-Length: 0\r\n\r\nHTTP/1.1 200\r\nContent-Length: 0\r\n\r\n", false, []int{200, 200}},
		{"204 and 304 without a length", "HTTP/1.1 204 No Content\r\n\r\nHTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n", false, []int{204, 304}},
		{"HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n", true, []int{200}},
		{"chunked", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nA;x=y\r\n0123456789\r\n0\r\nExpires: never\r\n\r\nHTTP/1.1 204 x\r\n\r\n", false, []int{200, 204}},
		{"after interim responses", "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\nHTTP/1.1 201 Created\r\nContent-Length: 1\r\n\r\nx", false, []int{201}},
		{"until the end of the connection", "HTTP/1.1 200 OK\r\n\r\nwhatever comes", false, []int{200}},
		{"HTTP/1.0", "HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\nx", false, []int{200}},
		{"HTTP/1.0 with keep-alive", "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 1\r\n\r\nxHTTP/1.1 404 x\r\nContent-Length: 0\r\n\r\n", false, []int{200, 404}},
		{"close", "HTTP/1.1 200 OK\r\nConnection: Close\r\nContent-Length: 1\r\n\r\nx", false, []int{200}},
		{"larger than the buffer", "HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n" + strings.Repeat("x", 100000), false, []int{200}},
	} {
		for _, step := range []int{1, 7, bufferSize} {
			got, used, err := readAll(c.text, c.head, step)
			if err != nil && !errors.Is(err, io.EOF) || used != len(c.text) || len(got) != len(c.want) {
				t.Errorf("%s, %d bytes at a time: %v, %d of %d bytes, %v", c.name, step, got, used, len(c.text), err)
			}
		}
	}
}

func TestMalformedResponsesAreErrors(t *testing.T) {
	t.Parallel()
	const ok = "HTTP/1.1 200 OK\r\n"
	for _, text := range []string{
		"HTTP/2 200 OK\r\n\r\n", "HTTP/1.1  200 OK\r\n\r\n", "HTTP/1.1 20 OK\r\n\r\n", "HTTP/1.1 2000 OK\r\n\r\n", "HTTP/1.1 999 OK\r\n\r\n", "http/1.1 200 OK\r\n\r\n",
		"HTTP/1.1 101 Switching Protocols\r\n\r\n", "HTTP/1.1 200 OK\n\n", ok + "Content-Length: 1\nx: y\r\n\r\nx", ok + "Content-Length: 0\r\n\n",
		ok + "Content-Length: -1\r\n\r\n", ok + "Content-Length: +1\r\n\r\nx", ok + "Content-Length: 1x\r\n\r\nx", ok + "Content-Length:\r\n\r\n",
		ok + "Content-Length: 1\r\nContent-Length: 2\r\n\r\nxx", ok + "Content-Length: 99999999999999999999\r\n\r\n",
		ok + "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", ok + "Transfer-Encoding: gzip\r\n\r\n",
		ok + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", ok + "Transfer-Encoding: chunked\r\n\r\n\r\n",
		ok + "Transfer-Encoding: chunked\r\n\r\nx\r\n", ok + "Transfer-Encoding: chunked\r\n\r\n2\r\nabc\r\n0\r\n\r\n", ok + "Transfer-Encoding: chunked\r\n\r\n-1\r\n",
		ok + "Transfer-Encoding: chunked\r\n\r\nfffffffffffff\r\n", ok + ": x\r\n\r\n", ok + "no colon\r\n\r\n", ok + "Content-Length : 0\r\n\r\n",
		ok + "X: y\r\n folded\r\n\r\n", ok + "X: a\rb\r\n\r\n", ok + "X: a\x00b\r\n\r\n", ok + "X: " + strings.Repeat("x", bufferSize) + "\r\n\r\n",
		ok + strings.Repeat("X: y\r\n", maxLines+1) + "\r\n", strings.Repeat("HTTP/1.1 100 x\r\n\r\n", maxLines+1),
	} {
		var bad malformed
		if statuses, _, err := readAll(text, false, bufferSize); !errors.As(err, &bad) {
			t.Errorf("%.80q was read as %v, %v", text, statuses, err)
		}
	}
	for _, text := range []string{ok, ok + "Content-Length: 3\r\n\r\nab", ok + "Transfer-Encoding: chunked\r\n\r\n3\r\nab", "HTTP"} {
		if _, _, err := readAll(text, false, bufferSize); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%q, an incomplete response: %v", text, err)
		}
	}
	if _, _, err := readAll("", false, bufferSize); !errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("no response at all: %v", err)
	}
}

// The result must not depend on how the data arrives. Where net/http accepts a response too, it must find the same status and the same end.
func FuzzResponses(f *testing.F) {
	f.Fuzz(func(t *testing.T, text string, head bool) {
		statuses, used, err := readAll(text, head, bufferSize)
		slowly, slowlyUsed, slowlyErr := readAll(text, head, 1)
		if len(statuses) != len(slowly) || used != slowlyUsed || (err == nil) != (slowlyErr == nil) {
			t.Fatalf("at once %v, %d bytes, %v; a byte at a time %v, %d bytes, %v", statuses, used, err, slowly, slowlyUsed, slowlyErr)
		}
		if len(statuses) == 0 {
			return
		}
		status, end, err := readByStandard(text, head)
		if err == nil && (status != statuses[0] || len(statuses) == 1 && end != used) {
			t.Errorf("net/http read %d and %d bytes, we %v and %d", status, end, statuses, used)
		}
	})
}

// readByStandard reads the first final response with net/http.
func readByStandard(text string, head bool) (status, used int, err error) {
	from := strings.NewReader(text)
	in := bufio.NewReader(from)
	request := &http.Request{Method: map[bool]string{true: "HEAD", false: "GET"}[head]}
	for {
		response, err := http.ReadResponse(in, request)
		if err != nil {
			return 0, 0, err
		}
		var body bytes.Buffer
		if _, err := body.ReadFrom(response.Body); err != nil {
			return 0, 0, err
		}
		if response.StatusCode >= 200 {
			return response.StatusCode, len(text) - from.Len() - in.Buffered(), nil
		}
	}
}
