package main

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/lestrrat-go/jwx/v3/jwa"

	"deeplink/control/internal/testenv"
	"deeplink/shared/catalog"
)

// secretProvider is an OpenID Connect provider that remembers every secret that it gets or issues.
type secretProvider struct {
	t      *testing.T
	keys   *testenv.Provider
	issuer string

	mu           sync.Mutex
	hidden       secrets
	nonce        string
	organization string
	// answer replaces the response of the token endpoint if it is not nil.
	answer http.HandlerFunc
}

// hide remembers a secret.
func (p *secretProvider) hide(name, secret string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(secret) < 16 {
		p.t.Fatalf("the %s %q is no secret", name, secret)
	}
	p.hidden[fmt.Sprint(name, " ", len(p.hidden))] = secret
}

func newSecretProvider(t *testing.T, organization string) *secretProvider {
	t.Helper()
	p := &secretProvider{t: t, keys: testenv.NewProvider(t), hidden: secrets{}, organization: organization}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch r.URL.Path {
		case "/token":
			p.token(w, r)
		case "/revoke":
			w.WriteHeader(500)
		default:
			_ = json.NewEncoder(w).Encode(map[string]any{
				"issuer": p.issuer, "authorization_endpoint": p.issuer + "/authorize", "token_endpoint": p.issuer + "/token", "jwks_uri": p.keys.URL,
				"revocation_endpoint": p.issuer + "/revoke", "end_session_endpoint": p.issuer + "/logout",
			})
		}
	}))
	t.Cleanup(server.Close)
	p.issuer = server.URL
	return p
}

func (p *secretProvider) token(w http.ResponseWriter, r *http.Request) {
	if err := r.ParseForm(); err != nil {
		p.t.Error(err)
	}
	if verifier := r.PostForm.Get("code_verifier"); verifier != "" {
		p.hide("verifier", verifier)
	}
	p.mu.Lock()
	answer := p.answer
	changes := testenv.Claims{"iss": p.issuer, "aud": "console", "exp": time.Now().Add(time.Minute).Unix()}
	if r.PostForm.Get("grant_type") == "authorization_code" {
		changes["nonce"] = p.nonce
	}
	p.mu.Unlock()
	if answer != nil {
		answer(w, r)
		return
	}
	id := p.keys.Sign(jwa.RS256(), testenv.SigningKey(), "k1", testenv.UsualClaims(p.organization, changes))
	response := map[string]string{"access_token": "access-" + rand.Text(), "token_type": "Bearer", "id_token": id, "refresh_token": "refresh-" + rand.Text()}
	for _, name := range []string{"access_token", "id_token", "refresh_token"} {
		p.hide(name, response[name])
	}
	_ = json.NewEncoder(w).Encode(response)
}

func (p *secretProvider) answers(h http.HandlerFunc) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.answer = h
}

// consoleBrowser is a browser at the console.
type consoleBrowser struct {
	*client
	p       *secretProvider
	origin  string
	cookies map[string]string
}

func (b *consoleBrowser) send(method, path, body string) reply {
	b.T.Helper()
	var pairs []string
	for name, value := range b.cookies {
		pairs = append(pairs, name+"="+value)
	}
	r := b.Do(method, path, body, "Cookie", strings.Join(pairs, "; "), "Origin", b.origin, "Sec-Fetch-Site", "same-origin", "Deeplink-Console", "1")
	for _, line := range r.Header.Values("Set-Cookie") {
		pair, _, _ := strings.Cut(line, ";")
		if name, value, _ := strings.Cut(pair, "="); value != "" {
			b.cookies[name] = value
			b.p.hide("cookie "+name, value)
		}
	}
	return r
}

// start begins a sign-in and returns its state.
func (b *consoleBrowser) start() (state string) {
	b.T.Helper()
	testenv.Await(b.T, "the discovery document", func() error {
		location, err := url.Parse(b.send("GET", "/console/sign-in?moved=1", "").Header.Get("Location"))
		if err != nil || location.Path != "/authorize" {
			return fmt.Errorf("%s, %w", location, err)
		}
		q := location.Query()
		state = q.Get("state")
		b.p.hide("state", state)
		b.p.hide("nonce", q.Get("nonce"))
		b.p.mu.Lock()
		b.p.nonce = q.Get("nonce")
		b.p.mu.Unlock()
		return nil
	})
	return state
}

// callback ends a sign-in with a code or with other parameters.
func (b *consoleBrowser) callback(parameters string) reply {
	b.T.Helper()
	state := b.start()
	if parameters == "" {
		code := "code-" + rand.Text()
		b.p.hide("code", code)
		parameters = "code=" + code
	}
	return b.send("GET", "/console/callback?state="+state+"&"+parameters, "")
}

// dump returns all rows of all tables, as text.
func (w *testEnv) dump() string {
	w.T.Helper()
	var all strings.Builder
	for _, table := range w.column(`select relname::text from pg_class where relnamespace = 'public'::regnamespace and relkind = 'r'`) {
		fmt.Fprintln(&all, table, w.column(`select t::text from `+table+` t`))
	}
	return all.String()
}

// column returns the only column of a query.
func (w *testEnv) column(sql string) []string {
	w.T.Helper()
	rows, err := w.Pool.Query(w.T.Context(), sql)
	if err != nil {
		w.T.Fatal(err)
	}
	texts, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		w.T.Fatal(err)
	}
	return texts
}

