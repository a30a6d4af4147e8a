package session

import (
	"crypto/ecdh"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"maps"
	"math/big"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestOnlyKeysThatCanVerifyTokensAreUsed(t *testing.T) {
	t.Parallel()
	r, ec, ed, other := rsaKey(), ecdsaKey(), ed25519Key(), otherRSA()
	with := func(s signer, changes members) members { return s.published(changes) }
	p384 := signer{"p384", "ES384", must(ecdsa.GenerateKey(elliptic.P384(), rand.Reader))}
	all := []string{"ec ES256", "ed EdDSA", "rsa RS256"}
	for _, test := range []struct {
		name     string
		document string
		keys     []string
		ignored  int
	}{
		{"one of each kind", setOf(r, ec, ed), all, 0},
		{"without alg", setOf(with(r, members{"alg": nil}), with(ec, members{"alg": nil}), with(ed, members{"alg": nil})), all, 0},
		{"without use", setOf(with(r, members{"use": nil}), ec, ed), all, 0},
		{"key_ops verify", setOf(with(r, members{"use": nil, "key_ops": []string{"verify"}}), ec, ed), all, 0},
		{"with certificates", setOf(with(r, members{"x5t": "abc", "x5u": "http://127.0.0.1:1/"}), ec, ed), all, 0},
		{"the same key twice", setOf(r, r, ec, ed), all, 1},
		{"one kid for two kinds", setOf(with(r, members{"kid": "k"}), with(ec, members{"kid": "k"})), []string{"k ES256", "k RS256"}, 0},
		{"one kid for two keys", setOf(with(r, members{"kid": "k"}), with(other, members{"kid": "k"}), ec), []string{"ec ES256"}, 2},
		{"one kid for three keys, the third as the first", setOf(with(r, members{"kid": "k"}), with(other, members{"kid": "k"}),
			with(r, members{"kid": "k"})), nil, 3},
		{"without kid", setOf(with(r, members{"kid": nil}), with(ec, members{"kid": ""})), nil, 2},
		{"for encryption", setOf(with(r, members{"use": "enc"}), with(ec, members{"use": nil, "key_ops": []string{"encrypt"}})), nil, 2},
		{"for other algorithms", setOf(with(r, members{"alg": "RS512"}), with(other, members{"alg": "PS256"}),
			with(ed, members{"alg": "Ed25519"}), with(ec, members{"alg": "HS256"})), nil, 4},
		{"for an algorithm of another kind", setOf(with(r, members{"alg": "ES256"})), nil, 1},
		{"of another curve", setOf(p384, with(p384, members{"alg": nil})), nil, 2},
		{"for key agreement", setOf(keyAgreement(), ec), []string{"ec ES256"}, 1},
		{"private", setOf(r.jwk(true), ec.jwk(true), ed.jwk(true)), nil, 3},
		{"symmetric", setOf(members{"kty": "oct", "kid": "s", "k": "c2VjcmV0", "alg": "HS256"}), nil, 1},
		{"RSA of 2,047 bits", setOf(modulus(2047)), nil, 1},
		{"RSA of 2,048 bits", setOf(modulus(2048)), []string{"m RS256"}, 0},
		{"RSA of 8,192 bits", setOf(modulus(8192)), []string{"m RS256"}, 0},
		{"RSA of 8,193 bits", setOf(modulus(8193)), nil, 1},
		{"RSA without exponent", setOf(with(r, members{"e": nil}), ec), []string{"ec ES256"}, 1},
		{"RSA with exponent 1", setOf(with(r, members{"e": "AQ"}), ec), []string{"ec ES256"}, 1},
		{"a point that is not on the curve", setOf(with(ec, members{"x": ec.published(nil)["y"]}), r), []string{"rsa RS256"}, 1},
		{"an unknown kind", setOf(members{"kty": "AKP", "kid": "pq", "alg": "ML-DSA-44", "pub": "AA"}, r), []string{"rsa RS256"}, 1},
		{"no keys in the list", setOf("text", 7, nil, []any{}, r), []string{"rsa RS256"}, 4},
		{"empty", `{"keys":[]}`, nil, 0},
		{"more members", `{"keys":[],"other":{"x":1}}`, nil, 0},
		{"as many as allowed", setOf(slices.Repeat([]any{r}, maxKeys)...), []string{"rsa RS256"}, maxKeys - 1},
	} {
		keys, ignored, err := parseKeys([]byte(test.document))
		if err != nil {
			t.Errorf("%s: %v", test.name, err)
			continue
		}
		var got []string
		for n := range maps.Keys(keys) {
			got = append(got, n.id+" "+n.algorithm)
		}
		slices.Sort(got)
		if !cmp.Equal(got, test.keys) || ignored != test.ignored {
			t.Errorf("%s: %q and %d ignored, expected %q and %d", test.name, got, ignored, test.keys, test.ignored)
		}
	}
	for name, document := range badDocuments() {
		if keys, _, err := parseKeys([]byte(document)); err == nil {
			t.Errorf("%s: %d keys, expected an error", name, len(keys))
		}
	}
}

// jwx has a least length of its own, which is a setting of the whole process.
func TestShortRSAKeysAreRejected(t *testing.T) {
	t.Parallel()
	for bits, expected := range map[int]bool{minRSABits - 1: false, minRSABits: true, maxRSABits: true, maxRSABits + 1: false} {
		if _, ok := verifying(&rsa.PublicKey{N: new(big.Int).SetBit(new(big.Int), bits-1, 1), E: 65537}); ok != expected {
			t.Errorf("%d bits: %v, expected %v", bits, ok, expected)
		}
	}
}

// badDocuments are no sets of keys.
func badDocuments() map[string]string {
	return map[string]string{
		"nothing":            "",
		"HTML":               "<!doctype html><title>Sign in</title>",
		"text":               "keys",
		"null":               "null",
		"a list":             "[]",
		"an object":          `{"error":"not found"}`,
		"keys is no list":    `{"keys":{}}`,
		"keys is null":       `{"keys":null}`,
		"cut":                setOf(rsaKey())[:100],
		"more than the most": setOf(slices.Repeat([]any{rsaKey()}, maxKeys+1)...),
		"nested without end": `{"keys":[` + strings.Repeat("[", 20_000),
	}
}

// keyAgreement is an X25519 key, which signs nothing.
func keyAgreement() members {
	private := must(ecdh.X25519().GenerateKey(rand.Reader))
	return members{"kty": "OKP", "crv": "X25519", "kid": "x", "x": base64.RawURLEncoding.EncodeToString(private.PublicKey().Bytes())}
}

// modulus returns an RSA key of the given length that cannot sign.
func modulus(bits uint) members {
	n := new(big.Int).SetBit(new(big.Int), int(bits)-1, 1)
	n.SetBit(n, 0, 1)
	return members{"kty": "RSA", "kid": "m", "e": "AQAB", "n": base64.RawURLEncoding.EncodeToString(n.Bytes())}
}

func FuzzKeys(f *testing.F) {
	f.Add([]byte(setOf(rsaKey(), ecdsaKey(), ed25519Key())))
	f.Add([]byte(setOf(rsaKey().jwk(true), keyAgreement())))
	f.Add(must(json.Marshal(ecdsaKey().jwk(false))))
	for _, document := range badDocuments() {
		f.Add([]byte(document))
	}
	f.Fuzz(func(t *testing.T, document []byte) {
		keys, ignored, err := parseKeys(document)
		if err != nil {
			return
		}
		if ignored < 0 || len(keys)+ignored > maxKeys {
			t.Errorf("%d keys and %d ignored in %q", len(keys), ignored, document)
		}
		for n, k := range keys {
			if n.id == "" || !allowed(n.algorithm) || n.algorithm != k.algorithm.String() || !k.until.IsZero() {
				t.Errorf("%+v is %+v in %q", n, k, document)
			}
			if again, ok := verifying(k.public); !ok || again.algorithm != k.algorithm {
				t.Errorf("%+v is a %T in %q", n, k.public, document)
			}
		}
	})
}
