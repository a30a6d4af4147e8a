package signin

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/url"
	"time"
	"unicode/utf8"

	"golang.org/x/oauth2"

	"deeplink/control/internal/session"
	"deeplink/control/internal/store"
)

const (
	// maxQuery, in bytes, bounds the query of a callback, and maxCode, in characters, the code in it.
	maxQuery = 8 << 10
	maxCode  = 4096
	// secretsColumn is the sealed column of an attempt.
	secretsColumn = "secrets"
)

// attempt is what control remembers of a sign-in while the person is at the provider.
type attempt struct {
	Nonce    string `json:"nonce"`
	Verifier string `json:"verifier"`
	Next     string `json:"next"`
}

// Started is a sign-in that was sent to the provider.
type Started struct {
	// URL is where the browser goes.
	URL string
	// Browser is the value of the browser cookie: the one that it sent, if it is well-formed.
	Browser string
}

// Start begins a sign-in that leads to next. prompt is none, select_account or empty. The error is that of the store.
func (s *Service) Start(ctx context.Context, browser, next, prompt string) (Started, Problem, error) {
	if s.provider == nil {
		return Started{}, NotConfigured, nil
	}
	d := s.provider.document.Load()
	switch {
	case d == nil:
		return Started{}, ProviderUnavailable, nil
	case !d.SupportsS256():
		return Started{}, ProviderUnsupported, nil
	}
	if prompt != "none" && prompt != "select_account" {
		prompt = ""
	}
	if !secret.MatchString(browser) {
		browser = newSecret()
	}
	state := newSecret()
	a := attempt{Nonce: newSecret(), Verifier: oauth2.GenerateVerifier(), Next: Next(next)}
	text, err := json.Marshal(a)
	if err != nil {
		return Started{}, NoProblem, err
	}
	hash := hashOf(state)
	err = s.Store.SaveConsoleSignIn(ctx, store.ConsoleSignIn{
		StateHash: hash, BrowserHash: hashOf(browser), Secrets: s.Keys.Seal(text, hex.EncodeToString(hash[:]), secretsColumn), CreatedAt: time.Now(),
	})
	return Started{s.provider.authorization(d, state, a, prompt), browser}, NoProblem, err
}

// SignedIn is a sign-in that succeeded.
type SignedIn struct {
	Granted
	// Next is where it leads.
	Next string
}

// Callback ends a sign-in with the query that the provider sent through the browser, whose cookie is browser. The first step that fails decides the
// problem. The error is that of the store.
func (s *Service) Callback(ctx context.Context, query, browser string, v Visitor) (SignedIn, Problem, error) {
	if s.provider == nil {
		return SignedIn{}, NotConfigured, nil
	}
	values, ok := readCallback(query)
	if !ok {
		return SignedIn{}, BadRequest, nil
	}
	a, err := s.takeAttempt(ctx, values.Get("state"), browser)
	if errors.Is(err, store.ErrNotFound) {
		return SignedIn{}, BadState, nil
	}
	if err != nil {
		return SignedIn{}, NoProblem, err
	}
	d := s.provider.document.Load()
	if d == nil {
		return SignedIn{}, ProviderUnavailable, nil
	}
	if values.Has("iss") && values.Get("iss") != s.provider.Issuer || !values.Has("iss") && d.AnnouncesIssuer {
		return SignedIn{}, BadIssuer, nil
	}
	if values.Has("error") {
		return SignedIn{}, providerProblem(values.Get("error")), nil
	}
	t, failed := s.provider.redeem(ctx, d, values.Get("code"), a)
	if failed != nil {
		s.Log.Info("a sign-in to the console failed", "requestId", v.RequestID, "reason", failed.reason)
		return SignedIn{}, exchangeProblem(failed), nil
	}
	granted, problem, err := s.signIn(ctx, t, a, v)
	return SignedIn{granted, a.Next}, problem, err
}

// readCallback returns the parameters of a callback: none twice, a state, and either a code or an error.
func readCallback(query string) (url.Values, bool) {
	if len(query) > maxQuery {
		return nil, false
	}
	values, err := url.ParseQuery(query)
	if err != nil {
		return nil, false
	}
	for _, v := range values {
		if len(v) != 1 {
			return nil, false
		}
	}
	// A state of other characters is none of ours: the next step does not find it.
	ok := utf8.RuneCountInString(values.Get("state")) == secretLength && values.Has("code") != values.Has("error")
	if code := utf8.RuneCountInString(values.Get("code")); values.Has("code") && (code < 1 || code > maxCode) {
		ok = false
	}
	return values, ok
}

