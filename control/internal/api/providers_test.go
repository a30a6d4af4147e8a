package api

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"deeplink/control/internal/signin"
	"deeplink/shared/catalog"
)

// TestTokensOfCommonProvidersSignIn signs in with discovery documents and tokens in the formats of common providers, whose sources are in
// deploy/identity.md. Where a provider issues identifiers, they are examples.
func TestTokensOfCommonProvidersSignIn(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	for _, externalID := range []string{"42c3e46f-2477-44d7-a85b-d3b43f6b31fa", "beta", "org_9ybsU1dN2dKfDkBi", "org_2fK", "72f988bf-86f1-41af-91ab-2d7cd011db47", "acme.example"} {
		o := w.Organization(catalog.Scale)
		w.Exec(`update organizations set external_id = $1 where id = $2`, externalID, o.ID)
	}
	hash := sha256.Sum256([]byte("planted-access-token"))
	atHash := base64.RawURLEncoding.EncodeToString(hash[:16])
	keycloak := claims{
		"authorization_response_iss_parameter_supported": true, "code_challenge_methods_supported": []string{"plain", "S256"},
		"response_types_supported":              []string{"code", "none", "id_token", "token", "id_token token", "code id_token", "code token", "code id_token token"},
		"id_token_signing_alg_values_supported": []string{"PS384", "RS384", "EdDSA", "ES384", "HS256", "HS512", "ES256", "RS256", "HS384", "ES512", "PS256", "PS512", "RS512"},
		"token_endpoint_auth_methods_supported": []string{"private_key_jwt", "client_secret_basic", "client_secret_post", "tls_client_auth", "client_secret_jwt"},
		"scopes_supported":                      []string{"openid", "offline_access", "profile", "email", "organization", "roles", "basic"},
	}
	keycloakClaims := func(organization any) claims {
		return claims{
			"auth_time": 1, "jti": "7b0c", "typ": "ID", "azp": oidcClient, "sid": "0d5c", "at_hash": atHash, "acr": "1", "email_verified": true,
			"name": "Dana Developer", "preferred_username": "dana", "given_name": "Dana", "family_name": "Developer", "email": "dana@example.com",
			"resource_access": claims{"console": claims{"roles": []string{"uma_protection", "admin"}}, "account": claims{"roles": []string{"manage-account"}}},
			"organization":    organization,
		}
	}
	for _, c := range []struct {
		name      string
		discovery claims
		options   func(*signin.ProviderOptions)
		idToken   claims
		access    claims // nil: an opaque access token
		// chosen is the external id of the organization, empty for none, offered the number of those to choose from.
		chosen, role string
		offered      int
	}{
		{name: "Keycloak, organization:* with Add organization id", discovery: keycloak, options: func(o *signin.ProviderOptions) {
			o.OrganizationsClaim, o.RoleClaim = "organization", "/resource_access/console/roles"
		}, idToken: keycloakClaims(claims{"testcorp": claims{"id": "42c3e46f-2477-44d7-a85b-d3b43f6b31fa", "attr1": []string{"value1"}}, "beta": claims{}}), offered: 2},
		{name: "Keycloak, aliases only", discovery: keycloak, options: func(o *signin.ProviderOptions) {
			o.OrganizationsClaim, o.RoleClaim = "organization", "/resource_access/console/roles"
		}, idToken: keycloakClaims([]string{"beta"}), chosen: "beta", role: "admin", offered: 1},
		{name: "Auth0", discovery: claims{
			"code_challenge_methods_supported": []string{"S256", "plain"}, "token_endpoint_auth_methods_supported": []string{"client_secret_basic", "client_secret_post", "private_key_jwt"},
			"id_token_signing_alg_values_supported": []string{"HS256", "RS256", "PS256"},
		}, options: func(o *signin.ProviderOptions) { o.RoleClaim = "https://acme.example/role" },
			idToken: claims{
				"https://acme.example/role": "owner", "nickname": "dana", "name": "dana@example.com", "picture": "https://s.gravatar.com/avatar/638",
				"updated_at": "2021-03-23T11:34:14.566z", "email": "dana@example.com", "email_verified": true, "sub": "auth0|602c0dcab993d10073daf680",
				"org_id": "org_9ybsU1dN2dKfDkBi", "sid": "x",
			}, chosen: "org_9ybsU1dN2dKfDkBi", role: "owner", offered: 1},
		{name: "Clerk", discovery: claims{"code_challenge_methods_supported": []string{"S256"}, "end_session_endpoint": nil},
			options: func(o *signin.ProviderOptions) { o.Judge = signin.JudgeAccessToken },
			idToken: claims{"name": "Dana Developer", "email": "dana@example.com"},
			access:  claims{"o": claims{"id": "org_2fK", "rol": "admin", "slg": "acme"}, "client_id": oidcClient, "scope": "openid profile email offline_access", "jti": "oat_1"},
			chosen:  "org_2fK", role: "admin", offered: 1},
		{name: "Clerk, no role", discovery: claims{"code_challenge_methods_supported": []string{"S256"}},
			options: func(o *signin.ProviderOptions) { o.Judge = signin.JudgeAccessToken },
			idToken: claims{}, access: claims{"org_id": "org_2fK"}, chosen: "org_2fK", offered: 1},
		{name: "Entra ID", discovery: claims{
			"code_challenge_methods_supported": nil, "response_types_supported": []string{"code", "id_token", "code id_token", "id_token token"},
			"token_endpoint_auth_methods_supported": []string{"client_secret_post", "private_key_jwt", "client_secret_basic", "self_signed_tls_client_auth"},
			"id_token_signing_alg_values_supported": []string{"RS256"}, "scopes_supported": []string{"openid", "profile", "email", "offline_access"},
		}, options: func(o *signin.ProviderOptions) { o.OrganizationClaim, o.RoleClaim = "tid", "/roles" },
			idToken: claims{
				"aio": "x", "name": "Dana Developer", "oid": "690222be", "preferred_username": "dana@example.com", "rh": "0.A", "roles": []string{"member", "owner"},
				"sub": "AAAAAAAAAAAAAAAAAAAAAIkzqFVrSaSaFHy782bbtaQ", "tid": "72f988bf-86f1-41af-91ab-2d7cd011db47", "uti": "y", "ver": "2.0",
			}, chosen: "72f988bf-86f1-41af-91ab-2d7cd011db47", role: "owner", offered: 1},
		{name: "Google", discovery: claims{
			"code_challenge_methods_supported": []string{"plain", "S256"}, "token_endpoint_auth_methods_supported": []string{"client_secret_post", "client_secret_basic"},
			"end_session_endpoint": nil, "scopes_supported": []string{"openid", "email", "profile"},
		}, options: func(o *signin.ProviderOptions) { o.OrganizationClaim = "hd" },
			idToken: claims{
				"azp": oidcClient, "hd": "acme.example", "email": "dana@acme.example", "email_verified": true, "at_hash": atHash, "name": "Dana Developer",
				"picture": "https://lh3.example/a", "given_name": "Dana", "family_name": "Developer",
			}, chosen: "acme.example", offered: 1},
	} {
		p := w.oidcProvider("")
		p.discovery = c.discovery
		p.claims = func(usual claims) claims {
			delete(usual, "org_id")
			delete(usual, "org_role")
			for name, value := range c.idToken {
				usual[name] = value
			}
			return usual
		}
		if c.access != nil {
			p.token = p.granting(func(response map[string]any) {
				access := claims{"iss": p.issuer, "sub": "user_1", "iat": nowIn(0), "exp": nowIn(60)}
				for name, value := range c.access {
					access[name] = value
				}
				response["access_token"] = p.signed(access)
			})
		}
		control := w.serve(trustLoopback, p.withProvider(func(o *signin.Options) { c.options(o.Provider) }))
		v := control.page("")
		state, browser := p.start(v, "")
		r := v.callback(state+"&iss="+url.QueryEscape(p.issuer), browser)
		if v.cookie, _ = cookieOf(r, sessionCookieName); v.cookie == "" {
			t.Errorf("%s: the callback leads to %s; %s", c.name, r.Header.Get("Location"), control.Log)
			continue
		}
		check := func(when string) {
			t.Helper()
			var shown struct {
				Role          *string
				Organization  *struct{ ExternalID string }
				Organizations []struct{ ExternalID string }
			}
			r := v.do("GET", "/portal/session", "")
			if err := json.Unmarshal(r.Body, &shown); err != nil || r.Status != 200 {
				t.Fatalf("%s, %s: %s", c.name, when, r)
			}
			chosen, role := "", ""
			if shown.Organization != nil {
				chosen = shown.Organization.ExternalID
			}
			if shown.Role != nil {
				role = *shown.Role
			}
			if chosen != c.chosen || role != c.role || len(shown.Organizations) != c.offered {
				t.Errorf("%s, %s: %s; expected %q, %q and %d organizations", c.name, when, r.Body, c.chosen, c.role, c.offered)
			}
		}
		check("after the sign-in")
		w.Exec(`update console_sessions set token_ends_at = clock_timestamp() - interval '6 seconds' where issuer = $1`, p.issuer)
		check("after a renewal")
		if expected := 403; c.chosen != "" && c.role == "" {
			expectCode(t, c.name+", a route with a minimum role", v.do("GET", "/portal/organization", ""), expected, "")
		}
		location := v.do("POST", "/console/sign-out", "")
		if leads := strings.Contains(string(location.Body), "/logout?"); leads != (hasEndpoint(c.discovery, "end_session_endpoint")) {
			t.Errorf("%s: sign-out leads to %s", c.name, location.Body)
		}
	}
}

