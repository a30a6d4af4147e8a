// Package matchtoken makes and reads the tokens that carry a click through an app store (decisions.md 4). A token says which
// link was clicked and when; nobody without a key can make or change one. It does not know which tokens are spent: that is for
// whoever takes one to remember, by its nonce.
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
	// Skew is how far the clock that made a token may be ahead of the one by which it is read.
	Skew = time.Minute
	// Length is that of every token, in characters, all of them unreserved in URLs (RFC 3986, 2.3).
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
	codeSize = 16 // half of what SHA-256 gives, the least that RFC 2104, 5 advises
)

// encoding refuses bits that no byte is made of, so that no token can be written in two ways.
var encoding = base64.RawURLEncoding.Strict()

// Token is what a token says.
type Token struct {
	Link      [16]byte // the UUID of the link
	ClickedAt time.Time
	Nonce     [16]byte // no two tokens have the same
}

// Append appends a new token for a click on a link. at may be any time from 1970 to 10889; of it the milliseconds are kept. It
// asks nobody and allocates nothing if dst has room for [Length] bytes more.
func (k *Keys) Append(dst []byte, link [16]byte, at time.Time) []byte {
	var raw [size]byte
	raw[0] = version
	copy(raw[linkAt:], link[:])
	var milliseconds [8]byte
	binary.BigEndian.PutUint64(milliseconds[:], uint64(at.UnixMilli()))
	copy(raw[timeAt:nonceAt], milliseconds[2:])
	// A nonce is no secret, the code is what cannot be guessed; crypto/rand would double the time of a token.
	binary.LittleEndian.PutUint64(raw[nonceAt:], rand.Uint64())
	binary.LittleEndian.PutUint64(raw[nonceAt+8:], rand.Uint64())
	code := k.all[0].code((*[signed]byte)(raw[:signed]))
	copy(raw[signed:], code[:])
	return encoding.AppendEncode(dst, raw[:])
}

// Read returns what a token says. ok is false for one that none of the keys made, that was changed in any way, or whose time is
// more than [Lifetime] before now or more than [Skew] after it. Whatever is wrong, finding it out takes about the same time: all
// that is done for a good token is done for every other.
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

// decode returns the bytes of a token, zeros when text is none.
func decode(text string) (raw [size]byte, ok bool) {
	var characters [Length]byte
	ok = len(text) == Length
	copy(characters[:], text)
	// Line breaks are skipped by the decoder, and leave too few bytes.
	n, err := encoding.Decode(raw[:], characters[:])
	return raw, ok && err == nil && n == size
}
