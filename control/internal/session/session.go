// Package session authenticates portal requests by their session token, a JWT signed by the identity provider. Its promise: a [Session]
// holds the claims of a token that the provider issued to this service and that is valid now, and tokens with unknown keys do not delay
// requests whose key is known.
//
// It does not use the database. The caller checks whether the organization exists and is not suspended.
package session

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/lestrrat-go/jwx/v3/jws"

	"deeplink/shared/strictjson"
)

// Session holds the claims of a token.
type Session struct {
	// Organization is the active organization by the identity provider's id, which is the organization's externalId. It is never empty.
	Organization string
	Role         Role
	// Subject is the user, or empty if the token names none. Name and Email are empty if the token does not have them.
	Subject, Name, Email string
	// Expiry is the expiry of the token. Verify accepts it for 5 s longer.
	Expiry time.Time
}

// Identity holds the claims of a token that may be for several organizations.
type Identity struct {
	Subject, Name, Email string
	// Memberships are the organizations of the user, at most maxMemberships, each once. A token with an active organization has only this one.
	Memberships []Membership
	// Issued is when the token was issued, or the zero time if it does not say.
	Issued time.Time
	Expiry time.Time
}

// Membership is the role that a user has in an organization, by the identity provider's id.
type Membership struct {
	Organization string `json:"organization"`
	Role         Role   `json:"role"`
}

// Errors of Verify. Their texts add a reason for the log and contain nothing of the token.
var (
	// ErrInvalid: the token is not valid. The response is the same 401 for every reason, so that an attacker learns nothing from it.
	ErrInvalid = errors.New("session token not valid")
	// ErrNoOrganization: the token is valid, but its user has no active organization. The response is 401.
	ErrNoOrganization = errors.New("session token without an active organization")
	// ErrUnavailable: no keys of the provider have been fetched since the start, so no token can be verified. The response is 503.
	ErrUnavailable = errors.New("session tokens cannot be verified yet")
	// ErrUnknownKey: the token names a key that the provider did not publish at KeysFetched. It wraps ErrInvalid.
	ErrUnknownKey error = unknownKey
)

// Verifier verifies tokens. Its methods are safe for concurrent use.
type Verifier struct {
	issuer, audience                                 string
	organizationClaim, roleClaim, organizationsClaim selector
	keyring                                          *keyring
	counts                                           counts
}

// New returns a verifier, or an error that names the invalid option. Only Run fetches keys.
func New(o Options) (*Verifier, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	v := &Verifier{
		issuer: o.Issuer, audience: o.Audience,
		organizationClaim: selector(cmp.Or(o.OrganizationClaim, "org_id")), roleClaim: selector(cmp.Or(o.RoleClaim, "org_role")),
		organizationsClaim: selector(cmp.Or(o.OrganizationsClaim, "organizations")), counts: newCounts(),
	}
	v.keyring = newKeyring(o, v.counts.fetched)
	return v, nil
}

// Issuer returns the issuer of the tokens.
func (v *Verifier) Issuer() string { return v.issuer }

// KeysFetched returns when the known keys were fetched, the zero time before the first fetch.
func (v *Verifier) KeysFetched() time.Time { return v.keyring.view.Load().at }

// Run keeps the provider's keys up to date until ctx ends, and then returns nil. It is called once. Without it Verify
// accepts no token.
func (v *Verifier) Run(ctx context.Context) error {
	v.keyring.run(ctx)
	return nil
}

// Verify verifies a token in compact form at the given time and returns its session. Its error wraps ErrInvalid, ErrNoOrganization or
// ErrUnavailable, or is that of ctx if ctx ended during a wait. Verify waits, at most 2 s, only if the token names an unknown key. A token
// with a known key is verified without waiting for the provider or for other calls.
func (v *Verifier) Verify(ctx context.Context, token string, now time.Time) (Session, error) {
	s, err := v.verify(ctx, token, now)
	var r refusal
	if errors.As(err, &r) {
		v.counts.refused(r)
	}
	return s, err
}

func (v *Verifier) verify(ctx context.Context, token string, now time.Time) (Session, error) {
	payload, err := v.signed(ctx, token, now)
	if err != nil {
		return Session{}, err
	}
	return v.read(payload, now)
}

// Identify verifies a token as Verify does, and returns its identity. In contrast to Verify it accepts a token for several organizations, and
// one for none.
func (v *Verifier) Identify(ctx context.Context, token string, now time.Time) (Identity, error) {
	payload, err := v.signed(ctx, token, now)
	if err != nil {
		return Identity{}, err
	}
	return v.identity(payload, now)
}

// VerifySignature returns the payload of a token whose signature is valid, and checks none of its claims. Errors are those of Verify. It
// implements the KeySet of go-oidc.
func (v *Verifier) VerifySignature(ctx context.Context, token string) ([]byte, error) {
	payload, err := v.signed(ctx, token, time.Now())
	if err == nil && strictjson.Check(payload, maxDepth) != nil {
		err = malformed
	}
	return payload, err
}

// signed returns the payload of a token whose signature is valid.
func (v *Verifier) signed(ctx context.Context, token string, now time.Time) ([]byte, error) {
	n, err := signedWith(token)
	if err != nil {
		return nil, err
	}
	k, err := v.keyring.find(ctx, n, now)
	if err != nil {
		return nil, err
	}
	payload, err := jws.VerifyCompactFast(k.public, []byte(token), k.algorithm)
	if err != nil {
		return nil, badSignature
	}
	return payload, nil
}
