// Package requestid decides which X-Request-Id values the programs accept from a client, and makes an id when the client sent none. The
// programs echo an accepted value byte for byte, in the header and in the error body. An id may contain any printable ASCII: escape it
// wherever it is written. An id correlates log lines and responses; it is not a secret and grants nothing.
package requestid

import (
	"encoding/binary"
	"encoding/hex"
	"math/rand/v2"
)

// Header is the name of the header, in canonical form.
const Header = "X-Request-Id"

// MaxLength is how many bytes an id has at most.
const MaxLength = 255

// Pattern is a regular expression (JSON Schema) for the valid values of the header, whatever their length. HTTP strips white space from
// both ends of a header value (RFC 9110, 5.5), so an id neither begins nor ends with a space.
const Pattern = `^[!-~]([ -~]*[!-~])?$`

const uuidLength = 36

// Valid reports whether id is 1 to 255 bytes of printable ASCII, 0x20 to 0x7E. Any other value counts as not sent.
func Valid[T ~string | ~[]byte](id T) bool {
	if len(id) == 0 || len(id) > MaxLength {
		return false
	}
	for i := range len(id) {
		if id[i] < 0x20 || id[i] > 0x7E {
			return false
		}
	}
	return true
}

// Sent returns the request id that a client sent, given the values of all its X-Request-Id headers. It returns "" when the client sent
// no valid id. Several headers count as not sent, even with equal values: there is no one value to echo.
func Sent(values []string) string {
	if len(values) != 1 || !Valid(values[0]) {
		return ""
	}
	return values[0]
}

// Append appends a random UUID (version 4, RFC 9562) to dst. It is safe for concurrent use and allocates only when dst
// has no room for its 36 bytes.
func Append(dst []byte) []byte {
	var id [16]byte
	binary.LittleEndian.PutUint64(id[:8], rand.Uint64())
	binary.LittleEndian.PutUint64(id[8:], rand.Uint64())
	id[6] = id[6]&0x0f | 0x40
	id[8] = id[8]&0x3f | 0x80

	var text [uuidLength]byte
	hex.Encode(text[0:8], id[0:4])
	hex.Encode(text[9:13], id[4:6])
	hex.Encode(text[14:18], id[6:8])
	hex.Encode(text[19:23], id[8:10])
	hex.Encode(text[24:36], id[10:16])
	text[8], text[13], text[18], text[23] = '-', '-', '-', '-'
	return append(dst, text[:]...)
}

// New returns a random UUID as Append makes it.
func New() string {
	return string(Append(make([]byte, 0, uuidLength)))
}
