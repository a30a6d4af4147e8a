package main

import (
	"fmt"
	"time"

	"github.com/valyala/fasthttp"

	"deeplink/shared/envelope"
	"deeplink/shared/ratelimit"
	"deeplink/shared/requestid"
)

// problem is an answer other than success: its status and what the envelope says beside the circumstances.
type problem struct {
	status  int
	message string
	details []envelope.Detail
}

// All there are (interface.md 7, decisions.md 3), but for the rate limit, which says how long to wait.
var (
	notPath          = problem{status: fasthttp.StatusBadRequest, message: "The request target must be a path."}
	twoLengths       = problem{status: fasthttp.StatusBadRequest, message: "The request has both Content-Length and Transfer-Encoding."}
	unreadable       = problem{status: fasthttp.StatusBadRequest, message: "The request could not be read."}
	badOrgKey        = problem{status: fasthttp.StatusBadRequest, message: "Validation failed", details: []envelope.Detail{{Field: "orgKey", Message: "must be 4 letters or digits"}}}
	noRoute          = problem{status: fasthttp.StatusNotFound, message: "There is nothing at this path."}
	noLink           = problem{status: fasthttp.StatusNotFound, message: "Link not found."}
	wrongMethod      = problem{status: fasthttp.StatusMethodNotAllowed, message: "This path does not take this method."}
	tooSlow          = problem{status: fasthttp.StatusRequestTimeout, message: "The request was not sent in time."}
	suspended        = problem{status: fasthttp.StatusGone, message: "This link is not available."}
	inactive         = problem{status: fasthttp.StatusGone, message: "This link has been deactivated."}
	expired          = problem{status: fasthttp.StatusGone, message: "This link has expired."}
	longBody         = problem{status: fasthttp.StatusRequestEntityTooLarge, message: fmt.Sprintf("The request body is larger than %d bytes.", maxBody)}
	notJSON          = problem{status: fasthttp.StatusUnsupportedMediaType, message: "The request body must be application/json."}
	longQuery        = problem{status: fasthttp.StatusRequestURITooLong, message: fmt.Sprintf("The query has more than %d bytes or %d parameters.", maxQuery, maxParameters)}
	wrongExpectation = problem{status: fasthttp.StatusExpectationFailed, message: "Nothing can be expected but 100-continue."}
	wrongCoding      = problem{status: fasthttp.StatusNotImplemented, message: "The only transfer coding is chunked."}
	wrongVersion     = problem{status: fasthttp.StatusHTTPVersionNotSupported, message: "The protocol must be HTTP/1.1 or HTTP/1.0."}
	longHeader       = problem{status: fasthttp.StatusRequestHeaderFieldsTooLarge, message: fmt.Sprintf("The request header is larger than %d bytes.", maxHeader)}
	internal         = problem{status: fasthttp.StatusInternalServerError, message: "Something went wrong on our side. Retry with backoff and quote the request id."}
	unavailable      = problem{status: fasthttp.StatusServiceUnavailable, message: "The service is not available at the moment. Retry with backoff."}
)

// limited is the 429 response. It has no Retry-After: the delay is in the message alone.
func limited(wait time.Duration) *problem {
	return &problem{status: fasthttp.StatusTooManyRequests, message: ratelimit.Message(ratelimit.RetryAfter(wait))}
}

// invalid is the answer to a body with bad fields.
func invalid(details []envelope.Detail) *problem {
	return &problem{status: fasthttp.StatusBadRequest, message: "Validation failed", details: details}
}

// refuse answers with the envelope.
func refuse(ctx *fasthttp.RequestCtx, p *problem) {
	refuseAt(ctx, p, pathSent(ctx), string(sentID(ctx)))
}

// pathSent returns the path of a request that was read.
func pathSent(ctx *fasthttp.RequestCtx) string {
	target := ctx.Request.Header.RequestURI()
	if len(target) == 0 || target[0] != '/' {
		target = ctx.URI().PathOriginal() // of a target in absolute form (RFC 9112, 3.2.2)
	}
	path, _ := cut(target, '?')
	return string(path)
}

func refuseAt(ctx *fasthttp.RequestCtx, p *problem, path, id string) {
	e := envelope.New(p.status, p.message, path, id, time.Now())
	e.Details = p.details
	ctx.SetStatusCode(p.status)
	ctx.SetContentType(envelope.ContentType)
	ctx.Response.SetBodyRaw(e.JSON())
}

// sentID returns the client's request id, nil when it sent none that is valid. Of two none is believed.
func sentID(ctx *fasthttp.RequestCtx) []byte {
	id := ctx.Request.Header.PeekCanonical(requestIDHeader)
	if len(id) == 0 || !requestid.Valid(id) || len(ctx.Request.Header.PeekAll(requestid.Header)) != 1 {
		return nil
	}
	return id
}