// takeAttempt returns the attempt of a state and a browser, once, or store.ErrNotFound.
func (s *Service) takeAttempt(ctx context.Context, state, browser string) (a attempt, err error) {
	if !secret.MatchString(browser) {
		return attempt{}, store.ErrNotFound
	}
	hash := hashOf(state)
	sealed, err := s.Store.TakeConsoleSignIn(ctx, hash, hashOf(browser), time.Now().Add(-attemptTime))
	if err != nil {
		return attempt{}, err
	}
	text, err := s.Keys.Open(sealed, hex.EncodeToString(hash[:]), secretsColumn)
	if err != nil {
		return attempt{}, store.ErrNotFound // its key was removed meanwhile
	}
	return a, json.Unmarshal(text, &a)
}

// providerProblem returns the problem for an error of the authorization endpoint (RFC 6749, 4.1.2.1; OpenID Connect Core, 3.1.2.6).
func providerProblem(code string) Problem {
	switch code {
	case "access_denied":
		return AccessDenied
	case "login_required", "interaction_required", "consent_required", "account_selection_required":
		return SignInNeeded
	}
	return ProviderError
}

func exchangeProblem(failed *tokenError) Problem {
	switch failed.kind {
	case tokenUnreachable:
		return ProviderUnavailable
	case tokenRefused:
		return BadCode
	case tokenRejected:
		return BadToken
	case tokenWrongIssuer:
		return BadIssuer
	}
	return ProviderError // also for a response that is malformed or too long
}

// membershipsOf returns the memberships as the store has them.
func membershipsOf(i session.Identity) []store.ConsoleMembership {
	all := make([]store.ConsoleMembership, len(i.Memberships))
	for n, m := range i.Memberships {
		all[n] = store.ConsoleMembership{ExternalID: m.Organization, Role: string(m.Role)}
	}
	return all
}

// lifetime returns the time from the issue of the judged token to its end.
func lifetime(i session.Identity) time.Duration {
	issued := i.Issued
	if issued.IsZero() {
		issued = time.Now()
	}
	return i.Expiry.Sub(issued)
}

// signIn creates the session of the person that the tokens name.
func (s *Service) signIn(ctx context.Context, t tokens, a attempt, v Visitor) (Granted, Problem, error) {
	memberships := membershipsOf(t.Identity)
	if len(memberships) == 0 {
		return Granted{}, NoOrganization, nil
	}
	known, err := s.Organizations(ctx, memberships)
	if err != nil {
		return Granted{}, NoProblem, err
	}
	if len(known) == 0 {
		return Granted{}, UnknownOrganization, nil
	}
	now, cookie, id := time.Now(), newSecret(), store.NewID()
	nonce := hashOf(a.Nonce)
	sealed := s.sealed(id, t.refresh, t.id)
	n := store.NewConsoleSession{
		ID: id, CookieHash: hashOf(cookie), Via: store.ViaProvider, Issuer: s.provider.Issuer, Subject: t.Subject, Name: t.Name, Email: t.Email,
		Memberships: memberships, NonceHash: nonce[:], TokenLifetime: lifetime(t.Identity), TokenEnds: &t.Expiry,
		RefreshToken: sealed.Refresh, IDToken: sealed.ID, CreatedAt: now, EndsAt: now.Add(s.Lifetime), IP: v.Address,
		UserAgent: printable(v.UserAgent, maxUserAgent), Replaces: replaced(v.Cookie), LiveSince: s.LiveSince(),
	}
	chosen := -1
	if len(known) == 1 {
		chosen = 0
	} else if chosen, err = s.previousChoice(ctx, v.Cookie, t.Subject, known); err != nil {
		return Granted{}, NoProblem, err
	}
	if chosen >= 0 {
		n.OrganizationID, n.Role = known[chosen].Organization.ID, known[chosen].Role
	}
	if err := s.Store.CreateConsoleSession(ctx, store.UserActor(t.Subject, v.Address, v.RequestID), n); err != nil {
		return Granted{}, NoProblem, err
	}
	if t.refresh == "" {
		s.warnEndsWithToken()
	}
	s.Metrics.signedIn("ok")
	return Granted{cookie, n.EndsAt}, NoProblem, nil
}

// previousChoice returns the index of the organization of the browser's previous session if it was of the same person, otherwise -1. The session may
// have expired: that is the usual reason for another sign-in.
func (s *Service) previousChoice(ctx context.Context, cookie, subject string, known []Known) (int, error) {
	if !secret.MatchString(cookie) {
		return -1, nil
	}
	before, err := s.Store.ConsoleSession(ctx, hashOf(cookie))
	if errors.Is(err, store.ErrNotFound) {
		return -1, nil
	}
	if err != nil {
		return -1, err
	}
	if before.Via == store.ViaProvider && before.Issuer == s.provider.Issuer && before.Subject == subject && before.Organization != nil {
		for i, k := range known {
			if k.Organization.ID == before.Organization.ID && !k.Organization.Suspended {
				return i, nil
			}
		}
	}
	return -1, nil
}
