package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"

	"deeplink/shared/catalog"
	"deeplink/shared/strictjson"
)

const (
	// maxBody bounds a request body, in bytes (decisions.md 9).
	maxBody = 64 << 10
	// maxDepth lets params have the depth that decisions.md 1 gives them, inside the body's object.
	maxDepth = catalog.MaxParamsDepth + 1

	mediaJSON       = "application/json"
	mediaMergePatch = "application/merge-patch+json"
)

// readBody returns the request's body: one JSON value, of one of the media types, at most maxBody bytes.
func readBody(x *exchange, r *http.Request, mediaTypes ...string) ([]byte, error) {
	body, err := readBytes(x, r, mediaTypes...)
	if err != nil {
		return nil, err
	}
	if err := strictjson.Check(body, maxDepth); err != nil {
		return nil, err
	}
	return body, nil
}

// readBytes is readBody before anybody looked whether it is JSON.
func readBytes(x *exchange, r *http.Request, mediaTypes ...string) ([]byte, error) {
	// Where there is neither a body nor a type, what is wrong is that there is no JSON.
	nothing := r.ContentLength == 0 && r.Header.Get("Content-Type") == ""
	if !nothing && !isMedia(r.Header, mediaTypes) {
		return nil, errMediaType
	}
	if r.ContentLength > maxBody {
		return nil, tooLarge(x)
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, maxBody+1))
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, errBodyTimeout
	case err != nil:
		return nil, errBodyUnread
	case len(body) > maxBody:
		return nil, tooLarge(x)
	}
	return body, nil
}

// isMedia reports whether the body is of one of the media types, in UTF-8, and not compressed.
func isMedia(header http.Header, mediaTypes []string) bool {
	media, parameters, err := mime.ParseMediaType(header.Get("Content-Type"))
	if err != nil || len(header.Values("Content-Type")) != 1 || header.Get("Content-Encoding") != "" {
		return false
	}
	charset, named := parameters["charset"]
	return slices.Contains(mediaTypes, media) && (!named || strings.EqualFold(charset, "utf-8"))
}

// tooLarge also ends the connection: what is left of the body is not worth reading.
func tooLarge(x *exchange) error {
	x.Header().Set("Connection", "close")
	return errBodyTooLarge
}

// writeJSON answers with status and value.
func writeJSON(x *exchange, status int, value any) error {
	var body bytes.Buffer
	encoder := json.NewEncoder(&body)
	encoder.SetEscapeHTML(false) // it is not HTML, and a URL should look like one
	if err := encoder.Encode(value); err != nil {
		return err
	}
	x.send(status, mediaJSON, body.Bytes())
	return nil
}

// send sends a whole answer.
func (x *exchange) send(status int, mediaType string, body []byte) {
	header := x.Header()
	header.Set("Content-Type", mediaType)
	header.Set("Content-Length", strconv.Itoa(len(body)))
	x.WriteHeader(status)
	x.Write(body) // an error means that the client is gone
}
