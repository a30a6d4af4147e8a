// Package signin signs people in to the console: with the organization's OpenID Connect provider (authorization code flow with PKCE), or with a
// one-time link of an operator. Its promise: a session exists only for a person that the provider or an operator named, its role is never older
// than the last token that was judged by package session, and a session that was ended stays ended on every control.
//
// It knows nothing of HTTP requests; package api does. No error and no log record contains a token, a code, a cookie or a secret.
package signin

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"log/slog"
	"net/netip"
	"regexp"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"deeplink/control/internal/seal"
	"deeplink/control/internal/store"
)

// Problem is why a sign-in failed. The values are those of the page and of the metrics.
type Problem string

// The problems. NoProblem is a sign-in that succeeded.
const (
	NoProblem           Problem = ""
	BadRequest          Problem = "request"
	BadState            Problem = "state"
	BadIssuer           Problem = "issuer"
	AccessDenied        Problem = "access_denied"
	SignInNeeded        Problem = "sign_in_needed"
	ProviderError       Problem = "provider_error"
	BadCode             Problem = "code"
	ProviderUnavailable Problem = "provider_unavailable"
	ProviderUnsupported Problem = "provider_unsupported"
	BadToken            Problem = "token"
	NoOrganization      Problem = "no_organization"
	UnknownOrganization Problem = "unknown_organization"
	NotConfigured       Problem = "not_configured"
)

var problems = []Problem{
	BadRequest, BadState, BadIssuer, AccessDenied, SignInNeeded, ProviderError, BadCode, ProviderUnavailable, ProviderUnsupported, BadToken,
	NoOrganization, UnknownOrganization, NotConfigured,
}

// Errors of calls with a session.
var (
	// ErrEnded: the session is unknown, has expired, or was ended.
	ErrEnded = errors.New("session has ended")
	// ErrSignInAgain: the provider refused to renew the session, although the person may still be signed in there.
	ErrSignInAgain = errors.New("session must be renewed by the person")
	// ErrUnavailable: the provider cannot be reached, and the token of the session has ended.
	ErrUnavailable = errors.New("identity provider cannot be reached")
)

const (
	// attemptTime is how long a person may take at the provider.
	attemptTime = 10 * time.Minute
	// maxLinkSession bounds a session from a sign-in link, which no provider can end.
	maxLinkSession = 8 * time.Hour
	// touchEvery is how often a call of a session is written at most.
	touchEvery = time.Minute
	// maxName, in characters, bounds the name and the email of a person; maxUserAgent, in characters, what a browser says of itself.
	maxName      = 255
	maxUserAgent = 256
)

// Options are the settings of a service.
type Options struct {
	// URL is the origin at which browsers reach control.
	URL string
	// Provider is nil when only links sign people in.
	Provider *ProviderOptions
	// Keys encrypt tokens. They are required with a provider.
	Keys *seal.Keys
	// Idle and Lifetime bound a session after its last call and after its start. Grace is how long reads continue without the provider.
	Idle, Lifetime, Grace time.Duration
	Store                 *store.Store
	Metrics               *Metrics
	Log                   *slog.Logger
}

// Service signs people in. Its methods are safe for concurrent use.
type Service struct {
	Options
	provider *Provider

	mu sync.Mutex
	// renewals are those that this process does, by session.
	renewals map[string]chan struct{}
	// background are renewals and revocations, which outlive the request that started them.
	background sync.WaitGroup
	// warnEnding logs once that sessions end with their token.
	warnEnding sync.Once
}

