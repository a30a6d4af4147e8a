package session

import (
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/lestrrat-go/jwx/v3/jwa"
	"github.com/lestrrat-go/jwx/v3/jwk"
	"github.com/lestrrat-go/jwx/v3/jwt"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// at returns a NumericDate some time from noon.
func at(d time.Duration) int64 { return noon.Add(d).Unix() }

func TestVerifyAcceptsOnlyTokensOfTheProvider(t *testing.T) {
	t.Parallel()
	_, url := newServer(t, setOf(rsaKey(), ecdsaKey(), ed25519Key()))
	v := newVerifier(t, Options{KeysURL: url})
	v.fetchesEnd(t, succeeded)
	for _, test := range verdicts() {
		_, err := v.Verify(t.Context(), test.token, noon)
		checkRefusal(t, test.name, err, test.refused)
	}
}

// verdict is a token and why it's refused, or "".
type verdict struct {
	name    string
	token   string
	refused refusal
}

func verdicts() []verdict {
	r, ec, ed := rsaKey(), ecdsaKey(), ed25519Key()
	stranger := otherRSA()
	impostor := signer{r.kid, r.algorithm, stranger.private} // says that its key is the provider's
	claims := func(changes members) string { return r.token(noon, nil, changes) }
	header := func(changes members) string { return r.token(noon, changes, nil) }
	parts := strings.Split(r.token(noon, nil, nil), ".")
	publicJWK := must(json.Marshal(r.jwk(false)))
	publicDER := must(x509.MarshalPKIXPublicKey(must(jwk.PublicRawKeyOf(r.private))))
	publicPEM := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: publicDER})
	symmetric := func(secret []byte) string {
		return signer{r.kid, "HS256", secret}.token(noon, nil, nil)
	}
	body := encode(claimsAt(noon))
	return []verdict{
		{"RS256", r.token(noon, nil, nil), ""},
		{"ES256", ec.token(noon, nil, nil), ""},
		{"EdDSA", ed.token(noon, nil, nil), ""},

		{"empty", "", malformed},
		{"junk", "junk", malformed},
		{"two parts", parts[0] + "." + parts[1], malformed},
		{"four parts", r.token(noon, nil, nil) + ".x", malformed},
		{"five parts, as if encrypted", strings.Repeat("x.", 4) + "x", malformed},
		{"empty header", "." + parts[1] + "." + parts[2], malformed},
		{"empty payload", parts[0] + ".." + parts[2], malformed},
		{"empty signature", parts[0] + "." + parts[1] + ".", malformed},
		{"padding", r.token(noon, nil, nil) + "==", malformed},
		{"standard alphabet", parts[0] + "." + parts[1] + ".+/" + parts[2][2:], malformed},
		{"line end", r.token(noon, nil, nil) + "\n", malformed},
		{"space before", " " + r.token(noon, nil, nil), malformed},
		{"JSON serialization", `{"protected":"` + parts[0] + `","payload":"` + parts[1] + `","signature":"` + parts[2] + `"}`, malformed},
		{"two signatures", `{"payload":"` + parts[1] + `","signatures":[{"protected":"` + parts[0] + `","signature":"` + parts[2] +
			`"},{"protected":"` + parts[0] + `","signature":"` + parts[2] + `"}]}`, malformed},
		{"8 KiB", pad(r, 8192), ""},
		{"8 KiB and a byte", pad(r, 8193), tooLong},
		{"huge", strings.Repeat("x", 1<<20), tooLong},
		{"header is no JSON", r.sign("x", body), malformed},
		{"header is a list", r.sign("[]", body), malformed},
		{"header is null", r.sign("null", body), malformed},
		{"header names alg twice", r.sign(`{"alg":"HS256","kid":"rsa","alg":"RS256"}`, claimsAt(noon)), malformed},
		{"header nested too deeply", header(members{"x": json.RawMessage(strings.Repeat("[", 40) + strings.Repeat("]", 40))}), malformed},
		{"claims are no JSON", r.sign(members{"alg": "RS256", "kid": r.kid}, "x"), malformed},
		{"claims are a list", r.sign(members{"alg": "RS256", "kid": r.kid}, "[]"), malformed},
		{"claims are null", r.sign(members{"alg": "RS256", "kid": r.kid}, "null"), malformed},
		{"claim twice", r.sign(members{"alg": "RS256", "kid": r.kid},
			`{"org_id":"a",`+string(must(json.Marshal(claimsAt(noon))))[1:]), malformed},
		{"U+0000 in a claim", claims(members{"org_id": "org\x00"}), malformed},

		{"alg none without signature", encode(members{"alg": "none", "kid": r.kid}) + "." + body + ".", malformed},
		{"alg none", encode(members{"alg": "none", "kid": r.kid}) + "." + body + "." + parts[2], badAlgorithm},
		{"alg nOnE", header(members{"alg": "nOnE"}), badAlgorithm},
		{"no alg", header(members{"alg": nil}), malformed},
		{"alg is no text", header(members{"alg": 256}), malformed},
		{"alg in another case", header(members{"alg": "rs256"}), badAlgorithm},
		{"HS256 with the public key as PEM", symmetric(publicPEM), badAlgorithm},
		{"HS256 with the public key as DER", symmetric(publicDER), badAlgorithm},
		{"HS256 with the public key as JWK", symmetric(publicJWK), badAlgorithm},
		{"HS256 with the modulus", symmetric([]byte(r.published(nil)["n"].(string))), badAlgorithm},
		{"HS256 said to be RS256", relabelled(symmetric(publicPEM), "RS256", r.kid), badSignature},
		{"RS512", signer{r.kid, "RS512", r.private}.token(noon, nil, nil), badAlgorithm},
		{"PS256", signer{r.kid, "PS256", r.private}.token(noon, nil, nil), badAlgorithm},
		{"PS256 said to be RS256", signer{r.kid, "PS256", r.private}.token(noon, members{"alg": "RS256"}, nil), badSignature},
		{"ES384", header(members{"alg": "ES384"}), badAlgorithm},
		{"Ed25519", header(members{"alg": "Ed25519"}), badAlgorithm},
		{"RS256 with the kid of another kind of key", header(members{"kid": ec.kid}), unknownKey},
		{"ES256 with the kid of another kind of key", ec.token(noon, members{"kid": ed.kid}, nil), unknownKey},

		{"no kid", header(members{"kid": nil}), noKeyID},
		{"empty kid", header(members{"kid": ""}), noKeyID},
		{"kid is no text", header(members{"kid": 1}), noKeyID},
		{"Kid", header(members{"kid": nil, "Kid": r.kid}), noKeyID},
		{"unknown kid", stranger.token(noon, nil, nil), unknownKey},
		{"crit", header(members{"crit": []string{"exp"}}), criticalHeader},
		{"crit and b64", header(members{"crit": []string{"b64"}, "b64": false}), criticalHeader},
		{"crit is null", header(members{"crit": json.RawMessage("null")}), criticalHeader},
		{"b64 alone", header(members{"b64": false}), badSignature},
		{"key in the header, unused", header(members{
			"jwk": stranger.jwk(false), "jku": "http://127.0.0.1:1/", "x5u": "http://127.0.0.1:1/"}), ""},
		{"signed with the key in its header", impostor.token(noon, members{"jwk": stranger.jwk(false)}, nil), badSignature},
		{"signed with the key in its header, by its name", stranger.token(noon, members{"jwk": stranger.jwk(false)}, nil), unknownKey},

		{"signed with another key", impostor.token(noon, nil, nil), badSignature},
		{"other payload", parts[0] + "." + encode(changed(claimsAt(noon), members{"org_role": "owner"})) + "." + parts[2], badSignature},
		{"other header", encode(members{"alg": "RS256", "kid": r.kid}) + "." + parts[1] + "." + parts[2], badSignature},
		{"signature cut", strings.Join(parts[:2], ".") + "." + parts[2][:len(parts[2])-4], badSignature},
		{"signature of ES256 as ASN.1", asn1Signature(ec), badSignature},

		{"no iss", claims(members{"iss": nil}), wrongIssuer},
		{"other iss", claims(members{"iss": "https://id.example.evil"}), wrongIssuer},
		{"iss with a slash", claims(members{"iss": issuer + "/"}), wrongIssuer},
		{"iss is a list", claims(members{"iss": []string{issuer}}), malformed},
		{"any aud", claims(members{"aud": []string{"a", "b"}}), ""},

		{"no exp", claims(members{"exp": nil}), noExpiry},
		{"Exp", claims(members{"exp": nil, "Exp": at(time.Minute)}), noExpiry},
		{"exp is no number", claims(members{"exp": "soon"}), malformed},
		{"exp beyond all time", claims(members{"exp": json.RawMessage("1e300")}), malformed},
		{"exp at the end of time", claims(members{"exp": json.RawMessage("9223372036854775807")}), malformed},
		{"exp far ahead", claims(members{"exp": json.RawMessage("99999999999")}), livesTooLong},
		{"ended 4 s ago", claims(members{"exp": at(-4 * time.Second)}), ""},
		{"ended 5 s ago", claims(members{"exp": at(-5 * time.Second)}), expired},
		{"ended 6 s ago", claims(members{"exp": at(-6 * time.Second)}), expired},
		{"begins in 4 s", claims(members{"nbf": at(4 * time.Second)}), ""},
		{"begins in 5 s", claims(members{"nbf": at(5 * time.Second)}), ""},
		{"begins in 6 s", claims(members{"nbf": at(6 * time.Second)}), notYetValid},
		{"no nbf", claims(members{"nbf": nil}), ""},
		{"issued in 4 s", claims(members{"iat": at(4 * time.Second)}), ""},
		{"issued in 6 s", claims(members{"iat": at(6 * time.Second)}), issuedLater},
		{"lives 60 min", claims(members{"exp": at(time.Hour)}), ""},
		{"lives 61 min", claims(members{"exp": at(61 * time.Minute)}), livesTooLong},
		{"lives 60 min and 1 s", claims(members{"exp": at(time.Hour + time.Second)}), livesTooLong},
		{"lives 61 min, nearly over", claims(members{"iat": at(-60 * time.Minute), "exp": at(time.Minute)}), livesTooLong},
		{"no iat, 60 min left", claims(members{"iat": nil, "exp": at(time.Hour)}), ""},
		{"no iat, 60 min and 4 s left", claims(members{"iat": nil, "exp": at(time.Hour + 4*time.Second)}), ""},
		{"no iat, 61 min left", claims(members{"iat": nil, "exp": at(61 * time.Minute)}), livesTooLong},

		{"no organization", claims(members{"org_id": nil, "org_role": nil}), noOrganization},
		{"empty organization", claims(members{"org_id": ""}), noOrganization},
		{"organization is null", claims(members{"org_id": json.RawMessage("null")}), noOrganization},
		{"organization is no text", claims(members{"org_id": 7}), malformed},
		{"role is no text", claims(members{"org_role": []string{"org:admin"}}), malformed},
		{"two organizations", claims(members{"o": members{"id": "org_2", "rol": "admin"}}), twoMeanings},
		{"two roles", claims(members{"o": members{"id": "org_1", "rol": "owner"}}), twoMeanings},
	}
}

