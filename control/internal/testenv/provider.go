package testenv

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/lestrrat-go/jwx/v3/jwa"
	"github.com/lestrrat-go/jwx/v3/jwk"
	"github.com/lestrrat-go/jwx/v3/jws"
)

// Claims are the claims of a session token. In a set of changes, nil removes a claim.
type Claims map[string]any

// Issuer is the iss of the tokens.
const Issuer = "https://id.example"

// SigningKey returns the provider's key. It is generated once, because that takes long for RSA.
var SigningKey = sync.OnceValue(func() *rsa.PrivateKey {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		panic(err)
	}
	return key
})

// Provider is an identity provider that publishes one signing key at URL.
type Provider struct {
	t   testing.TB
	URL string
}

// NewProvider starts an identity provider, which ends with the test.
func NewProvider(t testing.TB) *Provider {
	t.Helper()
	key, err := jwk.Import(SigningKey().Public())
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range (Claims{jwk.KeyIDKey: "k1", jwk.AlgorithmKey: jwa.RS256(), jwk.KeyUsageKey: "sig"}) {
		if err := key.Set(name, value); err != nil {
			t.Fatal(err)
		}
	}
	document, err := json.Marshal(map[string]any{"keys": []jwk.Key{key}})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write(document) }))
	t.Cleanup(server.Close)
	return &Provider{t: t, URL: server.URL}
}

// Sign returns the payload, signed with key. kid names the key in the header.
func (p *Provider) Sign(algorithm jwa.SignatureAlgorithm, key any, kid string, payload Claims) string {
	p.t.Helper()
	text, err := json.Marshal(payload)
	if err != nil {
		p.t.Fatal(err)
	}
	headers := jws.NewHeaders()
	if err := headers.Set(jws.KeyIDKey, kid); err != nil {
		p.t.Fatal(err)
	}
	token, err := jws.Sign(text, jws.WithKey(algorithm, key, jws.WithProtectedHeaders(headers)))
	if err != nil {
		p.t.Fatal(err)
	}
	return string(token)
}

// UsualClaims returns the claims of a token of an owner, with the changes applied.
func UsualClaims(externalID string, changes Claims) Claims {
	now := time.Now()
	usual := Claims{
		"iss": Issuer, "sub": "user_1", "iat": now.Unix(), "nbf": now.Unix(), "exp": now.Add(30 * time.Minute).Unix(),
		"org_id": externalID, "org_role": "org:owner",
	}
	for name, value := range changes {
		if value == nil {
			delete(usual, name)
		} else {
			usual[name] = value
		}
	}
	return usual
}

// Token returns a valid session token for the organization.
func (p *Provider) Token(externalID, role string) string {
	p.t.Helper()
	return p.Sign(jwa.RS256(), SigningKey(), "k1", UsualClaims(externalID, Claims{"org_role": role}))
}

// PublicPEM returns the public key. A verifier that confuses algorithms would accept it as the secret of an HMAC.
func PublicPEM() []byte {
	der, err := x509.MarshalPKIXPublicKey(SigningKey().Public())
	if err != nil {
		panic(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
}
