// Package seal encrypts what control stores in Postgres for the console's sessions. Its promise: a value can be opened only with the key that
// sealed it, and only in the place for which it was sealed, so that a value that was moved to another row or column cannot be opened.
package seal

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strings"
)

const (
	// maxKeys bounds a list: a rotation needs two.
	maxKeys = 8
	keySize = 32
	// idSize is the length of the id of the key before the nonce.
	idSize = 4
)

// Errors. None contains a key or a value.
var (
	// ErrKeys: the list of keys is malformed.
	ErrKeys = errors.New("must be 1 to 8 different keys of 64 hex digits, separated by commas")
	// ErrUnknownKey: no key of the list sealed the value.
	ErrUnknownKey = errors.New("sealed with a key that is not in the list")
	// ErrDamaged: the value was changed, or sealed for another place.
	ErrDamaged = errors.New("sealed value is damaged or from another place")
)

// Keys are encryption keys: the first one seals, all of them open. They are safe for concurrent use.
type Keys struct{ all []key }

type key struct {
	id   [idSize]byte
	aead cipher.AEAD
}

// ParseKeys reads keys of 64 hex digits, separated by commas. The error is ErrKeys.
func ParseKeys(list string) (*Keys, error) {
	k := new(Keys)
	for text := range strings.SplitSeq(list, ",") {
		raw, err := hex.DecodeString(text)
		if err != nil || len(raw) != keySize || len(k.all) == maxKeys {
			return nil, ErrKeys
		}
		block, err := aes.NewCipher(raw)
		if err != nil {
			return nil, ErrKeys
		}
		aead, err := cipher.NewGCM(block)
		if err != nil {
			return nil, ErrKeys
		}
		sum := sha256.Sum256(raw)
		id := [idSize]byte(sum[:idSize])
		if k.find(id[:]) != nil {
			return nil, ErrKeys
		}
		k.all = append(k.all, key{id, aead})
	}
	return k, nil
}

// Seal encrypts a value for a place: AES-256-GCM with a random nonce of 96 bits, and the place as additional data. id and column name the
// place: the column of the row with the id.
func (k *Keys) Seal(value []byte, id, column string) []byte {
	first := k.all[0]
	sealed := make([]byte, idSize+first.aead.NonceSize(), idSize+first.aead.NonceSize()+len(value)+first.aead.Overhead())
	copy(sealed, first.id[:])
	nonce := sealed[idSize:]
	rand.Read(nonce) // never fails, by its contract
	return first.aead.Seal(sealed, nonce, value, place(id, column))
}

// Open returns the value that was sealed for the place. Errors: ErrUnknownKey, ErrDamaged.
func (k *Keys) Open(sealed []byte, id, column string) ([]byte, error) {
	with := k.find(sealed)
	if with == nil {
		return nil, ErrUnknownKey
	}
	rest := sealed[idSize:]
	if len(rest) < with.aead.NonceSize() {
		return nil, ErrDamaged
	}
	value, err := with.aead.Open(nil, rest[:with.aead.NonceSize()], rest[with.aead.NonceSize():], place(id, column))
	if err != nil {
		return nil, ErrDamaged
	}
	return value, nil
}

// Knows reports whether one of the keys sealed the value, of which the first 4 bytes are enough.
func (k *Keys) Knows(sealed []byte) bool { return k.find(sealed) != nil }

func (k *Keys) find(sealed []byte) *key {
	if k == nil || len(sealed) < idSize {
		return nil
	}
	for i := range k.all {
		if k.all[i].id == [idSize]byte(sealed[:idSize]) {
			return &k.all[i]
		}
	}
	return nil
}

// place is unambiguous: an id contains no U+0000.
func place(id, column string) []byte { return []byte(id + "\x00" + column) }