func checkRefusal(t *testing.T, what string, err error, expected refusal) {
	t.Helper()
	if expected == "" {
		if err != nil {
			t.Errorf("%s: %v, expected to be taken", what, err)
		}
		return
	}
	if err != expected {
		t.Errorf("%s: %v, expected %v", what, err, expected)
	}
	kinds := 0
	for _, kind := range []error{ErrInvalid, ErrNoOrganization, ErrUnavailable} {
		if errors.Is(err, kind) {
			kinds++
		}
	}
	if kinds != 1 {
		t.Errorf("%s: %v is %d kinds of error, expected one", what, err, kinds)
	}
}

// pad returns a token of n bytes.
func pad(s signer, n int) string {
	usual := s.token(noon, nil, nil)
	signature := len(usual) - strings.LastIndexByte(usual, '.')
	for size := (n - len(usual)) * 3 / 4; ; size-- {
		// The longer header shifts the length by one where no size of the claims alone would do.
		for extra := range 3 {
			header := members{"alg": s.algorithm, "kid": s.kid, "x": strings.Repeat("x", extra)}
			claims := changed(claimsAt(noon), members{"x": strings.Repeat("x", size)})
			if len(encode(header))+1+len(encode(claims))+signature == n {
				return s.sign(header, claims)
			}
		}
	}
}

