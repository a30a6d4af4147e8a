package session

import (
	"encoding/base64"
	"encoding/json"
	"strings"

	"github.com/lestrrat-go/jwx/v3/jwa"

	"deeplink/shared/strictjson"
)

const (
	// maxToken bounds a token, in bytes. Tokens of common providers have 1 KiB, and servers allow 8 to 16 KiB for all headers.
	maxToken = 8 << 10
	// maxDepth bounds the nesting of header and claims, and so the stack of the parser.
	maxDepth = 32
)

// name identifies the key of a token: kid and kind, because one kid may stand for a key of each kind (RFC 7517, 4.5).
type name struct {
	id, algorithm string
}

// signedWith returns the name of the key that the token claims to be signed with. The name is unverified and only used to find a fetched key.
// Keys in the token or referenced by it (jwk, jku, x5c, x5u) are ignored.
func signedWith(token string) (name, error) {
	if len(token) > maxToken {
		return name{}, tooLong
	}
	if !compact(token) {
		return name{}, malformed
	}
	encoded, _, _ := strings.Cut(token, ".")
	text, err := base64.RawURLEncoding.DecodeString(encoded)
	// jwx parses the header again. Ambiguous headers, such as a duplicate alg, are rejected here.
	if err != nil || strictjson.Check(text, maxDepth) != nil {
		return name{}, malformed
	}
	var header map[string]json.RawMessage
	var n name
	if json.Unmarshal(text, &header) != nil || json.Unmarshal(header["alg"], &n.algorithm) != nil {
		return name{}, malformed
	}
	if !allowed(n.algorithm) {
		return name{}, badAlgorithm
	}
	if _, ok := header["crit"]; ok {
		return name{}, criticalHeader
	}
	if json.Unmarshal(header["kid"], &n.id) != nil || n.id == "" {
		return name{}, noKeyID
	}
	return n, nil
}

// compact reports whether token is three parts of base64url with dots between (RFC 7515, 7.1). Decoders are more lenient: they
// skip line breaks and accept padding.
func compact(token string) bool {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return false
	}
	for _, part := range parts {
		if part == "" || strings.TrimLeft(part, alphabet) != "" {
			return false
		}
	}
	return true
}

// alphabet is the base64url alphabet (RFC 4648, 5).
const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"

// allowed reports whether an algorithm is accepted for signatures of tokens.
func allowed(algorithm string) bool {
	switch algorithm {
	case jwa.RS256().String(), jwa.ES256().String(), jwa.EdDSA().String():
		return true
	}
	return false
}
