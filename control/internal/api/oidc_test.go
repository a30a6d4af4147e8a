package api

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lestrrat-go/jwx/v3/jwa"

	"deeplink/control/internal/session"
	"deeplink/control/internal/signin"
	"deeplink/control/internal/store"
	"deeplink/control/internal/testenv"
	"deeplink/shared/catalog"
)

// oidcProvider is an OpenID Connect provider whose responses a test changes.
type oidcProvider struct {
	t      testing.TB
	keys   *testenv.Provider
	issuer string

	mu sync.Mutex
	// claims changes the claims of ID tokens, and sign signs them; both may be nil.
	claims func(claims) claims
	sign   func(claims) string
	// token serves the token endpoint in place of the provider; it may be nil.
	token http.HandlerFunc
	// discovery changes the discovery document, and revoke serves the revocation endpoint; both may be nil, and are set before a control starts.
	discovery claims
	revoke    http.HandlerFunc
	// organization is in the tokens.
	organization, role string
	// attempt is the last authorization request, and redeemed counts requests with a code.
	nonce, challenge   string
	redeemed, renewals int
	underWay, most     int
	refresh            map[string]bool // valid refresh tokens
}

const oidcClient = "console"

func (w *testEnv) oidcProvider(organization string) *oidcProvider {
	p := &oidcProvider{t: w.T, keys: testenv.NewProvider(w.T), organization: organization, role: "org:owner", refresh: make(map[string]bool)}
	mux := http.NewServeMux()
	server := httptest.NewServer(mux)
	w.T.Cleanup(server.Close)
	p.issuer = server.URL
	mux.HandleFunc("GET /.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		document := map[string]any{
			"issuer": p.issuer, "authorization_endpoint": p.issuer + "/authorize", "token_endpoint": p.issuer + "/token", "jwks_uri": p.keys.URL,
			"code_challenge_methods_supported": []string{"S256"}, "end_session_endpoint": p.issuer + "/logout",
		}
		if p.revoke != nil {
			document["revocation_endpoint"] = p.issuer + "/revoke"
		}
		maps.Copy(document, p.discovery)
		_ = json.NewEncoder(w).Encode(document)
	})
	mux.HandleFunc("POST /revoke", func(w http.ResponseWriter, r *http.Request) { p.revoke(w, r) })
	mux.HandleFunc("POST /token", p.serveToken)
	return p
}

func (p *oidcProvider) change(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
}

func (p *oidcProvider) serveToken(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	if err := r.ParseForm(); err != nil {
		p.t.Error(err)
	}
	code := r.PostForm.Get("grant_type") == "authorization_code"
	if code {
		p.redeemed++
		sum := sha256.Sum256([]byte(r.PostForm.Get("code_verifier")))
		if base64.RawURLEncoding.EncodeToString(sum[:]) != p.challenge {
			p.t.Error("the verifier does not match the challenge")
		}
	} else {
		p.renewals++
		p.underWay++
		p.most = max(p.most, p.underWay)
	}
	token := p.token
	p.mu.Unlock()
	if !code {
		defer p.change(func() { p.underWay-- })
	}
	if token != nil {
		token(w, r)
		return
	}
	p.grant(w, r)
}

// grant responds with tokens.
func (p *oidcProvider) grant(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	c := testenv.UsualClaims(p.organization, claims{
		"iss": p.issuer, "aud": oidcClient, "org_role": p.role, "exp": time.Now().Add(time.Minute).Unix(), "name": "Ann", "email": "ann@example.com",
	})
	if r.PostForm.Get("grant_type") == "authorization_code" {
		c["nonce"] = p.nonce
	} else {
		old := r.PostForm.Get("refresh_token")
		if !p.refresh[old] {
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprint(w, `{"error":"invalid_grant","error_description":"planted-secret"}`)
			return
		}
		delete(p.refresh, old)
	}
	if p.claims != nil {
		c = p.claims(c)
	}
	sign := p.signed
	if p.sign != nil {
		sign = p.sign
	}
	next := rand.Text()
	p.refresh[next] = true
	_ = json.NewEncoder(w).Encode(map[string]any{"access_token": "planted-access-token", "token_type": "Bearer", "id_token": sign(c), "refresh_token": next})
}

