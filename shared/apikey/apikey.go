// Package apikey defines the form of an API key (decisions.md 6): prefix, 256 random bits, checksum. It makes keys, tells
// a well-formed one from junk without a query, and gives what is stored and shown instead of the key. It does not know
// which keys exist.
package apikey

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"hash/crc32"
	"math/bits"
)

// Tier is the surface a key opens (interface.md 2). Its values are those of the portal's paths and of the database.
type Tier string

// The tiers.
const (
	Server Tier = "SERVER" // link management
	Client Tier = "CLIENT" // the SDK
)

const (
	serverPrefix = "svc_api_"
	clientPrefix = "svc_sdk_"

	alphabet       = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	prefixLength   = len(serverPrefix)
	secretLength   = 43 // 62^43 is just above 2^256
	checksumLength = 6  // 62^6 is above 2^32
	signedLength   = prefixLength + secretLength
	length         = signedLength + checksumLength
	shownLength    = 4
)

// inAlphabet marks the bytes of the alphabet.
var inAlphabet = func() (table [256]bool) {
	for _, b := range []byte(alphabet) {
		table[b] = true
	}
	return table
}()

// ParseTier reads a tier as it stands in a path, in upper case.
func ParseTier(s string) (Tier, bool) {
	tier := Tier(s)
	return tier, tier == Server || tier == Client
}

// Prefix returns what every key of the tier begins with. It is empty for a tier that is neither Server nor Client.
func Prefix(tier Tier) string {
	switch tier {
	case Server:
		return serverPrefix
	case Client:
		return clientPrefix
	}
	return ""
}

// New returns a fresh raw key of the tier, which must be Server or Client. It is the only time the key exists in the
// clear: store Hash, show Display.
func New(tier Tier) string {
	var secret [32]byte
	rand.Read(secret[:]) // never fails, by its contract
	return encode(tier, secret)
}

func encode(tier Tier, secret [32]byte) string {
	raw := make([]byte, length)
	copy(raw, Prefix(tier))
	number := [4]uint64{
		binary.BigEndian.Uint64(secret[0:]),
		binary.BigEndian.Uint64(secret[8:]),
		binary.BigEndian.Uint64(secret[16:]),
		binary.BigEndian.Uint64(secret[24:]),
	}
	for i := signedLength - 1; i >= prefixLength; i-- {
		var digit uint64
		for word := range number {
			number[word], digit = bits.Div64(digit, number[word], uint64(len(alphabet)))
		}
		raw[i] = alphabet[digit]
	}
	sum := checksum(string(raw[:signedLength]))
	copy(raw[signedLength:], sum[:])
	return string(raw)
}

// Parse reports whether raw has the form of a key, checksum included, and of which tier. It allocates nothing and asks
// nobody, so that junk costs no query. The tier that counts is the one stored with the key's hash.
func Parse(raw string) (Tier, bool) {
	if len(raw) != length {
		return "", false
	}
	var tier Tier
	switch raw[:prefixLength] {
	case serverPrefix:
		tier = Server
	case clientPrefix:
		tier = Client
	default:
		return "", false
	}
	for i := prefixLength; i < length; i++ {
		if !inAlphabet[raw[i]] {
			return "", false
		}
	}
	sum := checksum(raw[:signedLength])
	if string(sum[:]) != raw[signedLength:] {
		return "", false
	}
	return tier, true
}

// Hash returns what is stored and looked up in place of the key: its SHA-256. 256 random bits need no slow hash.
func Hash(raw string) [sha256.Size]byte {
	return sha256.Sum256([]byte(raw))
}

// Display returns the masked form of a key: its prefix, an ellipsis and its last four characters. It is empty when raw
// is not a key, so that it can never show more of something else.
func Display(raw string) string {
	tier, ok := Parse(raw)
	if !ok {
		return ""
	}
	return Prefix(tier) + "…" + raw[length-shownLength:]
}

// checksum returns the CRC32 (IEEE) of signed as base62 digits.
func checksum(signed string) [checksumLength]byte {
	// crc32.ChecksumIEEE would make the key escape to the heap.
	sum := ^uint32(0)
	for i := range len(signed) {
		sum = crc32.IEEETable[byte(sum)^signed[i]] ^ sum>>8
	}
	sum = ^sum
	var digits [checksumLength]byte
	for i := checksumLength - 1; i >= 0; i-- {
		digits[i] = alphabet[sum%uint32(len(alphabet))]
		sum /= uint32(len(alphabet))
	}
	return digits
}
