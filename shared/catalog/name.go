package catalog

import (
	"crypto/rand"
	"regexp"
	"strings"
)

const (
	// codeAlphabet has no character that is taken for another.
	codeAlphabet   = "23456789abcdefghjkmnpqrstuvwxyz"
	codeLength     = 8
	orgKeyAlphabet = "0123456789abcdefghijklmnopqrstuvwxyz"
	orgKeyLength   = 4
)

// GenerateCode returns a random short code. It may be taken: 31^8 of them are about 10^12.
func GenerateCode() string { return randomText(codeAlphabet, codeLength) }

// GenerateOrgKey returns a random organization key. It may be taken: there are 1.7 million.
func GenerateOrgKey() string {
	for {
		if key := randomText(orgKeyAlphabet, orgKeyLength); ValidOrgKey(key) {
			return key
		}
	}
}

// ValidOrgKey reports whether s can be an organization's key: four of a-z and 0-9, and not a word that the edges or the
// documentation use (decisions.md 2). Keys are stored in lower case; whoever compares them without regard to case lowers s
// first.
func ValidOrgKey(s string) bool {
	if len(s) != orgKeyLength || s == "data" || s == "docs" {
		return false
	}
	return strings.Trim(s, orgKeyAlphabet) == ""
}

// randomText draws from the whole of crypto/rand without bias: bytes beyond the last full multiple of the alphabet are
// drawn again.
func randomText(alphabet string, length int) string {
	limit := 256 - 256%len(alphabet)
	text := make([]byte, 0, length)
	var random [16]byte
	for {
		rand.Read(random[:]) // never fails, by its contract
		for _, b := range random {
			if int(b) >= limit {
				continue
			}
			if text = append(text, alphabet[int(b)%len(alphabet)]); len(text) == length {
				return string(text)
			}
		}
	}
}

var uuid = regexp.MustCompile(`^[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12}$`)

// ValidUUID reports whether s is a UUID of 8-4-4-4-12 hex digits and nothing else, and returns it in lower case. Neither
// google/uuid nor Postgres is that strict.
func ValidUUID(s string) (canonical string, ok bool) {
	return strings.ToLower(s), uuid.MatchString(s)
}
