package main

import (
	"bytes"
	"encoding/json"

	"github.com/valyala/fasthttp"

	"deeplink/shared/catalog"
	"deeplink/shared/envelope"
)

// renderData returns the body of /data.
func renderData(link catalog.Link) ([]byte, error) { return renderJSON(link.Public()) }

// renderJSON returns the body of an answer. It is no HTML, so characters that matter there are left as they are.
func renderJSON(value any) ([]byte, error) {
	var body bytes.Buffer
	encoder := json.NewEncoder(&body)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(body.Bytes(), []byte("\n")), nil
}

// describe answers /data.
func describe(ctx *fasthttp.RequestCtx, r record) {
	ctx.SetContentType(envelope.ContentType)
	// The body's own memory is borrowed, as by a page.
	body := ctx.Response.SwapBody(nil)
	ctx.Response.SwapBody(r.appendData(body[:0]))
}

// shareWithScripts lets scripts of every origin read the answer, whichever it is.
func shareWithScripts(ctx *fasthttp.RequestCtx) {
	ctx.Response.Header.SetCanonical([]byte("Access-Control-Allow-Origin"), []byte("*"))
}

// permit answers the question that a browser asks before a script's request with headers of its own, or with JSON.
func permit(ctx *fasthttp.RequestCtx, methods string) {
	header := &ctx.Response.Header
	header.SetCanonical([]byte("Access-Control-Allow-Methods"), []byte(methods))
	header.SetCanonical([]byte("Access-Control-Allow-Headers"), []byte("*"))
	header.SetCanonical([]byte("Access-Control-Max-Age"), []byte("86400"))
	ctx.SetStatusCode(fasthttp.StatusNoContent)
}
