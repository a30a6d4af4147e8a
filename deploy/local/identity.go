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

// identity is the development identity provider: it signs a session token for any organization and role for every client that can reach it,
// so it must listen on 127.0.0.1 only. It is not part of control.
type identity struct {
	issuer  string
	control string  // host and port of control, whose console may read tokens
	key     jwk.Key // private, with kid and alg
	public  jwk.Set
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
	return &identity{issuer: issuer, control: control, key: key, public: public}, nil
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

// serve responds on ln until ctx ends.
func (i *identity) serve(ctx context.Context, ln net.Listener) error {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /.well-known/jwks.json", func(w http.ResponseWriter, _ *http.Request) { respond(w, http.StatusOK, i.public) })
	mux.HandleFunc("OPTIONS /token", i.preflight)
	mux.HandleFunc("POST /token", i.token)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	defer context.AfterFunc(ctx, func() { server.Close() })()
	if err := server.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("identity provider: %w", err)
	}
	return nil
}

// portalSettings let control accept the provider's tokens, and its console offer a token for an organization.
func (i *identity) portalSettings(externalID string) []string {
	return []string{
		"PORTAL_ISSUER=" + i.issuer, "PORTAL_JWKS_URL=" + i.issuer + "/.well-known/jwks.json",
		"CONSOLE_DEV_TOKEN_URL=" + i.issuer + "/token", "CONSOLE_DEV_ORGANIZATION=" + externalID,
	}
}

// preflight allows the console to request a token.
func (i *identity) preflight(w http.ResponseWriter, r *http.Request) {
	i.share(w, r)
	w.Header().Set("Access-Control-Allow-Methods", http.MethodPost)
	w.Header().Set("Access-Control-Allow-Headers", "Content-Type")
	w.WriteHeader(http.StatusNoContent)
}

// share allows the console to read the response, under any name of this machine. Other pages must not read it: they could sign in to the
// developer's installation.
func (i *identity) share(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Vary", "Origin")
	_, port, _ := net.SplitHostPort(i.control)
	sent := r.Header.Get("Origin")
	for _, origin := range []string{i.control, "localhost:" + port, "127.0.0.1:" + port} {
		if sent == "http://"+origin {
			w.Header().Set("Access-Control-Allow-Origin", sent)
		}
	}
}

// token signs {"org": externalId, "role": "admin", "ttlSeconds"?: 60}, 3,600 s at most.
func (i *identity) token(w http.ResponseWriter, r *http.Request) {
	i.share(w, r)
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
	now := time.Now()
	token, err := jwt.NewBuilder().Issuer(i.issuer).Subject(request.Sub).IssuedAt(now).NotBefore(now).Expiration(now.Add(lifetime)).
		Claim("org_id", request.Org).Claim("org_role", "org:"+request.Role).Build()
	if err == nil {
		var signed []byte
		if signed, err = jwt.Sign(token, jwt.WithKey(jwa.RS256(), i.key)); err == nil {
			respond(w, http.StatusOK, map[string]string{"token": string(signed)})
			return
		}
	}
	respond(w, http.StatusInternalServerError, map[string]string{"message": err.Error()})
}

func respond(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	// The client may have disconnected.
	_ = json.NewEncoder(w).Encode(body)
}
