package session

import (
	"encoding/json"
	"slices"
	"strings"
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
	if strictjson.Check(payload, maxDepth) != nil {
		return Session{}, malformed
	}
	token := jwt.New()
	if json.Unmarshal(payload, token) != nil {
		return Session{}, malformed
	}
	if issuer, ok := token.Issuer(); !ok || issuer != v.issuer {
		return Session{}, wrongIssuer
	}
	if audience, _ := token.Audience(); v.audience != "" && !slices.Contains(audience, v.audience) {
		return Session{}, wrongAudience
	}
	expiry, err := holds(token, now)
	if err != nil {
		return Session{}, err
	}
	organization, role, err := v.membership(token)
	if err != nil {
		return Session{}, err
	}
	subject, _ := token.Subject()
	return Session{Organization: organization, Role: role, Subject: subject, Expiry: expiry}, nil
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

// membership returns the active organization and the role in it: from the two configured claims, from the nested form o: {id, rol},
// or from both. If the two differ, the meaning is ambiguous and the token is rejected.
func (v *Verifier) membership(token jwt.Token) (organization string, role Role, err error) {
	var nested map[string]any
	// Some providers use o for another purpose: a value without id is ignored.
	if token.Get("o", &nested) != nil || nested["id"] == nil {
		nested = nil
	}
	organization, err = agreed(claim(token, v.organizationClaim), nested["id"])
	if err != nil {
		return "", NoRole, err
	}
	if organization == "" {
		return "", NoRole, noOrganization
	}
	named, err := agreed(unprefixed(claim(token, v.roleClaim)), unprefixed(nested["rol"]))
	return organization, roleOf(named), err
}

// claim returns the value of a claim, or nil if it is absent or null.
func claim(token jwt.Token, name string) any {
	var value any
	if token.Get(name, &value) != nil {
		return nil
	}
	return value
}

// agreed returns the common text of two claims. Either may be absent.
func agreed(values ...any) (string, error) {
	agreed := ""
	for _, value := range values {
		text, ok := value.(string)
		switch {
		case value != nil && !ok:
			return "", malformed
		case agreed != "" && text != "" && text != agreed:
			return "", twoMeanings
		case text != "":
			agreed = text
		}
	}
	return agreed, nil
}

// unprefixed returns the name of a role without the prefix that some providers add.
func unprefixed(role any) any {
	if text, ok := role.(string); ok {
		return strings.TrimPrefix(text, "org:")
	}
	return role
}
