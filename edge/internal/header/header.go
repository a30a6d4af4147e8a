// Package header reads what the edge needs of the headers of a request, in one pass. It promises that no other pass is needed on the way of
// a click, and that its results are the same whatever the order of different headers. It decides nothing and copies nothing.
package header

import (
	"bytes"

	"github.com/valyala/fasthttp"

	"deeplink/shared/click"
	"deeplink/shared/clientip"
	"deeplink/shared/requestid"
)

// Fields are the headers that a click depends on. Of a header that occurs more than once, a field has the first value, unless it says
// otherwise. The slices belong to the request.
type Fields struct {
	UserAgent, Accept, Language, Referer []byte
	// Brands and Platform are Sec-CH-UA and Sec-CH-UA-Platform.
	Brands, Platform []byte
	// RequestID is the request id that the client sent, nil if it sent no valid one. Several count as none, as in [requestid.Sent].
	RequestID []byte
	// Forwarded is X-Forwarded-For, and Forwards the number of its lines.
	Forwarded []byte
	Forwards  int
	// Evidence is that of the method, of the purpose headers, of the presence of Accept-Language and of further values of other headers.
	Evidence click.Evidence
	// Closes says that the client sends no further request on the connection.
	Closes bool
}

// Read reads the headers of a request. f must be zero.
func (f *Fields) Read(request *fasthttp.RequestHeader) {
	f.UserAgent = request.UserAgent()
	if request.IsHead() {
		f.Evidence |= click.EvidenceHead
	}
	ids := 0
	// The lengths of names differ enough that nearly every header is compared with one name at most. Names have the canonical form of
	// fasthttp. A lookup of each name takes more than twice as long as this loop.
	for name, value := range request.All() {
		switch len(name) {
		case len("Accept"):
			if string(name) == "Accept" {
				f.addAccept(value)
			}
		case len("X-Moz"):
			if string(name) == "X-Moz" {
				f.Evidence |= click.Purpose(value, false)
			}
		case len("Referer"): // and Purpose
			if string(name) == "Referer" {
				first(&f.Referer, value)
			} else if string(name) == "Purpose" {
				f.Evidence |= click.Purpose(value, true)
			}
		case len("Sec-Ch-Ua"): // and X-Purpose
			if string(name) == "Sec-Ch-Ua" {
				f.addBrands(value)
			} else if string(name) == "X-Purpose" {
				f.Evidence |= click.Purpose(value, true)
			}
		case len("Connection"):
			if string(name) == "Connection" && asksToClose(value) {
				f.Closes = true
			}
		case len("Sec-Purpose"):
			if string(name) == "Sec-Purpose" {
				f.Evidence |= click.Purpose(value, false)
			}
		case len(requestid.Header):
			if string(name) == requestid.Header {
				f.RequestID = value
				ids++
			}
		case len("Accept-Language"): // and X-Forwarded-For
			if string(name) == "Accept-Language" {
				first(&f.Language, value)
				f.Evidence |= click.EvidenceLanguage
			} else if string(name) == clientip.Header {
				first(&f.Forwarded, value)
				f.Forwards++
			}
		case len("Sec-Ch-Ua-Platform"):
			if string(name) == "Sec-Ch-Ua-Platform" {
				first(&f.Platform, value)
			}
		}
	}
	if ids > 0 && (ids > 1 || !requestid.Valid(f.RequestID)) {
		f.RequestID = nil
	}
}

func (f *Fields) addAccept(value []byte) {
	if f.Accept != nil {
		f.Evidence |= click.Accept(value)
		return
	}
	f.Accept = value
}

func (f *Fields) addBrands(value []byte) {
	if f.Brands != nil {
		f.Evidence |= click.BrandHint(value)
		return
	}
	f.Brands = value
}

// first sets a field that is not set yet.
func first(field *[]byte, value []byte) {
	if *field == nil {
		*field = value
	}
}

// asksToClose reports whether a value of Connection says that the client will send no further request. fasthttp recognizes only one spelling.
func asksToClose(options []byte) bool {
	if len(options) == 0 || string(options) == "keep-alive" {
		return false
	}
	for option := range bytes.SplitSeq(options, []byte(",")) {
		if bytes.EqualFold(bytes.TrimSpace(option), []byte("close")) {
			return true
		}
	}
	return false
}
