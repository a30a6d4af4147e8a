package page

import (
	"bytes"
	"strconv"

	"github.com/valyala/fasthttp"
)

// ErrorKind is what an error page tells a person.
type ErrorKind uint8

const (
	Missing ErrorKind = iota // there is no such link
	Gone                     // the link is inactive or its organization suspended
	Expired
	Busy   // too many requests
	Broken // the service does not work at the moment
	errorKinds
)

// Error writes an error page with this status. requestID is shown on it. seconds is how long to wait before a retry; only [Busy] shows
// it.
func Error(ctx *fasthttp.RequestCtx, kind ErrorKind, status, seconds int, requestID []byte) {
	var v values
	v[slotSeconds] = strconv.AppendInt(nil, int64(seconds), 10)
	v[slotID] = appendEscaped(nil, requestID)
	ctx.SetStatusCode(status)
	l := languageOf(ctx)
	serve(ctx, &l.errors[kind], l, noLink{}, &v)
}

// AcceptsHTML reports whether a header Accept lists HTML, as browsers do when they navigate. */* does not count.
func AcceptsHTML(accept []byte) bool {
	for len(accept) > 0 {
		var item []byte
		item, accept, _ = bytes.Cut(accept, comma)
		mediaType, parameters, _ := bytes.Cut(item, semicolon)
		if bytes.EqualFold(bytes.TrimSpace(mediaType), []byte("text/html")) {
			return weightOf(parameters) > 0
		}
	}
	return false
}
