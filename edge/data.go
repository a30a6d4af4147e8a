package main

import (
	"bytes"
	"encoding/json"

	"github.com/valyala/fasthttp"

	"deeplink/shared/catalog"
	"deeplink/shared/envelope"
)

// renderData returns the body of /data. It is no HTML, so characters that matter there are left as they are.
func renderData(link catalog.Link) ([]byte, error) {
	var body bytes.Buffer
	encoder := json.NewEncoder(&body)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(link.Public()); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(body.Bytes(), []byte("\n")), nil
}

// describe answers /data.
func describe(ctx *fasthttp.RequestCtx, r record) {
	ctx.SetContentType(envelope.ContentType)
	ctx.Response.SetBodyRaw(r.data())
}

// shareWithScripts lets scripts of every origin read the answer, whichever it is.
func shareWithScripts(ctx *fasthttp.RequestCtx) {
	ctx.Response.Header.SetCanonical([]byte("Access-Control-Allow-Origin"), []byte("*"))
}

// permit answers the question that a browser asks before a script's request with headers of its own.
func permit(ctx *fasthttp.RequestCtx) {
	header := &ctx.Response.Header
	header.SetCanonical([]byte("Access-Control-Allow-Methods"), []byte("GET, HEAD"))
	header.SetCanonical([]byte("Access-Control-Allow-Headers"), []byte("*"))
	header.SetCanonical([]byte("Access-Control-Max-Age"), []byte("86400"))
	ctx.SetStatusCode(fasthttp.StatusNoContent)
}
