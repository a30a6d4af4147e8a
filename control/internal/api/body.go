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
	body, err := decode.Body(r, mediaTypes...)
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
	var body bytes.Buffer
	encoder := json.NewEncoder(&body)
	encoder.SetEscapeHTML(false) // URLs stay readable; no browser shows this as HTML
	if err := encoder.Encode(value); err != nil {
		return err
	}
	x.send(status, decode.JSON, body.Bytes())
	return nil
}

// send sends a whole response.
func (x *requestState) send(status int, mediaType string, body []byte) {
	header := x.Header()
	header.Set("Content-Type", mediaType)
	header.Set("Content-Length", strconv.Itoa(len(body)))
	x.WriteHeader(status)
	x.Write(body) // an error means that the client disconnected
}