// relabelled is a token whose header says something else than what was signed.
func relabelled(token, algorithm, kid string) string {
	parts := strings.Split(token, ".")
	return encode(members{"alg": algorithm, "kid": kid}) + "." + parts[1] + "." + parts[2]
}

// asn1Signature is a token signed in the form that TLS uses, which JOSE does not (RFC 7518, 3.4).
func asn1Signature(s signer) string {
	input := encode(members{"alg": s.algorithm, "kid": s.kid}) + "." + encode(claimsAt(noon))
	digest := sha256.Sum256([]byte(input))
	signature := must(ecdsa.SignASN1(rand.Reader, s.private.(*ecdsa.PrivateKey), digest[:]))
	return input + "." + base64.RawURLEncoding.EncodeToString(signature)
}

func TestSessionHasTheClaimsOfTheToken(t *testing.T) {
	t.Parallel()
	_, url := newServer(t, setOf(ed25519Key()))
	usual := newVerifier(t, Options{KeysURL: url})
	named := newVerifier(t, Options{KeysURL: url, OrganizationClaim: "https://deeplink.example/org", RoleClaim: "role"})
	usual.fetchesEnd(t, succeeded)
	named.fetchesEnd(t, succeeded)
	nested := func(o members) members { return members{"org_id": nil, "org_role": nil, "o": o} }
	for _, test := range []struct {
		name         string
		verifier     *Verifier
		claims       members
		organization string
		role         Role
	}{
		{"flat", usual, nil, "org_1", Admin},
		{"member", usual, members{"org_role": "org:member"}, "org_1", Member},
		{"owner", usual, members{"org_role": "org:owner"}, "org_1", Owner},
		{"role without prefix", usual, members{"org_role": "owner"}, "org_1", Owner},
		{"prefix twice", usual, members{"org_role": "org:org:owner"}, "org_1", NoRole},
		{"no role", usual, members{"org_role": nil}, "org_1", NoRole},
		{"role is null", usual, members{"org_role": json.RawMessage("null")}, "org_1", NoRole},
		{"unknown role", usual, members{"org_role": "org:superuser"}, "org_1", NoRole},
		{"role in another case", usual, members{"org_role": "org:Owner"}, "org_1", NoRole},
		{"nested", usual, nested(members{"id": "org_2", "rol": "owner", "slg": "acme"}), "org_2", Owner},
		{"nested with prefix", usual, nested(members{"id": "org_2", "rol": "org:member"}), "org_2", Member},
		{"nested without role", usual, nested(members{"id": "org_2"}), "org_2", NoRole},
		{"both agree", usual, members{"o": members{"id": "org_1", "rol": "admin"}}, "org_1", Admin},
		{"o is something else", usual, members{"o": "other"}, "org_1", Admin},
		{"o has no id", usual, members{"o": members{"rol": "owner"}}, "org_1", Admin},
		{"configured names", named, members{"https://deeplink.example/org": "org_3", "role": "owner"}, "org_3", Owner},
		{"nested beside configured names", named, nested(members{"id": "org_2", "rol": "admin"}), "org_2", Admin},
		{"default names are nothing beside configured ones", named, members{"https://deeplink.example/org": "org_3"}, "org_3", NoRole},
	} {
		got, err := test.verifier.Verify(t.Context(), ed25519Key().token(noon, nil, test.claims), noon)
		expected := Session{Organization: test.organization, Role: test.role, Subject: "user_1", Expiry: noon.Add(time.Minute)}
		if err != nil || !cmp.Equal(got, expected) {
			t.Errorf("%s: %+v, %v, expected %+v", test.name, got, err, expected)
		}
	}

	token := ed25519Key().token(noon, nil, members{"sub": nil})
	if got, err := usual.Verify(t.Context(), token, noon); err != nil || got.Subject != "" {
		t.Errorf("without sub: %+v, %v, expected an empty subject", got, err)
	}
}

