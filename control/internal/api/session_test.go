package api

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"deeplink/control/internal/seal"
	"deeplink/control/internal/signin"
	"deeplink/control/internal/store"
	"deeplink/control/internal/testenv"
	"deeplink/shared/catalog"
)

// consoleURL is the CONSOLE_URL of servers under test. Tests send its origin; no browser goes there.
const consoleURL = "https://console.example.com"

// sessionKeys encrypt tokens in tests.
const sessionKeys = "5e551000000000000000000000000000000000000000000000000000000000a1"

// withConsole lets people sign in, with a provider unless it is nil.
func withConsole(change func(*signin.Options)) option {
	return func(t testing.TB, o *testOptions) {
		keys, err := seal.ParseKeys(sessionKeys)
		if err != nil {
			t.Fatal(err)
		}
		s := signin.Options{URL: consoleURL, Keys: keys, Idle: 8 * time.Hour, Lifetime: 168 * time.Hour, Grace: 10 * time.Minute, Metrics: signin.NewMetrics(), Log: o.Log}
		if change != nil {
			change(&s)
		}
		if o.Console, err = signin.New(s); err != nil {
			t.Fatal(err)
		}
	}
}

// page sends requests as the console's own page does.
type page struct {
	*client
	cookie string // name=value, empty for none
	base   string // the origin
}

func (p *process) page(cookie string) *page {
	return &page{client: p.visit(""), cookie: cookie, base: consoleURL}
}

// headers are those of the console's page.
func (p *page) headers(more ...string) []string {
	all := []string{"Deeplink-Console", "1", "Sec-Fetch-Site", "same-origin", "Origin", p.base}
	if p.cookie != "" {
		all = append(all, "Cookie", p.cookie)
	}
	return append(all, more...)
}

func (p *page) do(method, path, body string, more ...string) reply {
	p.T.Helper()
	return p.Do(method, path, body, p.headers(more...)...)
}

// cookieOf returns the cookie that a response sets, as a browser sends it.
func cookieOf(r reply, name string) (pair string, attributes string) {
	for _, line := range r.Header.Values("Set-Cookie") {
		pair, attributes, _ := strings.Cut(line, "; ")
		if strings.HasPrefix(pair, name+"=") {
			return pair, attributes
		}
	}
	return "", ""
}

const sessionCookieName = "__Host-deeplink_console"

// link returns the token of a new sign-in link.
func (w *testEnv) link(o store.CreatedOrganization, role string, valid time.Duration) string {
	w.T.Helper()
	url, _, err := signin.NewLink(w.T.Context(), w.Store, store.OperatorActor("olga"), store.Unconditional, consoleURL,
		store.ConsoleLink{Organization: o.Organization, Role: role, Operator: "olga"}, valid)
	if err != nil {
		w.T.Fatal(err)
	}
	_, token, _ := strings.Cut(url, "#")
	return token
}

// signInWithLink returns a page with a session from a link.
func (w *testEnv) signInWithLink(p *process, o store.CreatedOrganization, role string) *page {
	w.T.Helper()
	v := p.page("")
	r := v.do("POST", "/console/link", fmt.Sprintf(`{"token":%q,"confirm":true}`, w.link(o, role, time.Minute)))
	if r.Status != http.StatusOK || string(r.Body) != `{"location":"/console"}`+"\n" {
		w.T.Fatalf("the link: %s", r)
	}
	v.cookie, _ = cookieOf(r, sessionCookieName)
	return v
}

func expectCode(t *testing.T, what string, r reply, status int, code string) {
	t.Helper()
	if r.Status != status || r.Code() != code {
		t.Errorf("%s: %s, expected %d %q", what, r, status, code)
	}
}

