package transfer

import (
	"bufio"
	"strings"
)

// neutralize returns a cell with an apostrophe before a value that spreadsheet programs would evaluate. A value that already has apostrophes there
// gets another one, so that [restore] returns every cell as it was.
func neutralize(cell string) string {
	if isEvaluated(strings.TrimLeft(cell, "'")) {
		return "'" + cell
	}
	return cell
}

// restore undoes [neutralize]. A value of another service loses an apostrophe only where a spreadsheet program would hide it, too.
func restore(cell string) string {
	if strings.HasPrefix(cell, "'") && isEvaluated(strings.TrimLeft(cell, "'")) {
		return cell[1:]
	}
	return cell
}

// evaluated are the characters that make a cell a formula when it starts with them. Spreadsheet programs skip the white space among them, and in some
// languages treat full-width characters as the plain ones.
const evaluated = "=+-@\t\r\n＝＋－＠"

func isEvaluated(value string) bool {
	for _, first := range value {
		return strings.ContainsRune(evaluated, first)
	}
	return false
}

// lineBreakKeeper reads a CSV file (RFC 4180) so that encoding/csv keeps line breaks of two characters in quoted cells: encoding/csv
// removes one carriage return before each line feed, so lineBreakKeeper adds one inside of quotes.
type lineBreakKeeper struct {
	in    *bufio.Reader
	state csvState
	// next is a byte that follows an added carriage return, and was read already.
	next    byte
	hasNext bool
}

// csvState is the position of the reader within a CSV file.
type csvState uint8

const (
	atCell   csvState = iota // at the first character of a cell
	inPlain                  // in a cell without quotes
	inQuotes                 // between the quotes of a cell
	atQuote                  // after a quote in a quoted cell: its end, or the first half of a quote in its value
	inBroken                 // in the rest of a line that encoding/csv refuses and skips
)

// Read implements [io.Reader].
func (k *lineBreakKeeper) Read(p []byte) (n int, err error) {
	for n < len(p) {
		if k.hasNext {
			p[n], k.hasNext = k.next, false
			n++
			continue
		}
		// Return what is buffered before waiting for more.
		if n > 0 && k.in.Buffered() == 0 {
			return n, nil
		}
		c, err := k.in.ReadByte()
		if err != nil {
			return n, err
		}
		p[n] = c
		n++
		if c == '\r' && k.state == inQuotes {
			if after, err := k.in.Peek(1); err == nil && after[0] == '\n' {
				k.next, k.hasNext = '\r', true
			}
		}
		k.state = k.state.after(c)
	}
	return n, nil
}

func (s csvState) after(c byte) csvState {
	switch {
	case s == inQuotes && c != '"':
		return inQuotes
	case s == inQuotes:
		return atQuote
	case c == '\n':
		return atCell
	case s == inBroken:
		return inBroken
	case s == atQuote && c == '"', s == atCell && c == '"':
		return inQuotes
	case c == '"':
		return inBroken
	case c == ',':
		return atCell
	}
	return inPlain
}
