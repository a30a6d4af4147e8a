package api

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"deeplink/control/internal/signin"
	"deeplink/control/internal/testenv"
	"deeplink/shared/catalog"
)

// callback ends a sign-in of the browser, and returns the response.
func (v *page) callback(state string, cookies ...string) reply {
	v.T.Helper()
	return v.Do("GET", "/console/callback?code=planted-code&state="+state, "", "Cookie", strings.Join(cookies, "; "), "Sec-Fetch-Site", "cross-site")
}

func TestSignInLeadsOnlyToTheConsole(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	p := w.oidcProvider(*w.Tenant(catalog.Scale).ExternalID)
	control := w.serve(trustLoopback, p.withProvider(nil))
	v := control.page("")
	for wish, expected := range map[string]string{
		"/console/done": "/console/done", "/console#links?search=a&tag=b%20c": "/console#links?search=a&tag=b%20c", "//evil.example": "/console",
		"https://evil.example/console": "/console", "/console/done\r\nSet-Cookie: a=b": "/console", "/console?x": "/console",
	} {
		state, browser := p.start(v, "&next="+url.QueryEscape(wish))
		if got := v.callback(state, browser).Header.Get("Location"); got != expected {
			t.Errorf("next=%q leads to %q, expected %q", wish, got, expected)
		}
	}
	// Twice is none.
	state, browser := p.start(v, "&next=/console/done&next=/console/done")
	if got := v.callback(state, browser).Header.Get("Location"); got != "/console" {
		t.Errorf("two next lead to %q", got)
	}
}

func TestCookiePlantedBeforeASignInIsNotTheOneAfterIt(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	p := w.oidcProvider(*w.Tenant(catalog.Scale).ExternalID)
	control := w.serve(trustLoopback, p.withProvider(nil))
	for name, planted := range map[string]string{
		"made up": sessionCookieName + "=" + repeat("A", 43), "of another person": w.signInWithLink(control, w.Tenant(catalog.Scale), "owner").cookie,
	} {
		v := control.page("")
		state, browser := p.start(v, "", planted)
		r := v.callback(state, browser, planted)
		cookie, attributes := cookieOf(r, sessionCookieName)
		if r.Status != 303 || cookie == "" || cookie == planted {
			t.Errorf("%s: %s, expected another cookie", name, r)
		}
		for _, attribute := range []string{"Path=/", "HttpOnly", "Secure", "SameSite=Lax", "Max-Age=604"} {
			if !strings.Contains(attributes, attribute) {
				t.Errorf("the cookie has the attributes %q, expected %s", attributes, attribute)
			}
		}
		v.cookie = planted
		expectCode(t, name+", the planted cookie", v.do("GET", "/portal/session", ""), 401, "SESSION_ENDED")
	}
}

func TestBrowserCookieBindsSeveralSignInsToTheBrowser(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	p := w.oidcProvider(*w.Tenant(catalog.Scale).ExternalID)
	control := w.serve(trustLoopback, p.withProvider(nil))
	v := control.page("")
	one, browser := p.start(v, "")
	nonce, challenge := p.nonce, p.challenge
	two, again := p.start(v, "", browser)
	if again != browser {
		t.Errorf("the second tab got the cookie %q, expected that of the first", again)
	}
	if r := v.callback(two, browser); r.Header.Get("Location") != "/console" {
		t.Errorf("the second tab: %s", r)
	}
	p.change(func() { p.nonce, p.challenge = nonce, challenge })
	if r := v.callback(one, browser); r.Header.Get("Location") != "/console" {
		t.Errorf("the first tab: %s", r)
	}
	for _, malformed := range []string{"x", repeat("A", 42) + "=", repeat("A", 44), ""} {
		if _, got := p.start(v, "", "__Host-deeplink_signin="+malformed); got == "__Host-deeplink_signin="+malformed {
			t.Errorf("the malformed cookie %q was used again", malformed)
		}
	}
	r := v.Do("GET", "/console/sign-in?moved=1", "")
	if _, attributes := cookieOf(r, "__Host-deeplink_signin"); attributes != "Path=/; Max-Age=600; HttpOnly; Secure; SameSite=Lax" {
		t.Errorf("the cookie of the browser has the attributes %q", attributes)
	}
}

func TestConsoleOverHTTPHasCookiesWithoutPrefix(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	o := w.Tenant(catalog.Scale)
	control := w.serve(withConsole(func(s *signin.Options) { s.URL = "http://localhost:8081" }))
	v := control.page("")
	v.base = "http://localhost:8081"
	r := v.do("POST", "/console/link", fmt.Sprintf(`{"token":%q,"confirm":true}`, w.link(o, "owner", time.Minute)))
	cookie, attributes := cookieOf(r, "deeplink_console")
	if cookie == "" || strings.Contains(attributes, "Secure") || !strings.Contains(attributes, "HttpOnly; SameSite=Lax") {
		t.Errorf("%s", r)
	}
	v.cookie = cookie
	if r := v.do("GET", "/portal/organization", ""); r.Status != 200 {
		t.Errorf("%s", r)
	}
	v.cookie = "__Host-" + cookie
	expectCode(t, "the other name", v.do("GET", "/portal/organization", ""), 401, "")
}