func TestLinkSignsInOnceForItsOrganizationAndRole(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	p := w.serve(withConsole(nil))
	o := w.Tenant(catalog.Scale)
	token := w.link(o, "admin", time.Minute)
	v := p.page("")
	use := func(confirm bool) reply {
		return v.do("POST", "/console/link", fmt.Sprintf(`{"token":%q,"confirm":%v}`, token, confirm))
	}
	for range 3 { // looking spends nothing
		r := use(false)
		if r.Status != http.StatusOK || !strings.Contains(string(r.Body), `"organization":{"name":"Tenant","orgKey":"`+o.OrgKey+`"},"role":"admin"`) || len(r.Header["Set-Cookie"]) > 0 {
			t.Fatalf("before: %s", r)
		}
	}
	r := use(true)
	cookie, attributes := cookieOf(r, sessionCookieName)
	if r.Status != http.StatusOK || len(cookie) != len(sessionCookieName)+1+43 {
		t.Fatalf("confirmed: %s", r)
	}
	for _, attribute := range []string{"Path=/", "HttpOnly", "Secure", "SameSite=Lax", "Max-Age=287"} {
		if !strings.Contains(attributes, attribute) {
			t.Errorf("the cookie has the attributes %q, expected %s", attributes, attribute)
		}
	}
	if strings.Contains(attributes, "Domain") {
		t.Errorf("the cookie is for a domain: %q", attributes)
	}
	for _, confirm := range []bool{false, true} {
		expectCode(t, "spent", use(confirm), http.StatusUnauthorized, "LINK_INVALID")
	}
	token = strings.Repeat("A", 43)
	expectCode(t, "unknown", use(true), http.StatusUnauthorized, "LINK_INVALID")
	token = w.link(o, "admin", time.Minute)
	w.Exec(`update console_links set expires_at = now() - interval '1 second' where spent_at is null`)
	expectCode(t, "expired", use(true), http.StatusUnauthorized, "LINK_INVALID")

	v.cookie = cookie
	type shown struct {
		Subject, Name, Email, Role, Provider *string
		Via                                  string
		Organization                         *struct{ ID, OrgKey, Name, ExternalID string }
		Organizations                        []any
		SignedInAt, IdleUntil, EndsAt        *time.Time
	}
	s := testenv.DecodeReply[shown](t, v.do("GET", "/portal/session", ""))
	if s.Subject != nil || *s.Role != "admin" || s.Via != "link" || s.Organization.ID != o.ID || s.Provider != nil || len(s.Organizations) != 0 ||
		s.EndsAt.Sub(*s.SignedInAt) != 8*time.Hour || s.IdleUntil.After(*s.EndsAt) {
		t.Errorf("GET /portal/session: %+v", s)
	}
	if r := v.do("GET", "/portal/api-keys", ""); r.Status != http.StatusOK {
		t.Errorf("an admin: %s", r)
	}
	expectCode(t, "an admin sets the plan", v.do("PUT", "/portal/plan", `{"plan":"free"}`), http.StatusForbidden, "")
	if r := v.do("POST", "/portal/links", `{"path":"/from-link"}`); r.Status != http.StatusCreated {
		t.Fatalf("create a link: %s", r)
	}
	var actor, action string
	if err := w.Pool.QueryRow(t.Context(), `select actor_type || ' ' || actor_id || ' ' || host(ip), string_agg(action, ',' order by id) from audit_log
		where organization_id = $1 and action <> 'consoleLink.create' group by 1`, o.ID).Scan(&actor, &action); err != nil ||
		!strings.HasPrefix(actor, "operator olga 127.0.0.1") || action != "consoleLink.spend,session.create,link.create" {
		t.Errorf("the audit trail: %q %q, %v", actor, action, err)
	}
}

func TestConcurrentConfirmationsOfOneLinkGiveOneSession(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	controls := []*process{w.serve(withConsole(nil)), w.serve(withConsole(nil))}
	o := w.Tenant(catalog.Scale)
	token := w.link(o, "owner", time.Minute)
	w.Exec(`select 1`)
	var wait sync.WaitGroup
	results := make([]reply, 40)
	for i := range results {
		wait.Go(func() {
			v := controls[i%2].page("")
			results[i], _ = v.Try("POST", "/console/link", fmt.Sprintf(`{"token":%q,"confirm":true}`, token), v.headers()...)
		})
	}
	wait.Wait()
	signedIn, refused := 0, 0
	for _, r := range results {
		switch {
		case r.Status == http.StatusOK:
			signedIn++
		case r.Code() == "LINK_INVALID":
			refused++
		case r.Status != http.StatusTooManyRequests:
			t.Errorf("%s", r)
		}
	}
	var sessions int
	if err := w.Pool.QueryRow(t.Context(), `select count(*) from console_sessions`).Scan(&sessions); err != nil {
		t.Fatal(err)
	}
	if signedIn != 1 || sessions != 1 || refused == 0 {
		t.Errorf("%d signed in, %d refused, %d sessions; expected 1 session", signedIn, refused, sessions)
	}
}