func TestAudienceIsRequiredIfConfigured(t *testing.T) {
	t.Parallel()
	_, url := newServer(t, setOf(ed25519Key()))
	v := newVerifier(t, Options{KeysURL: url, Audience: "deeplink"})
	v.fetchesEnd(t, succeeded)
	for _, test := range []struct {
		name     string
		audience any
		refused  refusal
	}{
		{"the one", "deeplink", ""},
		{"one of many", []string{"other", "deeplink"}, ""},
		{"none", nil, wrongAudience},
		{"empty", "", wrongAudience},
		{"empty list", []string{}, wrongAudience},
		{"another", "other", wrongAudience},
		{"others", []string{"other", "deeplink2"}, wrongAudience},
		{"in another case", "Deeplink", wrongAudience},
		{"no text", []int{1}, malformed},
	} {
		_, err := v.Verify(t.Context(), ed25519Key().token(noon, nil, members{"aud": test.audience}), noon)
		checkRefusal(t, test.name, err, test.refused)
	}
}

func TestErrorsContainNothingOfTheToken(t *testing.T) {
	t.Parallel()
	_, url := newServer(t, setOf(rsaKey(), ecdsaKey(), ed25519Key()))
	v := newVerifier(t, Options{KeysURL: url})
	v.fetchesEnd(t, succeeded)
	for _, test := range verdicts() {
		if test.refused == "" {
			continue
		}
		_, err := v.Verify(t.Context(), test.token, noon)
		known := []string{ErrInvalid.Error(), ErrNoOrganization.Error()}
		text, ok := strings.CutSuffix(fmt.Sprint(err), ": "+string(test.refused))
		if !ok || !slices.Contains(known, text) {
			t.Errorf("%s: the error is %v, expected one of %q and %q", test.name, err, known, test.refused)
		}
	}
}