// signed returns a token with the published key, and signedAs one that names another key.
func (p *oidcProvider) signed(c claims) string { return p.signedAs("k1", c) }

func (p *oidcProvider) signedAs(kid string, c claims) string {
	return p.keys.Sign(jwa.RS256(), testenv.SigningKey(), kid, c)
}

// decodeSegment returns a part of a token.
func decodeSegment(t testing.TB, segment string) []byte {
	t.Helper()
	text, err := base64.RawURLEncoding.DecodeString(segment)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// withProvider lets people sign in with the provider.
func (p *oidcProvider) withProvider(change func(*signin.Options)) option {
	return withConsole(func(o *signin.Options) {
		o.Provider = &signin.ProviderOptions{Issuer: p.issuer, ClientID: oidcClient, Scopes: []string{"openid"}, Judge: signin.JudgeIDToken}
		if change != nil {
			change(o)
		}
	})
}

// start begins a sign-in and returns its state and the browser's cookie.
func (p *oidcProvider) start(v *page, query string, cookies ...string) (state, cookie string) {
	p.t.Helper()
	var location *url.URL
	await(p.t, "the discovery document", func() error {
		r := v.Do("GET", "/console/sign-in?moved=1"+query, "", append([]string{"Cookie", strings.Join(cookies, "; ")}, "Sec-Fetch-Site", "none")...)
		var err error
		if location, err = url.Parse(r.Header.Get("Location")); err != nil || r.Status != 303 || location.Path != "/authorize" {
			return fmt.Errorf("%s", r)
		}
		cookie, _ = cookieOf(r, "__Host-deeplink_signin")
		return nil
	})
	q := location.Query()
	for name, expected := range map[string]string{
		"response_type": "code", "client_id": oidcClient, "redirect_uri": consoleURL + "/console/callback", "scope": "openid", "code_challenge_method": "S256",
	} {
		if q.Get(name) != expected {
			p.t.Errorf("the authorization request has %s %q, expected %q", name, q.Get(name), expected)
		}
	}
	for _, name := range []string{"state", "nonce", "code_challenge"} {
		if len(q.Get(name)) != 43 {
			p.t.Errorf("the authorization request has %s %q, expected 43 characters", name, q.Get(name))
		}
	}
	p.change(func() { p.nonce, p.challenge = q.Get("nonce"), q.Get("code_challenge") })
	return q.Get("state"), cookie
}

// signIn returns a page with a session.
func (p *oidcProvider) signIn(control *process) *page {
	p.t.Helper()
	v := control.page("")
	state, browser := p.start(v, "")
	r := v.Do("GET", "/console/callback?code=planted-code&state="+state, "", "Cookie", browser, "Sec-Fetch-Site", "cross-site")
	if v.cookie, _ = cookieOf(r, sessionCookieName); r.Status != 303 || r.Header.Get("Location") != "/console" || v.cookie == "" {
		p.t.Fatalf("callback: %s", r)
	}
	return v
}

func TestHostileCallbacksGetTheirProblemAndNoSession(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	p := w.oidcProvider(*w.Tenant(catalog.Scale).ExternalID)
	control := w.serve(trustLoopback, p.withProvider(nil))
	other, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	ago := func(d time.Duration) int64 { return time.Now().Add(-d).Unix() }
	set := func(name string, value any) func(claims) claims {
		return func(c claims) claims { c[name] = value; return c }
	}
	status := func(status int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(status)
			fmt.Fprint(w, body)
		}
	}
	signer := func(algorithm jwa.SignatureAlgorithm, key any, kid string) func(claims) string {
		return func(c claims) string { return p.keys.Sign(algorithm, key, kid, c) }
	}
	for _, c := range []struct {
		name, problem string
		query         string // "": a code and the state
		claims        func(claims) claims
		sign          func(claims) string
		token         http.HandlerFunc
		redeemed      int
	}{
		{name: "unknown state", problem: "state", query: "code=c&state=" + repeat("A", 43)},
		{name: "no state", problem: "request", query: "code=c"},
		{name: "short state", problem: "request", query: "code=c&state=x"},
		{name: "state of 43 other characters", problem: "state", query: "code=c&state=" + repeat("!", 43)},
		{name: "state of 44 characters", problem: "request", query: "code=c&state=STATEx"},
		{name: "empty code", problem: "request", query: "code=&state=STATE"},
		{name: "empty code and error", problem: "request", query: "code=&error=access_denied&state=STATE"},
		{name: "code and empty error", problem: "request", query: "code=c&error=&state=STATE"},
		{name: "empty error", problem: "provider_error", query: "error=&state=STATE"},
		{name: "error twice", problem: "request", query: "error=access_denied&error=access_denied&state=STATE"},
		{name: "iss twice", problem: "request", query: "code=c&iss=a&iss=a&state=STATE"},
		{name: "semicolon", problem: "request", query: "code=c;state=STATE"},
		{name: "state twice", problem: "request", query: "code=c&state=STATE&state=STATE"},
		{name: "code twice", problem: "request", query: "code=c&code=c&state=STATE"},
		{name: "unknown twice", problem: "request", query: "code=c&state=STATE&a=1&a=2"},
		{name: "neither code nor error", problem: "request", query: "state=STATE"},
		{name: "both code and error", problem: "request", query: "code=c&error=access_denied&state=STATE"},
		{name: "long code", problem: "request", query: "state=STATE&code=" + repeat("c", 4097)},
		{name: "8 KiB", problem: "request", query: "code=c&state=STATE&a=" + repeat("a", 8<<10)},
		{name: "bad encoding", problem: "request", query: "code=%zz&state=STATE"},
		{name: "other iss", problem: "issuer", query: "code=c&state=STATE&iss=https%3A%2F%2Fevil.example"},
		{name: "denied", problem: "access_denied", query: "error=access_denied&state=STATE"},
		{name: "login required", problem: "sign_in_needed", query: "error=login_required&state=STATE"},
		{name: "consent required", problem: "sign_in_needed", query: "error=consent_required&state=STATE"},
		{name: "interaction required", problem: "sign_in_needed", query: "error=interaction_required&state=STATE"},
		{name: "account selection required", problem: "sign_in_needed", query: "error=account_selection_required&state=STATE"},
		{name: "iss before error", problem: "issuer", query: "error=access_denied&state=STATE&iss=x"},
		{name: "empty iss", problem: "issuer", query: "code=c&state=STATE&iss="},
		{name: "server error", problem: "provider_error", query: "error=server_error&error_description=planted-secret&state=STATE"},
		{name: "rejected code", problem: "code", token: status(400, `{"error":"invalid_grant"}`), redeemed: 1},
		{name: "invalid client", problem: "provider_error", token: status(401, `{"error":"invalid_client"}`), redeemed: 1},
		{name: "500", problem: "provider_unavailable", token: status(500, ``), redeemed: 1},
		{name: "429", problem: "provider_unavailable", token: status(429, ``), redeemed: 1},
		{name: "no JSON", problem: "provider_error", token: status(200, `<html>`), redeemed: 1},
		{name: "no ID token", problem: "token", token: status(200, `{"access_token":"a","token_type":"Bearer"}`), redeemed: 1},
		{name: "10 MB", problem: "provider_error", token: status(200, repeat(" ", 10<<20)), redeemed: 1},
		{name: "64 KiB and a byte", problem: "provider_error", token: status(200, `{"access_token":"a"}`+repeat(" ", 64<<10)), redeemed: 1},
		{name: "502 with 10 MB", problem: "provider_unavailable", token: status(502, repeat(" ", 10<<20)), redeemed: 1},
		{name: "500 with invalid_grant", problem: "provider_unavailable", token: status(500, `{"error":"invalid_grant"}`), redeemed: 1},
		{name: "200 with invalid_grant", problem: "code", token: status(200, `{"error":"invalid_grant"}`), redeemed: 1},
		{name: "404", problem: "provider_error", token: status(404, ``), redeemed: 1},
		{name: "hangs", problem: "provider_unavailable", redeemed: 1, token: func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }},
		{name: "hangs in the body", problem: "provider_unavailable", redeemed: 1, token: func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", "100")
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}},
		{name: "closes", problem: "provider_unavailable", redeemed: 1, token: func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }},
		{name: "redirect", problem: "provider_error", redeemed: 1, token: func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, p.issuer+"/token", http.StatusTemporaryRedirect)
		}},
		{name: "wrong iss", problem: "issuer", claims: set("iss", "https://evil.example"), redeemed: 1},
		{name: "wrong iss and aud", problem: "issuer", redeemed: 1, claims: func(c claims) claims { c["iss"], c["aud"] = "https://evil.example", "other"; return c }},
		{name: "no aud", problem: "token", claims: func(c claims) claims { delete(c, "aud"); return c }, redeemed: 1},
		{name: "azp that is no string", problem: "token", claims: set("azp", []string{oidcClient}), redeemed: 1},
		{name: "no exp", problem: "token", claims: func(c claims) claims { delete(c, "exp"); return c }, redeemed: 1},
		{name: "no iat", problem: "token", claims: func(c claims) claims { delete(c, "iat"); return c }, redeemed: 1},
		{name: "empty at_hash", problem: "token", claims: set("at_hash", ""), redeemed: 1},
		{name: "at_hash that is no string", problem: "token", claims: set("at_hash", 1), redeemed: 1},
		{name: "sub with U+0000", problem: "token", claims: set("sub", "a\x00b"), redeemed: 1},
		{name: "unknown kid", problem: "token", sign: signer(jwa.RS256(), testenv.SigningKey(), "k2"), redeemed: 1},
		{name: "organization with U+0000", problem: "token", claims: set("org_id", "a\x00b"), redeemed: 1},
		{name: "organizations with U+0000", problem: "token", redeemed: 1, claims: func(c claims) claims {
			delete(c, "org_id")
			c["organizations"] = []string{"a\x00b"}
			return c
		}},
		{name: "wrong aud", problem: "token", claims: set("aud", "other"), redeemed: 1},
		{name: "two aud without azp", problem: "token", claims: set("aud", []string{oidcClient, "other"}), redeemed: 1},
		{name: "wrong azp", problem: "token", claims: set("azp", "other"), redeemed: 1},
		{name: "wrong nonce", problem: "token", claims: set("nonce", repeat("A", 43)), redeemed: 1},
		{name: "no nonce", problem: "token", claims: func(c claims) claims { delete(c, "nonce"); return c }, redeemed: 1},
		{name: "no sub", problem: "token", claims: set("sub", ""), redeemed: 1},
		{name: "long sub", problem: "token", claims: set("sub", repeat("s", 256)), redeemed: 1},
		{name: "expired", problem: "token", claims: set("exp", ago(6*time.Second)), redeemed: 1},
		{name: "issued later", problem: "token", claims: set("iat", ago(-time.Minute)), redeemed: 1},
		{name: "not before later", problem: "token", claims: set("nbf", ago(-time.Minute)), redeemed: 1},
		{name: "lives too long", problem: "token", claims: set("exp", ago(-2*time.Hour)), redeemed: 1},
		{name: "wrong at_hash", problem: "token", claims: set("at_hash", "AAAAAAAAAAAAAAAAAAAAAA"), redeemed: 1},
		{name: "HS256 with the public key", problem: "token", sign: signer(jwa.HS256(), testenv.PublicPEM(), "k1"), redeemed: 1},
		{name: "other key", problem: "token", sign: signer(jwa.RS256(), other, "k1"), redeemed: 1},
		{name: "alg none", problem: "token", redeemed: 1, sign: func(c claims) string {
			text, _ := json.Marshal(c)
			return base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none","kid":"k1"}`)) + "." + base64.RawURLEncoding.EncodeToString(text) + "."
		}},
		{name: "no organization", problem: "no_organization", claims: set("org_id", nil), redeemed: 1},
		{name: "unknown organization", problem: "unknown_organization", claims: set("org_id", "org_unknown"), redeemed: 1},
		{name: "role list in a plain claim", problem: "token", claims: set("org_role", []string{"owner"}), redeemed: 1},
	} {
		v := control.page("")
		state, browser := p.start(v, "")
		p.change(func() { p.claims, p.sign, p.token, p.redeemed = c.claims, c.sign, c.token, 0 })
		query := c.query
		if query == "" {
			query = "code=planted-code&state=STATE&unknown=1"
		}
		r := v.Do("GET", "/console/callback?"+strings.ReplaceAll(query, "STATE", state), "", "Cookie", browser, "X-Request-Id", "r-1")
		if expected := "/console?problem=" + c.problem + "&ref=r-1"; r.Status != 303 || r.Header.Get("Location") != expected || len(r.Header["Set-Cookie"]) > 0 {
			t.Errorf("%s: %s, expected %s without a cookie", c.name, r, expected)
		}
		p.change(func() {
			if p.redeemed != c.redeemed {
				t.Errorf("%s: the code was sent %d times, expected %d", c.name, p.redeemed, c.redeemed)
			}
			p.claims, p.sign, p.token, p.redeemed = nil, nil, nil, 0
		})
	}

	// The state is of this browser, and works once.
	v := control.page("")
	state, browser := p.start(v, "")
	callback := func(cookie string) string {
		return v.Do("GET", "/console/callback?code=planted-code&state="+state, "", "Cookie", cookie).Header.Get("Location")
	}
	for _, cookie := range []string{"", "__Host-deeplink_signin=" + repeat("A", 43)} {
		if got := callback(cookie); !strings.HasPrefix(got, "/console?problem=state&") {
			t.Errorf("another browser: %s", got)
		}
	}
	var wait sync.WaitGroup
	results := make([]string, 8)
	for i := range results {
		wait.Go(func() { results[i] = callback(browser) })
	}
	wait.Wait()
	if all := strings.Join(results, " "); strings.Count(all, "problem=state") != 7 || p.redeemed != 1 {
		t.Errorf("eight callbacks at once: %s, %d codes were sent; expected one to succeed", all, p.redeemed)
	}
	state, browser = p.start(v, "", browser)
	w.Exec(`update console_sign_ins set created_at = now() - interval '601 seconds'`)
	if got := callback(browser); !strings.HasPrefix(got, "/console?problem=state&") {
		t.Errorf("after ten minutes: %s", got)
	}
	for _, secret := range []string{"planted", state} {
		if strings.Contains(control.Log.String(), secret) {
			t.Errorf("the log contains %s", secret)
		}
	}
}

