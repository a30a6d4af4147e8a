package api

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"deeplink/control/internal/signin"
	"deeplink/shared/catalog"
)

// responds returns a token endpoint with one response.
func responds(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
	}
}

// granting returns a token endpoint whose responses change changes.
func (p *oidcProvider) granting(change func(map[string]any)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		recorder := httptest.NewRecorder()
		p.grant(recorder, r)
		var response map[string]any
		if err := json.Unmarshal(recorder.Body.Bytes(), &response); err != nil {
			p.t.Error(err)
		}
		change(response)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(recorder.Code)
		_ = json.NewEncoder(w).Encode(response)
	}
}

// retryAllowed moves the last failed renewal back, so that the next call tries again.
func (w *testEnv) retryAllowed() {
	w.T.Helper()
	w.Exec(`update console_sessions set renewal_failed_at = clock_timestamp() - interval '11 seconds' where renewal_failed_at is not null`)
}

func TestEachResultOfARenewalHasItsEffect(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	p := w.oidcProvider(*w.Tenant(catalog.Scale).ExternalID)
	control := w.serve(trustLoopback, p.withProvider(nil))
	invalid := responds(400, `{"error":"invalid_grant","error_description":"planted"}`)
	aborts := func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }
	claim := func(name string, value any) func(map[string]any) {
		return func(response map[string]any) {
			c := claims{}
			payload := strings.Split(response["id_token"].(string), ".")[1]
			if err := json.Unmarshal(decodeSegment(t, payload), &c); err != nil {
				t.Error(err)
			}
			c[name] = value
			response["id_token"] = p.signed(c)
		}
	}
	const ended, renew, away = "SESSION_ENDED", "SESSION_RENEW", "IDENTITY_PROVIDER_UNAVAILABLE"
	for _, c := range []struct {
		name string
		// steps are the token endpoints of the renewals, one after the other.
		steps []http.HandlerFunc
		// reads and writes are the codes of a GET, a HEAD and a POST after each step; empty: success.
		reads, writes []string
	}{
		{"valid token", []http.HandlerFunc{nil}, []string{""}, []string{""}},
		{"no new refresh token", []http.HandlerFunc{p.granting(func(r map[string]any) { delete(r, "refresh_token") })}, []string{""}, []string{""}},
		{"invalid_grant", []http.HandlerFunc{invalid}, []string{ended}, []string{ended}},
		{"invalid_grant after 500", []http.HandlerFunc{responds(500, ""), invalid}, []string{"", ended}, []string{away, ended}},
		{"invalid_grant after 429", []http.HandlerFunc{responds(429, ""), invalid}, []string{"", ended}, []string{away, ended}},
		{"invalid_grant after a complete malformed response", []http.HandlerFunc{responds(200, "<html>"), invalid}, []string{"", ended}, []string{away, ended}},
		{"invalid_grant after a lost response", []http.HandlerFunc{aborts, invalid}, []string{"", renew}, []string{away, renew}},
		{"invalid_grant after a response that was too long", []http.HandlerFunc{responds(200, repeat(" ", 10<<20)), invalid}, []string{"", renew}, []string{away, renew}},
		{"invalid_grant after a lost response and 500", []http.HandlerFunc{aborts, responds(500, ""), invalid}, []string{"", "", renew}, []string{away, away, renew}},
		{"valid token after a lost response, then invalid_grant", []http.HandlerFunc{aborts, nil, invalid}, []string{"", "", ended}, []string{away, "", ended}},
		{"another OAuth error", []http.HandlerFunc{responds(401, `{"error":"invalid_client"}`), nil}, []string{"", ""}, []string{away, ""}},
		{"an unknown error", []http.HandlerFunc{responds(400, `{"error":"planted"}`), nil}, []string{"", ""}, []string{away, ""}},
		{"another subject", []http.HandlerFunc{p.granting(claim("sub", "user_2"))}, []string{ended}, []string{ended}},
		{"another nonce", []http.HandlerFunc{p.granting(claim("nonce", repeat("A", 43)))}, []string{ended}, []string{ended}},
		{"another issuer", []http.HandlerFunc{p.granting(claim("iss", "https://evil.example"))}, []string{ended}, []string{ended}},
		{"expired", []http.HandlerFunc{p.granting(claim("exp", time.Now().Add(-time.Minute).Unix()))}, []string{ended}, []string{ended}},
		{"another organization", []http.HandlerFunc{p.granting(claim("org_id", "org_other"))}, []string{ended}, []string{ended}},
		{"no ID token", []http.HandlerFunc{p.granting(func(r map[string]any) { delete(r, "id_token") })}, []string{ended}, []string{ended}},
	} {
		v := p.signIn(control)
		for i, step := range c.steps {
			p.change(func() { p.token = step })
			w.Exec(`update console_sessions set token_ends_at = clock_timestamp() - interval '6 seconds'`)
			w.retryAllowed()
			for _, method := range []string{"GET", "HEAD"} {
				r := v.do(method, "/portal/organization", "")
				if ok := r.Status == 200; ok != (c.reads[i] == "") || !ok && method == "GET" && r.Code() != c.reads[i] {
					t.Errorf("%s, step %d, %s: %s, expected %q", c.name, i+1, method, r, c.reads[i])
				}
			}
			r := v.do("POST", "/portal/links", `{"path":"/a"}`)
			if ok := r.Status == 201; ok != (c.writes[i] == "") || !ok && r.Code() != c.writes[i] {
				t.Errorf("%s, step %d, a write: %s, expected %q", c.name, i+1, r, c.writes[i])
			}
			if r.Code() == away && r.Message() != "The identity provider cannot be reached. You stay signed in; try again in a moment." {
				t.Errorf("the message is %q", r.Message())
			}
		}
		p.change(func() { p.token = nil })
		v.do("POST", "/console/sign-out", "")
	}
	log := control.Log.String()
	if strings.Count(log, "console sessions end with their token") != 1 || !strings.Contains(log, `"level":"ERROR","msg":"the identity provider refused to renew console sessions`) {
		t.Error("the log lacks the warning, once, or the error about the settings of the client")
	}
	if strings.Contains(log, "planted") {
		t.Error("the log contains what the provider sent")
	}
	for name, expected := range map[string]bool{"ok": true, "refused": true, "uncertain": true, "unreachable": true, "misconfigured": true} {
		if got := control.Gauge(`deeplink_control_console_renewals_total{result="` + name + `"}`); got > 0 != expected {
			t.Errorf("%v renewals with the result %s", got, name)
		}
	}
}