func TestRolesIncludeLowerRoles(t *testing.T) {
	t.Parallel()
	order := []Role{NoRole, Member, Admin, Owner}
	for i, role := range order {
		for j, least := range order {
			if expected := i >= j && j > 0; role.AtLeast(least) != expected {
				t.Errorf("%q at least %q: %v, expected %v", role, least, !expected, expected)
			}
		}
	}
	for _, unknown := range []Role{"org:owner", "OWNER", "superuser"} {
		if unknown.AtLeast(Member) || Owner.AtLeast(unknown) {
			t.Errorf("%q has rights, or gives them", unknown)
		}
	}
}

func TestOptionsAreChecked(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		url, issuer string
		ok          bool
	}{
		{"https://id.example/.well-known/jwks.json", issuer, true},
		{"https://id.example:8443/keys?tenant=1", issuer, true},
		{"http://127.0.0.1:9000/keys", issuer, true},
		{"http://[::1]:9000/keys", issuer, true},
		{"http://localhost/keys", issuer, true},
		{"http://id.example/keys", issuer, false},
		{"http://127.0.0.1.id.example/keys", issuer, false},
		{"http://localhost.id.example/keys", issuer, false},
		{"http://10.0.0.1/keys", issuer, false},
		{"http://0.0.0.0/keys", issuer, false},
		{"https:///keys", issuer, false},
		{"https://:443/keys", issuer, false},
		{"https://user:secret@id.example/keys", issuer, false},
		{"https://id.example/keys#one", issuer, false},
		{"file:///etc/keys", issuer, false},
		{"id.example/keys", issuer, false},
		{"https://id.example/%zz", issuer, false},
		{"", issuer, false},
		{"https://id.example/keys", "", false},
	} {
		_, err := New(Options{KeysURL: test.url, Issuer: test.issuer, Log: quiet()})
		if (err == nil) != test.ok {
			t.Errorf("%q, issuer %q: %v, expected ok %v", test.url, test.issuer, err, test.ok)
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: the error shows a password: %v", test.url, err)
		}
	}
}

// The development identity provider of deploy/local signs so.
func TestTokensOfTheDevelopmentProviderAreAccepted(t *testing.T) {
	t.Parallel()
	private := must(jwk.Import(rsaKey().private))
	if err := errors.Join(jwk.AssignKeyID(private), private.Set(jwk.AlgorithmKey, jwa.RS256())); err != nil {
		t.Fatal(err)
	}
	set := jwk.NewSet()
	if err := set.AddKey(private); err != nil {
		t.Fatal(err)
	}
	_, url := newServer(t, string(must(json.Marshal(must(jwk.PublicSetOf(set))))))
	v := newVerifier(t, Options{KeysURL: url, Issuer: url})
	v.fetchesEnd(t, succeeded)
	now := time.Now()
	token := must(jwt.NewBuilder().Issuer(url).Subject("user_dev").IssuedAt(now).NotBefore(now).Expiration(now.Add(time.Hour)).
		Claim("org_id", "org_demo").Claim("org_role", "org:admin").Build())
	got, err := v.Verify(t.Context(), string(must(jwt.Sign(token, jwt.WithKey(jwa.RS256(), private)))), now)
	expected := Session{Organization: "org_demo", Role: Admin, Subject: "user_dev", Expiry: now.Add(time.Hour).Truncate(time.Second).UTC()}
	if err != nil || !cmp.Equal(got, expected) {
		t.Errorf("%+v, %v, expected %+v", got, err, expected)
	}
}
