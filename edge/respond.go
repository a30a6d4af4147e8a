package main

import (
	"bytes"
	"fmt"
	"time"

	"github.com/valyala/fasthttp"

	"deeplink/edge/internal/conn"
	"deeplink/edge/internal/header"
	"deeplink/edge/internal/link"
	"deeplink/edge/internal/page"
	"deeplink/shared/envelope"
	"deeplink/shared/ratelimit"
	"deeplink/shared/requestid"
)

// commonHeaders are the headers of every response, up to the value of the last one. No response may be cached: a link that was deleted
// must not survive in a cache in front of the edge. fasthttp writes a header's name as given, so a name that spans lines sets all of
// them in one call. Setting them one by one takes a quarter of the time of a click.
var (
	commonHeaders = []byte("Referrer-Policy: strict-origin-when-cross-origin\r\n" +
		"X-Content-Type-Options: nosniff\r\n" +
		"Vary: User-Agent, Sec-CH-UA-Platform\r\n" +
		"Cache-Control: private, no-store\r\n" +
		"Deeplink-Version: 1\r\n" +
		requestid.Header)
)

// setCommonHeaders sets the headers that every response has. id is the request id that the client sent, empty if it sent none; closes says
// that the client will send no further request.
func (s *server) setCommonHeaders(ctx *fasthttp.RequestCtx, id []byte, closes bool) {
	var fresh [36]byte
	if len(id) == 0 {
		id = requestid.Append(fresh[:0])
	}
	ctx.Response.Header.SetCanonical(commonHeaders, id)
	// fasthttp itself sends "Connection: close" only during its shutdown, when clients have no time left to react.
	if closes || s.draining.Load() {
		ctx.SetConnectionClose()
	}
}

// sentID returns the request id that the client sent, empty if it sent no valid one.
func sentID(ctx *fasthttp.RequestCtx) string {
	var request header.Fields
	request.Read(&ctx.Request.Header)
	return string(request.RequestID)
}

// responseID returns the request id that the response carries.
func responseID(ctx *fasthttp.RequestCtx) []byte {
	return ctx.Response.Header.PeekCanonical(commonHeaders)
}

// allowAnyOrigin lets scripts of every origin read the response.
func allowAnyOrigin(ctx *fasthttp.RequestCtx) {
	ctx.Response.Header.SetCanonical([]byte("Access-Control-Allow-Origin"), []byte("*"))
}

// preflight responds to a CORS preflight request.
func preflight(ctx *fasthttp.RequestCtx, methods string) {
	header := &ctx.Response.Header
	header.SetCanonical([]byte("Access-Control-Allow-Methods"), []byte(methods))
	header.SetCanonical([]byte("Access-Control-Allow-Headers"), []byte("*"))
	header.SetCanonical([]byte("Access-Control-Max-Age"), []byte("86400"))
	ctx.SetStatusCode(fasthttp.StatusNoContent)
}

func setAllow(ctx *fasthttp.RequestCtx, k kind) {
	methods := "GET, HEAD"
	switch k {
	case kindData:
		methods = "GET, HEAD, OPTIONS"
	case kindMatch:
		methods = "POST, OPTIONS"
	}
	ctx.Response.Header.Set("Allow", methods)
}

// refusal is an error response: its status, and the message and details of its envelope.
type refusal struct {
	status  int
	message string
	details []envelope.Detail
}

