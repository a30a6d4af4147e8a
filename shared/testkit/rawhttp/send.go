package rawhttp

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"deeplink/shared/envelope"
	"deeplink/shared/requestid"
)

// patience bounds the time of a request. Servers wait at most 10 seconds for missing data.
const patience = 30 * time.Second

// last follows each request on its connection. It gets a response if the connection is still open; nothing follows it.
const (
	lastID = "last"
	last   = "GET /last HTTP/1.1\r\nHost: localhost\r\nX-Request-Id: " + lastID + "\r\nConnection: close\r\n\r\n"
)

// past replaces the status of an HTTP/0.9 response, which has none.
const past = 9

type answer struct {
	status int
	header http.Header
	body   []byte
}

// got is the result of a request: its responses, and whether the connection was still open for the request last.
type got struct {
	answers []answer
	open    bool
}

// stranger returns a dialer with a new address on the loopback network, so that servers treat each connection as another client.
func stranger() *net.Dialer {
	n := strangers.Add(1)
	return &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 9, byte(n>>8), byte(n))}}
}

var strangers atomic.Uint32

func send(to Target, c request, bytes string) (g got, err error) {
	conn, err := stranger().Dial("tcp", to.Addr)
	if err != nil {
		return g, err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return g, err
	}
	// A server that rejects a request early may close before all of it was sent.
	go func() {
		if c.cut {
			_, _ = io.WriteString(conn, bytes)
			if !c.stays || !to.proxied() {
				_ = conn.(*net.TCPConn).CloseWrite()
			}
			return
		}
		_, _ = io.WriteString(conn, bytes+last)
	}()
	reader := bufio.NewReader(conn)
	for {
		a, err := read(reader, c.method())
		var timeout net.Error
		switch {
		case errors.As(err, &timeout) && timeout.Timeout():
			return g, fmt.Errorf("nothing for %v after %s", patience, g)
		case a.status == past:
			g.answers = append(g.answers, a)
			return g, nil
		case err != nil && a.status != 0:
			return g, fmt.Errorf("response %d is truncated: %w", a.status, err)
		case err != nil:
			return g, nil // the server closed the connection
		case a.header.Get(requestid.Header) == lastID && a.status == http.StatusNotFound:
			g.open = true
			return g, nil
		}
		g.answers = append(g.answers, a)
	}
}

// method is that of the first request, for the length of its response.
func (c request) method() string {
	method, _, _ := strings.Cut(c.sent, " ")
	return method
}

func read(from *bufio.Reader, method string) (answer, error) {
	if _, err := from.Peek(1); err != nil {
		return answer{}, err
	}
	if version, err := from.Peek(len("HTTP/1")); err == nil && string(version) != "HTTP/1" {
		body, err := io.ReadAll(from)
		return answer{past, nil, body}, err
	}
	response, err := http.ReadResponse(from, &http.Request{Method: method})
	if err != nil {
		return answer{}, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return answer{response.StatusCode, response.Header, body}, err
}

// names reports whether an envelope has the path of the request. nginx repairs request lines without a path.
func (t Target) names(c request, path string) bool {
	return path == t.path(c) || path == "" && c.vague || c.path == noPath && t.proxied()
}

// fault says what is wrong with a response, whatever its status. Responses of nginx itself are not checked.
func (t Target) fault(c request, a answer) error {
	id := a.header.Get(requestid.Header)
	switch {
	case id == hiddenID || strings.Contains(string(a.body), hidden):
		return errors.New("a response to the request inside a body")
	case a.status == http.StatusContinue || a.status == past || a.header.Get("Deeplink-Version") == "" && strings.HasPrefix(a.header.Get("Server"), "nginx"):
		return nil
	case a.header.Get("Deeplink-Version") != "1" || len(a.header.Values(requestid.Header)) != 1 || !requestid.Valid(id):
		return errors.New("without version or request id")
	case a.status < 400 || c.method() == http.MethodHead:
		return nil
	}
	var e envelope.Envelope
	decoder := json.NewDecoder(strings.NewReader(string(a.body)))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&e); err != nil {
		return fmt.Errorf("not the envelope: %w", err)
	}
	wantID := sentID
	if c.id != "" {
		wantID = c.id
	}
	if c.noID || c.vague && e.RequestID == "" {
		wantID = ""
	}
	if e.StatusCode != a.status || e.Error != http.StatusText(a.status) || e.Message == "" || a.header.Get("Content-Type") != envelope.ContentType ||
		!t.names(c, e.Path) || e.RequestID != wantID || wantID != "" && id != wantID {
		return fmt.Errorf("expected an envelope of path %q and request id %q", t.path(c), wantID)
	}
	return nil
}
