package catalog

import (
	"crypto/rand"
	"strings"
)

const (
	// codeAlphabet leaves out characters that people confuse: 0 and o, 1, i and l.
	codeAlphabet   = "23456789abcdefghjkmnpqrstuvwxyz"
	codeLength     = 8
	orgKeyAlphabet = "0123456789abcdefghijklmnopqrstuvwxyz"
	orgKeyLength   = 4
)

// GenerateCode returns a random short code of 31^8, about 10^12. It may be taken.
func GenerateCode() string { return randomText(codeAlphabet, codeLength) }

// GenerateOrgKey returns a random organization key of 1.7 million. It may be taken.
func GenerateOrgKey() string {
	for {
		if key := randomText(orgKeyAlphabet, orgKeyLength); ValidOrgKey(key) {
			return key
		}
	}
}

// ValidOrgKey reports whether s can be an organization's key: four of a-z and 0-9, except "data" and "docs", which are paths of the edges
// and of the documentation. Keys are stored in lower case; for a comparison without regard to case, lower s first.
func ValidOrgKey(s string) bool {
	if len(s) != orgKeyLength || s == "data" || s == "docs" {
		return false
	}
	return strings.Trim(s, orgKeyAlphabet) == ""
}

// randomText draws characters without bias: it discards bytes beyond the last full multiple of the alphabet's length.
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

// ValidUUID reports whether s is a UUID of 8-4-4-4-12 hex digits and nothing else, and returns it in lower case. Neither
// google/uuid nor Postgres is that strict.
func ValidUUID(s string) (canonical string, ok bool) {
	if len(s) != len("xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx") {
		return s, false
	}
	for i := range len(s) { // no regexp, because requests of every kind check ids
		switch b := s[i]; {
		case i == 8 || i == 13 || i == 18 || i == 23:
			ok = b == '-'
		default:
			ok = '0' <= b && b <= '9' || 'a' <= b|0x20 && b|0x20 <= 'f'
		}
		if !ok {
			return s, false
		}
	}
	return strings.ToLower(s), true
}
