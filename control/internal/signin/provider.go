package signin

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"deeplink/control/internal/session"
)

const (
	// providerTimeout bounds each request to the provider, and revokeTimeout the one that nothing waits for.
	providerTimeout = 5 * time.Second
	revokeTimeout   = 2 * time.Second
	// maxDiscovery, maxTokens and maxHeader bound responses, in bytes.
	maxDiscovery = 256 << 10
	maxTokens    = 64 << 10
	maxHeader    = 16 << 10
	// discoverEvery is the time between fetches of the discovery document, and firstRetry the first pause while there is none. It doubles up to
	// lastRetry.
	discoverEvery = 10 * time.Minute
	firstRetry    = time.Second
	lastRetry     = 10 * time.Second
	// maxHint bounds the ID token in the URL of the sign-out, in bytes: servers allow 8 KiB for a URL.
	maxHint = 4 << 10
)

// The judged tokens.
const (
	JudgeIDToken     = "id_token"
	JudgeAccessToken = "access_token"
)

// ProviderOptions are the settings of an identity provider.
type ProviderOptions struct {
	// Issuer is exactly that of the discovery document.
	Issuer, ClientID string
	// ClientSecret is empty for a public client.
	ClientSecret string
	Scopes       []string
	// Parameters are added to the authorization request.
	Parameters url.Values
	// Judge is the token that has organizations and roles: JudgeIDToken or JudgeAccessToken. Audience is that of the access token; empty: any.
	Judge, Audience string
	// The claims are those of session.Options.
	OrganizationClaim, RoleClaim, OrganizationsClaim string
}

// Document is what control uses of a discovery document.
type Document struct {
	Issuer                string   `json:"issuer"`
	AuthorizationEndpoint string   `json:"authorization_endpoint"`
	TokenEndpoint         string   `json:"token_endpoint"`
	KeysURL               string   `json:"jwks_uri"`
	EndSessionEndpoint    string   `json:"end_session_endpoint"`
	RevocationEndpoint    string   `json:"revocation_endpoint"`
	ChallengeMethods      []string `json:"code_challenge_methods_supported"`
	AuthMethods           []string `json:"token_endpoint_auth_methods_supported"`
	ResponseTypes         []string `json:"response_types_supported"`
	Algorithms            []string `json:"id_token_signing_alg_values_supported"`
	Scopes                []string `json:"scopes_supported"`
	AnnouncesIssuer       bool     `json:"authorization_response_iss_parameter_supported"`
}

// Provider is an identity provider.
type Provider struct {
	ProviderOptions
	redirect, home string
	client         *http.Client
	judge          *session.Verifier
	log            *slog.Logger

	document atomic.Pointer[Document]
}

func newProvider(o ProviderOptions, origin string, log *slog.Logger) (*Provider, error) {
	p := &Provider{ProviderOptions: o, redirect: origin + "/console/callback", home: origin + "/console", client: newClient(maxTokens), log: log}
	audience := o.ClientID
	if o.Judge == JudgeAccessToken {
		audience = o.Audience
	}
	var err error
	p.judge, err = session.New(session.Options{
		KeysURLNow: func() string {
			if d := p.document.Load(); d != nil {
				return d.KeysURL
			}
			return ""
		},
		Issuer: o.Issuer, Audience: audience, OrganizationClaim: o.OrganizationClaim, RoleClaim: o.RoleClaim,
		OrganizationsClaim: o.OrganizationsClaim, Log: log,
	})
	return p, err
}

// newClient returns a client that uses the proxy of the environment, follows no redirects, and reads responses as a whole: a response that is cut
// off or longer than limit is an error of the request.
func newClient(limit int64) *http.Client {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	// A connection that was closed while it was idle would leave it open whether the provider got the request.
	transport.DisableKeepAlives = true
	transport.MaxResponseHeaderBytes = maxHeader
	return &http.Client{
		Transport:     bounded{transport, limit},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// tooLongError is that of a response that is longer than its limit. It has the status of the response.
type tooLongError struct{ status int }

func (tooLongError) Error() string { return "response too long" }

type bounded struct {
	next  http.RoundTripper
	limit int64
}

// RoundTrip implements http.RoundTripper.
func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := b.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, b.limit+1))
	response.Body.Close()
	if err == nil && int64(len(body)) > b.limit {
		err = tooLongError{response.StatusCode}
	}
	if err != nil {
		return nil, err
	}
	response.Body = io.NopCloser(bytes.NewReader(body))
	return response, nil
}

// Clock compares the provider's clock with ours, within half a second.
type Clock struct {
	Known bool
	Ahead time.Duration
}

