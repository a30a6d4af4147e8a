package main

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/lestrrat-go/jwx/v3/jwa"
	"github.com/lestrrat-go/jwx/v3/jwk"
	"github.com/lestrrat-go/jwx/v3/jwt"
)

// identity is the development identity provider: an OpenID Connect provider that asks for no password, and signs a session token for any
// organization and role for every client that can reach it, so it must listen on 127.0.0.1 only. It is not a part of control.
type identity struct {
	issuer  string
	control string  // host and port of control, whose console people sign in to
	key     jwk.Key // private, with kid and alg
	public  jwk.Set
	signIns *signIns
}

const (
	keyBits         = 2048
	defaultLifetime = 60 * time.Second
	maxLifetime     = time.Hour
)

// newIdentity returns a provider for the control at an address. Its key is stored in keyFile, so that tokens, and the keys that control
// has fetched, stay valid across restarts.
func newIdentity(issuer, control, keyFile string) (*identity, error) {
	raw, err := readOrCreateKey(keyFile)
	if err != nil {
		return nil, err
	}
	key, err := jwk.Import(raw)
	if err != nil {
		return nil, fmt.Errorf("identity key: %w", err)
	}
	if err := jwk.AssignKeyID(key); err != nil {
		return nil, fmt.Errorf("identity key: %w", err)
	}
	if err := key.Set(jwk.AlgorithmKey, jwa.RS256()); err != nil {
		return nil, fmt.Errorf("identity key: %w", err)
	}
	private := jwk.NewSet()
	if err := private.AddKey(key); err != nil {
		return nil, fmt.Errorf("identity key: %w", err)
	}
	public, err := jwk.PublicSetOf(private)
	if err != nil {
		return nil, fmt.Errorf("identity key: %w", err)
	}
	return &identity{issuer: issuer, control: control, key: key, public: public, signIns: newSignIns()}, nil
}

func readOrCreateKey(file string) (*rsa.PrivateKey, error) {
	text, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		key, err := rsa.GenerateKey(rand.Reader, keyBits)
		if err != nil {
			return nil, fmt.Errorf("create the identity key: %w", err)
		}
		block := &pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}
		return key, replace(file, pem.EncodeToMemory(block))
	}
	if err != nil {
		return nil, fmt.Errorf("read the identity key: %w", err)
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, fmt.Errorf("%s has no key; delete the file to get a new one", file)
	}
	return x509.ParsePKCS1PrivateKey(block.Bytes)
}

// runIdentity serves only the provider, with the arguments address, issuer, host and port of the console, and file of the key.
func runIdentity(ctx context.Context, arguments []string) error {
	if len(arguments) != 5 || arguments[0] != "identity" {
		return errors.New("usage: local [identity ADDRESS ISSUER CONSOLE KEY-FILE]")
	}
	provider, err := newIdentity(arguments[2], arguments[3], arguments[4])
	if err != nil {
		return err
	}
	ln, err := net.Listen("tcp", arguments[1])
	if err != nil {
		return err
	}
	return provider.serve(ctx, ln)
}

// handler serves the provider's routes.
func (i *identity) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /.well-known/jwks.json", func(w http.ResponseWriter, _ *http.Request) { respond(w, http.StatusOK, i.public) })
	mux.HandleFunc("POST /token", i.token)
	mux.HandleFunc("GET /.well-known/openid-configuration", i.discovery)
	mux.HandleFunc("GET /authorize", i.authorize)
	mux.HandleFunc("POST /authorize", i.authorize)
	mux.HandleFunc("POST /oauth/token", i.exchange)
	mux.HandleFunc("GET /logout", i.logout)
	return mux
}

// serve responds on ln until ctx ends.
func (i *identity) serve(ctx context.Context, ln net.Listener) error {
	server := &http.Server{Handler: i.handler(), ReadHeaderTimeout: 5 * time.Second}
	defer context.AfterFunc(ctx, func() { server.Close() })()
	if err := server.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("identity provider: %w", err)
	}
	return nil
}

// portalSettings let control accept the provider's tokens, and people sign in to its console. keys are CONSOLE_SESSION_KEYS.
func (i *identity) portalSettings(keys string) []string {
	return []string{
		"PORTAL_ISSUER=" + i.issuer, "PORTAL_JWKS_URL=" + i.issuer + "/.well-known/jwks.json",
		"CONSOLE_URL=http://" + i.control, "CONSOLE_OIDC_ISSUER=" + i.issuer, "CONSOLE_OIDC_CLIENT_ID=" + clientID, "CONSOLE_SESSION_KEYS=" + keys,
	}
}

// token signs {"org": externalId, "role": "admin", "ttlSeconds"?: 60}, 3,600 s at most.
func (i *identity) token(w http.ResponseWriter, r *http.Request) {
	request := struct {
		Org        string `json:"org"`
		Role       string `json:"role"`
		Sub        string `json:"sub"`
		TTLSeconds *int   `json:"ttlSeconds"`
	}{Role: "admin", Sub: "user_dev"}
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 4<<10)).Decode(&request); err != nil {
		respond(w, http.StatusBadRequest, map[string]string{"message": "send {\"org\": externalId, \"role\": \"admin\"}"})
		return
	}
	lifetime := defaultLifetime
	if request.TTLSeconds != nil {
		lifetime = time.Duration(min(*request.TTLSeconds, int(maxLifetime/time.Second))) * time.Second
	}
	signed, err := i.sign(lifetime, map[string]any{"sub": request.Sub, "org_id": request.Org, "org_role": "org:" + request.Role})
	if err != nil {
		respond(w, http.StatusInternalServerError, map[string]string{"message": err.Error()})
		return
	}
	respond(w, http.StatusOK, map[string]string{"token": signed})
}

// sign returns a token with the claims.
func (i *identity) sign(lifetime time.Duration, claims map[string]any) (string, error) {
	now := time.Now()
	builder := jwt.NewBuilder().Issuer(i.issuer).IssuedAt(now).NotBefore(now).Expiration(now.Add(lifetime))
	for name, value := range claims {
		builder = builder.Claim(name, value)
	}
	token, err := builder.Build()
	if err != nil {
		return "", err
	}
	signed, err := jwt.Sign(token, jwt.WithKey(jwa.RS256(), i.key))
	return string(signed), err
}

func respond(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	// The client may have disconnected.
	_ = json.NewEncoder(w).Encode(body)
}
