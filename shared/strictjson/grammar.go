package strictjson

import (
	"bytes"
	"encoding/json"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

func (c *checker) check() error {
	if err := c.document(); err != nil {
		return err
	}
	return nil
}

func (c *checker) document() *Error {
	if err := c.value(); err != nil {
		return err
	}
	c.space()
	if c.pos < len(c.body) {
		return c.syntax("nothing more")
	}
	return nil
}

func (c *checker) value() *Error {
	c.space()
	switch b := c.peek(); {
	case b == '{':
		return c.object()
	case b == '[':
		return c.array()
	case b == '"':
		_, err := c.text()
		return err
	case b == '-' || isDigit(b):
		return c.number()
	}
	for _, literal := range []string{"true", "false", "null"} {
		if bytes.HasPrefix(c.body[c.pos:], []byte(literal)) {
			c.pos += len(literal)
			return nil
		}
	}
	return c.syntax("a value")
}

func (c *checker) object() *Error {
	if err := c.enter(container{}); err != nil {
		return err
	}
	defer c.leave()
	if c.skip('}') {
		return nil
	}
	seen := make(map[string]struct{})
	for {
		if err := c.member(seen); err != nil {
			return err
		}
		if c.skip('}') {
			return nil
		}
		if !c.skip(',') {
			return c.syntax("a comma or the end of the object")
		}
	}
}

func (c *checker) member(seen map[string]struct{}) *Error {
	c.open[len(c.open)-1].named = false
	c.space()
	if c.peek() != '"' {
		return c.syntax("a member name")
	}
	raw, err := c.text()
	if err != nil {
		return err
	}
	name := decode(raw)
	c.open[len(c.open)-1].named = true
	c.open[len(c.open)-1].name = name
	if _, twice := seen[name]; twice && !c.formOnly {
		return c.fail("is given more than once")
	}
	seen[name] = struct{}{}
	if !c.skip(':') {
		return c.syntax("a colon")
	}
	return c.value()
}

func (c *checker) array() *Error {
	if err := c.enter(container{array: true}); err != nil {
		return err
	}
	defer c.leave()
	if c.skip(']') {
		return nil
	}
	for {
		if err := c.value(); err != nil {
			return err
		}
		if c.skip(']') {
			return nil
		}
		if !c.skip(',') {
			return c.syntax("a comma or the end of the array")
		}
		c.open[len(c.open)-1].index++
	}
}

// enter steps over the opening bracket.
func (c *checker) enter(in container) *Error {
	if len(c.open) == c.maxDepth {
		// By how much is not said: who sends params, or an event among others, counts from there and not from the body.
		return c.fail("is nested too deeply")
	}
	c.open = append(c.open, in)
	c.pos++
	return nil
}

func (c *checker) leave() {
	c.open = c.open[:len(c.open)-1]
}

// text steps over a string and returns it as it stands, quotes included.
func (c *checker) text() ([]byte, *Error) {
	start := c.pos
	c.pos++
	for {
		switch b := c.peek(); {
		case b == '"':
			c.pos++
			raw := c.body[start:c.pos]
			if !utf8.Valid(raw) {
				return nil, c.fail("is not valid UTF-8")
			}
			return raw, nil
		case b == '\\':
			if err := c.escape(); err != nil {
				return nil, err
			}
		case c.pos == len(c.body):
			return nil, c.syntax("the end of a string")
		case b == 0:
			return nil, c.fail(containsNull)
		case b < ' ':
			return nil, c.fail("contains a control character that is not escaped")
		default:
			c.pos++
		}
	}
}

const containsNull = "contains the character U+0000"

// escape steps over an escape sequence; the two halves of a surrogate pair are one.
func (c *checker) escape() *Error {
	c.pos++
	b := c.peek()
	if b != 'u' {
		if b == 0 || bytes.IndexByte([]byte(`"\/bfnrt`), b) < 0 {
			return c.syntax("an escape sequence")
		}
		c.pos++
		return nil
	}
	unit, ok := c.unit()
	if !ok {
		return c.syntax("four hexadecimal digits")
	}
	switch {
	case c.formOnly:
		return nil
	case unit == 0:
		return c.fail(containsNull)
	case !utf16.IsSurrogate(unit):
		return nil
	}
	if c.peek() == '\\' {
		c.pos++
		if low, ok := c.unit(); ok && utf16.DecodeRune(unit, low) != utf8.RuneError {
			return nil
		}
	}
	return c.fail("contains half of a surrogate pair")
}

// unit steps over the u and the digits of a \u escape. When it reports false, it has not moved past the u.
func (c *checker) unit() (rune, bool) {
	if c.peek() != 'u' {
		return 0, false
	}
	c.pos++
	if len(c.body)-c.pos < 4 {
		return 0, false
	}
	unit, err := strconv.ParseUint(string(c.body[c.pos:c.pos+4]), 16, 16)
	if err != nil {
		return 0, false
	}
	c.pos += 4
	return rune(unit), true
}

func (c *checker) number() *Error {
	start := c.pos
	if c.peek() == '-' {
		c.pos++
	}
	if c.peek() == '0' {
		c.pos++
	} else if !c.digits() {
		return c.syntax("a digit")
	}
	if c.peek() == '.' {
		c.pos++
		if !c.digits() {
			return c.syntax("a digit")
		}
	}
	if b := c.peek(); b == 'e' || b == 'E' {
		c.pos++
		if b := c.peek(); b == '+' || b == '-' {
			c.pos++
		}
		if !c.digits() {
			return c.syntax("a digit")
		}
	}
	if !c.formOnly && !inRange(c.body[start:c.pos]) {
		return c.fail("is a number out of range")
	}
	return nil
}

// digits steps over at least one digit.
func (c *checker) digits() bool {
	start := c.pos
	for isDigit(c.peek()) {
		c.pos++
	}
	return c.pos > start
}

// inRange reports whether a float64 can hold the number: neither too great nor too near to zero for it, nor written in a
// way that Postgres, which keeps every digit, has no room for.
func inRange(number []byte) bool {
	const maxLength, maxExponentLength = 1000, len("-999")
	mantissa, exponent, _ := bytes.Cut(bytes.ToLower(number), []byte("e"))
	if len(number) > maxLength || len(exponent) > maxExponentLength {
		return false
	}
	f, err := strconv.ParseFloat(string(number), 64)
	if err != nil {
		return false
	}
	return f != 0 || !bytes.ContainsAny(mantissa, "123456789")
}

// decode returns the text of a string that was found valid.
func decode(raw []byte) string {
	if bytes.IndexByte(raw, '\\') < 0 {
		return string(raw[1 : len(raw)-1])
	}
	var s string
	// An error is impossible: text accepts only what encoding/json does.
	_ = json.Unmarshal(raw, &s)
	return s
}

// peek returns the next byte, or 0 at the end; 0 is no byte of the grammar.
func (c *checker) peek() byte {
	if c.pos == len(c.body) {
		return 0
	}
	return c.body[c.pos]
}

func (c *checker) space() {
	for c.pos < len(c.body) && bytes.IndexByte([]byte(" \t\r\n"), c.body[c.pos]) >= 0 {
		c.pos++
	}
}

// skip steps over white space and then b, and reports whether b was there.
func (c *checker) skip(b byte) bool {
	c.space()
	if c.peek() != b {
		return false
	}
	c.pos++
	return true
}

func isDigit(b byte) bool {
	return '0' <= b && b <= '9'
}
