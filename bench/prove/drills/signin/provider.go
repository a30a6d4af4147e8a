package signin

import (
	"cmp"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/lestrrat-go/jwx/v3/jwa"
	"github.com/lestrrat-go/jwx/v3/jwk"
	"github.com/lestrrat-go/jwx/v3/jwt"
)

// leeway is how long control accepts a token after its exp.
const leeway = 5 * time.Second

// provider is an OpenID Connect provider whose refresh tokens rotate. The drills play the browser, so it has no page.
type provider struct {
	server *httptest.Server
	key    jwk.Key
	public jwk.Set
	// organization is in all tokens, by its external id.
	organization string

	mu sync.Mutex
	// accepted is how long control accepts a token: its exp is that minus the leeway from now. A short time is as if the clock of the provider were
	// behind by the leeway, which control must allow.
	accepted time.Duration
	// lifetime is from iat to exp; zero: the same as accepted.
	lifetime time.Duration
	// overlap is how long a refresh token works after it was replaced.
	overlap time.Duration
	// codes and refresh are valid ones; a refresh token with a time works until then.
	codes   map[string]attempt
	refresh map[string]time.Time
	// before and after are called in a renewal, before it has an effect and before its response is sent. If one returns false, no response is sent.
	before, after func() bool

	renewed, refused, underWay, most, mismatched int
}

// attempt is an authorization request.
type attempt struct{ nonce, challenge string }

func newProvider() (*provider, error) {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	p := &provider{
		organization: "drill-" + uuid.NewString(), accepted: time.Minute, overlap: 30 * time.Second,
		codes: make(map[string]attempt), refresh: make(map[string]time.Time), public: jwk.NewSet(),
	}
	if p.key, err = jwk.Import(private); err != nil {
		return nil, err
	}
	public, err := jwk.Import(private.Public())
	if err != nil {
		return nil, err
	}
	if err := errors.Join(p.key.Set(jwk.KeyIDKey, "k"), public.Set(jwk.KeyIDKey, "k"), p.public.AddKey(public)); err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	p.server = httptest.NewServer(mux)
	mux.HandleFunc("GET /.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		respond(w, http.StatusOK, map[string]any{
			"issuer": p.server.URL, "authorization_endpoint": p.server.URL + "/authorize", "token_endpoint": p.server.URL + "/token", "jwks_uri": p.server.URL + "/keys",
			"code_challenge_methods_supported": []string{"S256"}, "id_token_signing_alg_values_supported": []string{"EdDSA"},
		})
	})
	mux.HandleFunc("GET /keys", func(w http.ResponseWriter, _ *http.Request) { respond(w, http.StatusOK, p.public) })
	mux.HandleFunc("POST /token", p.token)
	return p, nil
}

func respond(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // control may have been killed
}

func (p *provider) change(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
}

// authorize remembers an authorization request and returns a code.
func (p *provider) authorize(nonce, challenge string) (code string) {
	code = rand.Text()
	p.change(func() { p.codes[code] = attempt{nonce, challenge} })
	return code
}

func (p *provider) token(w http.ResponseWriter, r *http.Request) {
	_ = r.ParseForm() // an unreadable form has no grant type
	if r.PostForm.Get("grant_type") == "authorization_code" {
		p.redeem(w, r)
		return
	}
	var before, after func() bool
	p.change(func() {
		p.underWay++
		p.most = max(p.most, p.underWay)
		before, after = p.before, p.after
	})
	defer p.change(func() { p.underWay-- })
	if before != nil && !before() {
		panic(http.ErrAbortHandler)
	}
	status, body := p.renew(r.PostForm.Get("refresh_token"))
	if after != nil && !after() {
		panic(http.ErrAbortHandler)
	}
	respond(w, status, body)
}

func (p *provider) redeem(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	a, ok := p.codes[r.PostForm.Get("code")]
	delete(p.codes, r.PostForm.Get("code"))
	proof := sha256.Sum256([]byte(r.PostForm.Get("code_verifier")))
	if !ok || base64.RawURLEncoding.EncodeToString(proof[:]) != a.challenge {
		p.mismatched++
		ok = false
	}
	p.mu.Unlock()
	if !ok {
		respond(w, http.StatusBadRequest, map[string]string{"error": "invalid_grant"})
		return
	}
	respond(w, http.StatusOK, p.grant(a.nonce))
}

// renew exchanges a refresh token.
func (p *provider) renew(token string) (status int, body any) {
	valid := false
	p.change(func() {
		until, known := p.refresh[token]
		valid = known && (until.IsZero() || time.Now().Before(until))
		if !valid {
			p.refused++
			return
		}
		p.renewed++
		if until.IsZero() {
			p.refresh[token] = time.Now().Add(p.overlap)
		}
	})
	if !valid {
		return http.StatusBadRequest, map[string]string{"error": "invalid_grant"}
	}
	return http.StatusOK, p.grant("")
}

// grant returns a token response.
func (p *provider) grant(nonce string) map[string]any {
	refresh := rand.Text()
	var accepted, lifetime time.Duration
	p.change(func() {
		p.refresh[refresh] = time.Time{}
		accepted, lifetime = p.accepted, cmp.Or(p.lifetime, p.accepted)
	})
	expires := time.Now().Add(accepted - leeway)
	builder := jwt.NewBuilder().Issuer(p.server.URL).Subject("drill").Audience([]string{"console"}).Expiration(expires).
		IssuedAt(expires.Add(-lifetime)).Claim("org_id", p.organization).Claim("org_role", "owner")
	if nonce != "" {
		builder = builder.Claim("nonce", nonce)
	}
	token, err := builder.Build()
	if err != nil {
		panic(err) // the claims are valid
	}
	signed, err := jwt.Sign(token, jwt.WithKey(jwa.EdDSA(), p.key))
	if err != nil {
		panic(err) // the key is valid
	}
	return map[string]any{"access_token": rand.Text(), "token_type": "Bearer", "id_token": string(signed), "refresh_token": refresh}
}
