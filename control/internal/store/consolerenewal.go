package store

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"deeplink/shared/catalog"
)

// ConsoleLease is the right to renew a session. It ends by itself, so that a control that was killed delays the next renewal only for that long.
type ConsoleLease struct {
	// ID names the lease, SessionID the session.
	ID, SessionID string
	// RefreshToken is sealed.
	RefreshToken []byte
	// Uncertain: a renewal before this one was sent, and its response was not read.
	Uncertain bool
}

// leaseConsoleSessionSQL takes the lease if no other renewal is under way, and none has ended since the caller read the session.
const leaseConsoleSessionSQL = `
	update console_sessions
	set lease_id = $2, lease_until = clock_timestamp() + $3::interval, renewal_before = renewal_uncertain, renewal_uncertain = true
	where id = $1 and (lease_until is null or lease_until <= clock_timestamp()) and token_ends_at = $4 and refresh_token is not null
	  and not renewal_refused and (renewal_failed_at is null or renewal_failed_at <= $5)
	returning refresh_token, renewal_before`

// LeaseConsoleSession takes the lease of the session for a length of time, unless another control has it, the token was renewed since the caller
// read c, or a renewal failed after failedBefore. Until the lease is given back, a renewal counts as uncertain: this process may be killed.
func (s *Store) LeaseConsoleSession(ctx context.Context, c ConsoleSession, length time.Duration, failedBefore time.Time) (l ConsoleLease, taken bool, err error) {
	l = ConsoleLease{ID: NewID(), SessionID: c.ID}
	err = retry("take the lease of a console session", func() error {
		return s.pool.QueryRow(ctx, leaseConsoleSessionSQL, c.ID, l.ID, length, c.TokenEnds, failedBefore).Scan(&l.RefreshToken, &l.Uncertain)
	})
	if errors.Is(err, ErrNotFound) {
		return ConsoleLease{}, false, nil
	}
	return l, err == nil, err
}

// ConsoleRenewal is a successful renewal.
type ConsoleRenewal struct {
	Role          string
	Name, Email   string
	Memberships   []ConsoleMembership
	TokenLifetime time.Duration
	TokenEnds     time.Time
	// Tokens are sealed; nil keeps the old one.
	Tokens SealedTokens
}

const renewConsoleSessionSQL = `
	update console_sessions
	set role = $2, name = coalesce($3, name), email = coalesce($4, email), memberships = $5, token_lifetime = $6, token_ends_at = $7,
	    refresh_token = coalesce($8, refresh_token), id_token = coalesce($9, id_token), lease_id = null, lease_until = null,
	    renewal_uncertain = false, renewal_before = false, renewal_failed_at = null
	where lease_id = $1`

// RenewConsoleSession stores the renewal, unless the lease was lost or the session has ended.
func (s *Store) RenewConsoleSession(ctx context.Context, l ConsoleLease, r ConsoleRenewal) error {
	memberships, err := json.Marshal(append([]ConsoleMembership{}, r.Memberships...))
	if err != nil {
		return err
	}
	return retry("store a renewal", func() error {
		_, err := s.pool.Exec(ctx, renewConsoleSessionSQL, l.ID, r.Role, orNull(r.Name), orNull(r.Email), memberships, r.TokenLifetime, r.TokenEnds,
			r.Tokens.Refresh, r.Tokens.ID)
		return err
	})
}

// ConsoleFailure is a renewal that did not bring a valid token.
type ConsoleFailure struct {
	// At is when it failed. The zero time: the failure does not delay the next renewal.
	At time.Time
	// Uncertain: it is not known whether the identity provider replaced the refresh token.
	Uncertain bool
	// Refused: the person has to sign in again. Final: no renewal follows, and the session ends with its token.
	Refused, Final bool
	// RefreshToken, sealed, replaces the old one; nil keeps it.
	RefreshToken []byte
}

const failConsoleSessionSQL = `
	update console_sessions
	set renewal_failed_at = $2, renewal_uncertain = $3, renewal_before = false, renewal_refused = $4,
	    refresh_token = case when $5 then null else coalesce($6, refresh_token) end, lease_id = null, lease_until = null
	where lease_id = $1`

// FailConsoleRenewal gives the lease back after a renewal that failed.
func (s *Store) FailConsoleRenewal(ctx context.Context, l ConsoleLease, f ConsoleFailure) error {
	var at *time.Time
	if !f.At.IsZero() {
		at = &f.At
	}
	return retry("store the failure of a renewal", func() error {
		_, err := s.pool.Exec(ctx, failConsoleSessionSQL, l.ID, at, f.Uncertain, f.Refused, f.Final, f.RefreshToken)
		return err
	})
}

// EndLeasedSession ends the session of the lease, because the identity provider does not renew it.
func (s *Store) EndLeasedSession(ctx context.Context, actor Actor, l ConsoleLease) error {
	return s.write(ctx, actor, l.SessionID, "end a console session", func(tx *transaction) error {
		var batch pgx.Batch
		if err := tx.endConsoleSessions(ctx, &batch, EndProvider, time.Time{}, `lease_id = $1`, l.ID); err != nil {
			return err
		}
		_, err := tx.finishBatch(ctx, &batch, entry{})
		return err
	})
}

// ConsoleSignIn is a sign-in that the identity provider has not sent back yet.
type ConsoleSignIn struct {
	StateHash, BrowserHash [32]byte
	// Secrets are sealed.
	Secrets   []byte
	CreatedAt time.Time
}

const insertConsoleSignInSQL = `insert into console_sign_ins (state_hash, browser_hash, secrets, created_at) values ($1, $2, $3, $4)`

// SaveConsoleSignIn stores a sign-in.
func (s *Store) SaveConsoleSignIn(ctx context.Context, a ConsoleSignIn) error {
	return retry("store a sign-in", func() error {
		_, err := s.pool.Exec(ctx, insertConsoleSignInSQL, a.StateHash[:], a.BrowserHash[:], a.Secrets, a.CreatedAt)
		return err
	})
}

const takeConsoleSignInSQL = `
	delete from console_sign_ins where state_hash = $1 and browser_hash = $2 and created_at >= $3 returning secrets`

// TakeConsoleSignIn deletes a sign-in of the browser that started at or after since, and returns its sealed secrets. Of several calls, on any
// controls, one gets it and the others get ErrNotFound.
func (s *Store) TakeConsoleSignIn(ctx context.Context, state, browser [32]byte, since time.Time) (secrets []byte, err error) {
	err = retry("take a sign-in", func() error {
		return s.pool.QueryRow(ctx, takeConsoleSignInSQL, state[:], browser[:], since).Scan(&secrets)
	})
	return secrets, err
}

const knownOrganizationsSQL = `select ` + organizationColumns + ` from organizations o where o.external_id = any($1)`

// ExternalOrganizations returns the organizations with these external ids, by external id. That of the canaries is left out.
func (s *Store) ExternalOrganizations(ctx context.Context, externalIDs []string) (all map[string]catalog.Organization, err error) {
	err = retry("read organizations", func() error {
		all = make(map[string]catalog.Organization)
		rows, err := s.pool.Query(ctx, knownOrganizationsSQL, externalIDs)
		if err != nil {
			return err
		}
		for rows.Next() {
			o, err := scanOrganization(rows)
			if err != nil {
				rows.Close()
				return err
			}
			if o.ExternalID != nil && *o.ExternalID != CanaryOrganization {
				all[*o.ExternalID] = o
			}
		}
		return rows.Err()
	})
	return all, err
}