// Discover fetches the provider's discovery document and checks it. The error says what is wrong and quotes nothing of the response.
func Discover(ctx context.Context, issuer string) (d Document, clock Clock, err error) {
	ctx, cancel := context.WithTimeout(ctx, providerTimeout)
	defer cancel()
	client := newClient(maxDiscovery)
	dated := &dating{next: client.Transport}
	client.Transport = dated
	found, err := oidc.NewProvider(oidc.ClientContext(ctx, client), issuer)
	clock = dated.clock
	if err != nil {
		switch {
		case dated.status == 0:
			return Document{}, clock, errors.New("the identity provider cannot be reached, or its response is too long")
		case dated.status != http.StatusOK:
			return Document{}, clock, fmt.Errorf("the identity provider has no discovery document at the issuer's /.well-known/openid-configuration: status %d", dated.status)
		}
		return Document{}, clock, errors.New("the discovery document is malformed, or its issuer differs from the configured one")
	}
	if err := found.Claims(&d); err != nil {
		return Document{}, clock, errors.New("the discovery document is malformed")
	}
	secure := func(address string) bool {
		return session.SecureURL(address) && (strings.HasPrefix(issuer, "http:") || strings.HasPrefix(address, "https:"))
	}
	for name, address := range map[string]string{
		"authorization_endpoint": d.AuthorizationEndpoint, "token_endpoint": d.TokenEndpoint, "jwks_uri": d.KeysURL,
	} {
		if !secure(address) {
			return Document{}, clock, fmt.Errorf("the discovery document's %s is missing or not https", name)
		}
	}
	for name, address := range map[string]string{"end_session_endpoint": d.EndSessionEndpoint, "revocation_endpoint": d.RevocationEndpoint} {
		if address != "" && !secure(address) {
			return Document{}, clock, fmt.Errorf("the discovery document's %s is not https", name)
		}
	}
	return d, clock, nil
}

// dating records the status of the last response and the clock of the server.
type dating struct {
	next   http.RoundTripper
	status int
	clock  Clock
}

// RoundTrip implements http.RoundTripper.
func (d *dating) RoundTrip(r *http.Request) (*http.Response, error) {
	sent := time.Now()
	var took time.Duration
	// The body may take long, and the server sets Date before it.
	trace := &httptrace.ClientTrace{GotFirstResponseByte: func() { took = time.Since(sent) }}
	response, err := d.next.RoundTrip(r.WithContext(httptrace.WithClientTrace(r.Context(), trace)))
	if err == nil {
		d.status = response.StatusCode
		if date, err := http.ParseTime(response.Header.Get("Date")); err == nil {
			// Date has whole seconds, so half a second is its mean error.
			d.clock = Clock{true, date.Add(time.Second / 2).Sub(sent.Add(took / 2))}
		}
	}
	return response, err
}

// SupportsS256 reports whether the provider supports PKCE with S256, or does not say.
func (d *Document) SupportsS256() bool {
	return d.ChallengeMethods == nil || slices.Contains(d.ChallengeMethods, "S256")
}

// run fetches the discovery document until ctx ends: at the start and periodically. The keys follow the first document.
func (p *Provider) run(ctx context.Context) {
	var keys sync.WaitGroup
	defer keys.Wait()
	started, retry := false, firstRetry
	for {
		d, _, err := Discover(ctx, p.Issuer)
		pause := discoverEvery - discoverEvery/10 + rand.N(discoverEvery/5)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			p.log.Warn("could not use the discovery document of the identity provider; the last valid one stays in use", "cause", err.Error())
			if p.document.Load() == nil {
				pause = retry
				retry = min(2*retry, lastRetry)
			}
		default:
			p.document.Store(&d)
			if !started {
				started = true
				keys.Go(func() { _ = p.judge.Run(ctx) })
			}
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
	}
}

// config returns the OAuth client for the document.
func (p *Provider) config(d *Document) *oauth2.Config {
	style := oauth2.AuthStyleInHeader
	if p.ClientSecret == "" || slices.Contains(d.AuthMethods, "client_secret_post") && !slices.Contains(d.AuthMethods, "client_secret_basic") {
		style = oauth2.AuthStyleInParams
	}
	return &oauth2.Config{
		ClientID: p.ClientID, ClientSecret: p.ClientSecret, RedirectURL: p.redirect, Scopes: p.Scopes,
		Endpoint: oauth2.Endpoint{AuthURL: d.AuthorizationEndpoint, TokenURL: d.TokenEndpoint, AuthStyle: style},
	}
}

