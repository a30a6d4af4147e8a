package matchtoken

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
)

// maxKeys bounds the work per token. A rotation needs two keys: the new key signs, and the old key verifies until its last tokens
// expire.
const maxKeys = 8

// Keys make and verify tokens: the first key signs, all keys verify. Keys is immutable and safe for concurrent use.
type Keys struct{ all []key }

// ParseKeys reads MATCH_TOKEN_KEYS: 1 to 8 keys of 64 hex digits with commas between, white space around them dropped. The error
// contains no part of the text.
func ParseKeys(text string) (*Keys, error) {
	parts := strings.Split(text, ",")
	if len(parts) > maxKeys {
		return nil, fmt.Errorf("must be at most %d keys, not %d", maxKeys, len(parts))
	}
	k := &Keys{make([]key, len(parts))}
	for i, part := range parts {
		var secret [keySize]byte
		part = strings.TrimSpace(part)
		if len(part) != hex.EncodedLen(keySize) {
			return nil, fmt.Errorf("key %d has %d characters, not the 64 hex digits that a key is", i+1, len(part))
		}
		if _, err := hex.Decode(secret[:], []byte(part)); err != nil {
			return nil, fmt.Errorf("key %d has characters other than hex digits", i+1)
		}
		k.all[i] = newKey(secret)
	}
	return k, nil
}

const keySize = 32

// key is a secret in the form that HMAC-SHA256 uses (RFC 2104, 2): padded to one block and XORed with each of the two constants.
// crypto/hmac allocates for each code, and a hit must not allocate.
type key struct{ inner, outer [sha256.BlockSize]byte }

func newKey(secret [keySize]byte) (k key) {
	copy(k.inner[:], secret[:])
	k.outer = k.inner
	for i := range sha256.BlockSize {
		k.inner[i] ^= 0x36
		k.outer[i] ^= 0x5c
	}
	return k
}

// code returns the authentication code of the signed part of a token: the first half of its HMAC-SHA256.
func (k *key) code(message *[signed]byte) [codeSize]byte {
	var inner [sha256.BlockSize + signed]byte
	copy(inner[:], k.inner[:])
	copy(inner[sha256.BlockSize:], message[:])
	sum := sha256.Sum256(inner[:])
	var outer [sha256.BlockSize + sha256.Size]byte
	copy(outer[:], k.outer[:])
	copy(outer[sha256.BlockSize:], sum[:])
	sum = sha256.Sum256(outer[:])
	return [codeSize]byte(sum[:codeSize])
}
