// Package matchtoken makes and reads the tokens that carry a click through an app store. A token names the clicked link and the
// time of the click; making or changing a token takes a key. The package does not record which tokens were redeemed: package
// origin does, by the token's nonce.
package matchtoken

import (
	"crypto/subtle"
	"encoding/base64"
	"encoding/binary"
	"math/rand/v2"
	"time"
)

const (
	// Lifetime is how long after its click a token may be read.
	Lifetime = 24 * time.Hour
	// Skew is how far the clock of the edge that made a token may be ahead of the clock of the edge that reads it.
	Skew = time.Minute
	// Length is the length of every token in characters. All of them are unreserved in URLs (RFC 3986, 2.3).
	Length = (size*8 + 5) / 6
)

// A token is, in base64url without padding:
//
//	0  version               1 byte
//	1  link                  16 bytes
//	17 time                  6 bytes, milliseconds since 1970, big endian
//	23 nonce                 16 bytes
//	39 authentication code   16 bytes, of all before it
const (
	version  = 1
	linkAt   = 1
	timeAt   = 17
	nonceAt  = 23
	signed   = 39
	size     = signed + codeSize
	codeSize = 16 // half of a SHA-256 sum, the minimum that RFC 2104, section 5 recommends
)

// encoding rejects non-zero padding bits, so that each token has exactly one spelling.
var encoding = base64.RawURLEncoding.Strict()

// Token is the content of a verified token.
type Token struct {
	Link      [16]byte // the UUID of the link
	ClickedAt time.Time
	Nonce     [16]byte // unique per token
}

// Append appends a new token for a click on a link. at may be any time from 1970 to 10889 and is kept to the millisecond.
// Append does no I/O, and allocates nothing if dst has room for [Length] more bytes.
func (k *Keys) Append(dst []byte, link [16]byte, at time.Time) []byte {
	var raw [size]byte
	raw[0] = version
	copy(raw[linkAt:], link[:])
	var milliseconds [8]byte
	binary.BigEndian.PutUint64(milliseconds[:], uint64(at.UnixMilli()))
	copy(raw[timeAt:nonceAt], milliseconds[2:])
	// A nonce is not a secret: the authentication code protects the token. crypto/rand would double the cost of a token.
	binary.LittleEndian.PutUint64(raw[nonceAt:], rand.Uint64())
	binary.LittleEndian.PutUint64(raw[nonceAt+8:], rand.Uint64())
	code := k.all[0].code((*[signed]byte)(raw[:signed]))
	copy(raw[signed:], code[:])
	return encoding.AppendEncode(dst, raw[:])
}

// Read verifies a token and returns its content. ok is false if no key made the token, if it was changed, or if its time is more
// than [Lifetime] before now or more than [Skew] after it. Read does the same work for valid and invalid tokens, so that its
// duration does not reveal what is wrong.
func (k *Keys) Read(text string, now time.Time) (token Token, ok bool) {
	raw, decoded := decode(text)
	authentic := 0
	for i := range k.all {
		code := k.all[i].code((*[signed]byte)(raw[:signed]))
		authentic |= subtle.ConstantTimeCompare(code[:], raw[signed:])
	}
	var milliseconds [8]byte
	copy(milliseconds[2:], raw[timeAt:nonceAt])
	token.Link = [16]byte(raw[linkAt:timeAt])
	token.ClickedAt = time.UnixMilli(int64(binary.BigEndian.Uint64(milliseconds[:]))).UTC()
	token.Nonce = [16]byte(raw[nonceAt:signed])
	age := now.Sub(token.ClickedAt)
	if !decoded || authentic != 1 || raw[0] != version || age > Lifetime || age < -Skew {
		return Token{}, false
	}
	return token, true
}

// decode returns the bytes of a token. If text is not a token, ok is false.
func decode(text string) (raw [size]byte, ok bool) {
	var characters [Length]byte
	ok = len(text) == Length
	copy(characters[:], text)
	// The decoder skips line breaks, so a text with line breaks yields fewer than size bytes.
	n, err := encoding.Decode(raw[:], characters[:])
	return raw, ok && err == nil && n == size
}
