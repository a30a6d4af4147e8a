// Package page writes the HTML that a person or a preview bot sees: the hand-off to an app, the landing page, the link preview and the
// error pages, in eleven languages. It promises that a page is at most 15,000 bytes, runs no script that is not its own, shows texts of
// links and visitors as text only, and is written without allocating. It does not decide who gets which page.
package page

import (
	"crypto/rand"
	"encoding/base64"

	"github.com/valyala/fasthttp"
)

// Pages are compiled when the program starts, once for each language: an html/template template becomes pieces of text with slots
// between them (compile.go). The values with which a link fills slots are escaped when the link is loaded, and kept in its record
// (values.go). The values of a visit are made per request. So pages take no memory per link, and a visit only appends bytes.

const (
	// maxPage bounds the size of a page, in bytes.
	maxPage = 15_000
	// nonceLength is the length of 128 bits in base64.
	nonceLength = 22
)

// Slot is a place in a page.
type Slot uint8

// Slots that the link fills; [Prepare] returns their values in this order. The values are escaped for HTML text, and all except
// slotAddress and slotQR also for an attribute in double quotes.
const (
	slotTitle Slot = iota
	slotDescription
	slotShownImage // the image, if a page may load it: https only
	slotImage
	slotURL     // the short URL
	slotAddress // the short URL without its scheme, with optional line breaks; only for the landing page
	slotIOSScheme
	slotPath // what follows the app's scheme and ://
	slotAppStore
	slotAndroidScheme
	slotAndroidPath // what follows intent://
	slotPackage
	slotQR // an SVG element
	linkSlots
)

// Slots that the visit fills.
const (
	slotNonce Slot = linkSlots + iota
	slotToken
	slotWeb
	slotApp       // the name of the app whose web view shows the page
	slotInstagram // that app is Instagram
	slotView      // intent URLs need a frame
	slotEarly     // the browser prefetches the page
	slotStores    // the link has a store
	slotSeconds   // until a retry may succeed
	slotID        // the request id
	slots
)

var slotNames = [slots]string{
	slotTitle: "title", slotDescription: "description", slotShownImage: "image", slotImage: "picture", slotURL: "url",
	slotAddress: "address", slotIOSScheme: "iosScheme", slotPath: "path", slotAppStore: "appStore",
	slotAndroidScheme: "androidScheme", slotAndroidPath: "androidPath", slotPackage: "package", slotQR: "qr",
	slotNonce: "nonce", slotToken: "token", slotWeb: "web", slotApp: "app", slotInstagram: "instagram", slotView: "view",
	slotEarly: "early", slotStores: "stores", slotSeconds: "seconds", slotID: "id",
}

// Link is what a page shows of a link: Value returns what [Prepare] returned for the slot. Functions take it as a type parameter,
// because converting a record, which is a slice, to an interface value would allocate on each page.
type Link interface{ Value(Slot) []byte }

// noLink is the link of an error page.
type noLink struct{}

func (noLink) Value(Slot) []byte { return nil }

func isFilled[L Link](link L, s Slot) bool { return len(link.Value(s)) > 0 }

// values are what a visit fills slots with. Those of the link stay empty.
type values [slots][]byte

// yes fills a slot that is used only as a condition.
var yes = []byte("1")

// page is compiled HTML. It is immutable.
type page struct {
	pieces []piece
	policy []string // the Content-Security-Policy, split where the nonce goes
}

// piece is a text and the step that follows it.
type piece struct {
	text string
	then step
	slot Slot
	next int // of a condition: the piece to continue with if the condition is false
}

type step uint8

const (
	stepNone   step = iota
	stepFill        // append the value of the slot
	stepIf          // skip to next unless the slot is filled
	stepUnless      // skip to next if the slot is filled
)

// serve writes the page as the response.
func serve[L Link](ctx *fasthttp.RequestCtx, p *page, in *language, link L, v *values) {
	var random [16]byte
	_, _ = rand.Read(random[:]) // never fails
	var nonce [nonceLength]byte
	base64.RawURLEncoding.Encode(nonce[:], random[:])

	var buf [320]byte
	policy := append(buf[:0], p.policy[0]...)
	for _, rest := range p.policy[1:] {
		policy = append(append(policy, nonce[:]...), rest...)
	}
	ctx.Response.Header.SetCanonical(in.headers, policy)
	ctx.SetContentType("text/html; charset=utf-8")
	// Appending to the response's own buffer, which fasthttp reuses, instead of writing to it piece by piece.
	body := ctx.Response.SwapBody(nil)
	ctx.Response.SwapBody(fill(body[:0], p, link, v, nonce[:]))
}

// fill appends the page. The nonce is a parameter of its own: as one of the values it would escape to the heap.
func fill[L Link](dst []byte, p *page, link L, v *values, nonce []byte) []byte {
	for i := 0; i < len(p.pieces); i++ {
		piece := &p.pieces[i]
		dst = append(dst, piece.text...)
		if piece.then == stepNone {
			continue
		}
		var value []byte
		switch {
		case piece.slot < linkSlots:
			value = link.Value(piece.slot)
		case piece.slot == slotNonce:
			value = nonce
		default:
			value = v[piece.slot]
		}
		switch {
		case piece.then == stepFill:
			dst = append(dst, value...)
		case (len(value) == 0) == (piece.then == stepIf):
			i = piece.next - 1
		}
	}
	return dst
}

// appendEscaped appends s, escaped for HTML text and for an attribute in double quotes.
func appendEscaped(dst, s []byte) []byte {
	rest := 0
	for i, c := range s {
		var entity string
		switch c {
		case '&':
			entity = "&amp;"
		case '"':
			entity = "&#34;"
		case '\'':
			entity = "&#39;"
		case '<':
			entity = "&lt;"
		case '>':
			entity = "&gt;"
		default:
			continue
		}
		dst = append(append(dst, s[rest:i]...), entity...)
		rest = i + 1
	}
	return append(dst, s[rest:]...)
}
