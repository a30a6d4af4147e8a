package load

import (
	"bytes"
	"errors"
	"io"
)

// responseReader parses responses, and reads no more of the connection than each needs. It accepts what RFC 9112 allows a server to send, and
// nothing else: a lenient parser would count responses that a browser rejects.
type responseReader struct {
	// fill reads more data into a non-empty buffer, as io.Reader does.
	fill    func(to []byte) (int, error)
	buffer  []byte
	at, end int // data that is read but not yet parsed
}

const (
	bufferSize = 16 << 10
	maxLines   = 256 // of a header, each at most bufferSize long
)

// malformed says what is wrong with a response.
type malformed string

func (m malformed) Error() string { return "malformed response: " + string(m) }

// response is the result of one request.
type response struct {
	status int
	// last: the server closes the connection after it
	last bool
}

// framing is how the end of a body is determined.
type framing struct {
	length  int64 // -1: no Content-Length
	chunked bool
	last    bool
}

// read reads one response with its body. head: the request was a HEAD, whose response has no body. The error is io.EOF if the connection
// ended before the first byte, io.ErrUnexpectedEOF if it ended within the response, malformed, or an error of fill.
func (r *responseReader) read(head bool) (response, error) {
	if r.at == r.end {
		if err := r.more(); err != nil {
			return response{}, err
		}
	}
	a, err := r.readWhole(head)
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return a, err
}

func (r *responseReader) readWhole(head bool) (a response, err error) {
	var f framing
	for range maxLines {
		var old bool
		if a.status, old, err = r.statusLine(); err != nil {
			return a, err
		}
		f = framing{length: -1, last: old}
		if err := r.header(&f); err != nil {
			return a, err
		}
		if a.status == 101 {
			return a, malformed("status 101 without an Upgrade request")
		}
		if a.status >= 200 {
			a.last, err = r.body(f, head || a.status == 204 || a.status == 304)
			return a, err
		}
	}
	return a, malformed("too many interim responses")
}

// statusLine reads a line such as HTTP/1.1 302 Found. old: HTTP/1.0, which closes the connection by default.
func (r *responseReader) statusLine() (status int, old bool, err error) {
	line, err := r.line()
	if err != nil {
		return 0, false, err
	}
	if len(line) < 12 || string(line[:7]) != "HTTP/1." || line[7] != '1' && line[7] != '0' || line[8] != ' ' || len(line) > 12 && line[12] != ' ' {
		return 0, false, malformed("the first line is no status line")
	}
	for _, digit := range line[9:12] {
		if digit < '0' || digit > '9' {
			return 0, false, malformed("the status does not have three digits")
		}
		status = status*10 + int(digit-'0')
	}
	if status < 100 || status > 599 {
		return 0, false, malformed("the status is out of range")
	}
	return status, line[7] == '0', nil
}

// header reads up to and including the empty line.
func (r *responseReader) header(f *framing) error {
	for range maxLines {
		line, err := r.line()
		if err != nil {
			return err
		}
		if len(line) == 0 {
			if f.chunked && f.length >= 0 {
				return malformed("both Content-Length and Transfer-Encoding")
			}
			return nil
		}
		if err := f.field(line); err != nil {
			return err
		}
	}
	return malformed("too many header fields")
}

func (f *framing) field(line []byte) error {
	colon := bytes.IndexByte(line, ':')
	if colon <= 0 || line[0] == ' ' || line[0] == '\t' || line[colon-1] == ' ' || line[colon-1] == '\t' {
		return malformed("a header field without a name")
	}
	switch line[0] | 0x20 { // most fields are neither
	case 'c', 't':
	default:
		return nil
	}
	name, value := line[:colon], bytes.Trim(line[colon+1:], " \t")
	switch {
	case equal(name, "content-length"):
		return f.setLength(value)
	case equal(name, "transfer-encoding"):
		if f.chunked || !equal(value, "chunked") {
			return malformed("a transfer encoding that was not requested")
		}
		f.chunked = true
	case equal(name, "connection"):
		f.last = f.last && !equal(value, "keep-alive") || equal(value, "close")
	}
	return nil
}

