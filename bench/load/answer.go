package load

import (
	"bytes"
	"errors"
	"io"
)

// answers reads answers, and of each no more than it must. It takes what RFC 9112 allows a server to send, and nothing else:
// who is lenient counts as an answer what a browser would not.
type answers struct {
	// fill reads what comes next into memory that is not empty, as io.Reader does.
	fill    func(to []byte) (int, error)
	buffer  []byte
	at, end int // what is read and not used yet
}

const (
	bufferSize = 16 << 10
	maxLines   = 256 // of a header, each at most bufferSize long
)

// malformed is what is wrong with an answer.
type malformed string

func (m malformed) Error() string { return "malformed answer: " + string(m) }

// answer is what was said to one request.
type answer struct {
	status int
	// last: the server closes the connection.
	last bool
}

// framing is how an answer's body ends.
type framing struct {
	length  int64 // -1: not said
	chunked bool
	last    bool
}

// read reads one answer with its body. head: the request was one, whose answer has none. An error is io.EOF when the connection
// ended before the first byte, io.ErrUnexpectedEOF when it ended within the answer, malformed, or that of fill.
func (r *answers) read(head bool) (answer, error) {
	if r.at == r.end {
		if err := r.more(); err != nil {
			return answer{}, err
		}
	}
	a, err := r.readWhole(head)
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return a, err
}

func (r *answers) readWhole(head bool) (a answer, err error) {
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
			return a, malformed("101 was not asked for")
		}
		if a.status >= 200 {
			a.last, err = r.body(f, head || a.status == 204 || a.status == 304)
			return a, err
		}
	}
	return a, malformed("no end of interim answers")
}

// statusLine reads HTTP/1.1 302 Found. old: it is HTTP/1.0, whose connections do not last.
func (r *answers) statusLine() (status int, old bool, err error) {
	line, err := r.line()
	if err != nil {
		return 0, false, err
	}
	if len(line) < 12 || string(line[:7]) != "HTTP/1." || line[7] != '1' && line[7] != '0' || line[8] != ' ' || len(line) > 12 && line[12] != ' ' {
		return 0, false, malformed("its first line is no status line")
	}
	for _, digit := range line[9:12] {
		if digit < '0' || digit > '9' {
			return 0, false, malformed("its status is not of three digits")
		}
		status = status*10 + int(digit-'0')
	}
	if status < 100 || status > 599 {
		return 0, false, malformed("there is no such status")
	}
	return status, line[7] == '0', nil
}

// header reads up to the empty line.
func (r *answers) header(f *framing) error {
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
			return malformed("a transfer encoding that was not asked for")
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
			return malformed("a Content-Length that is no length")
		}
		length = length*10 + int64(digit-'0')
	}
	if len(value) == 0 || f.length >= 0 && f.length != length {
		return malformed("no Content-Length, or two")
	}
	f.length = length
	return nil
}

// body passes over the body. last: the server closes the connection.
func (r *answers) body(f framing, none bool) (last bool, err error) {
	switch {
	case none:
		return f.last, nil
	case f.chunked:
		return f.last, r.chunks()
	case f.length >= 0:
		return f.last, r.skip(f.length)
	}
	for err == nil { // the end of the connection is the end of the body
		r.at = r.end
		err = r.more()
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return true, err
}

func (r *answers) chunks() error {
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
			return malformed("a chunk longer than it said")
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

// line returns the next line without its end. It is good until the next call of any method.
func (r *answers) line() ([]byte, error) {
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

// skip passes over n bytes.
func (r *answers) skip(n int64) error {
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

// more reads more behind what is there, which moves.
func (r *answers) more() error {
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

// left reports whether there is more than was asked for.
func (r *answers) left() bool { return r.at < r.end }

func (r *answers) reset() { r.at, r.end = 0, 0 }

// equal compares with ASCII text in lower case, whatever the case of b.
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