func TestIssuerThatIsAnnouncedMustBeInTheResponse(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	p := w.oidcProvider(*w.Tenant(catalog.Scale).ExternalID)
	p.discovery = claims{"authorization_response_iss_parameter_supported": true}
	control := w.serve(trustLoopback, p.withProvider(nil))
	v := control.page("")
	state, browser := p.start(v, "")
	if got := v.callback(state, browser).Header.Get("Location"); !strings.HasPrefix(got, "/console?problem=issuer&") {
		t.Errorf("without iss: %s", got)
	}
	state, browser = p.start(v, "")
	if got := v.callback(state+"&iss="+url.QueryEscape(p.issuer), browser).Header.Get("Location"); got != "/console" {
		t.Errorf("with iss: %s", got)
	}
}

func TestProviderWithoutS256IsNotUsed(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	for name, c := range map[string]struct {
		methods any
		problem string
	}{"plain": {[]string{"plain"}, "provider_unsupported"}, "an empty list": {[]string{}, "provider_unsupported"}, "null": {nil, ""}} {
		p := w.oidcProvider("org")
		p.discovery = claims{"code_challenge_methods_supported": c.methods}
		control := w.serve(trustLoopback, p.withProvider(nil))
		await(t, "the discovery document", func() error {
			location := control.page("").Do("GET", "/console/sign-in?moved=1", "").Header.Get("Location")
			if expected := "/console?problem=" + c.problem + "&"; c.problem != "" && !strings.HasPrefix(location, expected) || c.problem == "" && !strings.HasPrefix(location, p.issuer) {
				return fmt.Errorf("%s: %s", name, location)
			}
			return nil
		})
	}
}

func TestDiscoveryDocumentIsCheckedBeforeItIsUsed(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	for name, changes := range map[string]claims{
		"another issuer": {"issuer": "https://other.example"}, "issuer with a slash": {"issuer": "/"}, "endpoint without TLS": {"token_endpoint": "http://id.example/token"},
		"no keys": {"jwks_uri": ""}, "keys elsewhere without TLS": {"jwks_uri": "http://192.0.2.1/keys"}, "script": {"authorization_endpoint": "javascript:alert(1)"},
		"sign-out without TLS": {"end_session_endpoint": "http://id.example/logout"}, "longer than 256 KiB": {"padding": repeat("a", 256<<10)},
		"wrong type": {"scopes_supported": 1},
	} {
		p := w.oidcProvider("org")
		if changes["issuer"] == "/" {
			changes = claims{"issuer": p.issuer + "/"}
		}
		p.discovery = changes
		if _, _, err := signin.Discover(t.Context(), p.issuer); err == nil || strings.Contains(err.Error(), "192.0.2.1") || strings.Contains(err.Error(), "other.example") {
			t.Errorf("%s: %v, expected an error that quotes nothing", name, err)
		}
	}
	p := w.oidcProvider("org")
	if _, clock, err := signin.Discover(t.Context(), p.issuer); err != nil || !clock.Known || clock.Ahead.Abs() > 2*time.Second {
		t.Errorf("a valid document: %v, %+v", err, clock)
	}
}

func TestRequestUnderAnotherHostIsMovedOnce(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	control := w.serve(withConsole(nil), withPages(Page{Path: "/console/link", MediaType: "text/html", Content: []byte("link"), Policy: consolePolicy, Volatile: true}))
	v := control.page("")
	for _, c := range []struct{ target, expected string }{
		{"/console/sign-in", "/console/sign-in?moved=1"}, {"/console/sign-in?next=/console/done&prompt=none", "/console/sign-in?next=/console/done&prompt=none&moved=1"},
		{"/console/link", "/console/link?moved=1"}, {"/console/link?moved=0", "/console/link?moved=0&moved=1"}, {"/console/link?moved=1", ""},
		{"/console/link?moved=0&moved=1", ""}, {"/console/sign-in?moved=1&x", ""},
	} {
		r := v.Do("GET", c.target, "")
		location := r.Header.Get("Location")
		if c.expected != "" && (r.Status != 303 || location != consoleURL+c.expected) || c.expected == "" && strings.HasPrefix(location, consoleURL) {
			t.Errorf("GET %s: %d to %q, expected %q", c.target, r.Status, location, c.expected)
		}
	}
}