func TestCookieIsAcceptedOnlyFromTheConsolesOwnPage(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	provider := w.provider()
	p := provider.serve(withConsole(nil))
	o := w.Tenant(catalog.Scale)
	v := w.signInWithLink(p, o, "owner")
	token := provider.Token(*o.ExternalID, "owner")
	const code = "SAME_ORIGIN_REQUIRED"
	for _, c := range []struct {
		name        string
		read, write int
		readCode    string
		headers     []string
	}{
		{"own page", 200, 201, "", []string{"Deeplink-Console", "1", "Sec-Fetch-Site", "same-origin", "Origin", consoleURL}},
		{"own page without Origin", 200, 201, "", []string{"Deeplink-Console", "1", "Sec-Fetch-Site", "same-origin"}},
		{"old browser", 200, 201, "", []string{"Deeplink-Console", "1", "Origin", consoleURL}},
		{"old browser without Origin", 200, 403, "", []string{"Deeplink-Console", "1"}},
		{"without the mark", 200, 403, "", []string{"Sec-Fetch-Site", "same-origin", "Origin", consoleURL}},
		{"another mark", 200, 403, "", []string{"Deeplink-Console", "true", "Origin", consoleURL}},
		{"mark twice", 200, 403, "", []string{"Deeplink-Console", "1", "Deeplink-Console", "1", "Origin", consoleURL}},
		{"other origin", 200, 403, "", []string{"Deeplink-Console", "1", "Origin", "https://evil.example"}},
		{"other port", 200, 403, "", []string{"Deeplink-Console", "1", "Origin", consoleURL + ":444"}},
		{"opaque origin", 200, 403, "", []string{"Deeplink-Console", "1", "Origin", "null"}},
		{"other origin, same site", 200, 403, "", []string{"Deeplink-Console", "1", "Sec-Fetch-Site", "same-origin", "Origin", "https://evil.example"}},
		{"two origins", 200, 403, "", []string{"Deeplink-Console", "1", "Origin", consoleURL, "Origin", consoleURL}},
		{"typed address", 200, 403, "", []string{"Deeplink-Console", "1", "Sec-Fetch-Site", "none", "Origin", consoleURL}},
		{"cross-site", 403, 403, code, []string{"Deeplink-Console", "1", "Sec-Fetch-Site", "cross-site", "Origin", consoleURL}},
		{"same-site", 403, 403, code, []string{"Deeplink-Console", "1", "Sec-Fetch-Site", "same-site", "Origin", consoleURL}},
	} {
		with := append([]string{"Cookie", v.cookie}, c.headers...)
		expectCode(t, c.name+", read", v.Do("GET", "/portal/organization", "", with...), c.read, c.readCode)
		r := v.Do("POST", "/portal/links", `{"path":"/a"}`, with...)
		if r.Status != c.write || c.write == 403 && r.Code() != code {
			t.Errorf("%s, write: %s, expected %d", c.name, r, c.write)
		}
	}
	// Exactly one credential.
	bearer := []string{"Authorization", "Bearer " + token}
	for _, authorization := range []string{"Bearer " + token, "Basic eA==", " "} {
		if r := v.Do("GET", "/portal/organization", "", "Cookie", v.cookie, "Authorization", authorization); r.Status != 400 || r.Message() != "Send either an Authorization header or the session cookie, not both." {
			t.Errorf("both with %q: %s", authorization, r)
		}
	}
	for _, twice := range [][]string{{"Cookie", v.cookie + "; " + v.cookie}, {"Cookie", v.cookie, "Cookie", sessionCookieName + "=x"}} {
		if r := v.Do("GET", "/portal/organization", "", twice...); r.Status != 400 || r.Message() != "The session cookie was sent twice." {
			t.Errorf("twice: %s", r)
		}
	}
	for _, cookie := range []string{sessionCookieName + "=", sessionCookieName + "=x", sessionCookieName + "=" + strings.Repeat("A", 43), sessionCookieName + `="` + strings.Repeat("A", 41) + `"`} {
		expectCode(t, cookie, v.Do("GET", "/portal/organization", "", "Cookie", cookie), 401, "SESSION_ENDED")
	}
	// A bearer needs no proof, and the cookie is nothing outside of the portal.
	if r := v.Do("POST", "/portal/links", `{"path":"/a"}`, append(bearer, "Sec-Fetch-Site", "cross-site")...); r.Status != 201 {
		t.Errorf("a bearer: %s", r)
	}
	if r := v.Do("GET", "/links", "", "Cookie", v.cookie, "Authorization", "Bearer "+*o.ServerKey); r.Status != 200 {
		t.Errorf("the cookie on /links: %s", r)
	}
	if r := v.do("GET", "/portal/organization", "", "Deeplink-Organization", o.ID); r.Status != 200 {
		t.Errorf("own organization: %s", r)
	}
	expectCode(t, "another organization", v.do("GET", "/portal/organization", "", "Deeplink-Organization", w.Tenant(catalog.Free).ID), 409, "ORGANIZATION_CHANGED")
	if r := v.Do("PUT", "/portal/session/organization", `{"externalId":"x"}`, bearer...); r.Status != 400 || r.Message() != "This call needs the console's session cookie." {
		t.Errorf("a bearer chooses: %s", r)
	}
	for _, path := range []string{"/portal/organization", "/console/sign-in", "/console/callback", "/console/link", "/console", "/portal/sessions"} {
		r := v.Do("OPTIONS", path, "", "Origin", "https://evil.example", "Access-Control-Request-Method", "POST")
		if path == "/console" {
			continue // there are no pages in this test
		}
		if r.Status != http.StatusMethodNotAllowed || r.Header.Get("Access-Control-Allow-Origin") != "" || r.Header.Get("Cross-Origin-Resource-Policy") != "same-origin" {
			t.Errorf("OPTIONS %s: %s", path, r)
		}
	}
	for _, path := range []string{"/console/sign-in", "/console/callback"} {
		if r := v.Do("HEAD", path, ""); r.Status != http.StatusMethodNotAllowed || r.Header.Get("X-Frame-Options") != "DENY" || !strings.Contains(r.Header.Get("Content-Security-Policy"), "frame-ancestors 'none'") {
			t.Errorf("HEAD %s: %s", path, r)
		}
	}
	var sessions int
	if err := w.Pool.QueryRow(t.Context(), `select count(*) from console_sessions`).Scan(&sessions); err != nil || sessions != 1 {
		t.Errorf("%d sessions, %v", sessions, err)
	}
}