// trustLoopback lets each request of a test have another client address.
func trustLoopback(t testing.TB, o *testOptions) {
	var err error
	if o.Proxies, err = loopbackProxies(); err != nil {
		t.Fatal(err)
	}
}

func TestNextLeadsOnlyToTheConsole(t *testing.T) {
	t.Parallel()
	for _, good := range []string{"/console", "/console/done", "/console#links", "/console#", "/console/done#a=b&c=%20-_?", "/console#" + repeat("a", 64)} {
		if got := signin.Next(good); got != good {
			t.Errorf("%q leads to %q", good, got)
		}
	}
	for _, hostile := range []string{
		"", "/", "//evil.example", "///evil.example", `/\evil.example`, `\\evil.example`, "https://evil.example", "http:evil.example", "javascript:alert(1)",
		"data:text/html,x", "/console/", "/console/..", "/console/../..//evil.example", "/console/callback", "/console/sign-in", "/console//evil.example",
		"/console@evil.example", "/console.evil.example", "/console?next=//evil.example", "/console?x#y", "/Console", "/console%2f..", "/console%0d%0aSet-Cookie:a=b",
		"/console\r\nLocation: //evil.example", "/console\n", "\n/console", " /console", "/console ", "\t/console", "/console#<script>", "/console#a b", "/console#" + repeat("a", 65),
		"/console#a#b", "/console#é", "/console/done/", "/console/done?x", "/console\x00", "/console;a", "//console", "/console#a\n", "console", "/portal/session", "https:///console", "/console/link",
	} {
		if got := signin.Next(hostile); got != "/console" {
			t.Errorf("%q leads to %q", hostile, got)
		}
	}
}

