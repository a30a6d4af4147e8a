package signin

import (
	"context"
	"time"

	"deeplink/control/internal/store"
)

const (
	// leaseTime is how long a control may take to renew a session before another one tries: longer than the request and the check of its
	// tokens.
	leaseTime = 7 * time.Second
	// renewBefore is when the renewal of a token starts before its end. It is less for tokens that live less than three times as long.
	renewBefore = 20 * time.Second
	// renewalWait is how long a call waits for a renewal, and pollEvery how often it looks whether another control is done.
	renewalWait = 5 * time.Second
	pollEvery   = 50 * time.Millisecond
	// retryAfter is the time between a renewal that failed and the next one.
	retryAfter = 10 * time.Second
	// storeTimeout bounds how long control tries to store what the provider has granted.
	storeTimeout = 2 * time.Second
)

// renewalJob is the actor of sessions that the provider ended.
const renewalJob = "console session renewal"

// current returns the session with claims that are valid now, and whether the provider can be reached. It starts a renewal if the token ends soon,
// and waits for it if the token has ended. Errors: those of Authenticate.
func (s *Service) current(ctx context.Context, cookie string, c store.ConsoleSession, readOnly bool) (store.ConsoleSession, string, error) {
	deadline := time.Now().Add(renewalWait)
	for try := 1; ; try++ {
		if c.Refused {
			return c, "", ErrSignInAgain
		}
		now := time.Now()
		valid := c.TokenEnds.Add(leeway)
		paused := c.FailedAt != nil && now.Before(c.FailedAt.Add(retryAfter))
		if left := valid.Sub(now); left > 0 {
			if left <= min(renewBefore, c.TokenLifetime/3) && c.Renewable && !paused && !c.Renewing {
				s.renew(c)
			}
			return c, providerOK, nil
		}
		if !c.Renewable {
			s.warnEndsWithToken()
			if err := s.Store.EndConsoleSession(ctx, store.ServiceActor(renewalJob), c, store.EndProvider); err != nil {
				return c, "", err
			}
			return c, "", ErrEnded
		}
		if wait := time.Until(deadline); !paused && wait > 0 && (c.Renewing || try <= 2) {
			var done <-chan struct{}
			if !c.Renewing {
				done = s.renew(c)
				wait = min(wait, renewalWait)
			} else {
				wait = min(wait, pollEvery)
				try-- // this was no try of this control
			}
			if err := waitFor(ctx, done, wait); err != nil {
				return c, "", err
			}
			var err error
			if c, err = s.find(ctx, cookie); err != nil {
				return c, "", err
			}
			continue
		}
		if readOnly && !now.After(valid.Add(s.Grace)) && s.Grace > 0 {
			return c, providerAway, nil
		}
		return c, "", ErrUnavailable
	}
}

// waitFor waits until done is closed or the time is over. A nil channel is never closed.
func waitFor(ctx context.Context, done <-chan struct{}, wait time.Duration) error {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// renew starts a renewal unless this process does one for the session already. The channel is closed when it has ended. It goes on when the call that
// started it ends.
func (s *Service) renew(c store.ConsoleSession) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if done, ok := s.renewals[c.ID]; ok {
		return done
	}
	done := make(chan struct{})
	s.renewals[c.ID] = done
	s.background.Go(func() {
		defer func() {
			s.mu.Lock()
			delete(s.renewals, c.ID)
			s.mu.Unlock()
			close(done)
		}()
		s.renewOnce(c)
	})
	return done
}

// renewOnce renews the session if no other control does. No database connection is held while the provider works.
func (s *Service) renewOnce(c store.ConsoleSession) {
	ctx, cancel := context.WithTimeout(context.Background(), leaseTime)
	defer cancel()
	lease, taken, err := s.Store.LeaseConsoleSession(ctx, c, leaseTime, time.Now().Add(-retryAfter))
	if err != nil {
		s.Log.Warn("could not take the lease of a console session; the next call tries again", "sessionId", c.ID, "cause", err.Error())
		return
	}
	if !taken {
		return
	}
	refreshToken, err := s.Keys.Open(lease.RefreshToken, c.ID, refreshColumn)
	if err != nil {
		s.Log.Error("the refresh token of a console session cannot be decrypted; the session ends", "sessionId", c.ID, "cause", err.Error())
		s.settle(c, func(ctx context.Context) error {
			return s.Store.EndLeasedSession(ctx, store.ServiceActor(renewalJob), lease)
		})
		return
	}
	d := s.provider.document.Load()
	if d == nil {
		s.fail(c, lease, &tokenError{kind: tokenUnreachable, reason: "there is no discovery document of the identity provider yet"}, 0)
		return
	}
	began := time.Now()
	expected := judging{subject: c.Subject, keysFrom: began}
	if c.FailedAt != nil {
		expected.keysFrom = *c.FailedAt // keys were fetched since, so a key that is still unknown is none of the provider's
	}
	copy(expected.nonce[:], c.NonceHash)
	t, failed := s.provider.refresh(ctx, d, string(refreshToken), expected)
	took := time.Since(began)
	switch {
	case failed != nil:
		s.fail(c, lease, failed, took)
	case t.noJudged:
		s.Metrics.renewed(renewalMisconfigured, took)
		s.warnEndsWithToken()
		s.settle(c, func(ctx context.Context) error {
			return s.Store.FailConsoleRenewal(ctx, lease, store.ConsoleFailure{Final: true})
		})
	default:
		s.Metrics.renewed(renewalOK, took)
		s.succeed(c, lease, t)
	}
}

