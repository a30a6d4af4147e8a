// Package requestid decides which X-Request-Id values are taken over from a client and makes one when none is
// (decisions.md 9). An id correlates log lines and answers; it is not a secret and grants nothing.
package requestid

import (
	"encoding/binary"
	"encoding/hex"
	"math/rand/v2"
)

// Header is the name of the header, in canonical form.
const Header = "X-Request-Id"

const (
	maxLength  = 128
	uuidLength = 36
)

// allowed marks the bytes of [A-Za-z0-9._:/+=@-].
var allowed = func() (table [256]bool) {
	for _, b := range []byte("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._:/+=@-") {
		table[b] = true
	}
	return table
}()

// Valid reports whether id is 1 to 128 characters of [A-Za-z0-9._:/+=@-]. Anything else counts as not sent.
func Valid[T ~string | ~[]byte](id T) bool {
	if len(id) == 0 || len(id) > maxLength {
		return false
	}
	for i := range len(id) {
		if !allowed[id[i]] {
			return false
		}
	}
	return true
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