// New returns a service. Run must run for sign-ins with a provider, and Close ends the service.
func New(o Options) (*Service, error) {
	s := &Service{Options: o, renewals: make(map[string]chan struct{})}
	if o.Provider != nil {
		var err error
		if s.provider, err = newProvider(*o.Provider, o.URL, o.Log); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// Run keeps the provider's discovery document and keys up to date until ctx ends, and then returns nil.
func (s *Service) Run(ctx context.Context) error {
	if s.provider != nil {
		s.provider.run(ctx)
	}
	return nil
}

// Close waits for the renewals and revocations under way, each of which has a bound of 9 s. No other call may follow.
func (s *Service) Close() { s.background.Wait() }

// insecure reports whether browsers reach control over plain HTTP, which is possible on a loopback address only.
func (s *Service) insecure() bool { return strings.HasPrefix(s.URL, "http:") }

// Secure reports whether the cookies are for https only.
func (s *Service) Secure() bool { return !s.insecure() }

// SessionCookie returns the name of the cookie of a session. The prefix __Host- keeps other hosts of the domain from setting it.
func (s *Service) SessionCookie() string { return s.prefix() + "deeplink_console" }

// BrowserCookie returns the name of the cookie that binds sign-ins to a browser.
func (s *Service) BrowserCookie() string { return s.prefix() + "deeplink_signin" }

func (s *Service) prefix() string {
	if s.insecure() {
		return ""
	}
	return "__Host-"
}

// HasProvider reports whether people can sign in with an identity provider.
func (s *Service) HasProvider() bool { return s.provider != nil }

// secret matches the 256-bit values of this package: cookies, states and link tokens. They have secretLength characters.
var secret = regexp.MustCompile(`\A[A-Za-z0-9_-]{43}\z`)

const secretLength = 43

// newSecret returns 256 random bits as 43 characters.
func newSecret() string {
	var random [32]byte
	rand.Read(random[:]) // never fails, by its contract
	return base64.RawURLEncoding.EncodeToString(random[:])
}

func hashOf(secret string) [32]byte { return sha256.Sum256([]byte(secret)) }

// next matches the places to which a sign-in may lead.
var next = regexp.MustCompile(`\A/console(/done)?(#[A-Za-z0-9_?=&%-]{0,64})?\z`)

// Next returns where a sign-in leads: the wish if it is a page of the console, otherwise /console.
func Next(wish string) string {
	if next.MatchString(wish) {
		return wish
	}
	return "/console"
}

// Visitor is the browser that signs in.
type Visitor struct {
	// Cookie is the value of its session cookie, empty for none.
	Cookie    string
	Address   netip.Addr
	UserAgent string
	RequestID string
}

// Granted is a new session cookie.
type Granted struct {
	Cookie string
	// EndsAt is the latest end of the session.
	EndsAt time.Time
}

// printable returns at most most characters of the text without control characters, which Postgres or a page could misread.
func printable(text string, most int) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == utf8.RuneError {
			return -1
		}
		return r
	}, text)
	if utf8.RuneCountInString(text) > most {
		text = string([]rune(text)[:most])
	}
	return text
}

// Live is a session that has not ended.
type Live struct {
	store.ConsoleSession
	// Cookie is its value in the browser.
	Cookie string
	// Provider reports whether the identity provider can be reached; it is empty for a session from a link.
	Provider  string
	IdleUntil time.Time
}

// The values of Live.Provider.
const (
	providerOK   = "ok"
	providerAway = "unavailable"
)

// find returns the session of the cookie. Error: ErrEnded, or that of the store.
func (s *Service) find(ctx context.Context, cookie string) (store.ConsoleSession, error) {
	if !secret.MatchString(cookie) {
		return store.ConsoleSession{}, ErrEnded
	}
	c, err := s.Store.ConsoleSession(ctx, hashOf(cookie))
	if errors.Is(err, store.ErrNotFound) {
		err = ErrEnded
	}
	if err != nil {
		return store.ConsoleSession{}, err
	}
	now := time.Now()
	if now.After(c.EndsAt) || now.After(c.LastSeenAt.Add(s.Idle)) {
		return store.ConsoleSession{}, ErrEnded
	}
	if c.Via == store.ViaProvider && (s.provider == nil || c.Issuer != s.provider.Issuer) {
		// A session of a provider that is not set up any more cannot be renewed.
		return store.ConsoleSession{}, ErrEnded
	}
	for _, sealed := range c.SealedWith {
		if !s.Keys.Knows(sealed) {
			return store.ConsoleSession{}, ErrEnded
		}
	}
	return c, nil
}

// Authenticate returns the session of the cookie. readOnly is set for a request that changes nothing: it may continue for a while when the provider
// cannot be reached. Errors: ErrEnded, ErrSignInAgain, ErrUnavailable, or that of the store.
func (s *Service) Authenticate(ctx context.Context, cookie string, readOnly bool) (Live, error) {
	c, err := s.find(ctx, cookie)
	if err != nil {
		return Live{}, err
	}
	l := Live{Cookie: cookie}
	if c.Via == store.ViaProvider {
		l.Provider = providerOK
		if c, l.Provider, err = s.current(ctx, cookie, c, readOnly); err != nil {
			return Live{}, err
		}
	}
	now := time.Now()
	if now.Sub(c.LastSeenAt) >= min(touchEvery, s.Idle/2) {
		if err := s.Store.TouchConsoleSession(ctx, c.ID, now); err != nil {
			return Live{}, err
		}
		c.LastSeenAt = now
	}
	l.ConsoleSession, l.IdleUntil = c, c.LastSeenAt.Add(s.Idle)
	if l.IdleUntil.After(c.EndsAt) {
		l.IdleUntil = c.EndsAt
	}
	return l, nil
}

