package main

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"html/template"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"
)

const (
	// clientID is the only client, which is public: PKCE proves who redeems a code.
	clientID = "console"
	// codeTime is how long a code is valid.
	codeTime = time.Minute
	// overlap is how long a refresh token works after it was replaced, so that a response that got lost ends no session.
	overlap = 30 * time.Second
	// choiceCookie remembers a browser's last choice.
	choiceCookie = "deeplink_identity"
	// maxForm bounds a form, in bytes, and maxKept the codes and refresh tokens that are remembered.
	maxForm = 16 << 10
	maxKept = 10_000
)

// person is the identity that was chosen on the page.
type person struct {
	Subject      string `json:"sub"`
	Name         string `json:"name"`
	Email        string `json:"email"`
	Organization string `json:"org"`
	Role         string `json:"role"`
}

// claims are those of the person's tokens. Several organizations are separated by commas.
func (p person) claims() map[string]any {
	c := map[string]any{"sub": p.Subject, "name": p.Name, "email": p.Email, "aud": clientID}
	organizations := strings.FieldsFunc(p.Organization, func(r rune) bool { return r == ',' || r == ' ' })
	if len(organizations) == 1 {
		c["org_id"], c["org_role"] = organizations[0], "org:"+p.Role
		return c
	}
	var all []map[string]string
	for _, id := range organizations {
		all = append(all, map[string]string{"id": id, "role": p.Role})
	}
	c["organizations"] = all
	return c
}

// grant is what a code or a refresh token stands for.
type grant struct {
	person           person
	nonce, challenge string
	redirect         string
	until            time.Time // the zero time: no end
}

// signIns are the codes and refresh tokens, in memory: a restart ends them.
type signIns struct {
	mu      sync.Mutex
	codes   map[string]grant
	refresh map[string]grant
}

func newSignIns() *signIns {
	return &signIns{codes: make(map[string]grant), refresh: make(map[string]grant)}
}

// keep remembers a grant under a new name.
func (s *signIns) keep(in map[string]grant, g grant) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, old := range in {
		if len(in) >= maxKept || !old.until.IsZero() && time.Now().After(old.until) {
			delete(in, name)
		}
	}
	name := rand.Text()
	in[name] = g
	return name
}

// redeem returns the grant of a code, once.
func (s *signIns) redeem(code string) (grant, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	g, ok := s.codes[code]
	delete(s.codes, code)
	return g, ok && time.Now().Before(g.until)
}

// rotate returns the grant of a refresh token, which works for a little longer.
func (s *signIns) rotate(token string) (grant, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	g, ok := s.refresh[token]
	if !ok || !g.until.IsZero() && time.Now().After(g.until) {
		return grant{}, false
	}
	replaced := g
	if replaced.until.IsZero() {
		replaced.until = time.Now().Add(overlap)
		s.refresh[token] = replaced
	}
	g.until = time.Time{}
	return g, true
}

// discovery serves the discovery document.
func (i *identity) discovery(w http.ResponseWriter, _ *http.Request) {
	respond(w, http.StatusOK, map[string]any{
		"issuer": i.issuer, "authorization_endpoint": i.issuer + "/authorize", "token_endpoint": i.issuer + "/oauth/token",
		"jwks_uri": i.issuer + "/.well-known/jwks.json", "end_session_endpoint": i.issuer + "/logout",
		"response_types_supported": []string{"code"}, "subject_types_supported": []string{"public"},
		"id_token_signing_alg_values_supported": []string{"RS256"}, "code_challenge_methods_supported": []string{"S256"},
		"token_endpoint_auth_methods_supported": []string{"none"}, "grant_types_supported": []string{"authorization_code", "refresh_token"},
		"scopes_supported": []string{"openid", "profile", "email", "offline_access"},
		"authorization_response_iss_parameter_supported": true,
	})
}

// mayReturn reports whether an address is that of the console, whichever name of this machine the browser uses.
func (i *identity) mayReturn(address, path string) bool {
	_, port, _ := net.SplitHostPort(i.control)
	for _, host := range []string{i.control, "localhost:" + port, "127.0.0.1:" + port} {
		if address == "http://"+host+path {
			return true
		}
	}
	return false
}