func (f *framing) setLength(value []byte) error {
	var length int64
	for _, digit := range value {
		if digit < '0' || digit > '9' || length > 1<<40 {
			return malformed("an invalid Content-Length")
		}
		length = length*10 + int64(digit-'0')
	}
	if len(value) == 0 || f.length >= 0 && f.length != length {
		return malformed("an empty Content-Length, or two that differ")
	}
	f.length = length
	return nil
}

// body skips the body. last: the server closes the connection after it.
func (r *responseReader) body(f framing, none bool) (last bool, err error) {
	switch {
	case none:
		return f.last, nil
	case f.chunked:
		return f.last, r.chunks()
	case f.length >= 0:
		return f.last, r.skip(f.length)
	}
	for err == nil { // the body ends with the connection
		r.at = r.end
		err = r.more()
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return true, err
}

func (r *responseReader) chunks() error {
	for {
		line, err := r.line()
		if err != nil {
			return err
		}
		size, err := chunkSize(line)
		if err != nil {
			return err
		}
		if size == 0 {
			return r.header(&framing{length: -1}) // trailers
		}
		if err := r.skip(size); err != nil {
			return err
		}
		if line, err = r.line(); err != nil {
			return err
		}
		if len(line) > 0 {
			return malformed("a chunk longer than its size")
		}
	}
}

func chunkSize(line []byte) (size int64, err error) {
	digits := 0
	for ; digits < len(line); digits++ {
		d := hexDigit(line[digits])
		if d < 0 {
			break
		}
		size = size<<4 | int64(d)
	}
	if digits == 0 || digits > 12 || digits < len(line) && line[digits] != ';' && line[digits] != ' ' && line[digits] != '\t' {
		return 0, malformed("a chunk without a size")
	}
	return size, nil
}

func hexDigit(c byte) int {
	switch {
	case '0' <= c && c <= '9':
		return int(c - '0')
	case 'a' <= c|0x20 && c|0x20 <= 'f':
		return int(c|0x20-'a') + 10
	}
	return -1
}

// line returns the next line without its end. The result is valid until the next call of any method.
func (r *responseReader) line() ([]byte, error) {
	seen := 0
	for {
		if n := bytes.IndexByte(r.buffer[r.at+seen:r.end], '\n'); n >= 0 {
			line := r.buffer[r.at : r.at+seen+n]
			r.at += seen + n + 1
			if len(line) == 0 || line[len(line)-1] != '\r' {
				return nil, malformed("a line that does not end in CR LF")
			}
			line = line[:len(line)-1]
			if bytes.IndexByte(line, '\r') >= 0 || bytes.IndexByte(line, 0) >= 0 {
				return nil, malformed("a line with CR or NUL in it")
			}
			return line, nil
		}
		seen = r.end - r.at
		if err := r.more(); err != nil {
			return nil, err
		}
	}
}

// skip discards n bytes.
func (r *responseReader) skip(n int64) error {
	for {
		here := min(n, int64(r.end-r.at))
		r.at += int(here)
		if n -= here; n == 0 {
			return nil
		}
		if err := r.more(); err != nil {
			return err
		}
	}
}

// more appends data to the buffer, and may move what is there.
func (r *responseReader) more() error {
	r.end = copy(r.buffer, r.buffer[r.at:r.end])
	r.at = 0
	if r.end == len(r.buffer) {
		return malformed("a line that is too long")
	}
	n, err := r.fill(r.buffer[r.end:])
	r.end += n
	if n > 0 {
		return nil
	}
	if err == nil {
		err = io.ErrNoProgress
	}
	return err
}

// left reports whether unparsed data is left.
func (r *responseReader) left() bool { return r.at < r.end }

func (r *responseReader) reset() { r.at, r.end = 0, 0 }

// equal compares b, in any case, with ASCII text in lower case.
func equal(b []byte, lower string) bool {
	if len(b) != len(lower) {
		return false
	}
	for i := range b {
		c := b[i]
		if 'A' <= c && c <= 'Z' {
			c |= 0x20
		}
		if c != lower[i] {
			return false
		}
	}
	return true
}
