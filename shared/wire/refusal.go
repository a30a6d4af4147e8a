package wire

import (
	"bytes"
	"fmt"
	"net/http"
	"time"

	"deeplink/shared/envelope"
	"deeplink/shared/requestid"
)

// Refusal returns a complete HTTP response with the error envelope that closes the connection, for requests that reach no handler. If
// message is empty, the name of the status takes its place.
func Refusal(status int, message string, to Request, now time.Time) []byte {
	if message == "" {
		message = http.StatusText(status)
	}
	body := envelope.New(status, message, to.Path, to.ID, now).JSON()
	id := to.ID
	if id == "" {
		id = requestid.New()
	}
	var response bytes.Buffer
	fmt.Fprintf(&response, "HTTP/1.1 %d %s\r\nCache-Control: no-store\r\nConnection: close\r\nContent-Length: %d\r\n"+
		"Content-Type: %s\r\nDate: %s\r\nDeeplink-Version: 1\r\nX-Content-Type-Options: nosniff\r\n%s: %s\r\n\r\n",
		status, http.StatusText(status), len(body), envelope.ContentType, now.UTC().Format(http.TimeFormat), requestid.Header, id)
	response.Write(body)
	return response.Bytes()
}
