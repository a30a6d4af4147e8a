package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"deeplink/control/internal/testenv"
)

// consoleSessionSQL inserts a session of a provider with a sealed refresh token and ID token.
const consoleSessionSQL = `
	insert into console_sessions (id, cookie_hash, via, role, memberships, refresh_token, id_token, token_ends_at, token_lifetime, created_at, last_seen_at, ends_at, user_agent)
	values (gen_random_uuid(), sha256('a'), 'provider', 'owner', '[]', $1, $2, now(), '60 s', now(), now(), now() + interval '1 hour', '')`

// consoleControl serves a control whose CONSOLE_URL is origin, or its own address if origin is empty, and returns the address.
func (w *testEnv) consoleControl(t *testing.T, origin string, flags ...string) string {
	t.Helper()
	address := testenv.FreeAddress(t)
	if origin == "" {
		origin = "http://" + address
	}
	start(t, w.DB.ControlURL, w.Redis.URL(), append([]string{"--control-addr=" + address, "--console-url=" + origin}, flags...)...).AwaitReady()
	testenv.Await(t, "the listener", func() error {
		r, err := http.Get("http://" + address + "/healthz")
		if err == nil {
			r.Body.Close()
		}
		return err
	})
	return address
}

// console serves a control with an identity provider, and returns the settings of both. changes are those of the discovery document; clock is how far
// the clock of the provider is ahead.
func (w *testEnv) console(t *testing.T, changes map[string]any) (flags []string) {
	t.Helper()
	keys := testenv.NewProvider(t)
	ahead, _ := changes["clock"].(time.Duration)
	var issuer string
	provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		document := map[string]any{
			"issuer": issuer, "authorization_endpoint": issuer + "/authorize", "token_endpoint": issuer + "/token", "jwks_uri": keys.URL,
			"response_types_supported": []string{"code"}, "id_token_signing_alg_values_supported": []string{"RS256"},
			"code_challenge_methods_supported": []string{"S256"}, "scopes_supported": []string{"openid", "profile", "email", "offline_access"},
		}
		maps.Copy(document, changes)
		w.Header().Set("Date", time.Now().Add(ahead).UTC().Format(http.TimeFormat))
		_ = json.NewEncoder(w).Encode(document)
	}))
	t.Cleanup(provider.Close)
	issuer = provider.URL
	flags = []string{"--console-oidc-issuer=" + issuer, "--console-oidc-client-id=console", "--console-session-keys=" + strings.Repeat("5e", 32)}
	address := w.consoleControl(t, "", flags...)
	if changes["issuer"] == nil {
		testenv.Await(t, "the discovery document", func() error {
			client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
			r, err := client.Get("http://" + address + "/console/sign-in?moved=1")
			if err != nil {
				return err
			}
			r.Body.Close()
			if location := r.Header.Get("Location"); strings.Contains(location, "provider_unavailable") {
				return fmt.Errorf("%s", location)
			}
			return nil
		})
	}
	return append(flags, "--console-url=http://"+address)
}
