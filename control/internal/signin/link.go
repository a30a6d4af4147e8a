package signin

import (
	"context"
	"time"

	"deeplink/control/internal/store"
)

// MinLinkTime and MaxLinkTime bound how long a sign-in link is valid.
const (
	MinLinkTime = time.Minute
	MaxLinkTime = 15 * time.Minute
)

// NewLink stores a sign-in link for the organization and the role (member, admin or owner), and returns its URL below the origin. The token is in
// the fragment, which no proxy, log or referrer sees. Errors are those of store.CreateConsoleLink.
func NewLink(ctx context.Context, s *store.Store, actor store.Actor, require store.Requirement, origin string, l store.ConsoleLink, valid time.Duration) (url string, created store.ConsoleLink, err error) {
	token, now := newSecret(), time.Now()
	l.ID, l.ExpiresAt = store.NewID(), now.Add(valid)
	if err := s.CreateConsoleLink(ctx, actor, require, l, hashOf(token), now); err != nil {
		return "", store.ConsoleLink{}, err
	}
	return origin + "/console/link#" + token, l, nil
}

// Link returns the sign-in link of the token and spends nothing. Error: store.ErrLinkInvalid, or another one of the store.
func (s *Service) Link(ctx context.Context, token string) (store.ConsoleLink, error) {
	if !secret.MatchString(token) {
		return store.ConsoleLink{}, store.ErrLinkInvalid
	}
	return s.Store.ConsoleLink(ctx, hashOf(token), time.Now())
}

// SpendLink spends the sign-in link of the token and signs the visitor in. Of several calls one succeeds; the others get store.ErrLinkInvalid.
func (s *Service) SpendLink(ctx context.Context, token string, v Visitor) (Granted, error) {
	l, err := s.Link(ctx, token)
	if err != nil {
		return Granted{}, err
	}
	now, cookie := time.Now(), newSecret()
	n := store.NewConsoleSession{
		ID: store.NewID(), CookieHash: hashOf(cookie), CreatedAt: now, EndsAt: now.Add(min(maxLinkSession, s.Lifetime)),
		IP: v.Address, UserAgent: printable(v.UserAgent, maxUserAgent), LiveSince: s.LiveSince(), Replaces: replaced(v.Cookie),
	}
	if err := s.Store.SpendConsoleLink(ctx, store.LinkActor(l.Operator, v.Address, v.RequestID), l, n); err != nil {
		return Granted{}, err
	}
	s.Metrics.signedIn("link")
	return Granted{cookie, n.EndsAt}, nil
}

// replaced returns the hash of the browser's previous session cookie, nil for none.
func replaced(cookie string) *[32]byte {
	if !secret.MatchString(cookie) {
		return nil
	}
	hash := hashOf(cookie)
	return &hash
}
