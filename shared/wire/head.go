// Package wire remembers how a request began, so that even what a server could not read is answered with its path and its request
// id. It does not read HTTP: that is the servers' own business.
package wire

import (
	"bytes"

	"deeplink/shared/requestid"
)

// usual is what most requests fit into, in bytes. More is not kept for the next one.
const usual = 2 << 10

// Head is the beginning of the request that a connection is busy with, as it came. The zero value is ready. It is one goroutine's at a
// time.
type Head struct {
	raw      []byte
	answered bool
}

// Add takes what was read from the connection and keeps at most bound bytes of each request.
func (h *Head) Add(b []byte, bound int) {
	if h.answered {
		h.raw, h.answered = h.raw[:0], false
		if cap(h.raw) > usual {
			h.raw = nil
		}
	}
	h.raw = append(h.raw, b[:min(len(b), bound-len(h.raw))]...)
}

// Answered says that the request was answered: what is read next is another one.
func (h *Head) Answered() { h.answered = true }

// Request returns what was kept of the request. Nothing is known of one that came together with the one before it.
func (h *Head) Request() Request {
	if h.answered {
		return Request{}
	}
	return Parse(h.raw)
}

// Request is what can be said of a request.
type Request struct {
	// Path is the target without its query, empty unless it is in origin form and its end was seen.
	Path string
	// ID is the one valid request id, else empty.
	ID string
	// Old says that it is HTTP/1.0.
	Old bool
	// Length and Encoding say that Content-Length and Transfer-Encoding were seen.
	Length, Encoding bool
}

// Parse reads as much as it can of the beginning of a request, whatever is wrong with it.
func Parse(head []byte) (r Request) {
	line, fields, whole := bytes.Cut(bytes.TrimLeft(head, "\r\n"), []byte("\n"))
	r.Path = string(pathOf(line, whole))
	r.Old = bytes.HasSuffix(bytes.TrimSuffix(line, []byte("\r")), []byte(" HTTP/1.0"))
	ids := 0
	for {
		field, rest, whole := bytes.Cut(fields, []byte("\n"))
		if field = bytes.TrimSuffix(field, []byte("\r")); !whole || len(field) == 0 {
			break
		}
		fields = rest
		name, value, _ := bytes.Cut(field, []byte(":"))
		switch {
		case bytes.EqualFold(name, []byte(requestid.Header)):
			ids++
			r.ID = string(bytes.Trim(value, " \t"))
		case bytes.EqualFold(name, []byte("Content-Length")):
			r.Length = true
		case bytes.EqualFold(name, []byte("Transfer-Encoding")):
			r.Encoding = true
		}
	}
	if ids != 1 || !requestid.Valid(r.ID) {
		r.ID = "" // of two none is believed
	}
	return r
}

// pathOf returns the path in a request line, empty when the line can be read in more than one way. whole says whether its end was seen.
func pathOf(line []byte, whole bool) []byte {
	words := bytes.Split(bytes.TrimSuffix(line, []byte("\r")), []byte(" "))
	if len(words) < 2 || len(words) > 3 || len(words[0]) == 0 || len(words[1]) == 0 || words[1][0] != '/' {
		return nil
	}
	path, _, query := bytes.Cut(words[1], []byte("?"))
	if !whole && len(words) == 2 && !query {
		return nil
	}
	return path
}
