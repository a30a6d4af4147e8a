// Package wire keeps the beginning of each request, so that the error envelope has the path and the request id even if the HTTP server could
// not parse the request. It also limits connections and writes error responses before HTTP starts. It does not replace the servers' parsers.
package wire

import (
	"bytes"
	"sync"

	"deeplink/shared/requestid"
)

// usual is the size in bytes that most requests fit into. Larger buffers are not reused.
const usual = 2 << 10

// Head holds the first bytes of the current request of a connection. The zero value is ready for use. It is not safe for concurrent use.
type Head struct {
	raw      *[]byte // nil: nothing is kept
	answered bool
}

// heads holds the buffers of idle connections.
var heads = sync.Pool{New: func() any { return new([]byte) }}

// Add appends bytes that were read from the connection. It keeps at most bound bytes of each request.
func (h *Head) Add(b []byte, bound int) {
	if h.answered {
		h.answered = false
		h.forget()
	}
	if h.raw == nil {
		h.raw = heads.Get().(*[]byte)
	}
	*h.raw = append(*h.raw, b[:min(len(b), bound-len(*h.raw))]...)
}

// Answered marks the request as answered: the next bytes belong to another request.
func (h *Head) Answered() { h.answered = true }

// Idle marks the connection as idle. If the last request was answered, Head releases its buffer.
func (h *Head) Idle() {
	if h.answered {
		h.forget()
	}
}

func (h *Head) forget() {
	if h.raw == nil {
		return
	}
	if cap(*h.raw) <= usual {
		*h.raw = (*h.raw)[:0]
		heads.Put(h.raw)
	}
	h.raw = nil
}

// Request parses the kept bytes. It returns the zero Request for a pipelined request, which was read together with the previous one.
func (h *Head) Request() Request {
	if h.answered || h.raw == nil {
		return Request{}
	}
	return Parse(*h.raw)
}

// Request holds the recognized parts of a request.
type Request struct {
	// Path is the target without its query. It is empty unless the target is in origin form and complete.
	Path string
	// ID is the client's request id. It is empty if the client sent no valid id, or several.
	ID string
	// Old: the request is HTTP/1.0.
	Old bool
	// Length and Encoding: the request has Content-Length and Transfer-Encoding.
	Length, Encoding bool
}

// Parse reads as much as possible of the beginning of a request, also of an invalid one.
func Parse(head []byte) (r Request) {
	line, fields, whole := bytes.Cut(bytes.TrimLeft(head, "\r\n"), []byte("\n"))
	r.Path = string(pathOf(line, whole))
	r.Old = bytes.HasSuffix(bytes.TrimSuffix(line, []byte("\r")), []byte(" HTTP/1.0"))
	ids, folds := 0, false
	for {
		field, rest, whole := bytes.Cut(fields, []byte("\n"))
		if field = bytes.TrimSuffix(field, []byte("\r")); !whole || len(field) == 0 {
			break
		}
		fields = rest
		name, value, _ := bytes.Cut(field, []byte(":"))
		isID := bytes.EqualFold(name, []byte(requestid.Header))
		switch {
		case field[0] == ' ' || field[0] == '\t':
			if folds {
				ids++ // the value continues in this line (obs-fold, RFC 9112, 5.2), so the value read before is incomplete
			}
			continue
		case isID:
			ids++
			r.ID = string(bytes.Trim(value, " \t"))
		case bytes.EqualFold(name, []byte("Content-Length")):
			r.Length = true
		case bytes.EqualFold(name, []byte("Transfer-Encoding")):
			r.Encoding = true
		}
		folds = isID
	}
	if ids != 1 || !requestid.Valid(r.ID) {
		r.ID = ""
	}
	return r
}

// pathOf returns the path in a request line, or nil if the line is ambiguous. whole: the line is complete.
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