func TestAuthorizationRequestHasTheConfiguredParameters(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	p := w.oidcProvider(*w.Tenant(catalog.Scale).ExternalID)
	control := w.serve(trustLoopback, p.withProvider(func(o *signin.Options) {
		o.Provider.Parameters = url.Values{"access_type": {"offline"}, "prompt": {"consent"}, "resource": {"https://a.example", "https://b.example"}}
	}))
	v := control.page("")
	for prompt, expected := range map[string]string{"": "consent", "none": "none", "select_account": "select_account", "login": "consent"} {
		p.start(v, "")
		location, err := url.Parse(v.Do("GET", "/console/sign-in?moved=1&prompt="+prompt, "").Header.Get("Location"))
		if err != nil {
			t.Fatal(err)
		}
		q := location.Query()
		if !slices.Equal(q["prompt"], []string{expected}) || q.Get("access_type") != "offline" || len(q["resource"]) != 2 {
			t.Errorf("prompt=%s: %v", prompt, q)
		}
	}
}

func TestChoiceOfOrganizationOutlivesAnExpiredSession(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	one, two := w.Tenant(catalog.Scale), w.Tenant(catalog.Free)
	p := w.oidcProvider("")
	subject := "user_1"
	p.claims = func(c claims) claims {
		delete(c, "org_id")
		c["sub"], c["organizations"] = subject, []string{*one.ExternalID, *two.ExternalID}
		return c
	}
	control := w.serve(trustLoopback, p.withProvider(nil))
	for _, who := range []string{"user_1", "user_2"} {
		p.change(func() { subject = "user_1" })
		v := p.signIn(control)
		r := v.do("PUT", "/portal/session/organization", fmt.Sprintf(`{"externalId":%q}`, *two.ExternalID))
		if v.cookie, _ = cookieOf(r, sessionCookieName); v.cookie == "" {
			t.Fatalf("%s", r)
		}
		w.Exec(`update console_sessions set last_seen_at = now() - interval '9 hours'`)
		expectCode(t, "idle", v.do("GET", "/portal/session", ""), 401, "SESSION_ENDED")
		p.change(func() { subject = who })
		state, browser := p.start(v, "")
		v.cookie, _ = cookieOf(v.callback(state, browser, v.cookie), sessionCookieName)
		r = v.do("GET", "/portal/organization", "")
		if who == "user_1" && (r.Status != 200 || !strings.Contains(string(r.Body), two.ID)) {
			t.Errorf("the same person: %s, expected the organization that was chosen before", r)
		}
		if who == "user_2" {
			expectCode(t, "another person", r, 401, "NO_ORGANIZATION")
		}
	}
}

func TestSignOutEndsAlsoASessionThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	p := w.oidcProvider(*w.Tenant(catalog.Scale).ExternalID)
	control := w.serve(trustLoopback, p.withProvider(nil))
	v := p.signIn(control)
	// A control without the provider and its key.
	other := w.serve(trustLoopback, withConsole(nil)).page(v.cookie)
	expectCode(t, "without the provider", other.do("GET", "/portal/session", ""), 401, "SESSION_ENDED")
	if r := other.do("POST", "/console/sign-out", ""); r.Status != 200 {
		t.Errorf("sign-out: %s", r)
	}
	expectCode(t, "after the sign-out", v.do("GET", "/portal/session", ""), 401, "SESSION_ENDED")
}

func TestSignOutLeadsToTheProviderAndRevokesItsToken(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	p := w.oidcProvider(*w.Tenant(catalog.Scale).ExternalID)
	revoked := make(chan url.Values, 4)
	p.revoke = func(w http.ResponseWriter, r *http.Request) {
		if err := r.ParseForm(); err != nil {
			t.Error(err)
		}
		revoked <- r.PostForm
		w.WriteHeader(503) // one attempt, whatever comes of it
	}
	control := w.serve(trustLoopback, p.withProvider(nil))
	for _, padding := range []int{0, 4 << 10} {
		p.change(func() {
			p.claims = func(c claims) claims { c["padding"] = repeat("a", padding); return c }
		})
		v := p.signIn(control)
		location, err := url.Parse(testenv.DecodeReply[struct{ Location string }](t, v.do("POST", "/console/sign-out", "")).Location)
		if err != nil {
			t.Fatal(err)
		}
		q := location.Query()
		if !strings.HasPrefix(location.String(), p.issuer+"/logout?") || q.Get("client_id") != oidcClient || q.Get("post_logout_redirect_uri") != consoleURL+"/console" ||
			q.Has("id_token_hint") != (padding == 0) {
			t.Errorf("padding %d: %s", padding, location)
		}
		if form := <-revoked; form.Get("token") == "" || form.Get("token_type_hint") != "refresh_token" || form.Get("client_id") != oidcClient {
			t.Errorf("revoked %v", form)
		}
	}
	control.Stop()
	if len(revoked) > 0 {
		t.Error("a revocation was tried again")
	}
}