// hasEndpoint reports whether the changes leave the endpoint in the document.
func hasEndpoint(changes claims, name string) bool {
	value, changed := changes[name]
	return !changed || value != nil
}

func TestConsoleHasAtMostTwentySessionsAndLinks(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	o := w.Tenant(catalog.Scale)
	p := w.oidcProvider(*o.ExternalID)
	control := w.serve(trustLoopback, p.withProvider(nil))
	var pages []*page
	for i := range 21 {
		v := p.signIn(control)
		pages = append(pages, v)
		// The first one was used last of all.
		w.Exec(`update console_sessions set last_seen_at = clock_timestamp() - interval '30 minutes' + make_interval(secs => $1) where last_seen_at > clock_timestamp() - interval '10 minutes'`, i)
		if i == 10 {
			w.Exec(`update console_sessions set last_seen_at = clock_timestamp() - interval '10 minutes' where created_at = (select min(created_at) from console_sessions)`)
		}
	}
	for i, expected := range map[int]int{0: 200, 1: 401, 2: 200, 20: 200} {
		if r := pages[i].do("GET", "/portal/organization", ""); r.Status != expected {
			t.Errorf("session %d of 21: %s, expected %d", i+1, r, expected)
		}
	}
	var sessions, limited int
	if err := w.Pool.QueryRow(t.Context(), `select (select count(*) from console_sessions), (select count(*) from audit_log where action = 'session.end' and detail->>'reason' = 'limit')`).Scan(&sessions, &limited); err != nil ||
		sessions != 20 || limited != 1 {
		t.Errorf("%d sessions, %d ended because of the limit, %v; expected 20 and 1", sessions, limited, err)
	}
	// A call is written at most once a minute.
	seen := func() (at string) {
		if err := w.Pool.QueryRow(t.Context(), `select string_agg(last_seen_at::text, ' ' order by id) from console_sessions`).Scan(&at); err != nil {
			t.Fatal(err)
		}
		return at
	}
	before := seen()
	for range 3 {
		pages[0].do("GET", "/portal/organization", "")
	}
	if after := seen(); after != before {
		t.Error("a call within a minute of the last one was written")
	}
	w.Exec(`update console_sessions set last_seen_at = last_seen_at - interval '61 seconds'`)
	before = seen()
	pages[0].do("GET", "/portal/organization", "")
	if after := seen(); after == before {
		t.Error("a call a minute after the last one was not written")
	}

	var tokens []string
	for range 21 {
		tokens = append(tokens, w.link(o, "member", 15*time.Minute))
	}
	for i, expected := range map[int]int{0: 401, 1: 200, 20: 200} {
		if r := control.page("").do("POST", "/console/link", fmt.Sprintf(`{"token":%q,"confirm":false}`, tokens[i])); r.Status != expected {
			t.Errorf("link %d of 21: %s, expected %d", i+1, r, expected)
		}
	}
}
