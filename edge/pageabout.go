package main

import "github.com/valyala/fasthttp"

// preview answers a crawler, or what shows a link as a card: it is told what the link is about, and nothing happens.
func preview(ctx *fasthttp.RequestCtx, link record) {
	l := languageFor(ctx.Request.Header.PeekCanonical(acceptLanguage))
	l.preview.answer(ctx, l, link, new(visit))
}

// land answers where a click ends when neither the link nor its organization names a place on the web: with what the link is about,
// where to get the app, and a QR code that brings the link to a phone.
func land(ctx *fasthttp.RequestCtx, link record) {
	var v visit
	if link.fills(slotAppStore, slotPackage) {
		v[slotStores] = yes
	}
	l := languageFor(ctx.Request.Header.PeekCanonical(acceptLanguage))
	l.landing.answer(ctx, l, link, &v)
}