// authorization returns the URL at which the person signs in.
func (p *Provider) authorization(d *Document, state string, a attempt, prompt string) string {
	options := []oauth2.AuthCodeOption{oidc.Nonce(a.Nonce), oauth2.S256ChallengeOption(a.Verifier)}
	more := maps.Clone(p.Parameters)
	if prompt != "" {
		options = append(options, oauth2.SetAuthURLParam("prompt", prompt))
		delete(more, "prompt")
	}
	address := p.config(d).AuthCodeURL(state, options...)
	if len(more) > 0 {
		// A name may occur more than once (resource, RFC 8707), which the library's options cannot express.
		address += "&" + more.Encode()
	}
	return address
}

// tokens are a response of the token endpoint whose tokens were judged.
type tokens struct {
	session.Identity
	refresh, id string
	// noJudged: the response has no judged token. The other fields but refresh are empty.
	noJudged bool
}

// tokenError is why there are no tokens.
type tokenError struct {
	kind tokenErrorKind
	// sent: the provider may have processed the request, and no complete response was read.
	sent bool
	// refresh is the new refresh token of a complete response that could not be judged, empty for none.
	refresh string
	// reason is for the log.
	reason string
}

type tokenErrorKind int

const (
	tokenUnreachable tokenErrorKind = iota // no decision of the provider
	tokenRefused                           // invalid_grant
	tokenRejected                          // a check of the tokens failed
	tokenWrongIssuer                       // the ID token is of another issuer
	tokenOther                             // another error of the provider
	tokenMalformed                         // a response that is no token response
)

func (e *tokenError) Error() string { return e.reason }

// redeem exchanges a code.
func (p *Provider) redeem(ctx context.Context, d *Document, code string, a attempt) (tokens, *tokenError) {
	received, failed := p.request(ctx, func(ctx context.Context) (*oauth2.Token, error) {
		return p.config(d).Exchange(ctx, code, oauth2.VerifierOption(a.Verifier))
	})
	if failed != nil {
		return tokens{}, failed
	}
	return p.judged(ctx, received, judging{nonce: hashOf(a.Nonce), nonceRequired: true})
}

// refresh renews the tokens of a person.
func (p *Provider) refresh(ctx context.Context, d *Document, refreshToken string, expected judging) (tokens, *tokenError) {
	received, failed := p.request(ctx, func(ctx context.Context) (*oauth2.Token, error) {
		return p.config(d).TokenSource(ctx, &oauth2.Token{RefreshToken: refreshToken}).Token()
	})
	if failed != nil {
		return tokens{}, failed
	}
	if received.RefreshToken == refreshToken {
		received.RefreshToken = "" // the library repeats the old one
	}
	return p.judged(ctx, received, expected)
}

// request sends one request to the token endpoint.
func (p *Provider) request(ctx context.Context, send func(context.Context) (*oauth2.Token, error)) (*oauth2.Token, *tokenError) {
	ctx, cancel := context.WithTimeout(ctx, providerTimeout)
	defer cancel()
	var sent atomic.Bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		WroteHeaderField: func(string, []string) { sent.Store(true) },
	})
	received, err := send(oidc.ClientContext(ctx, p.client))
	var failed *oauth2.RetrieveError
	var network *url.Error
	var tooLong tooLongError
	busy := func(status int) bool { return status == http.StatusTooManyRequests || status >= 500 }
	switch {
	case err == nil:
		return received, nil
	case errors.As(err, &failed):
		status := failed.Response.StatusCode
		switch {
		case busy(status):
			return nil, &tokenError{kind: tokenUnreachable, reason: fmt.Sprintf("the token endpoint responded with status %d", status)}
		case failed.ErrorCode == "invalid_grant":
			return nil, &tokenError{kind: tokenRefused, reason: "the token endpoint responded with invalid_grant"}
		}
		return nil, &tokenError{kind: tokenOther, reason: fmt.Sprintf("the token endpoint responded with status %d and %s", status, knownOAuthError(failed.ErrorCode))}
	case errors.As(err, &tooLong) && !busy(tooLong.status):
		return nil, &tokenError{kind: tokenMalformed, sent: true, reason: fmt.Sprintf("the response of the token endpoint is longer than %d bytes", maxTokens)}
	case errors.As(err, &network):
		return nil, &tokenError{kind: tokenUnreachable, sent: sent.Load(), reason: "the token endpoint did not send a complete response in time"}
	}
	return nil, &tokenError{kind: tokenMalformed, reason: "the response of the token endpoint has no tokens"}
}