func TestSessionWithoutRefreshTokenEndsWithItsToken(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	p := w.oidcProvider(*w.Tenant(catalog.Scale).ExternalID)
	control := w.serve(trustLoopback, p.withProvider(nil))
	p.change(func() { p.token = p.granting(func(r map[string]any) { delete(r, "refresh_token") }) })
	v := p.signIn(control)
	w.tokensEnded(4 * time.Second)
	if r := v.do("GET", "/portal/organization", ""); r.Status != 200 {
		t.Errorf("4 s after exp: %s", r)
	}
	w.tokensEnded(6 * time.Second)
	expectCode(t, "6 s after exp", v.do("GET", "/portal/organization", ""), 401, "SESSION_ENDED")
	p.change(func() {
		if p.renewals > 0 {
			t.Errorf("%d renewals without a refresh token", p.renewals)
		}
	})
}

func TestTokenWithANewKeyEndsNoSessionBeforeTheKeysWereFetchedAgain(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	p := w.oidcProvider(*w.Tenant(catalog.Scale).ExternalID)
	control := w.serve(trustLoopback, p.withProvider(nil))
	v := p.signIn(control)
	// The provider signs with a key that it published a moment ago: control fetched its keys before, and may not fetch again for 10 s.
	p.change(func() { p.sign = func(c claims) string { return p.signedAs("k2", c) } })
	w.tokensEnded(6 * time.Second)
	if r := v.do("GET", "/portal/session", ""); r.Status != 200 || !strings.Contains(string(r.Body), `"provider":"unavailable"`) {
		t.Errorf("an unknown key: %s, expected the read to continue", r)
	}
	expectCode(t, "a write", v.do("POST", "/portal/links", `{"path":"/a"}`), 503, "IDENTITY_PROVIDER_UNAVAILABLE")
	p.change(func() { p.sign = nil })
	w.retryAllowed()
	if r := v.do("POST", "/portal/links", `{"path":"/a"}`); r.Status != 201 {
		t.Errorf("a known key: %s, expected the refresh token of the response before", r)
	}
	// A key that is unknown although the keys were fetched after the failure is none of the provider's.
	p.change(func() { p.sign = func(c claims) string { return p.signedAs("k3", c) } })
	w.tokensEnded(6 * time.Second)
	v.do("GET", "/portal/session", "")
	w.Exec(`update console_sessions set renewal_failed_at = clock_timestamp() - interval '1 hour'`)
	expectCode(t, "an unknown key for long", v.do("GET", "/portal/session", ""), 401, "SESSION_ENDED")
}

