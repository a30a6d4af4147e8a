package api

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"deeplink/control/internal/decode"
	"deeplink/shared/catalog"
)

// TestRefusedBulkBodyGetsItsResponse has a client that sends all of its body before it reads the response.
func TestRefusedBulkBodyGetsItsResponse(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	p := w.serve()
	c, _ := w.writer(p, catalog.Growth)
	for _, test := range []struct {
		size, status int
		mediaType    string
	}{
		{maxBulkBody, 200, decode.JSON}, {maxBulkBody + 1, 413, decode.JSON}, {2 * maxBulkBody, 413, decode.JSON}, {2 * maxBulkBody, 415, "text/plain"},
	} {
		const begin, end = `{"operations":[{"op":"delete","externalId":"none"}]`, `}`
		conn, err := net.Dial("tcp", strings.TrimPrefix(p.Base, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		if err := conn.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
			t.Fatal(err)
		}
		body := begin + repeat(" ", test.size-len(begin)-len(end)) + end
		if _, err := fmt.Fprintf(conn, "POST /links/bulk HTTP/1.1\r\nHost: control\r\nAuthorization: Bearer %s\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s", c.Key, test.mediaType, test.size, body); err != nil {
			t.Errorf("%+v: %v, expected that the body can be sent", test, err)
			continue
		}
		response, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil || response.StatusCode != test.status {
			t.Errorf("%+v: %v %v", test, response, err)
		}
	}
}