// authorize shows the page to choose a person, and sends the browser back with a code.
func (i *identity) authorize(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	if err := r.ParseForm(); err != nil {
		http.Error(w, "the form is malformed", http.StatusBadRequest)
		return
	}
	query := r.URL.Query()
	redirect := query.Get("redirect_uri")
	if query.Get("client_id") != clientID || !i.mayReturn(redirect, "/console/callback") {
		http.Error(w, "unknown client_id or redirect_uri", http.StatusBadRequest)
		return
	}
	back := func(values url.Values) {
		values.Set("state", query.Get("state"))
		values.Set("iss", i.issuer)
		w.Header().Set("Referrer-Policy", "no-referrer")
		http.Redirect(w, r, redirect+"?"+values.Encode(), http.StatusSeeOther)
	}
	if query.Get("response_type") != "code" || query.Get("code_challenge_method") != "S256" || query.Get("code_challenge") == "" {
		back(url.Values{"error": {"invalid_request"}})
		return
	}
	last, known := lastChoice(r)
	chosen := last
	switch {
	case r.Method == http.MethodPost && r.PostForm.Has("cancel"):
		back(url.Values{"error": {"access_denied"}})
		return
	case r.Method == http.MethodPost:
		// Another page must not choose for the person. The cookie is not sent from there, and browsers say where a form comes from.
		if site := r.Header.Get("Sec-Fetch-Site"); site != "" && site != "same-origin" {
			http.Error(w, "the form must come from this page", http.StatusForbidden)
			return
		}
		chosen = person{r.PostForm.Get("sub"), r.PostForm.Get("name"), r.PostForm.Get("email"), r.PostForm.Get("org"), r.PostForm.Get("role")}
		remember(w, chosen)
	case query.Get("prompt") == "none" && !known:
		back(url.Values{"error": {"login_required"}})
		return
	case query.Get("prompt") != "none":
		if !known {
			chosen = person{"user_dev", "Dana Developer", "dana@example.com", "org_demo", "owner"}
		}
		showChoice(w, chosen)
		return
	}
	code := i.signIns.keep(i.signIns.codes, grant{
		person: chosen, nonce: query.Get("nonce"), challenge: query.Get("code_challenge"), redirect: redirect, until: time.Now().Add(codeTime),
	})
	back(url.Values{"code": {code}})
}

// lastChoice returns the person of the browser's last sign-in.
func lastChoice(r *http.Request) (p person, known bool) {
	cookie, err := r.Cookie(choiceCookie)
	if err != nil {
		return person{}, false
	}
	text, err := base64.RawURLEncoding.DecodeString(cookie.Value)
	return p, err == nil && json.Unmarshal(text, &p) == nil
}

func remember(w http.ResponseWriter, p person) {
	text, err := json.Marshal(p)
	if err != nil {
		panic(err) // strings have a JSON form
	}
	http.SetCookie(w, &http.Cookie{Name: choiceCookie, Value: base64.RawURLEncoding.EncodeToString(text), Path: "/", HttpOnly: true, SameSite: http.SameSiteLaxMode})
}

// showChoice shows the page. Its form goes to its own address, with the query of the console.
func showChoice(w http.ResponseWriter, p person) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; img-src data:; frame-ancestors 'none'; base-uri 'none'")
	w.Header().Set("Referrer-Policy", "no-referrer")
	// The client may be gone.
	_ = choicePage.Execute(w, p)
}

