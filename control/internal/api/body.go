package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"

	"deeplink/control/internal/decode"
)

// readBody returns the request's body: one strict JSON value of one of the media types.
func readBody(x *requestState, r *http.Request, mediaTypes ...string) ([]byte, error) {
	body, err := readBytes(x, r, mediaTypes...)
	if err != nil {
		return nil, err
	}
	if err := decode.CheckJSON(body); err != nil {
		return nil, err
	}
	return body, nil
}

// readBytes is readBody without the check that the body is JSON.
func readBytes(x *requestState, r *http.Request, mediaTypes ...string) ([]byte, error) {
	return readBytesWithin(x, r, decode.MaxBody, mediaTypes...)
}

// readBytesWithin is readBytes with another bound in bytes.
func readBytesWithin(x *requestState, r *http.Request, bound int64, mediaTypes ...string) ([]byte, error) {
	body, err := decode.BodyWithin(r, bound, mediaTypes...)
	if errors.Is(err, decode.ErrTooLarge) {
		// Closing the connection is cheaper than reading the rest of the body.
		x.Header().Set("Connection", "close")
	}
	if err != nil {
		return nil, err
	}
	x.bodyRead(r)
	return body, nil
}

// writeJSON responds with status and value.
func writeJSON(x *requestState, status int, value any) error {
	body, err := encodeJSON(value)
	if err != nil {
		return err
	}
	x.send(status, decode.JSON, body)
	return nil
}

// encodeJSON returns the body of a response.
func encodeJSON(value any) ([]byte, error) {
	var body bytes.Buffer
	encoder := json.NewEncoder(&body)
	encoder.SetEscapeHTML(false) // URLs stay readable; no browser shows this as HTML
	err := encoder.Encode(value)
	return body.Bytes(), err
}

// send sends a whole response.
func (x *requestState) send(status int, mediaType string, body []byte) {
	header := x.Header()
	header.Set("Content-Type", mediaType)
	header.Set("Content-Length", strconv.Itoa(len(body)))
	x.WriteHeader(status)
	x.Write(body) // an error means that the client disconnected
}