func TestCallsDoNotWaitForARenewalWhileTheTokenIsValid(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	p := w.oidcProvider(*w.Tenant(catalog.Scale).ExternalID)
	control := w.serve(trustLoopback, p.withProvider(nil))
	v := p.signIn(control)
	entered, leave := make(chan struct{}, 1), make(chan struct{})
	p.change(func() {
		p.token = func(w http.ResponseWriter, r *http.Request) {
			entered <- struct{}{}
			<-leave
			p.grant(w, r)
		}
	})
	renewals := func() (n int) {
		p.change(func() { n = p.renewals })
		return n
	}
	left := func(d time.Duration) {
		w.Exec(`update console_sessions set token_ends_at = clock_timestamp() + $1::interval`, d-5*time.Second)
	}
	for _, c := range []struct {
		left, lifetime time.Duration
		renews         bool
	}{{21 * time.Second, time.Minute, false}, {11 * time.Second, 30 * time.Second, false}} {
		w.Exec(`update console_sessions set token_lifetime = $1::interval`, c.lifetime)
		left(c.left)
		if r := v.do("GET", "/portal/organization", ""); r.Status != 200 || renewals() != 0 {
			t.Errorf("%v of %v left: %s, %d renewals", c.left, c.lifetime, r, renewals())
		}
	}
	w.Exec(`update console_sessions set token_lifetime = '60 seconds'`)
	left(19 * time.Second)
	// The client disconnects, and others do not wait.
	ctx, cancel := context.WithCancel(t.Context())
	request, err := http.NewRequestWithContext(ctx, "GET", control.Base+"/portal/organization", nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Cookie", v.cookie)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	cancel()
	<-entered
	for range 5 {
		if r := v.do("POST", "/portal/links", `{"path":"/a"}`); r.Status != 201 {
			t.Errorf("during the renewal: %s", r)
		}
	}
	if renewals() != 1 {
		t.Errorf("%d renewals, expected 1", renewals())
	}
	// An orderly shutdown waits for the renewal and stores its result.
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		control.Stop()
	}()
	await(t, "the listener to close", func() error {
		if _, err := v.Try("GET", "/healthz", ""); err == nil {
			return fmt.Errorf("it is open")
		}
		return nil
	})
	select {
	case <-stopped:
		t.Error("the shutdown did not wait for the renewal")
	case <-time.After(time.Second): // a shutdown that does not wait takes a few milliseconds
	}
	close(leave)
	<-stopped
	var renewed bool
	if err := w.Pool.QueryRow(t.Context(), `select token_ends_at > clock_timestamp() + interval '30 seconds' and lease_id is null and not renewal_uncertain from console_sessions`).Scan(&renewed); err != nil || !renewed {
		t.Errorf("the result of the renewal was not stored: %v", err)
	}
}

func TestCallWaitsAtMostFiveSecondsForAProviderThatHangs(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	p := w.oidcProvider(*w.Tenant(catalog.Scale).ExternalID)
	control := w.serve(trustLoopback, p.withProvider(func(o *signin.Options) { o.Grace = 0 }))
	v := p.signIn(control)
	p.change(func() { p.token = func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() } })
	w.tokensEnded(6 * time.Second)
	began := time.Now()
	expectCode(t, "a read without a grace", v.do("GET", "/portal/organization", ""), 503, "IDENTITY_PROVIDER_UNAVAILABLE")
	if took := time.Since(began); took < 4*time.Second || took > 8*time.Second {
		t.Errorf("the call took %v, expected 5 s", took)
	}
	began = time.Now()
	expectCode(t, "the next one", v.do("GET", "/portal/organization", ""), 503, "IDENTITY_PROVIDER_UNAVAILABLE")
	if took := time.Since(began); took > 3*time.Second {
		t.Errorf("a call within 10 s of the failure took %v", took)
	}
}
