package page

import (
	"bytes"

	"github.com/valyala/fasthttp"

	"deeplink/shared/agent"
)

var (
	purpose    = []byte("Purpose")
	secPurpose = []byte("Sec-Purpose")
)

// Visit is what a hand-off page depends on in addition to the link.
type Visit struct {
	Agent agent.Agent
	// Token is the match token that the page carries, nil for none.
	Token []byte
	// Early: the browser prefetches the page. When the person opens it, the page reloads itself to get a token.
	Early bool
	// Destination is where the link leads on the web, empty for nowhere. Merged is the same with the visitor's query. The page shows
	// Merged if it takes at most Room bytes when escaped, otherwise Destination. Room is what [Prepare] returned.
	Destination, Merged []byte
	Room                int
}

// HasApp reports whether the link's organization has an app for this platform, so that [HandOff] has something to offer.
func HasApp[L Link](link L, platform agent.Platform) bool {
	switch platform {
	case agent.IOS:
		return isFilled(link, slotIOSScheme) || isFilled(link, slotAppStore)
	case agent.Android:
		return isFilled(link, slotAndroidScheme) || isFilled(link, slotPackage)
	}
	return false
}

// HandOff responds with the page that opens the app or offers it. The page waits for a tap: browsers require one before a page opens
// another app or writes to the clipboard, and a person who comes back to the page is not sent away again.
func HandOff[L Link](ctx *fasthttp.RequestCtx, link L, visit *Visit) {
	var v values
	v[slotToken] = visit.Token
	if visit.Early {
		v[slotEarly] = yes
	}
	var web [1024]byte
	v[slotWeb] = appendWeb(web[:0], visit)
	l := languageOf(ctx)
	if browser := visit.Agent.Browser; browser.InApp() {
		name := appNames[browser]
		if name == nil {
			name = l.thisApp
		}
		v[slotApp] = name
		if browser == agent.Instagram {
			v[slotInstagram] = yes
		}
		if isFilled(link, slotPackage) {
			v[slotView] = yes
		}
	}
	p := &l.android
	if visit.Agent.Platform == agent.IOS {
		p = &l.ios
	}
	serve(ctx, p, l, link, &v)
}

// IsPrefetch reports whether a browser requests a page that the person has not opened yet. The page may never be shown.
func IsPrefetch(header *fasthttp.RequestHeader) bool {
	prefetch := []byte("prefetch")
	return bytes.Contains(header.PeekCanonical(secPurpose), prefetch) || bytes.Contains(header.PeekCanonical(purpose), prefetch)
}

// appendWeb appends the URL to which a redirect of this visit would lead, escaped.
func appendWeb(dst []byte, visit *Visit) []byte {
	if visit.Room == 0 {
		return dst
	}
	if web := appendEscaped(dst, visit.Merged); len(web)-len(dst) <= visit.Room {
		return web
	}
	return appendEscaped(dst, visit.Destination)
}

// maxAppName bounds the length of an app's name, and of the words for an unknown app in any language, in bytes.
const maxAppName = 40

// appNames are the names of the apps whose web views show pages, as the apps spell them.
var appNames = [agent.OtherApp + 1][]byte{
	agent.Facebook: []byte("Facebook"), agent.Messenger: []byte("Messenger"), agent.Instagram: []byte("Instagram"),
	agent.Threads: []byte("Threads"), agent.TikTok: []byte("TikTok"), agent.Snapchat: []byte("Snapchat"),
	agent.LinkedIn: []byte("LinkedIn"), agent.X: []byte("X"), agent.Pinterest: []byte("Pinterest"), agent.Line: []byte("LINE"),
	agent.WeChat: []byte("WeChat"), agent.GoogleApp: []byte("Google"),
}