// TestSecretsOfTheConsoleShowNowhere goes through every way to sign in, to renew and to fail, and looks for each secret in logs, metrics, traces,
// responses, the audit trail and all tables.
func TestSecretsOfTheConsoleShowNowhere(t *testing.T) {
	t.Parallel()
	w, traces := newTestEnv(t), newCollector(t)
	o := w.Tenant(catalog.Scale)
	p := newSecretProvider(t, *o.ExternalID)
	key, clientSecret := strings.Repeat("5e", 31)+"a1", "client-secret-"+rand.Text()
	p.hide("session key", key)
	p.hide("client secret", clientSecret)
	const origin = "http://localhost:1"
	control := w.serve("--log-level=debug", "--otlp-endpoint="+traces.URL, "--trusted-proxies=127.0.0.1/32", "--console-url="+origin,
		"--console-oidc-issuer="+p.issuer, "--console-oidc-client-id=console", "--console-oidc-client-secret="+clientSecret, "--console-session-keys="+key)
	b := &consoleBrowser{control.visit(""), p, origin, make(map[string]string)}
	var responses strings.Builder
	keep := func(r reply) reply { responses.Write(r.Body); return r }
	description := "description-" + rand.Text()
	p.hide("error_description", description)
	failing := func(status int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			fmt.Fprintf(w, body, description)
		}
	}

	// Sign-ins that fail.
	for _, parameters := range []string{"error=server_error&error_description=" + description, "error=access_denied&error_description=" + description, "code=&x=" + description} {
		if r := b.callback(parameters); !strings.HasPrefix(r.Header.Get("Location"), "/console?problem=") {
			t.Errorf("%s: %s", parameters, r)
		}
	}
	bodies := []http.HandlerFunc{
		failing(400, `{"error":"invalid_grant","error_description":%q}`), failing(401, `{"error":"invalid_client","error_description":%q}`),
		failing(400, `{"error":%q}`), failing(500, `%s`), failing(200, `<html>%s`), failing(200, `{"access_token":%q,"token_type":"Bearer","id_token":"a.b.c"}`),
		failing(200, `{"access_token":%[1]q,"token_type":%[1]q,"id_token":%[1]q,"refresh_token":%[1]q}`),
	}
	for _, body := range bodies {
		p.answers(body)
		keep(b.callback(""))
	}
	p.answers(nil)
	// Sign-ins that succeed, and renewals with each result.
	for i := range len(bodies) + 1 {
		if r := b.callback(""); r.Header.Get("Location") != "/console" {
			t.Fatalf("callback: %s", r)
		}
		for _, body := range []http.HandlerFunc{nil, bodies[max(0, i-1)]} {
			p.answers(body)
			w.Exec(`update console_sessions set token_ends_at = clock_timestamp() - interval '6 seconds', renewal_failed_at = null`)
			keep(b.send("GET", "/portal/session", ""))
			keep(b.send("POST", "/portal/links", `{"path":"/a"}`))
		}
		p.answers(nil)
	}
	b.callback("")
	keep(b.send("GET", "/portal/sessions?all=true", ""))
	pending := b.start() // an attempt that is not ended
	during := w.dump()
	// The dump has them as hashes.
	for table, secret := range map[string]string{"console_sign_ins": pending, "console_sessions": b.cookies["deeplink_console"]} {
		if hash := sha256.Sum256([]byte(secret)); !strings.Contains(during, hex.EncodeToString(hash[:])) {
			t.Fatalf("the dump lacks %s", table)
		}
	}
	// Links.
	printed := w.operate("console-link", "--org", o.OrgKey, "--role", "owner", "--console-url", origin)
	_, after, ok := strings.Cut(printed.stdout, "/console/link#")
	if !ok {
		t.Fatalf("%+v", printed)
	}
	link := after[:43]
	p.hide("link token", link)
	for _, token := range []string{link, link, strings.ToLower(link)} {
		for _, confirm := range []string{"false", "true"} {
			keep(b.send("POST", "/console/link", fmt.Sprintf(`{"token":%q,"confirm":%s}`, token, confirm)))
		}
	}
	b.callback("")
	b.send("POST", "/console/sign-out", "") // its response has the ID token for the provider
	metrics, dump := control.Metrics(), during+w.dump()
	control.Stop()

	// Each secret, and what it looks like in bytea and in base64.
	p.mu.Lock()
	defer p.mu.Unlock()
	encoded := secrets{}
	for name, secret := range p.hidden {
		encoded[name] = secret
		encoded[name+" in hex"] = hex.EncodeToString([]byte(secret))
		encoded[name+" in base64"] = base64.StdEncoding.EncodeToString([]byte(secret))[:20]
		if signature := secret[strings.LastIndex(secret, ".")+1:]; signature != secret {
			encoded[name+" (signature)"] = signature
		}
	}
	if len(p.hidden) < 60 {
		t.Errorf("%d secrets were planted, expected more", len(p.hidden))
	}
	traces.mu.Lock()
	defer traces.mu.Unlock()
	for where, text := range map[string]string{"the log": control.Log.String(), "a metric": metrics, "a trace": traces.sent.String(), "the database": dump, "a response": responses.String()} {
		if len(text) < 500 {
			t.Errorf("%s is empty", where)
		}
		encoded.check(t, where, text)
	}
}