func TestSessionThatEndedOnOneControlHasEndedOnAll(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	one, other := w.serve(withConsole(nil)), w.serve(withConsole(nil))
	o := w.Tenant(catalog.Scale)
	owner, member := w.signInWithLink(one, o, "owner"), w.signInWithLink(one, o, "member")
	elsewhere := func(v *page) *page { return other.page(v.cookie) }
	type list struct {
		Data []struct {
			ID, Via, Role, UserAgent, IP  string
			Current                       bool
			Subject, Name, Email          *string
			CreatedAt, LastSeenAt, EndsAt time.Time
		}
	}
	all := testenv.DecodeReply[list](t, elsewhere(owner).do("GET", "/portal/sessions?all=true", ""))
	if len(all.Data) != 2 || all.Data[0].Role != "member" || all.Data[0].Current || !all.Data[1].Current || all.Data[1].Via != "link" || all.Data[1].IP != "127.0.0.1" {
		t.Fatalf("the list: %+v", all)
	}
	own := testenv.DecodeReply[list](t, member.do("GET", "/portal/sessions", ""))
	if len(own.Data) != 1 || !own.Data[0].Current || own.Data[0].ID != all.Data[0].ID {
		t.Errorf("own: %+v", own)
	}
	expectCode(t, "a member lists all", member.do("GET", "/portal/sessions?all=true", ""), 403, "")
	expectCode(t, "a member revokes another", member.do("DELETE", "/portal/sessions/"+all.Data[1].ID, ""), 404, "")
	stranger := w.signInWithLink(one, w.Tenant(catalog.Scale), "owner")
	expectCode(t, "another organization revokes", stranger.do("DELETE", "/portal/sessions/"+all.Data[1].ID, ""), 404, "")
	if r := elsewhere(owner).do("DELETE", "/portal/sessions/"+all.Data[0].ID, ""); r.Status != 200 || !strings.Contains(string(r.Body), `"revoked":true`) {
		t.Fatalf("revoke: %s", r)
	}
	expectCode(t, "revoked", member.do("GET", "/portal/session", ""), 401, "SESSION_ENDED")
	expectCode(t, "revoked again", owner.do("DELETE", "/portal/sessions/"+all.Data[0].ID, ""), 404, "")

	if r := owner.Do("POST", "/console/sign-out", "", "Cookie", owner.cookie); r.Status != 403 {
		t.Errorf("sign-out without a proof: %s", r)
	}
	r := owner.do("POST", "/console/sign-out", "")
	if cookie, attributes := cookieOf(r, sessionCookieName); r.Status != 200 || cookie != sessionCookieName+"=" || !strings.Contains(attributes, "Max-Age=0") {
		t.Errorf("sign-out: %s", r)
	}
	expectCode(t, "signed out", elsewhere(owner).do("GET", "/portal/session", ""), 401, "SESSION_ENDED")
	if r := owner.do("POST", "/console/sign-out", ""); r.Status != 200 {
		t.Errorf("sign-out without a session: %s", r)
	}
	w.Exec(`update organizations set suspended = true where id = $1`, stranger.organization())
	expectCode(t, "suspended", stranger.do("GET", "/portal/organization", ""), 401, "")
	w.Exec(`update organizations set suspended = false`)
	w.Exec(`update console_sessions set last_seen_at = now() - interval '8 hours 1 second'`)
	expectCode(t, "idle", stranger.do("GET", "/portal/organization", ""), 401, "SESSION_ENDED")
	w.Exec(`update console_sessions set last_seen_at = now(), ends_at = now() - interval '1 second'`)
	expectCode(t, "at its end", stranger.do("GET", "/portal/organization", ""), 401, "SESSION_ENDED")
}

// organization returns the id of the organization of the session.
func (p *page) organization() string {
	p.T.Helper()
	return testenv.DecodeReply[struct {
		ID, OrgKey, Name, ExternalID, Plan string
		Suspended                          bool
		Features, Links                    any
	}](p.T, p.do("GET", "/portal/organization", "")).ID
}

func TestSignInWithoutSettingsEndsOnAPage(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	for name, p := range map[string]*process{"nothing": w.serve(), "only links": w.serve(withConsole(nil))} {
		for _, path := range []string{"/console/sign-in", "/console/callback?state=x"} {
			r := p.page("").Do("GET", path, "", "X-Request-Id", "r 1", "Host", "console.example.com")
			if name == "only links" && path == "/console/sign-in" {
				if r.Status != 303 || r.Header.Get("Location") != consoleURL+"/console/sign-in?moved=1" {
					t.Errorf("another host: %s", r)
				}
				r = p.page("").Do("GET", path+"?moved=1", "", "X-Request-Id", "r 1")
			}
			if r.Status != 303 || r.Header.Get("Location") != "/console?problem=not_configured&ref=r+1" || r.Header.Get("Cache-Control") != "no-store" {
				t.Errorf("%s: GET %s: %s", name, path, r)
			}
		}
	}
}
