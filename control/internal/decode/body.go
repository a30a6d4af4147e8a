// Package decode reads requests: bodies and queries become typed values or field errors. It is the one strict reader for all surfaces.
package decode

import (
	"errors"
	"io"
	"mime"
	"net/http"
	"os"
	"slices"
	"strings"

	"deeplink/shared/catalog"
	"deeplink/shared/strictjson"
)

const (
	// MaxBody bounds a request body, in bytes.
	MaxBody = 64 << 10
	// MaxDepth bounds the depth of a body. params may be catalog.MaxParamsDepth deep, inside the object of the body.
	MaxDepth = catalog.MaxParamsDepth + 1

	JSON       = "application/json"
	MergePatch = "application/merge-patch+json"
)

// Why Body returns no body.
var (
	ErrMediaType  = errors.New("unsupported media type")
	ErrTooLarge   = errors.New("body too large")
	ErrUnreadable = errors.New("body unreadable")
	ErrTimeout    = errors.New("body not sent in time")
)

// CheckJSON returns a strictjson.Error unless body is one strict JSON value of at most MaxDepth.
func CheckJSON(body []byte) error { return strictjson.Check(body, MaxDepth) }

// Body returns the body of a request, which must have one of the media types and at most MaxBody bytes. It does not check that the body is
// JSON.
func Body(r *http.Request, mediaTypes ...string) ([]byte, error) {
	return BodyWithin(r, MaxBody, mediaTypes...)
}

// BodyWithin is Body with another bound in bytes.
func BodyWithin(r *http.Request, bound int64, mediaTypes ...string) ([]byte, error) {
	// A request with neither a body nor a type gets the error that its JSON is missing.
	nothing := r.ContentLength == 0 && r.Header.Get("Content-Type") == ""
	if !nothing && !isMedia(r.Header, mediaTypes) {
		return nil, ErrMediaType
	}
	if r.ContentLength > bound {
		return nil, ErrTooLarge
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, bound+1))
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, ErrTimeout
	case err != nil:
		return nil, ErrUnreadable
	case int64(len(body)) > bound:
		return nil, ErrTooLarge
	}
	return body, nil
}

// isMedia reports whether the body has one of the media types, is UTF-8 and not compressed.
func isMedia(header http.Header, mediaTypes []string) bool {
	media, parameters, err := mime.ParseMediaType(header.Get("Content-Type"))
	if err != nil || len(header.Values("Content-Type")) != 1 || header.Get("Content-Encoding") != "" {
		return false
	}
	charset, named := parameters["charset"]
	return slices.Contains(mediaTypes, media) && (!named || strings.EqualFold(charset, "utf-8"))
}