// end moves the end of the token of all sessions: it is over by so much.
func (w *testEnv) tokensEnded(ago time.Duration) {
	w.T.Helper()
	w.Exec(`update console_sessions set token_ends_at = clock_timestamp() - $1::interval, renewal_failed_at = null`, ago)
}

func TestRenewalKeepsASessionWithoutASecondOneAtOnce(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	p := w.oidcProvider(*w.Tenant(catalog.Scale).ExternalID)
	controls := []*process{w.serve(trustLoopback, p.withProvider(nil)), w.serve(trustLoopback, p.withProvider(nil))}
	v := p.signIn(controls[0])
	p.start(controls[1].page(""), "") // it has the discovery document
	const rounds = 40
	for range rounds {
		w.tokensEnded(6 * time.Second)
		var wait sync.WaitGroup
		for i := range 4 {
			wait.Go(func() {
				if r := controls[i%2].page(v.cookie).do("GET", "/portal/organization", ""); r.Status != 200 {
					t.Errorf("%s", r)
				}
			})
		}
		wait.Wait()
	}
	p.change(func() {
		if p.renewals != rounds || p.most != 1 {
			t.Errorf("%d renewals, at most %d at once; expected %d, one at a time", p.renewals, p.most, rounds)
		}
	})
}

func TestProviderThatIsAwayEndsNoSession(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	p := w.oidcProvider(*w.Tenant(catalog.Scale).ExternalID)
	control := w.serve(trustLoopback, p.withProvider(nil))
	v := p.signIn(control)
	away := func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) }
	p.change(func() { p.token = away })
	w.tokensEnded(6 * time.Second)
	if r := v.do("GET", "/portal/session", ""); r.Status != 200 || !strings.Contains(string(r.Body), `"provider":"unavailable"`) {
		t.Errorf("a read: %s", r)
	}
	const code = "IDENTITY_PROVIDER_UNAVAILABLE"
	expectCode(t, "a write", v.do("POST", "/portal/links", `{"path":"/a"}`), 503, code)
	p.change(func() {
		if p.renewals != 1 {
			t.Errorf("%d renewals within 10 seconds, expected 1", p.renewals)
		}
	})
	w.tokensEnded(11 * time.Minute)
	expectCode(t, "after the grace", v.do("GET", "/portal/organization", ""), 503, code)
	p.change(func() { p.token = nil })
	w.Exec(`update console_sessions set renewal_failed_at = now() - interval '11 seconds'`)
	if r := v.do("POST", "/portal/links", `{"path":"/a"}`); r.Status != 201 {
		t.Errorf("the provider is back: %s", r)
	}
	// A role that was taken away counts from the next renewal on, and a membership that was taken away ends the session.
	p.change(func() { p.role = "org:member" })
	w.tokensEnded(6 * time.Second)
	expectCode(t, "the role is lower", v.do("GET", "/portal/api-keys", ""), 403, "")
	p.change(func() { p.organization = "org_other" })
	w.tokensEnded(6 * time.Second)
	expectCode(t, "no member any more", v.do("GET", "/portal/organization", ""), 401, "SESSION_ENDED")
}

