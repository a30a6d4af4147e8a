package main

import (
	"crypto/rand"
	"encoding/base64"

	"github.com/valyala/fasthttp"
)

// A page is made while the program starts, once for each language: from a template of html/template into pieces of text with slots
// between them (pagecompile.go). What a link fills its slots with is escaped when the link is loaded and kept in its record
// (pagevalues.go); what a visit fills them with is made on the way. So a link costs no memory for its pages, and a visit appends bytes.

const (
	// maxPage is how large a page may be, in bytes (decisions.md 3).
	maxPage = 15_000
	// nonceLength is that of 128 bits in base64.
	nonceLength = 22
)

// slot is a place in a page.
type slot uint8

// Filled by the visit.
const (
	slotNonce slot = iota
	slotToken
	slotWeb
	slotApp       // the name of the app in whose view the page is
	slotInstagram // that app is Instagram
	slotView      // intents need a frame
	slotEarly     // the page was asked for before it was wanted
	slotStores    // there is a store
	slotSeconds   // until a request is worth its while
	slotID        // of the request
	visitSlots
)

// Filled by the link. All are fit for HTML text, and all but the address and the QR code for an attribute in double quotes.
const (
	slotTitle slot = visitSlots + iota
	slotDescription
	slotImage   // the picture, if it may be shown: https only
	slotPicture // the picture
	slotURL     // the short URL
	slotAddress // the short URL as people type it, with places where a line may end; only for a landing page
	slotIOSScheme
	slotPath // what follows the scheme of the app and ://
	slotAppStore
	slotAndroidScheme
	slotAndroidPath // what follows intent://
	slotPackage
	slotQR // an element
	slots
)

var slotNames = [slots]string{
	slotNonce: "nonce", slotToken: "token", slotWeb: "web", slotApp: "app", slotInstagram: "instagram", slotView: "view",
	slotEarly: "early", slotStores: "stores", slotSeconds: "seconds", slotID: "id",
	slotTitle: "title", slotDescription: "description", slotImage: "image", slotPicture: "picture", slotURL: "url",
	slotAddress: "address", slotIOSScheme: "iosScheme", slotPath: "path", slotAppStore: "appStore",
	slotAndroidScheme: "androidScheme", slotAndroidPath: "androidPath", slotPackage: "package", slotQR: "qr",
}

// visit is what a visit fills slots with. Its zero value leaves them empty.
type visit [visitSlots][]byte

// yes fills a slot that only a condition asks for.
var yes = []byte("1")

// page is compiled HTML. It is not changed once made.
type page struct {
	pieces []piece
	policy []string // the Content-Security-Policy, with a place for the nonce between any two
}

// piece is text and what follows it.
type piece struct {
	text string
	then step
	slot slot
	next int // of a condition: the piece to go on with when it is not met
}

// step is what follows the text of a piece.
type step uint8

const (
	stepNone   step = iota
	stepFill        // the value of the slot
	stepIf          // what is up to the piece next, if the slot is filled
	stepUnless      // the same, if it is empty
)

// answer answers with the page. link is nil for one about an error.
func (p *page) answer(ctx *fasthttp.RequestCtx, in *language, link record, v *visit) {
	var random [16]byte
	_, _ = rand.Read(random[:]) // it never fails
	var nonce [nonceLength]byte
	base64.RawURLEncoding.Encode(nonce[:], random[:])

	var buf [320]byte
	policy := append(buf[:0], p.policy[0]...)
	for _, rest := range p.policy[1:] {
		policy = append(append(policy, nonce[:]...), rest...)
	}
	ctx.Response.Header.SetCanonical(in.headers, policy)
	ctx.SetContentType("text/html; charset=utf-8")
	// The body's own memory is borrowed, so that each piece is appended by a plain append.
	body := ctx.Response.SwapBody(nil)
	ctx.Response.SwapBody(p.fill(body[:0], link, v, nonce[:]))
}

// fill appends the page. The nonce is not in v: what v pointed to would outlive answer, and had to be allocated.
func (p *page) fill(dst []byte, link record, v *visit, nonce []byte) []byte {
	for i := 0; i < len(p.pieces); i++ {
		piece := &p.pieces[i]
		dst = append(dst, piece.text...)
		if piece.then == stepNone {
			continue
		}
		var value []byte
		switch {
		case piece.slot == slotNonce:
			value = nonce
		case piece.slot < visitSlots:
			value = v[piece.slot]
		case link != nil:
			value = link.value(piece.slot)
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

// appendEscaped appends what stands for s in HTML text and in an attribute in double quotes.
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
