package doctor

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"deeplink/control/internal/signin"
)

// Console is what doctor examines of the console's sign-in. The zero value: the console has no sign-in.
type Console struct {
	// URL is CONSOLE_URL. Issuer, ClientID and Scopes are those of the identity provider, empty for none.
	URL, Issuer, ClientID string
	Scopes                []string
	// Opens reports whether one of CONSOLE_SESSION_KEYS sealed a value, of which the first bytes are enough.
	Opens func(sealed []byte) bool
}

const (
	// maxClockDifference is how much the provider's clock may differ: tokens are accepted within this leeway.
	maxClockDifference = 5 * time.Second
	// consoleTimeout bounds each request to CONSOLE_URL.
	consoleTimeout = 5 * time.Second
)

// console examines the address of the console, the identity provider and, if Postgres can be reached, the sessions.
func (d *examiner) console(postgres bool) {
	c := d.options.Console
	if c.URL == "" {
		return
	}
	d.consoleAddress(c, postgres)
	if c.Issuer != "" {
		d.identityProvider(c)
	}
	if postgres {
		d.consoleSessions(c)
	}
}

func (d *examiner) identityProvider(c Console) {
	const check = "identity provider"
	document, clock, err := signin.Discover(d.ctx, c.Issuer)
	if err != nil {
		d.add(Error, check, err.Error(), "check CONSOLE_OIDC_ISSUER, which must be exactly the issuer of the discovery document, and the network from control to the provider")
		return
	}
	sound := true
	add := func(status Status, found, do string) {
		sound = false
		d.add(status, check, found, do)
	}
	if !document.SupportsS256() {
		add(Error, "it does not support PKCE with S256", "allow S256 for the client, or use another provider")
	}
	if document.ResponseTypes != nil && !slices.Contains(document.ResponseTypes, "code") {
		add(Warning, "it does not list the authorization code flow", "allow the response type code for the client")
	}
	if document.Algorithms != nil && !slices.ContainsFunc(document.Algorithms, func(a string) bool { return a == "RS256" || a == "ES256" || a == "EdDSA" }) {
		add(Warning, "it signs ID tokens with none of RS256, ES256 and EdDSA", "change the signature algorithm of the client")
	}
	if slices.Contains(c.Scopes, "offline_access") && document.Scopes != nil && !slices.Contains(document.Scopes, "offline_access") {
		add(Warning, "it does not list the scope offline_access, so sessions may end with their token", "allow it for the client, or change CONSOLE_OIDC_SCOPES and CONSOLE_OIDC_PARAMETERS")
	}
	if clock.Known && clock.Ahead.Abs() > maxClockDifference {
		add(Warning, fmt.Sprintf("its clock differs by %v", clock.Ahead.Round(time.Second)), "synchronize the clocks: tokens are accepted within 5 s")
	}
	if sound {
		d.ok(check, "discovery document of "+c.Issuer)
	}
}

// consoleAddress checks that browsers that go to CONSOLE_URL reach a control of this deployment.
func (d *examiner) consoleAddress(c Console, postgres bool) {
	const check = "console URL"
	const proxy = "check CONSOLE_URL, and that the proxy in front of control passes /console and /portal to it"
	response, err := d.request(http.MethodGet, c.URL+"/healthz", "", nil)
	switch {
	case err != nil:
		d.add(Warning, check, "not reached from here", proxy)
		return
	case response.Header.Get("Deeplink-Version") == "" || response.StatusCode != http.StatusOK:
		d.add(Error, check, fmt.Sprintf("the server there is no control: status %d", response.StatusCode), proxy)
		return
	}
	// No link has this token. A control with another CONSOLE_URL refuses the origin before it looks, and one without is not set up.
	response, err = d.request(http.MethodPost, c.URL+"/console/link", `{"token":"doctor","confirm":false}`, http.Header{
		"Content-Type": {"application/json"}, "Origin": {c.URL}, "Deeplink-Console": {"1"},
	})
	if err != nil || response.StatusCode != http.StatusUnauthorized {
		d.add(Error, check, "the control there has another CONSOLE_URL, or a proxy changes the header Origin", "set CONSOLE_URL to the same value on every control, and let the proxy pass headers unchanged")
		return
	}
	if c.Issuer == "" {
		d.ok(check, "reaches a control with this CONSOLE_URL")
		return
	}
	state, err := d.signInStart(c)
	if err != nil {
		d.add(Error, check, err.Error(), "use the same settings on every control, and restart them")
		return
	}
	if !postgres {
		return
	}
	ctx, cancel := d.bounded()
	defer cancel()
	known, err := d.store.KnowsConsoleSignIn(ctx, sha256.Sum256([]byte(state)))
	switch {
	case err != nil:
		d.fails(check, err)
	case !known:
		d.add(Error, check, "the control there is of another deployment: it has another Postgres", proxy)
	default:
		d.ok(check, "reaches a control of this deployment")
	}
}

