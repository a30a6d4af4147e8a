package session

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/lestrrat-go/jwx/v3/jwt"

	"deeplink/shared/strictjson"
)

const (
	// leeway is the allowed difference between the provider's clock and ours.
	leeway = 5 * time.Second
	// maxLifetime bounds how long a stolen token is valid. Portal tokens live about 60 s.
	maxLifetime = time.Hour
)

// read returns the session of a token whose signature is verified.
func (v *Verifier) read(payload []byte, now time.Time) (Session, error) {
	token, claims, expiry, err := v.valid(payload, now)
	if err != nil {
		return Session{}, err
	}
	active, err := v.active(claims)
	if err != nil {
		return Session{}, err
	}
	if active.Organization == "" {
		return Session{}, noOrganization
	}
	subject, _ := token.Subject()
	return Session{Organization: active.Organization, Role: active.Role, Subject: subject, Name: text(claims["name"]), Email: text(claims["email"]), Expiry: expiry}, nil
}

// identity returns the identity in a token whose signature is verified.
func (v *Verifier) identity(payload []byte, now time.Time) (Identity, error) {
	token, claims, expiry, err := v.valid(payload, now)
	if err != nil {
		return Identity{}, err
	}
	active, err := v.active(claims)
	if err != nil {
		return Identity{}, err
	}
	i := Identity{Name: text(claims["name"]), Email: text(claims["email"]), Expiry: expiry}
	i.Subject, _ = token.Subject()
	i.Issued, _ = token.IssuedAt()
	if active.Organization != "" {
		i.Memberships = []Membership{active}
	} else {
		i.Memberships = memberships(v.organizationsClaim.in(claims), active.Role)
	}
	return i, nil
}

// valid returns the claims of a token that this service may accept now, and its expiry.
func (v *Verifier) valid(payload []byte, now time.Time) (jwt.Token, map[string]any, time.Time, error) {
	var claims map[string]any
	token := jwt.New()
	if strictjson.Check(payload, maxDepth) != nil || json.Unmarshal(payload, token) != nil || json.Unmarshal(payload, &claims) != nil {
		return nil, nil, time.Time{}, malformed
	}
	if issuer, ok := token.Issuer(); !ok || issuer != v.issuer {
		return nil, nil, time.Time{}, wrongIssuer
	}
	if audience, _ := token.Audience(); v.audience != "" && !slices.Contains(audience, v.audience) {
		return nil, nil, time.Time{}, wrongAudience
	}
	expiry, err := holds(token, now)
	return token, claims, expiry, err
}

// holds returns the expiry of the token, or why the token is not valid now (RFC 7519, 4.1.4 to 4.1.6).
func holds(token jwt.Token, now time.Time) (time.Time, error) {
	expiry, ok := token.Expiration()
	if !ok {
		return time.Time{}, noExpiry
	}
	if !now.Before(expiry.Add(leeway)) {
		return time.Time{}, expired
	}
	if notBefore, ok := token.NotBefore(); ok && now.Before(notBefore.Add(-leeway)) {
		return time.Time{}, notYetValid
	}
	issued, ok := token.IssuedAt()
	switch {
	case !ok:
		// No correct clock of a provider produces a later time.
		issued = now.Add(leeway)
	case now.Before(issued.Add(-leeway)):
		return time.Time{}, issuedLater
	}
	if expiry.Sub(issued) > maxLifetime {
		return time.Time{}, livesTooLong
	}
	return expiry, nil
}
