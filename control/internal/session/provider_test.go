package session

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lestrrat-go/jwx/v3/jwa"
	"github.com/lestrrat-go/jwx/v3/jwk"
	"github.com/lestrrat-go/jwx/v3/jws/jwsbb"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	bound  = 20 * time.Second
	issuer = "https://id.example"
)

// members are the members of a JSON object. As a change to another one, nil takes a member away.
type members = map[string]any

// signer has a key of the provider's, and everything that it takes to forge with it.
type signer struct {
	kid       string
	algorithm string
	private   any
}

// The keys are made once: RSA takes its time.
var (
	rsaKey   = sync.OnceValue(func() signer { return signer{"rsa", "RS256", must(rsa.GenerateKey(rand.Reader, 2048))} })
	otherRSA = sync.OnceValue(func() signer { return signer{"other", "RS256", must(rsa.GenerateKey(rand.Reader, 2048))} })
	ecdsaKey = sync.OnceValue(func() signer { return signer{"ec", "ES256", must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))} })
	// It is the same in every process, so that what one process of a fuzz run found is signed in the others too.
	ed25519Key = sync.OnceValue(func() signer { return signer{"ed", "EdDSA", ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))} })
)

func newEd25519(kid string) signer {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	return signer{kid, "EdDSA", must(private, err)}
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

// jwk returns the private or the public key as the provider would publish it.
func (s signer) jwk(private bool) jwk.Key {
	key := must(jwk.Import(s.private))
	if !private {
		key = must(key.PublicKey())
	}
	about := members{jwk.KeyIDKey: s.kid, jwk.AlgorithmKey: must(jwa.KeyAlgorithmFrom(s.algorithm)), jwk.KeyUsageKey: "sig"}
	for member, value := range about {
		if err := key.Set(member, value); err != nil {
			panic(err)
		}
	}
	return key
}

// published is the key in a set, with changes.
func (s signer) published(changes members) members {
	var object members
	if err := json.Unmarshal(must(json.Marshal(s.jwk(false))), &object); err != nil {
		panic(err)
	}
	return changed(object, changes)
}

// setOf is a JWK Set of signers and of whatever else.
func setOf(keys ...any) string {
	list := []any{}
	for _, key := range keys {
		if s, ok := key.(signer); ok {
			key = s.published(nil)
		}
		list = append(list, key)
	}
	return string(must(json.Marshal(members{"keys": list})))
}

func changed(object, changes members) members {
	object = maps.Clone(object)
	for member, value := range changes {
		if value == nil {
			delete(object, member)
		} else {
			object[member] = value
		}
	}
	return object
}

// claimsAt are those of a usual token.
func claimsAt(now time.Time) members {
	return members{
		"iss": issuer, "sub": "user_1", "iat": now.Unix(), "nbf": now.Unix(), "exp": now.Add(time.Minute).Unix(),
		"org_id": "org_1", "org_role": "org:admin",
	}
}

// token signs a usual token, with changes to its header and its claims.
func (s signer) token(now time.Time, header, claims members) string {
	return s.sign(changed(members{"alg": s.algorithm, "kid": s.kid, "typ": "JWT"}, header), changed(claimsAt(now), claims))
}

// sign signs whatever header and payload, each a text or what is to be one.
func (s signer) sign(header, payload any) string {
	input := encode(header) + "." + encode(payload)
	return input + "." + base64.RawURLEncoding.EncodeToString(must(jwsbb.Sign(s.private, s.algorithm, []byte(input), rand.Reader)))
}

func encode(value any) string {
	text, ok := value.(string)
	if !ok {
		text = string(must(json.Marshal(value)))
	}
	return base64.RawURLEncoding.EncodeToString([]byte(text))
}

// provider publishes keys.
type provider struct {
	answers atomic.Pointer[http.HandlerFunc]
	fetches atomic.Int64
}

func (p *provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.fetches.Add(1)
	(*p.answers.Load())(w, r)
}

func (p *provider) answer(h http.HandlerFunc) { p.answers.Store(&h) }

func (p *provider) publish(document string) {
	p.answer(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, document)
	})
}

// RoundTrip implements http.RoundTripper within the process, for tests that run in a bubble.
func (p *provider) RoundTrip(r *http.Request) (*http.Response, error) {
	recorder := httptest.NewRecorder()
	p.ServeHTTP(recorder, r)
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	return recorder.Result(), nil
}

// newServer returns a provider behind a real socket, and its URL.
func newServer(t *testing.T, document string) (*provider, string) {
	t.Helper()
	p := new(provider)
	p.publish(document)
	server := httptest.NewServer(p)
	t.Cleanup(server.Close)
	return p, server.URL + "/.well-known/jwks.json"
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// newVerifier returns a verifier that runs until the end of the test.
func newVerifier(t testing.TB, o Options) *Verifier {
	t.Helper()
	v := idle(t, o)
	run(t, v)
	return v
}

// newVerifierOf returns one that asks p without a socket.
func newVerifierOf(t testing.TB, p *provider) *Verifier {
	t.Helper()
	v := idle(t, Options{KeysURL: "https://id.example/keys"})
	v.keyring.client.Transport = p
	run(t, v)
	return v
}

// idle returns a verifier that does not run yet.
func idle(t testing.TB, o Options) *Verifier {
	t.Helper()
	if o.Issuer == "" {
		o.Issuer = issuer
	}
	if o.Log == nil {
		o.Log = quiet()
	}
	v, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func run(t testing.TB, v *Verifier) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- v.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		select {
		case err := <-ended:
			if err != nil {
				t.Errorf("Run returned %v", err)
			}
		case <-time.After(bound):
			t.Error("Run did not end")
		}
	})
}

// fetchesEnd waits until a fetch is over. All that are must have had this result: one that failed is soon made again.
func (v *Verifier) fetchesEnd(t testing.TB, expected outcome) {
	t.Helper()
	for end := time.Now().Add(bound); ; time.Sleep(time.Millisecond) {
		counts := v.values(t, fetchesMetric)
		others := 0.0
		for result, n := range counts {
			if result != string(expected) {
				others += n
			}
		}
		if others > 0 {
			t.Fatalf("%v, expected all to be %s", counts, expected)
		}
		if counts[string(expected)] > 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("no fetch was over within %v", bound)
		}
	}
}