// signInStart starts a sign-in as a browser does, which nobody completes, and returns its state.
func (d *examiner) signInStart(c Console) (state string, err error) {
	response, err := d.request(http.MethodGet, c.URL+"/console/sign-in?moved=1", "", nil)
	if err != nil {
		return "", errors.New("the control there did not respond to the start of a sign-in")
	}
	location, err := url.Parse(response.Header.Get("Location"))
	if err != nil || response.StatusCode != http.StatusSeeOther {
		return "", fmt.Errorf("the control there responded with status %d to the start of a sign-in", response.StatusCode)
	}
	query := location.Query()
	switch {
	case query.Get("problem") == string(signin.NotConfigured):
		return "", errors.New("the control there has no CONSOLE_OIDC_ISSUER")
	case query.Has("problem"):
		return "", errors.New("the control there cannot use the identity provider")
	case query.Get("redirect_uri") != c.URL+"/console/callback":
		return "", errors.New("the control there has another CONSOLE_URL")
	case query.Get("client_id") != c.ClientID:
		return "", errors.New("the control there has another CONSOLE_OIDC_CLIENT_ID")
	}
	return query.Get("state"), nil
}

// request sends a request and returns the response, whose body is closed. It follows no redirect.
func (d *examiner) request(method, address, body string, header http.Header) (*http.Response, error) {
	ctx, cancel := context.WithTimeout(d.ctx, consoleTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, address, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	for name, values := range header {
		request.Header[name] = values
	}
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	defer client.CloseIdleConnections()
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	response.Body.Close()
	return response, nil
}

// consoleSessions looks for sessions that cannot be used or renewed.
func (d *examiner) consoleSessions(c Console) {
	const check = "console sessions"
	ctx, cancel := d.bounded()
	defer cancel()
	groups, err := d.store.ConsoleSessionKeys(ctx, time.Now())
	if err != nil {
		d.fails(check, err)
		return
	}
	var all, lost, unrenewable int64
	for _, g := range groups {
		all += g.Sessions
		lostOne := slices.ContainsFunc(g.SealedWith, func(sealed []byte) bool { return c.Opens == nil || !c.Opens(sealed) })
		switch {
		case lostOne:
			lost += g.Sessions
		case !g.Renewable:
			unrenewable += g.Sessions
		}
	}
	if lost > 0 {
		d.add(Warning, check, fmt.Sprintf("no key decrypts %d of %d", lost, all), "these people must sign in again, unless you add the previous key to CONSOLE_SESSION_KEYS, after the first one")
	}
	if unrenewable > 0 {
		d.add(Warning, check, fmt.Sprintf("%d of %d have no refresh token and end with their token", unrenewable, all), "allow offline_access for the client at the identity provider, or change CONSOLE_OIDC_SCOPES and CONSOLE_OIDC_PARAMETERS")
	}
	if lost == 0 && unrenewable == 0 {
		d.ok(check, fmt.Sprintf("%d, which the keys decrypt", all))
	}
}
