package main

import (
	"bytes"
	"time"

	"github.com/valyala/fasthttp"

	"deeplink/shared/matchtoken"
)

var (
	acceptLanguage = []byte("Accept-Language")
	platformHint   = []byte("Sec-Ch-Ua-Platform")
	purpose        = []byte("Purpose")
	secPurpose     = []byte("Sec-Purpose")
)

// handOff answers with the page that opens the app, or offers it. It waits for a tap: browsers want one before they open an app or
// let a page write to the clipboard, and who comes back to it is not sent away again.
func (s *server) handOff(ctx *fasthttp.RequestCtx, to *route, link record, by agent, now time.Time) {
	var v visit
	var token [matchtoken.Length]byte
	switch {
	case s.tokens == nil:
	case isEarly(ctx):
		v[slotEarly] = yes
	case ctx.IsHead():
		v[slotToken] = token[:] // of the page only the length is sent
	default:
		v[slotToken] = s.tokens.Append(token[:0], link.id(), now)
	}
	var web [1024]byte
	v[slotWeb] = appendWeb(web[:0], link, to.query)
	l := languageFor(ctx.Request.Header.PeekCanonical(acceptLanguage))
	if by.browser.inApp() {
		name := appNames[by.browser]
		if name == nil {
			name = l.thisApp
		}
		v[slotApp] = name
		if by.browser == instagram {
			v[slotInstagram] = yes
		}
		if len(link.value(slotPackage)) > 0 {
			v[slotView] = yes
		}
	}
	p := &l.android
	if by.platform == ios {
		p = &l.ios
	}
	p.answer(ctx, l, link, &v)
}

// isEarly reports whether a browser asks for a page that nobody has opened yet. It may never be shown.
func isEarly(ctx *fasthttp.RequestCtx) bool {
	header, prefetch := &ctx.Request.Header, []byte("prefetch")
	return bytes.Contains(header.PeekCanonical(secPurpose), prefetch) || bytes.Contains(header.PeekCanonical(purpose), prefetch)
}

// appendWeb appends where a redirect of the visit would lead, escaped; without the visitor's query when the page has no room for it.
func appendWeb(dst []byte, link record, query []byte) []byte {
	d := link.destination()
	room := link.webRoom()
	if len(query) > 0 && room > 0 {
		var buf [1024]byte
		if web := appendEscaped(dst, d.appendMerged(buf[:0], query)); len(web) <= room {
			return web
		}
	}
	if room == 0 {
		return dst
	}
	return appendEscaped(dst, d.location)
}

// maxAppName is how long a name below, or what stands for one in any language, can be, in bytes.
const maxAppName = 40

// appNames are the apps in whose views pages are opened, as they call themselves.
var appNames = [otherApp + 1][]byte{
	facebook: []byte("Facebook"), messenger: []byte("Messenger"), instagram: []byte("Instagram"), threads: []byte("Threads"),
	tiktok: []byte("TikTok"), snapchat: []byte("Snapchat"), linkedin: []byte("LinkedIn"), twitter: []byte("X"),
	pinterest: []byte("Pinterest"), line: []byte("LINE"), wechat: []byte("WeChat"), googleApp: []byte("Google"),
}
