package drills

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/lestrrat-go/jwx/v3/jwa"
	"github.com/lestrrat-go/jwx/v3/jwk"
	"github.com/lestrrat-go/jwx/v3/jwt"

	"deeplink/bench/prove/figures"
	"deeplink/bench/prove/fleet"
	"deeplink/bench/prove/visitor"
	"deeplink/deploy/stack"
)

// kidFlood sends the portal tokens with made-up key ids while the identity provider replaces its key. The number of fetches from the
// provider must stay bounded, known keys must keep working, and the new key must soon work.
type kidFlood struct {
	perSecond int
	span      time.Duration
}

// fetchPause is the least time between two fetches of the provider's keys.
const fetchPause = 10 * time.Second

func (d kidFlood) run(ctx context.Context, f *fleet.Fleet) ([]figures.Finding, error) {
	p, err := newProvider()
	if err != nil {
		return nil, err
	}
	defer p.server.Close()
	portal, err := p.portal(ctx, f)
	if err != nil {
		return nil, err
	}
	defer func() { _ = portal.Kill() }()
	old, err := p.publish()
	if err != nil {
		return nil, err
	}
	if err := p.untilKnown(ctx, portal, old); err != nil {
		return nil, err
	}
	began, fetches := time.Now(), p.fetches.Load()

	flooding, stop := context.WithTimeout(ctx, d.span)
	var asking sync.WaitGroup
	defer func() { stop(); asking.Wait() }()
	var made counter
	asking.Go(func() { d.flood(flooding, &asking, p, portal, &made) })
	var known counter
	asking.Go(func() {
		for fleet.Pause(flooding, 20*time.Millisecond) {
			known.add(p.ask(ctx, portal, old))
		}
	})
	fleet.Pause(flooding, d.span/3)
	fresh, err := p.publish()
	if err != nil {
		return nil, err
	}
	rotated := time.Now()
	err = p.untilKnown(ctx, portal, fresh)
	took := time.Since(rotated)
	asking.Wait()
	asked := p.fetches.Load() - fetches
	most := int64(time.Since(began)/fetchPause) + 1
	return []figures.Finding{
		figures.Counted(fmt.Sprintf("fetches of the keys in %s of %d made-up key ids", d.span, made.all.Load()), fmt.Sprint(asked), fmt.Sprintf("≤ %d", most), asked <= most),
		figures.None("tokens of a known key refused meanwhile", int(known.others(http.StatusOK)), int(known.all.Load())),
		figures.None("made-up key ids without status 401", int(made.others(http.StatusUnauthorized)), int(made.all.Load())),
		figures.AtMost("the new key is accepted after", took, fetchPause+time.Second),
	}, err
}

// flood sends at its pace, whether or not responses arrive: control may wait while it fetches keys.
func (d kidFlood) flood(ctx context.Context, asking *sync.WaitGroup, p *provider, portal *stack.Node, made *counter) {
	const turn = 10 * time.Millisecond
	for fleet.Pause(ctx, turn) {
		for range d.perSecond * int(turn) / int(time.Second) {
			asking.Go(func() {
				token, err := p.signed(uuid.NewString())
				if err != nil {
					panic(err) // a key id that no provider has
				}
				made.add(p.ask(context.WithoutCancel(ctx), portal, token))
			})
		}
	}
}

// counter counts responses by status; 0 stands for no response.
type counter struct {
	all      atomic.Int64
	statuses sync.Map // int → *atomic.Int64
}

func (c *counter) add(status int) {
	c.all.Add(1)
	n, _ := c.statuses.LoadOrStore(status, new(atomic.Int64))
	n.(*atomic.Int64).Add(1)
}

func (c *counter) others(wanted int) int64 {
	n, ok := c.statuses.Load(wanted)
	if !ok {
		return c.all.Load()
	}
	return c.all.Load() - n.(*atomic.Int64).Load()
}

// provider is an identity provider that counts how often its keys are fetched, and publishes only its latest key.
type provider struct {
	server  *httptest.Server
	private ed25519.PrivateKey
	org     string
	keys    atomic.Pointer[jwk.Set]
	fetches atomic.Int64
}

func newProvider() (*provider, error) {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	p := &provider{private: private, org: "kids-" + uuid.NewString()}
	p.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		p.fetches.Add(1)
		if keys := p.keys.Load(); keys != nil {
			_ = json.NewEncoder(w).Encode(*keys)
		}
	}))
	return p, nil
}

// portal starts a control that trusts the provider, and creates the organization of its tokens.
func (p *provider) portal(ctx context.Context, f *fleet.Fleet) (*stack.Node, error) {
	addrs, err := fleet.FreeAddrs(1)
	if err != nil {
		return nil, err
	}
	if _, err := f.OperatorCommand(ctx, "org", "create", "--name", "kids", "--plan", "growth", "--external-id", p.org); err != nil {
		return nil, err
	}
	return f.StartControl(ctx, addrs[0], "PORTAL_ISSUER="+p.server.URL, "PORTAL_JWKS_URL="+p.server.URL, "TRUSTED_PROXIES=127.0.0.1/32")
}

// publish replaces the published key and returns a token signed with the new one. The secret stays the same, the id changes.
func (p *provider) publish() (token string, err error) {
	kid := uuid.NewString()
	key, err := jwk.Import(p.private.Public())
	if err != nil {
		return "", err
	}
	keys := jwk.NewSet()
	if err := errors.Join(key.Set(jwk.KeyIDKey, kid), key.Set(jwk.AlgorithmKey, jwa.EdDSA()), keys.AddKey(key)); err != nil {
		return "", err
	}
	p.keys.Store(&keys)
	return p.signed(kid)
}

func (p *provider) signed(kid string) (string, error) {
	key, err := jwk.Import(p.private)
	if err != nil {
		return "", err
	}
	if err := key.Set(jwk.KeyIDKey, kid); err != nil {
		return "", err
	}
	token, err := jwt.NewBuilder().Issuer(p.server.URL).Subject("bench").IssuedAt(time.Now()).Expiration(time.Now().Add(5*time.Minute)).
		Claim("org_id", p.org).Claim("org_role", "member").Build()
	if err != nil {
		return "", err
	}
	signed, err := jwt.Sign(token, jwt.WithKey(jwa.EdDSA(), key))
	return string(signed), err
}

// ask sends one portal request from a new address, and returns the status, 0 for no response.
func (p *provider) ask(ctx context.Context, portal *stack.Node, token string) (status int) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, portal.URL()+"/portal/organization", nil)
	if err != nil {
		return 0
	}
	request.Header.Set("X-Forwarded-For", visitor.Stranger().String())
	request.Header.Set("Authorization", "Bearer "+token)
	response, err := fleet.Client.Do(request)
	if err != nil {
		return 0
	}
	_ = response.Body.Close()
	return response.StatusCode
}

// untilKnown retries until the token is accepted.
func (p *provider) untilKnown(ctx context.Context, portal *stack.Node, token string) error {
	ctx, stop := context.WithTimeout(ctx, 3*fetchPause)
	defer stop()
	for p.ask(ctx, portal, token) != http.StatusOK {
		if !fleet.Pause(ctx, 50*time.Millisecond) {
			return errors.New("a published key stays unknown")
		}
	}
	return nil
}
