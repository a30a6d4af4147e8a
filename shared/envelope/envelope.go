// Package envelope defines the JSON body of every error response of both programs. Each program decides which error becomes which status.
package envelope

import (
	"bytes"
	"encoding/json"
	"net/http"
	"time"
)

// ContentType is the media type of an Envelope. JSON is UTF-8 by definition (RFC 8259), so it has no charset.
const ContentType = "application/json"

// timestamp is RFC 3339 with milliseconds; it is only ever used on UTC times.
const timestamp = "2006-01-02T15:04:05.000Z"

// Envelope is the error body. The order of the members is part of the documented format.
type Envelope struct {
	StatusCode int      `json:"statusCode"`
	Error      string   `json:"error"`
	Message    string   `json:"message"`
	Details    []Detail `json:"details,omitempty"`
	Timestamp  string   `json:"timestamp"`
	Path       string   `json:"path"`
	// RequestID is the valid X-Request-Id that the client sent, else empty.
	RequestID string `json:"requestId,omitempty"`
	// Code and the members after it belong to the structured errors.
	Code            string `json:"code,omitempty"`
	Quota           string `json:"quota,omitempty"`
	Feature         string `json:"feature,omitempty"`
	BillingEndpoint string `json:"billingEndpoint,omitempty"`
	// FailedIndex is the operation of an atomic bulk request that failed.
	FailedIndex *int `json:"failedIndex,omitempty"`
}

// Detail says what is wrong with one field of a request.
type Detail struct {
	Field   string `json:"field"`
	Message string `json:"message"`
}

// New returns an envelope with its Error named after status. path is the request path without its query; requestID is
// empty unless the client sent a valid one.
func New(status int, message, path, requestID string, now time.Time) Envelope {
	return Envelope{
		StatusCode: status,
		Error:      http.StatusText(status),
		Message:    message,
		Timestamp:  now.UTC().Format(timestamp),
		Path:       path,
		RequestID:  requestID,
	}
}

// JSON returns the body. It never fails: invalid UTF-8, which a path can contain, becomes U+FFFD. Characters that are special in HTML only
// are not escaped.
func (e Envelope) JSON() []byte {
	var body bytes.Buffer
	encoder := json.NewEncoder(&body)
	encoder.SetEscapeHTML(false)
	// An error is impossible: the type holds strings and numbers only, and a Buffer takes every write.
	_ = encoder.Encode(e)
	return bytes.TrimSuffix(body.Bytes(), []byte("\n"))
}
