package session

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
)

func newFuzzed(f *testing.F) *Verifier {
	p := new(provider)
	p.publish(setOf(rsaKey(), ecdsaKey(), ed25519Key()))
	v := newVerifierOf(f, p)
	v.fetchesEnd(f, succeeded)
	return v
}

// signedPart is what a signature is about.
func signedPart(token string) string { return token[:max(0, strings.LastIndexByte(token, '.'))] }

// FuzzVerify: nothing is taken but what the provider signed.
func FuzzVerify(f *testing.F) {
	signed := make(map[string]bool)
	for _, test := range verdicts() {
		if len(test.token) <= maxToken {
			f.Add(test.token)
		}
		if test.refused == "" {
			signed[signedPart(test.token)] = true
		}
	}
	v := newFuzzed(f)
	hurry, cancel := context.WithCancel(f.Context())
	cancel()
	f.Fuzz(func(t *testing.T, token string) {
		s, err := v.Verify(hurry, token, noon)
		switch {
		case err == nil && !signed[signedPart(token)]:
			t.Errorf("%q was taken: %+v", token, s)
		case err != nil && s != Session{}:
			t.Errorf("%q was refused and is %+v", token, s)
		case err != nil && !errors.Is(err, ErrInvalid) && !errors.Is(err, ErrNoOrganization) && !errors.Is(err, context.Canceled):
			t.Errorf("%q: %v", token, err)
		}
	})
}

// FuzzClaims: whatever the provider signs, a session has an organization and the bounds of its life.
func FuzzClaims(f *testing.F) {
	f.Add(string(must(json.Marshal(claimsAt(noon)))))
	nested := members{"o": members{"id": "org_1", "rol": "admin"}, "aud": []string{"a"}, "iat": nil}
	f.Add(string(must(json.Marshal(changed(claimsAt(noon), nested)))))
	f.Add(`{"iss":"https://id.example","exp":1772366460.5,"org_id":"a","o":{"id":7}}`)
	f.Add(`{"iss":"https://id.example","exp":"1772366460","o":{"id":"a","rol":["b"]}}`)
	v := newFuzzed(f)
	f.Fuzz(func(t *testing.T, payload string) {
		s, err := v.Verify(t.Context(), ed25519Key().sign(members{"alg": "EdDSA", "kid": ed25519Key().kid}, payload), noon)
		if err != nil {
			if s != (Session{}) || errors.Is(err, badSignature) {
				t.Errorf("%q: %+v, %v", payload, s, err)
			}
			return
		}
		left := s.Expiry.Sub(noon)
		if s.Organization == "" || s.Role != NoRole && !s.Role.AtLeast(Member) || left <= -leeway || left > maxLifetime+leeway {
			t.Errorf("%q was taken: %+v", payload, s)
		}
	})
}