// succeed stores the new token, or ends the session if its organization is not in the token any more.
func (s *Service) succeed(c store.ConsoleSession, lease store.ConsoleLease, t tokens) {
	r := store.ConsoleRenewal{
		Name: t.Name, Email: t.Email, Memberships: membershipsOf(t.Identity), TokenLifetime: lifetime(t.Identity), TokenEnds: t.Expiry,
		Tokens: s.sealed(c.ID, t.refresh, t.id),
	}
	if r.Tokens.Refresh == nil {
		// The old one is sealed again, so that a session that renews moves to the first key.
		if refreshToken, err := s.Keys.Open(lease.RefreshToken, c.ID, refreshColumn); err == nil {
			r.Tokens.Refresh = s.Keys.Seal(refreshToken, c.ID, refreshColumn)
		}
	}
	if r.Tokens.ID == nil {
		r.Tokens.ID = s.resealedID(c.ID)
	}
	member := c.Organization == nil
	for _, m := range r.Memberships {
		if c.Organization != nil && c.Organization.ExternalID != nil && m.ExternalID == *c.Organization.ExternalID {
			member, r.Role = true, m.Role
		}
	}
	s.settle(c, func(ctx context.Context) error {
		if !member {
			return s.Store.EndLeasedSession(ctx, store.ServiceActor(renewalJob), lease)
		}
		return s.Store.RenewConsoleSession(ctx, lease, r)
	})
}

// resealedID returns the ID token of the session sealed with the first key, or nil.
func (s *Service) resealedID(id string) []byte {
	ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
	defer cancel()
	t, err := s.Store.ConsoleTokens(ctx, id)
	if err != nil || t.ID == nil {
		return nil
	}
	value, err := s.Keys.Open(t.ID, id, idColumn)
	if err != nil {
		return nil
	}
	return s.Keys.Seal(value, id, idColumn)
}

// fail stores that a renewal brought no valid token.
func (s *Service) fail(c store.ConsoleSession, lease store.ConsoleLease, failed *tokenError, took time.Duration) {
	uncertain := lease.Uncertain || failed.sent
	if failed.refresh != "" {
		// The response was complete, so the refresh token is known.
		uncertain = false
	}
	end := func(ctx context.Context) error {
		return s.Store.EndLeasedSession(ctx, store.ServiceActor(renewalJob), lease)
	}
	failure := func(f store.ConsoleFailure) func(context.Context) error {
		return func(ctx context.Context) error { return s.Store.FailConsoleRenewal(ctx, lease, f) }
	}
	undecided := store.ConsoleFailure{At: time.Now(), Uncertain: uncertain, RefreshToken: s.sealed(c.ID, failed.refresh, "").Refresh}
	switch failed.kind {
	case tokenRefused:
		s.Metrics.renewed(renewalRefused, took)
		if lease.Uncertain {
			s.settle(c, failure(store.ConsoleFailure{Uncertain: true, Refused: true}))
			return
		}
		s.settle(c, end)
	case tokenRejected, tokenWrongIssuer:
		s.Metrics.renewed(renewalRefused, took)
		s.Log.Warn("a renewed token of a console session was rejected; the session ends", "sessionId", c.ID, "reason", failed.reason)
		s.settle(c, end)
	case tokenOther:
		s.Metrics.renewed(renewalMisconfigured, took)
		s.Log.Error("the identity provider refused to renew console sessions; check the settings of the client", "sessionId", c.ID, "reason", failed.reason)
		s.settle(c, failure(undecided))
	default:
		result := renewalUnreachable
		if failed.sent {
			result = renewalUncertain
		}
		s.Metrics.renewed(result, took)
		s.Log.Warn("could not renew a console session; reads continue for a while", "sessionId", c.ID, "reason", failed.reason)
		s.settle(c, failure(undecided))
	}
}

// settle stores the result of a renewal, and tries again while Postgres is away: a result that is lost may be a refresh token that the provider has
// replaced.
func (s *Service) settle(c store.ConsoleSession, store func(context.Context) error) {
	ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
	defer cancel()
	for {
		err := store(ctx)
		if err == nil {
			return
		}
		if waitFor(ctx, nil, 4*pollEvery) != nil {
			s.Log.Error("could not store the result of a renewal; the next renewal sends the same refresh token", "sessionId", c.ID, "cause", err.Error())
			return
		}
	}
}

// warnEndsWithToken logs once that sessions are not renewed.
func (s *Service) warnEndsWithToken() {
	s.warnEnding.Do(func() {
		s.Log.Warn("the identity provider grants no refresh token, or no ID token with a renewal: console sessions end with their token; " +
			"allow offline_access for the client, or set CONSOLE_OIDC_TOKEN")
	})
}
