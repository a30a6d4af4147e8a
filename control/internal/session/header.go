package session

import (
	"encoding/base64"
	"encoding/json"
	"strings"

	"github.com/lestrrat-go/jwx/v3/jwa"

	"deeplink/shared/strictjson"
)

const (
	// maxToken bounds a token, in bytes. Those of the usual providers have 1 KiB; all headers of a request fit into 8 to 16.
	maxToken = 8 << 10
	// maxDepth bounds the nesting of header and claims. Providers nest what they like; a reader's stack must not follow for ever.
	maxDepth = 32
)

// name is how a token says which key it is signed with. One kid may stand for a key of each kind (RFC 7517, 4.5).
type name struct {
	id, algorithm string
}

// signedWith returns which key token claims to be signed with. Nothing is proven by that: the one use of a name is to find the
// key that was fetched under it. Keys that the token brings along or points to (jwk, jku, x5c, x5u) are not looked at.
func signedWith(token string) (name, error) {
	if len(token) > maxToken {
		return name{}, tooLong
	}
	if !compact(token) {
		return name{}, malformed
	}
	encoded, _, _ := strings.Cut(token, ".")
	text, err := base64.RawURLEncoding.DecodeString(encoded)
	// jwx reads the header again. What two readers could understand differently, such as alg given twice, ends here.
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

// compact reports whether token is three parts of base64url with dots between (RFC 7515, 7.1). Decoders are more generous: they
// skip line ends and take padding.
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

// alphabet is that of base64url (RFC 4648, 5).
const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"

// allowed reports whether tokens may be signed by an algorithm (decisions.md 6).
func allowed(algorithm string) bool {
	switch algorithm {
	case jwa.RS256().String(), jwa.ES256().String(), jwa.EdDSA().String():
		return true
	}
	return false
}