var choicePage = template.Must(template.New("choice").Parse(`<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>Development identity provider</title>
<link rel="icon" href="data:,">
<style>
:root { color-scheme: light dark; --ground: #f3f4f9; --card: #fff; --ink: #11131a; --soft: #565d70; --edge: #868da0; --accent: #2952e3; --label: #fff; }
@media (prefers-color-scheme: dark) { :root { --ground: #0a0c12; --card: #141720; --ink: #f2f4f9; --soft: #a2aabc; --edge: #6c7488; --accent: #8aa4ff; --label: #0b1020; } }
* { box-sizing: border-box; margin: 0; }
body { min-height: 100vh; padding: 1rem; background: var(--ground); color: var(--ink); font: 1rem/1.5 system-ui, sans-serif; }
main { width: min(100%, 27rem); margin: clamp(0rem, 8vh, 6rem) auto; padding: 1.5rem; border-radius: 1.25rem; background: var(--card); }
h1 { font-size: 1.375rem; }
p { color: var(--soft); margin-top: .25rem; }
label { display: block; margin-top: 1rem; font-weight: 600; font-size: .9375rem; }
input, select { display: block; width: 100%; min-height: 2.75rem; margin-top: .25rem; padding: .5rem .75rem; border: 1px solid var(--edge); border-radius: .75rem; background: var(--card); color: var(--ink); font: inherit; }
small { color: var(--soft); }
div { display: flex; justify-content: flex-end; gap: .5rem; margin-top: 1.5rem; }
button { min-height: 2.75rem; padding: .375rem 1rem; border: 1px solid var(--edge); border-radius: .75rem; background: var(--card); color: var(--ink); font: inherit; font-weight: 600; cursor: pointer; }
button.main { background: var(--accent); border-color: var(--accent); color: var(--label); }
:focus-visible { outline: 3px solid var(--accent); outline-offset: 2px; }
</style>
</head>
<body>
<main>
<h1>Who do you want to be?</h1>
<p>This identity provider is for development. It asks for no password.</p>
<form method="post">
<label>Organization <input name="org" autocomplete="organization" value="{{.Organization}}" required><small>External id. Separate several with commas.</small></label>
<label>Role <select name="role">{{$role := .Role}}{{range $r := .Roles}}<option{{if eq $r $role}} selected{{end}}>{{$r}}</option>{{end}}</select></label>
<label>Name <input name="name" autocomplete="name" value="{{.Name}}"></label>
<label>Email <input name="email" autocomplete="email" type="email" value="{{.Email}}"></label>
<label>Subject <input name="sub" autocomplete="off" value="{{.Subject}}" required></label>
<div><button name="cancel" value="1" formnovalidate>Cancel</button><button class="main" id="sign-in">Sign in</button></div>
</form>
</main>
</body>
</html>
`))

// Roles returns those that can be chosen.
func (person) Roles() []string { return []string{"member", "admin", "owner"} }

// exchange serves the token endpoint: a code with its PKCE verifier, or a refresh token, for tokens of 60 seconds.
func (i *identity) exchange(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	refuse := func(code string) { respond(w, http.StatusBadRequest, map[string]string{"error": code}) }
	if r.ParseForm() != nil || r.PostForm.Get("client_id") != clientID {
		refuse("invalid_client")
		return
	}
	var g grant
	var ok bool
	switch r.PostForm.Get("grant_type") {
	case "authorization_code":
		g, ok = i.signIns.redeem(r.PostForm.Get("code"))
		proof := sha256.Sum256([]byte(r.PostForm.Get("code_verifier")))
		ok = ok && g.redirect == r.PostForm.Get("redirect_uri") && base64.RawURLEncoding.EncodeToString(proof[:]) == g.challenge
	case "refresh_token":
		g, ok = i.signIns.rotate(r.PostForm.Get("refresh_token"))
		g.nonce = ""
	default:
		refuse("unsupported_grant_type")
		return
	}
	if !ok {
		refuse("invalid_grant")
		return
	}
	claims := g.person.claims()
	access, err := i.sign(defaultLifetime, claims)
	if err == nil {
		if g.nonce != "" {
			claims["nonce"] = g.nonce
		}
		var id string
		if id, err = i.sign(defaultLifetime, claims); err == nil {
			w.Header().Set("Cache-Control", "no-store")
			respond(w, http.StatusOK, map[string]any{
				"access_token": access, "id_token": id, "token_type": "Bearer", "expires_in": int(defaultLifetime / time.Second),
				"refresh_token": i.signIns.keep(i.signIns.refresh, grant{person: g.person}),
			})
			return
		}
	}
	respond(w, http.StatusInternalServerError, map[string]string{"error": "server_error"})
}

// logout forgets the browser's choice and leads back to the console.
func (i *identity) logout(w http.ResponseWriter, r *http.Request) {
	http.SetCookie(w, &http.Cookie{Name: choiceCookie, Path: "/", MaxAge: -1, HttpOnly: true, SameSite: http.SameSiteLaxMode})
	if to := r.URL.Query().Get("post_logout_redirect_uri"); i.mayReturn(to, "/console") {
		http.Redirect(w, r, to, http.StatusSeeOther)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = w.Write([]byte("You are signed out.\n"))
}
