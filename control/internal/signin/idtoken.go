package signin

import (
	"context"
	"slices"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/coreos/go-oidc/v3/oidc"
)

const (
	// leeway is the allowed difference between the provider's clock and ours, as for session tokens.
	leeway = 5 * time.Second
	// maxSubject bounds the subject, in characters (OpenID Connect Core, 2).
	maxSubject = 255
)

// idClaims are claims of an ID token.
type idClaims struct {
	Subject   string   `json:"sub"`
	Name      any      `json:"name"`
	Email     any      `json:"email"`
	Party     any      `json:"azp"`
	NotBefore *float64 `json:"nbf"`
	// AccessTokenHash is nil if the token has none.
	AccessTokenHash any `json:"at_hash"`
}

// person is the subject of an ID token.
type person struct{ Subject, Name, Email string }

// checkIDToken checks an ID token (OpenID Connect Core, 3.1.3.7).
func (p *Provider) checkIDToken(ctx context.Context, raw, accessToken string, expected judging) (person, *tokenError) {
	reject := func(kind tokenErrorKind, reason string) (person, *tokenError) {
		return person{}, &tokenError{kind: kind, reason: reason}
	}
	payload, err := p.judge.VerifySignature(ctx, raw)
	switch {
	case p.lacksKeys(ctx, err, expected.keysFrom):
		return reject(tokenUnreachable, "the keys of the identity provider are not available")
	case err != nil:
		return reject(tokenRejected, "the ID token was rejected: "+err.Error()) // session's errors contain nothing of the token
	}
	// The claims are checked below: the library has another leeway, an exception for the issuer of Google, and another order.
	token, err := oidc.NewVerifier(p.Issuer, verified(payload), &oidc.Config{
		SkipClientIDCheck: true, SkipExpiryCheck: true, SkipIssuerCheck: true, SupportedSigningAlgs: []string{oidc.RS256, oidc.ES256, oidc.EdDSA},
	}).Verify(ctx, raw)
	var claims idClaims
	if err != nil || token.Claims(&claims) != nil {
		return reject(tokenRejected, "the ID token is malformed")
	}
	now := time.Now()
	switch subject := token.Subject; {
	case token.Issuer != p.Issuer:
		return reject(tokenWrongIssuer, "the ID token is of another issuer")
	case !slices.Contains(token.Audience, p.ClientID):
		return reject(tokenRejected, "the ID token is not for this client (aud)")
	case claims.Party == nil && len(token.Audience) > 1, claims.Party != nil && claims.Party != any(p.ClientID):
		return reject(tokenRejected, "the ID token was issued to another client (azp)")
	case !now.Before(token.Expiry.Add(leeway)):
		return reject(tokenRejected, "the ID token has expired")
	case token.IssuedAt.IsZero() || token.IssuedAt.Unix() <= 0 || now.Before(token.IssuedAt.Add(-leeway)):
		return reject(tokenRejected, "the ID token was issued later than now, or does not say when")
	case claims.NotBefore != nil && float64(now.Add(leeway).Unix()) < *claims.NotBefore:
		return reject(tokenRejected, "the ID token is not valid yet")
	case token.Nonce == "" && expected.nonceRequired, token.Nonce != "" && hashOf(token.Nonce) != expected.nonce:
		return reject(tokenRejected, "the ID token has another nonce")
	case subject == "" || utf8.RuneCountInString(subject) > maxSubject || hasControl(subject):
		return reject(tokenRejected, "the ID token has no valid subject")
	case expected.subject != "" && subject != expected.subject:
		return reject(tokenRejected, "the ID token is for another subject")
	case claims.AccessTokenHash != nil && (token.AccessTokenHash == "" || token.VerifyAccessToken(accessToken) != nil):
		return reject(tokenRejected, "the ID token is for another access token (at_hash)")
	}
	text := func(value any) string {
		s, _ := value.(string)
		return s
	}
	return person{token.Subject, text(claims.Name), text(claims.Email)}, nil
}

// verified is the payload of a token whose signature was verified, as a KeySet.
type verified []byte

// VerifySignature implements oidc.KeySet.
func (v verified) VerifySignature(context.Context, string) ([]byte, error) { return v, nil }

func hasControl(text string) bool {
	for _, r := range text {
		if unicode.IsControl(r) {
			return true
		}
	}
	return false
}
