// Package strictjson rejects request bodies that two JSON readers could interpret differently: it accepts JSON (RFC 8259) within the limits
// of I-JSON (RFC 7493), without U+0000, which Postgres cannot store. encoding/json reads every accepted body without loss. The package
// does not interpret members.
package strictjson

import (
	"fmt"
	"strconv"
	"unicode/utf8"
)

// Error says what is wrong and where. Both texts may be shown to the client: they contain only what the client sent.
type Error struct {
	// Field is the dotted path of the innermost member, such as "og.title" or "tags[2]"; empty at the root.
	Field   string
	Message string
}

func (e *Error) Error() string {
	if e.Field == "" {
		return "body " + e.Message
	}
	return e.Field + " " + e.Message
}

// Check returns nil or an *Error for the first violation in body. It requires exactly one JSON value, valid UTF-8, no
// member name twice in one object (names are compared as decoded), no U+0000 and no lone surrogate in any string, no
// number outside the range of float64 or of more than 1,000 characters, and a nesting of at most maxDepth arrays and
// objects, the outermost being 1. Time and memory grow linearly with the body, the stack with maxDepth, which must be at
// most 10,000.
func Check(body []byte, maxDepth int) error {
	return (&checker{body: body, maxDepth: maxDepth}).check()
}

// CheckForm is Check for JSON that need not be I-JSON: it accepts a member name twice, U+0000 and lone surrogates as escapes, and every
// number. Call Check for the parts of the body before they are read.
func CheckForm(body []byte, maxDepth int) error {
	return (&checker{body: body, maxDepth: maxDepth, formOnly: true}).check()
}

// maxFieldLength keeps the message short when a client sends a huge name, in bytes.
const maxFieldLength = 200

// checker walks the body once, from left to right.
type checker struct {
	body     []byte
	pos      int
	maxDepth int
	formOnly bool
	open     []container // the arrays and objects around pos, outermost first
}

// container is an array or object that is not closed yet, and the member of it being read.
type container struct {
	array bool
	index int
	named bool
	name  string
}

// fail returns an error about the member being read.
func (c *checker) fail(message string) *Error {
	return &Error{Field: c.field(), Message: message}
}

// syntax returns an error about what stands at pos.
func (c *checker) syntax(expected string) *Error {
	if c.pos == len(c.body) {
		return c.fail("is not valid JSON: it ends where " + expected + " was expected")
	}
	return c.fail(fmt.Sprintf("is not valid JSON: expected %s at byte %d", expected, c.pos))
}

func (c *checker) field() string {
	var field []byte
	for _, in := range c.open {
		switch {
		case in.array:
			field = append(field, '[')
			field = strconv.AppendInt(field, int64(in.index), 10)
			field = append(field, ']')
		case in.named:
			if len(field) > 0 {
				field = append(field, '.')
			}
			field = append(field, in.name...)
		}
	}
	if len(field) <= maxFieldLength {
		return string(field)
	}
	end := maxFieldLength
	for !utf8.RuneStart(field[end]) {
		end--
	}
	return string(field[:end]) + "…"
}
