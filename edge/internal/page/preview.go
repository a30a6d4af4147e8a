package page

import "github.com/valyala/fasthttp"

// Preview responds to a crawler or a service that shows a link as a card: with what the link is about, and without any effect.
func Preview[L Link](ctx *fasthttp.RequestCtx, link L) {
	l := languageOf(ctx)
	serve(ctx, &l.preview, l, link, new(values))
}

// Landing responds to a person if neither the link nor its organization has a URL on the web: with what the link is about, where to get
// the app, and a QR code that opens the link on a phone.
func Landing[L Link](ctx *fasthttp.RequestCtx, link L) {
	var v values
	if isFilled(link, slotAppStore) || isFilled(link, slotPackage) {
		v[slotStores] = yes
	}
	l := languageOf(ctx)
	serve(ctx, &l.landing, l, link, &v)
}