func TestRefusedRenewalEndsASessionUnlessItsCauseIsUncertain(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	p := w.oidcProvider(*w.Tenant(catalog.Scale).ExternalID)
	control := w.serve(trustLoopback, p.withProvider(nil))
	v := p.signIn(control)
	p.change(func() { clear(p.refresh) })
	w.tokensEnded(6 * time.Second)
	expectCode(t, "refused", v.do("GET", "/portal/organization", ""), 401, "SESSION_ENDED")

	// The provider replaced the refresh token, and the response got lost.
	v = p.signIn(control)
	p.change(func() {
		p.token = func(w http.ResponseWriter, r *http.Request) {
			p.change(func() { clear(p.refresh) })
			panic(http.ErrAbortHandler)
		}
	})
	w.tokensEnded(6 * time.Second)
	if r := v.do("GET", "/portal/organization", ""); r.Status != 200 {
		t.Errorf("the response got lost: %s, expected the grace", r)
	}
	p.change(func() { p.token = nil })
	w.tokensEnded(6 * time.Second)
	expectCode(t, "refused afterwards", v.do("GET", "/portal/organization", ""), 401, "SESSION_RENEW")
	expectCode(t, "and again", v.do("GET", "/portal/organization", ""), 401, "SESSION_RENEW")
	// The person continues: the same organization, and another id.
	state, browser := p.start(v, "&prompt=none")
	r := v.Do("GET", "/console/callback?code=planted-code&state="+state, "", "Cookie", browser+"; "+v.cookie)
	before := v.cookie
	if v.cookie, _ = cookieOf(r, sessionCookieName); v.cookie == before || v.do("GET", "/portal/organization", "").Status != 200 {
		t.Errorf("after the sign-in: %s", r)
	}
	v.cookie = before
	expectCode(t, "the session before", v.do("GET", "/portal/organization", ""), 401, "SESSION_ENDED")
}

