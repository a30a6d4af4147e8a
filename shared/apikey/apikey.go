// Package apikey defines the format of an API key: prefix, 256 random bits, checksum. It generates keys, rejects malformed ones without a
// query, and returns the hash to store and the masked form to show. It does not know which keys exist. control and bench/fill use it.
package apikey

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"hash/crc32"
	"math/bits"
)

// Tier is the part of the API that a key gives access to. Its values are those of the portal's paths and of the database.
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

// ParseTier reads a tier from a path, where it is in upper case.
func ParseTier(s string) (Tier, bool) {
	tier := Tier(s)
	return tier, tier == Server || tier == Client
}

// Prefix returns the prefix of the keys of the tier. It is empty for a tier that is neither Server nor Client.
func Prefix(tier Tier) string {
	switch tier {
	case Server:
		return serverPrefix
	case Client:
		return clientPrefix
	}
	return ""
}

// New returns a new raw key of the tier, which must be Server or Client. Only the caller ever has the raw key: store Hash, show Display.
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

// Parse reports whether raw has the format of a key, checksum included, and its tier. It runs no query and allocates nothing, so that
// malformed keys cost little. For authorization use the tier that is stored with the key's hash.
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

// Hash returns the SHA-256 of a key, which is stored and looked up instead of the key. A key of 256 random bits needs no slow hash.
func Hash(raw string) [sha256.Size]byte {
	return sha256.Sum256([]byte(raw))
}

// Display returns the masked form of a key: its prefix, an ellipsis and its last four characters. It is empty when raw
// is not a key, so that it never reveals part of another secret.
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
