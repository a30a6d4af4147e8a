package wire

import (
	"bytes"
	"fmt"
	"net/http"
	"time"

	"deeplink/shared/envelope"
	"deeplink/shared/requestid"
)

// Refusal returns a whole answer with the error envelope, which ends the connection: for what no handler gets to see. An empty message
// is the name of the status.
func Refusal(status int, message string, to Request, now time.Time) []byte {
	if message == "" {
		message = http.StatusText(status)
	}
	body := envelope.New(status, message, to.Path, to.ID, now).JSON()
	id := to.ID
	if id == "" {
		id = requestid.New()
	}
	var answer bytes.Buffer
	fmt.Fprintf(&answer, "HTTP/1.1 %d %s\r\nCache-Control: no-store\r\nConnection: close\r\nContent-Length: %d\r\n"+
		"Content-Type: %s\r\nDate: %s\r\nDeeplink-Version: 1\r\nX-Content-Type-Options: nosniff\r\n%s: %s\r\n\r\n",
		status, http.StatusText(status), len(body), envelope.ContentType, now.UTC().Format(http.TimeFormat), requestid.Header, id)
	answer.Write(body)
	return answer.Bytes()
}
