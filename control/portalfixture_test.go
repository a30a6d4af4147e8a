package main

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lestrrat-go/jwx/v3/jwa"
	"github.com/lestrrat-go/jwx/v3/jwk"
	"github.com/lestrrat-go/jwx/v3/jws"

	"deeplink/control/internal/store"
	"deeplink/shared/catalog"
)

// claims are those of a session token. As a change to other ones, nil takes a claim away.
type claims map[string]any

const issuer = "https://id.example"

// signingKey is made once: RSA takes its time.
var signingKey = sync.OnceValue(func() *rsa.PrivateKey {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		panic(err)
	}
	return key
})

// provider is an identity provider that publishes one key.
type provider struct {
	w   *world
	url string
}

func (w *world) provider() *provider {
	w.t.Helper()
	key, err := jwk.Import(signingKey().Public())
	if err != nil {
		w.t.Fatal(err)
	}
	for name, value := range (claims{jwk.KeyIDKey: "k1", jwk.AlgorithmKey: jwa.RS256(), jwk.KeyUsageKey: "sig"}) {
		if err := key.Set(name, value); err != nil {
			w.t.Fatal(err)
		}
	}
	document, err := json.Marshal(map[string]any{"keys": []jwk.Key{key}})
	if err != nil {
		w.t.Fatal(err)
	}
	server := httptest.NewServer(http.HandlerFunc(func(answer http.ResponseWriter, _ *http.Request) { answer.Write(document) }))
	w.t.Cleanup(server.Close)
	return &provider{w: w, url: server.URL}
}

// sign signs a payload with the key named kid.
func (p *provider) sign(algorithm jwa.SignatureAlgorithm, key any, kid string, payload claims) string {
	p.w.t.Helper()
	text, err := json.Marshal(payload)
	if err != nil {
		p.w.t.Fatal(err)
	}
	headers := jws.NewHeaders()
	if err := headers.Set(jws.KeyIDKey, kid); err != nil {
		p.w.t.Fatal(err)
	}
	token, err := jws.Sign(text, jws.WithKey(algorithm, key, jws.WithProtectedHeaders(headers)))
	if err != nil {
		p.w.t.Fatal(err)
	}
	return string(token)
}

// usual are the claims of an owner's token, with changes.
func usual(externalID string, changes claims) claims {
	now := time.Now()
	usual := claims{
		"iss": issuer, "sub": "user_1", "iat": now.Unix(), "nbf": now.Unix(), "exp": now.Add(30 * time.Minute).Unix(),
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

// token returns a good one for the organization.
func (p *provider) token(externalID, role string) string {
	p.w.t.Helper()
	return p.sign(jwa.RS256(), signingKey(), "k1", usual(externalID, claims{"org_role": role}))
}

// publicPEM is what anybody can know of the key: a secret for those who confuse algorithms.
func publicPEM() []byte {
	der, err := x509.MarshalPKIXPublicKey(signingKey().Public())
	if err != nil {
		panic(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
}

// serve starts a control that trusts the provider, and this machine as its proxy.
func (p *provider) serve(flags ...string) *process {
	p.w.t.Helper()
	return p.w.serve(append([]string{"--portal-jwks-url=" + p.url, "--portal-issuer=" + issuer, "--trusted-proxies=127.0.0.1/32"}, flags...)...)
}

// launch is serve with a program of its own, for tests that send much at once.
func (p *provider) launch(path string) *process {
	p.w.t.Helper()
	control, _ := p.w.launch(path, "PORTAL_JWKS_URL="+p.url, "PORTAL_ISSUER="+issuer, "TRUSTED_PROXIES=127.0.0.1/32")
	return control
}

var visitors atomic.Uint32

// visit returns a client with a session token, each of whose requests comes from another address: 30 a second are not many.
func (p *process) visit(token string) *client {
	c := p.client(token)
	c.from = func() string {
		n := visitors.Add(1)
		return fmt.Sprintf("10.%d.%d.%d", n>>16&255, n>>8&255, n&255)
	}
	return c
}

var tenants atomic.Int64

// tenant makes an organization that the identity provider knows, with the demo app config.
func (w *world) tenant(plan catalog.Plan) store.CreatedOrganization {
	w.t.Helper()
	config, err := readAppConfig(demo)
	if err != nil {
		w.t.Fatal(err)
	}
	externalID := fmt.Sprintf("org_%d", tenants.Add(1))
	created, _, err := w.store.CreateOrganization(context.Background(),
		store.NewOrganization{Name: "Tenant", ExternalID: &externalID, Plan: &plan, AppConfig: &config})
	if err != nil {
		w.t.Fatal(err)
	}
	return created
}

// as returns a client of a control with a role in an organization.
func (p *provider) as(control *process, o store.CreatedOrganization, role string) *client {
	p.w.t.Helper()
	return control.visit(p.token(*o.ExternalID, role))
}