func TestKilledRenewalIsTakenOverWhenItsLeaseEnds(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	p := w.oidcProvider(*w.Tenant(catalog.Scale).ExternalID)
	v := p.signIn(w.serve(trustLoopback, p.withProvider(nil)))
	w.tokensEnded(6 * time.Second)
	w.Exec(`update console_sessions set lease_id = gen_random_uuid(), lease_until = clock_timestamp() + interval '500 milliseconds', renewal_uncertain = true`)
	if r := v.do("POST", "/portal/links", `{"path":"/a"}`); r.Status != 201 {
		t.Errorf("%s", r)
	}
	p.change(func() {
		if p.renewals != 1 {
			t.Errorf("%d renewals, expected 1", p.renewals)
		}
	})
}

func TestPersonWithSeveralOrganizationsChoosesOne(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	one, two, closed := w.Tenant(catalog.Scale), w.Tenant(catalog.Free), w.Tenant(catalog.Free)
	w.Exec(`update organizations set suspended = true where id = $1`, closed.ID)
	p := w.oidcProvider("")
	p.claims = func(c claims) claims {
		delete(c, "org_id")
		c["organizations"] = []any{*one.ExternalID, claims{"id": *two.ExternalID, "role": "admin"}, "org_unknown", *closed.ExternalID}
		return c
	}
	controls := []*process{w.serve(trustLoopback, p.withProvider(nil)), w.serve(trustLoopback, p.withProvider(nil))}
	v := p.signIn(controls[0])
	type shown struct {
		Organization  *struct{ ID, OrgKey, Name, ExternalID string }
		Organizations []struct {
			ExternalID, Name string
			Role             session.Role
			Suspended        bool
		}
		Role *string
	}
	read := func(r reply) (s shown) {
		t.Helper()
		if err := json.Unmarshal(r.Body, &s); err != nil || r.Status != 200 {
			t.Fatalf("%s", r)
		}
		return s
	}
	s := read(v.do("GET", "/portal/session", ""))
	if s.Organization != nil || len(s.Organizations) != 3 || s.Organizations[1].Role != session.Admin || !s.Organizations[2].Suspended {
		t.Errorf("before the choice: %+v", s)
	}
	expectCode(t, "no choice", v.do("GET", "/portal/organization", ""), 401, "NO_ORGANIZATION")
	choose := func(id string) reply {
		return v.do("PUT", "/portal/session/organization", fmt.Sprintf(`{"externalId":%q}`, id))
	}
	for _, id := range []string{"org_unknown", "nothing", *closed.ExternalID, *w.Tenant(catalog.Free).ExternalID} {
		expectCode(t, id, choose(id), 404, "")
	}
	for _, o := range []store.CreatedOrganization{two, one, two} {
		before := v.cookie
		r := choose(*o.ExternalID)
		if s := read(r); s.Organization.ID != o.ID {
			t.Errorf("chosen %s: %+v", o.ID, s)
		}
		v.cookie, _ = cookieOf(r, sessionCookieName)
		if r := controls[1].page(v.cookie).do("GET", "/portal/organization", ""); r.Status != 200 || !strings.Contains(string(r.Body), o.ID) {
			t.Errorf("on the other control: %s", r)
		}
		expectCode(t, "the cookie before", controls[1].page(before).do("GET", "/portal/organization", ""), 401, "SESSION_ENDED")
		w.tokensEnded(6 * time.Second) // the tokens moved with the session
		if r := v.do("GET", "/portal/organization", ""); r.Status != 200 {
			t.Errorf("renewed: %s", r)
		}
	}
	var dump string
	if err := w.Pool.QueryRow(t.Context(), `select string_agg(c::text, ' ') from console_sessions c`).Scan(&dump); err != nil {
		t.Fatal(err)
	}
	for refresh := range p.refresh {
		if strings.Contains(dump, refresh) || strings.Contains(dump, fmt.Sprintf("%x", refresh)) {
			t.Error("a refresh token is stored unencrypted")
		}
	}
	if _, value, _ := strings.Cut(v.cookie, "="); strings.Contains(dump, value) {
		t.Error("the cookie is stored")
	}
}

// nowIn returns the time in so many seconds, as in a claim.
func nowIn(seconds int64) int64 { return time.Now().Unix() + seconds }