// LiveSince returns the time of the last call before which sessions have ended.
func (s *Service) LiveSince() time.Time { return time.Now().Add(-s.Idle) }

// switchPatience bounds the wait for a renewal under way: it is longer than the lease of a control that was killed.
const switchPatience = leaseTime + time.Second

// Switch replaces the session by one for the organization with the external id, which has the same end. Errors: those of
// store.SwitchConsoleSession, and ErrEnded.
func (s *Service) Switch(ctx context.Context, actor store.Actor, l Live, externalID string) (Granted, error) {
	cookie, id := newSecret(), store.NewID()
	deadline := time.Now().Add(switchPatience)
	for {
		err := s.Store.SwitchConsoleSession(ctx, actor, l.ConsoleSession, id, hashOf(cookie), externalID, s.LiveSince(), func(t store.SealedTokens) (store.SealedTokens, error) {
			return s.reseal(t, l.ID, id)
		})
		switch {
		case err == nil:
			return Granted{cookie, l.EndsAt}, nil
		case errors.Is(err, store.ErrNotFound), errors.Is(err, seal.ErrUnknownKey), errors.Is(err, seal.ErrDamaged):
			return Granted{}, ErrEnded
		case !errors.Is(err, store.ErrRenewing) || time.Now().After(deadline):
			return Granted{}, err
		}
		// The renewal stores its tokens in the row of the session, so the row must not go away before.
		select {
		case <-time.After(pollEvery):
		case <-ctx.Done():
			return Granted{}, ctx.Err()
		}
	}
}

// The names of the sealed columns.
const (
	refreshColumn = "refresh_token"
	idColumn      = "id_token"
)

// sealed returns the tokens for the session with the id. An empty token is nil.
func (s *Service) sealed(id, refresh, idToken string) (t store.SealedTokens) {
	if refresh != "" {
		t.Refresh = s.Keys.Seal([]byte(refresh), id, refreshColumn)
	}
	if idToken != "" {
		t.ID = s.Keys.Seal([]byte(idToken), id, idColumn)
	}
	return t
}

// opened returns the tokens of the session with the id.
func (s *Service) opened(t store.SealedTokens, id string) (refresh, idToken string, err error) {
	open := func(sealed []byte, column string) string {
		if sealed == nil || err != nil {
			return ""
		}
		var value []byte
		value, err = s.Keys.Open(sealed, id, column)
		return string(value)
	}
	return open(t.Refresh, refreshColumn), open(t.ID, idColumn), err
}

func (s *Service) reseal(t store.SealedTokens, from, to string) (store.SealedTokens, error) {
	refresh, idToken, err := s.opened(t, from)
	if err != nil {
		return store.SealedTokens{}, err
	}
	return s.sealed(to, refresh, idToken), nil
}

// SignOut ends the session of the cookie and returns where the browser goes to sign out at the provider. Without a session it is /console.
func (s *Service) SignOut(ctx context.Context, cookie string, address netip.Addr, requestID string) (location string, err error) {
	c, err := s.find(ctx, cookie)
	if errors.Is(err, ErrEnded) {
		return "/console", s.endExpired(ctx, cookie, address, requestID)
	}
	if err != nil {
		return "", err
	}
	tokens, err := s.Store.ConsoleTokens(ctx, c.ID)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return "", err
	}
	if err := s.Store.EndConsoleSession(ctx, Actor(c, address, requestID), c, store.EndSignOut); err != nil {
		return "", err
	}
	if c.Via != store.ViaProvider {
		return "/console", nil
	}
	refresh, idToken, err := s.opened(tokens, c.ID)
	if err == nil && refresh != "" {
		s.background.Go(func() { s.provider.revoke(refresh) })
	}
	return s.provider.signOutURL(idToken), nil
}

// endExpired ends a session of the cookie that must not be used. Without this it would live again once a missing key or the provider is set up again.
func (s *Service) endExpired(ctx context.Context, cookie string, address netip.Addr, requestID string) error {
	if !secret.MatchString(cookie) {
		return nil
	}
	c, err := s.Store.ConsoleSession(ctx, hashOf(cookie))
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	return s.Store.EndConsoleSession(ctx, Actor(c, address, requestID), c, store.EndSignOut)
}

// Actor returns who makes the changes of a session.
func Actor(c store.ConsoleSession, address netip.Addr, requestID string) store.Actor {
	if c.Via == store.ViaLink {
		return store.LinkActor(c.Operator, address, requestID)
	}
	return store.UserActor(c.Subject, address, requestID)
}
