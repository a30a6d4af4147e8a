package session

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"slices"
	"time"

	"github.com/lestrrat-go/jwx/v3/jwa"
	"github.com/lestrrat-go/jwx/v3/jwk"
)

const (
	// maxKeys bounds a set. Providers publish two or three.
	maxKeys = 100
	// minRSABits is the minimum of RFC 7518, 3.3. maxRSABits bounds a verification to about a millisecond.
	minRSABits, maxRSABits = 2048, 8192
)

// key is a public key of the provider.
type key struct {
	public    publicKey
	algorithm jwa.SignatureAlgorithm
	// until is the end of a key that the provider no longer publishes; zero for a published key.
	until time.Time
}

type publicKey interface {
	Equal(crypto.PublicKey) bool
}

// honoured reports whether k may verify tokens at now.
func (k key) honoured(now time.Time) bool { return k.until.IsZero() || now.Before(k.until) }

func same(a, b key) bool { return a.public.Equal(b.public) && a.until.Equal(b.until) }

// parseKeys reads a JWK Set. It skips and counts keys that cannot verify a token: keys without a kid, for encryption, for another algorithm,
// of another kind or size, private and symmetric keys, and different keys with the same name, which are ambiguous. It returns an error if
// the document is not a JWK Set or has too many keys.
func parseKeys(document []byte) (keys map[name]key, ignored int, err error) {
	// A key of an unknown kind must not invalidate the other keys (RFC 7517, 5).
	set, err := jwk.Parse(document, jwk.WithMaxKeys(maxKeys), jwk.WithStrictKeySetParsing(false))
	if err != nil {
		return nil, 0, err
	}
	keys = make(map[name]key, set.Len())
	ambiguous := make(map[name]struct{})
	for i := range set.Len() {
		published, _ := set.Key(i)
		n, k, ok := usable(published)
		if !ok {
			continue
		}
		if other, twice := keys[n]; twice && !other.public.Equal(k.public) {
			ambiguous[n] = struct{}{}
		}
		keys[n] = k
	}
	for n := range ambiguous {
		delete(keys, n)
	}
	return keys, set.Len() - len(keys), nil
}

// usable returns a published key if it can verify tokens.
func usable(published jwk.Key) (name, key, bool) {
	id, _ := published.KeyID()
	use, restricted := published.KeyUsage()
	operations, listed := published.KeyOps()
	if id == "" || restricted && use != "sig" || listed && !slices.Contains(operations, jwk.KeyOpVerify) {
		return name{}, key{}, false
	}
	var raw any
	if jwk.Export(published, &raw) != nil {
		return name{}, key{}, false
	}
	k, ok := verifying(raw)
	if !ok {
		return name{}, key{}, false
	}
	if algorithm, named := published.Algorithm(); named && algorithm.String() != k.algorithm.String() {
		return name{}, key{}, false
	}
	return name{id, k.algorithm.String()}, k, true
}

// verifying returns a public key with the only algorithm for its kind. It rejects private and symmetric keys.
func verifying(raw any) (key, bool) {
	switch public := raw.(type) {
	case *rsa.PublicKey:
		bits := public.N.BitLen()
		return key{public: public, algorithm: jwa.RS256()}, minRSABits <= bits && bits <= maxRSABits
	case *ecdsa.PublicKey:
		return key{public: public, algorithm: jwa.ES256()}, public.Curve == elliptic.P256()
	case ed25519.PublicKey:
		return key{public: public, algorithm: jwa.EdDSA()}, true
	}
	return key{}, false
}

// joined returns the fetched keys and, during their grace, the previous keys. A fetched key replaces one with the same name at once.
func joined(fetched, before map[name]key, now time.Time) map[name]key {
	for n, k := range before {
		if _, ok := fetched[n]; ok {
			continue
		}
		if k.until.IsZero() {
			k.until = now.Add(grace)
		}
		if k.honoured(now) {
			fetched[n] = k
		}
	}
	return fetched
}