// All refusals, except those of the rate limit and of validation, which depend on the request.
var (
	notPath          = refusal{status: fasthttp.StatusBadRequest, message: "The request target must be a path."}
	twoLengths       = refusal{status: fasthttp.StatusBadRequest, message: "The request has both Content-Length and Transfer-Encoding. Send one of them."}
	unreadable       = refusal{status: fasthttp.StatusBadRequest, message: "The request could not be read."}
	badOrgKey        = refusal{status: fasthttp.StatusBadRequest, message: "Validation failed", details: []envelope.Detail{{Field: "orgKey", Message: "must be 4 letters or digits"}}}
	noRoute          = refusal{status: fasthttp.StatusNotFound, message: "There is nothing at this path."}
	noLink           = refusal{status: fasthttp.StatusNotFound, message: "Link not found."}
	wrongMethod      = refusal{status: fasthttp.StatusMethodNotAllowed, message: "Method not allowed. See the Allow header."}
	tooSlow          = refusal{status: fasthttp.StatusRequestTimeout, message: "The request was not sent in time."}
	suspended        = refusal{status: fasthttp.StatusGone, message: "This link is not available."}
	inactive         = refusal{status: fasthttp.StatusGone, message: "This link has been deactivated."}
	expired          = refusal{status: fasthttp.StatusGone, message: "This link has expired."}
	longBody         = refusal{status: fasthttp.StatusRequestEntityTooLarge, message: fmt.Sprintf("The request body is larger than %d bytes.", maxBody)}
	notJSON          = refusal{status: fasthttp.StatusUnsupportedMediaType, message: "The request body must be application/json."}
	longQuery        = refusal{status: fasthttp.StatusRequestURITooLong, message: fmt.Sprintf("The query has more than %d bytes or %d parameters.", link.MaxQuery, link.MaxParameters)}
	wrongExpectation = refusal{status: fasthttp.StatusExpectationFailed, message: `Only "Expect: 100-continue" is supported.`}
	wrongCoding      = refusal{status: fasthttp.StatusNotImplemented, message: "The only supported transfer coding is chunked."}
	wrongVersion     = refusal{status: fasthttp.StatusHTTPVersionNotSupported, message: "The protocol must be HTTP/1.1 or HTTP/1.0."}
	longHeader       = refusal{status: fasthttp.StatusRequestHeaderFieldsTooLarge, message: fmt.Sprintf("The request header is larger than %d bytes.", conn.MaxHeader)}
	internal         = refusal{status: fasthttp.StatusInternalServerError, message: "Something went wrong on our side. Retry with backoff and quote the request id."}
	unavailable      = refusal{status: fasthttp.StatusServiceUnavailable, message: "The service is not available at the moment. Retry with backoff."}
)

// rateLimited is the 429 response. It has no Retry-After header: only the message contains the delay.
func rateLimited(wait time.Duration) *refusal {
	return &refusal{status: fasthttp.StatusTooManyRequests, message: ratelimit.Message(ratelimit.RetryAfter(wait))}
}

// validationFailed is the response to a body with bad fields.
func validationFailed(details []envelope.Detail) *refusal {
	return &refusal{status: fasthttp.StatusBadRequest, message: "Validation failed", details: details}
}

// reject refuses a click: with a page if the organization wants that and a browser navigates, otherwise with the envelope. seconds is
// how long to wait before a retry, 0 if that is unknown.
func (s *server) reject(ctx *fasthttp.RequestCtx, to *route, request *header.Fields, p *refusal, seconds int) {
	if to.kind != kindLink || !s.errorPages.wanted(to.key[:to.domain]) {
		refuse(ctx, p)
		return
	}
	ctx.Response.Header.SetCanonical(varyHeader, acceptHeader)
	if !page.AcceptsHTML(request.Accept) {
		refuse(ctx, p)
		return
	}
	page.Error(ctx, errorKindOf(p), p.status, seconds, responseID(ctx))
}

func errorKindOf(p *refusal) page.ErrorKind {
	switch {
	case p == &noLink:
		return page.Missing
	case p == &expired:
		return page.Expired
	case p == &inactive || p == &suspended:
		return page.Gone
	case p.status == fasthttp.StatusTooManyRequests:
		return page.Busy
	}
	return page.Broken
}

// refuse responds with the error envelope.
func refuse(ctx *fasthttp.RequestCtx, p *refusal) {
	refuseAt(ctx, p, pathSent(ctx), sentID(ctx))
}

func refuseAt(ctx *fasthttp.RequestCtx, p *refusal, path, id string) {
	e := envelope.New(p.status, p.message, path, id, time.Now())
	e.Details = p.details
	ctx.SetStatusCode(p.status)
	ctx.SetContentType(envelope.ContentType)
	ctx.Response.SetBodyRaw(e.JSON())
}

// pathSent returns the path of a request that fasthttp has read, without the query.
func pathSent(ctx *fasthttp.RequestCtx) string {
	target := ctx.Request.Header.RequestURI()
	if len(target) == 0 || target[0] != '/' {
		target = ctx.URI().PathOriginal() // the target is in absolute form (RFC 9112, section 3.2.2)
	}
	path, _, _ := bytes.Cut(target, []byte("?"))
	return string(path)
}