// knownOAuthError returns an error code of RFC 6749, 5.2, or "an unknown error": the provider chooses the text.
func knownOAuthError(code string) string {
	switch code {
	case "invalid_request", "invalid_client", "unauthorized_client", "unsupported_grant_type", "invalid_scope":
		return code
	}
	return "an unknown error"
}

// judging is what the tokens must be like.
type judging struct {
	// keysFrom: a token with an unknown key proves nothing while the keys are older. The zero time: any keys will do.
	keysFrom time.Time
	// nonce is the SHA-256 of the nonce.
	nonce         [32]byte
	nonceRequired bool
	// subject is empty for any.
	subject string
}

// judged checks the tokens of a response.
func (p *Provider) judged(ctx context.Context, received *oauth2.Token, expected judging) (tokens, *tokenError) {
	t := tokens{refresh: received.RefreshToken}
	fail := func(kind tokenErrorKind, reason string) (tokens, *tokenError) {
		return tokens{}, &tokenError{kind: kind, refresh: received.RefreshToken, reason: reason}
	}
	t.id, _ = received.Extra("id_token").(string)
	if t.id == "" && (expected.nonceRequired || p.Judge == JudgeIDToken) {
		if expected.nonceRequired {
			return fail(tokenRejected, "the token response has no ID token")
		}
		return tokens{refresh: t.refresh, noJudged: true}, nil
	}
	subject := expected.subject
	var name, email string
	if t.id != "" {
		claims, failed := p.checkIDToken(ctx, t.id, received.AccessToken, expected)
		if failed != nil {
			failed.refresh = received.RefreshToken
			return tokens{}, failed
		}
		subject, name, email = claims.Subject, claims.Name, claims.Email
	}
	judged := t.id
	if p.Judge == JudgeAccessToken {
		judged = received.AccessToken
	}
	identity, err := p.judge.Identify(ctx, judged, time.Now())
	switch {
	case p.lacksKeys(ctx, err, expected.keysFrom):
		return fail(tokenUnreachable, "the keys of the identity provider are not available")
	case err != nil:
		return fail(tokenRejected, "the judged token was rejected: "+err.Error()) // session's errors contain nothing of the token
	case identity.Subject != subject:
		return fail(tokenRejected, "the judged token is for another subject")
	}
	t.Identity = identity
	if name != "" {
		t.Name = name
	}
	if email != "" {
		t.Email = email
	}
	t.Name, t.Email = printable(t.Name, maxName), printable(t.Email, maxName)
	return t, nil
}

// lacksKeys reports whether a token was refused only because the provider's keys are not known, or older than from: the provider may have a new one, and
// session fetches keys at most every 10 s.
func (p *Provider) lacksKeys(ctx context.Context, err error, from time.Time) bool {
	return errors.Is(err, session.ErrUnavailable) || err != nil && ctx.Err() != nil ||
		errors.Is(err, session.ErrUnknownKey) && p.judge.KeysFetched().Before(from)
}

// revoke revokes a refresh token, in one attempt.
func (p *Provider) revoke(refreshToken string) {
	d := p.document.Load()
	if d == nil || d.RevocationEndpoint == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), revokeTimeout)
	defer cancel()
	form := url.Values{"token": {refreshToken}, "token_type_hint": {"refresh_token"}}
	inHeader := p.config(d).Endpoint.AuthStyle == oauth2.AuthStyleInHeader
	if !inHeader {
		form.Set("client_id", p.ClientID)
		if p.ClientSecret != "" {
			form.Set("client_secret", p.ClientSecret)
		}
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, d.RevocationEndpoint, strings.NewReader(form.Encode()))
	if err != nil {
		return
	}
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	if inHeader {
		request.SetBasicAuth(url.QueryEscape(p.ClientID), url.QueryEscape(p.ClientSecret))
	}
	response, err := p.client.Do(request)
	if err != nil {
		p.log.Warn("could not revoke a refresh token at the identity provider; it expires there")
		return
	}
	response.Body.Close()
}

// signOutURL returns where the browser goes to sign out at the provider, or /console if the provider has no such page.
func (p *Provider) signOutURL(idToken string) string {
	d := p.document.Load()
	if d == nil || d.EndSessionEndpoint == "" {
		return "/console"
	}
	u, err := url.Parse(d.EndSessionEndpoint)
	if err != nil {
		return "/console"
	}
	query := u.Query()
	query.Set("client_id", p.ClientID)
	query.Set("post_logout_redirect_uri", p.home)
	if idToken != "" && len(idToken) <= maxHint {
		query.Set("id_token_hint", idToken)
	}
	u.RawQuery = query.Encode()
	return u.String()
}
