// Package session tells who asks by the session token of a portal request: a JWT signed by the identity provider (interface.md
// 4.2 and 5, decisions.md 6). Its promise: a [Session] is what the provider said, to this service, in a token that holds now;
// and whoever sends tokens with made-up keys slows down nobody whose key is known.
//
// It asks no database. Whether the organization exists or is suspended is for the caller to find out.
package session

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/lestrrat-go/jwx/v3/jws"
)

// Session is what a token says.
type Session struct {
	// Organization is the active organization, by the id the identity provider knows it by: externalId. It is never empty.
	Organization string
	Role         Role
	// Subject is the user, or empty when the token names none.
	Subject string
	// Expiry is when the token ends. The token is taken for 5 s more.
	Expiry time.Time
}

// What Verify returns; the texts of its errors add a reason for the log, and hold nothing of the token.
var (
	// ErrInvalid: the token proves nothing. Whatever is wrong with it, the answer is one 401, so that a prober learns nothing.
	ErrInvalid = errors.New("session token not valid")
	// ErrNoOrganization: the token is valid, but its user has no active organization. The answer is 401.
	ErrNoOrganization = errors.New("session token without an active organization")
	// ErrUnavailable: the provider's keys have never been fetched since the start, so no token can be judged. The answer is 503.
	ErrUnavailable = errors.New("session tokens cannot be verified yet")
)

// Verifier verifies tokens. Its methods are safe for concurrent use.
type Verifier struct {
	issuer, audience             string
	organizationClaim, roleClaim string
	keyring                      *keyring
	counts                       counts
}

// New returns a verifier, or an error that says which option is bad. It fetches nothing: that is for Run.
func New(o Options) (*Verifier, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	v := &Verifier{
		issuer: o.Issuer, audience: o.Audience,
		organizationClaim: cmp.Or(o.OrganizationClaim, "org_id"), roleClaim: cmp.Or(o.RoleClaim, "org_role"), counts: newCounts(),
	}
	v.keyring = newKeyring(o, v.counts.fetched)
	return v, nil
}

// Run keeps the provider's keys up to date until ctx ends, and then returns nil. It is called once. Without it Verify can only
// refuse.
func (v *Verifier) Run(ctx context.Context) error {
	v.keyring.run(ctx)
	return nil
}

// Verify returns what token says, which is in compact form, as at now. Its error is an ErrInvalid, an ErrNoOrganization, an
// ErrUnavailable, or that of a ctx which ended while it waited. It waits, for 2 s at most, only when the token names a key that
// is not known; a token whose key is known is judged without waiting for the provider or for other calls.
func (v *Verifier) Verify(ctx context.Context, token string, now time.Time) (Session, error) {
	s, err := v.verify(ctx, token, now)
	var r refusal
	if errors.As(err, &r) {
		v.counts.refused(r)
	}
	return s, err
}

func (v *Verifier) verify(ctx context.Context, token string, now time.Time) (Session, error) {
	n, err := signedWith(token)
	if err != nil {
		return Session{}, err
	}
	k, err := v.keyring.find(ctx, n, now)
	if err != nil {
		return Session{}, err
	}
	payload, err := jws.VerifyCompactFast(k.public, []byte(token), k.algorithm)
	if err != nil {
		return Session{}, badSignature
	}
	return v.read(payload, now)
}
