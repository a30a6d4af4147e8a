package store

import (
	"context"
	"encoding/json"
	"errors"
	"net/netip"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"deeplink/shared/catalog"
)

// Via is how a person signed in to the console. The values are those of the database and of the portal.
type Via string

// The ways to sign in.
const (
	ViaProvider Via = "provider"
	ViaLink     Via = "link"
)

// EndReason is why a session of the console ended before its time, as the audit trail has it.
type EndReason string

// The reasons.
const (
	EndSignOut  EndReason = "signOut"
	EndRevoked  EndReason = "revoked"
	EndProvider EndReason = "provider"
	EndLimit    EndReason = "limit"
)

// MaxConsoleSessions is how many sessions a person may have in an organization.
const MaxConsoleSessions = 20

// Errors of sessions of the console. The calls had no effect.
var (
	// ErrRenewing: the session is being renewed, so its tokens cannot move to another session now.
	ErrRenewing = errors.New("session is being renewed")
	// ErrOrganizationNotFound: the person does not belong to the organization, or it does not exist, or it is suspended.
	ErrOrganizationNotFound = errors.New("organization not found among those of the session")
	// ErrLinkInvalid: a sign-in link is unknown, spent or expired, or its organization is suspended.
	ErrLinkInvalid = errors.New("sign-in link not valid")
)

// ConsoleMembership is the role of a person in an organization, by the id of the identity provider.
type ConsoleMembership struct {
	ExternalID string `json:"externalId"`
	Role       string `json:"role"`
}

// ConsoleSession is a person who is signed in to the console. It has no token.
type ConsoleSession struct {
	ID  string
	Via Via
	// Organization is nil while the person has not chosen one.
	Organization *catalog.Organization
	// Issuer, Subject, Name and Email are empty for a sign-in link, and Operator, who created the link, is empty otherwise.
	Issuer, Subject, Name, Email, Operator string
	// Role is empty for none.
	Role        string
	Memberships []ConsoleMembership
	// NonceHash is the SHA-256 of the nonce of the sign-in.
	NonceHash []byte
	// TokenEnds is nil for a sign-in link. TokenLifetime is the time from the issue of the token to its end.
	TokenEnds     *time.Time
	TokenLifetime time.Duration
	// SealedWith are the first bytes of the sealed tokens, which name their keys.
	SealedWith [][]byte
	// Renewable: there is a refresh token.
	Renewable bool
	// Renewing: a control renews the token, or died while it did.
	Renewing bool
	// Refused: the identity provider refused the refresh token after an uncertain renewal.
	Refused bool
	// FailedAt is when the last renewal failed without a decision, nil after a success.
	FailedAt *time.Time

	CreatedAt, LastSeenAt, EndsAt time.Time
	IP                            *netip.Addr
	UserAgent                     string
}

const consoleSessionColumns = `
	c.id, c.via, coalesce(c.issuer, ''), coalesce(c.subject, ''), coalesce(c.name, ''), coalesce(c.email, ''), coalesce(c.operator, ''), c.role,
	c.memberships, c.nonce_hash, c.token_ends_at, coalesce(c.token_lifetime, '0'), substring(c.refresh_token for 4), substring(c.id_token for 4),
	coalesce(c.lease_until > clock_timestamp(), false), c.renewal_refused, c.renewal_failed_at, c.created_at, c.last_seen_at, c.ends_at, c.ip,
	c.user_agent`

func scanConsoleSession(row pgx.Row) (c ConsoleSession, err error) {
	var memberships, refresh, id []byte
	var organization struct {
		id, orgKey, name *string
		externalID       *string
		plan             *catalog.Plan
		suspended        *bool
		createdAt        *time.Time
	}
	err = row.Scan(&c.ID, &c.Via, &c.Issuer, &c.Subject, &c.Name, &c.Email, &c.Operator, &c.Role, &memberships, &c.NonceHash, &c.TokenEnds,
		&c.TokenLifetime, &refresh, &id, &c.Renewing, &c.Refused, &c.FailedAt, &c.CreatedAt, &c.LastSeenAt, &c.EndsAt, &c.IP, &c.UserAgent,
		&organization.id, &organization.orgKey, &organization.name, &organization.externalID, &organization.plan, &organization.suspended,
		&organization.createdAt)
	if err != nil {
		return ConsoleSession{}, err
	}
	for _, sealed := range [][]byte{refresh, id} {
		if sealed != nil {
			c.SealedWith = append(c.SealedWith, sealed)
		}
	}
	c.Renewable = refresh != nil
	if organization.id != nil {
		c.Organization = &catalog.Organization{
			ID: *organization.id, OrgKey: *organization.orgKey, Name: *organization.name, ExternalID: organization.externalID, Plan: organization.plan,
			Suspended: *organization.suspended, CreatedAt: catalog.Time{Time: *organization.createdAt},
		}
	}
	return c, json.Unmarshal(memberships, &c.Memberships)
}

const consoleSessionTables = ` from console_sessions c left join organizations o on o.id = c.organization_id`

const consoleSessionSQL = `select ` + consoleSessionColumns + `, ` + organizationColumns + consoleSessionTables + ` where c.cookie_hash = $1`

// ConsoleSession returns the session whose cookie has the hash, or ErrNotFound. The caller decides whether it has expired. Nothing is cached:
// a session that was ended on one control is unknown to all others at once.
func (s *Store) ConsoleSession(ctx context.Context, hash [32]byte) (c ConsoleSession, err error) {
	err = retry("read a console session", func() error {
		c, err = scanConsoleSession(s.pool.QueryRow(ctx, consoleSessionSQL, hash[:]))
		return err
	})
	return c, err
}

const touchConsoleSessionSQL = `update console_sessions set last_seen_at = $2 where id = $1 and last_seen_at < $2`

// TouchConsoleSession records a call of the session.
func (s *Store) TouchConsoleSession(ctx context.Context, id string, now time.Time) error {
	return retry("record a call of a console session", func() error {
		_, err := s.pool.Exec(ctx, touchConsoleSessionSQL, id, now)
		return err
	})
}

// NewConsoleSession is the input of CreateConsoleSession. The fields are those of ConsoleSession; the tokens are sealed.
type NewConsoleSession struct {
	ID         string
	CookieHash [32]byte
	Via        Via
	// OrganizationID is empty while the person has not chosen an organization.
	OrganizationID                         string
	Issuer, Subject, Name, Email, Operator string
	Role                                   string
	Memberships                            []ConsoleMembership
	NonceHash                              []byte
	TokenLifetime                          time.Duration
	TokenEnds                              *time.Time
	RefreshToken, IDToken                  []byte
	CreatedAt, EndsAt                      time.Time
	IP                                     netip.Addr
	UserAgent                              string
	// Replaces is the hash of the browser's previous cookie, nil for none. Its session ends.
	Replaces *[32]byte
	// LiveSince: sessions whose last call was before have ended.
	LiveSince time.Time
}

const insertConsoleSessionSQL = `
	insert into console_sessions (id, cookie_hash, organization_id, via, issuer, subject, name, email, role, operator, memberships, nonce_hash,
	                              token_lifetime, token_ends_at, refresh_token, id_token, created_at, last_seen_at, ends_at, ip, user_agent)
	values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $17, $18, $19, $20)`

// CreateConsoleSession creates a session. It ends the one that it replaces, and the least recently used ones of the person in the organization
// beyond MaxConsoleSessions.
func (s *Store) CreateConsoleSession(ctx context.Context, actor Actor, n NewConsoleSession) error {
	return s.write(ctx, actor, n.shareKey(), "create a console session", func(tx *transaction) error {
		return tx.createConsoleSession(ctx, n, nil)
	})
}

// shareKey is whose share of the connections the write takes.
func (n NewConsoleSession) shareKey() string {
	if n.OrganizationID == "" {
		return n.Issuer + " " + n.Subject
	}
	return n.OrganizationID
}

// createConsoleSession inserts the session and commits. more adds statements and entries to the last batch, and may be nil.
func (tx *transaction) createConsoleSession(ctx context.Context, n NewConsoleSession, more func(*pgx.Batch) error) error {
	var batch pgx.Batch
	if n.Replaces != nil {
		if err := tx.endConsoleSessions(ctx, &batch, EndSignOut, n.LiveSince, `cookie_hash = $1`, n.Replaces[:]); err != nil {
			return err
		}
	}
	if err := tx.makeRoom(ctx, &batch, n.OrganizationID, n.Issuer, n.Subject, n.LiveSince); err != nil {
		return err
	}
	memberships, err := json.Marshal(append([]ConsoleMembership{}, n.Memberships...))
	if err != nil {
		return err
	}
	var address *netip.Addr
	if n.IP.IsValid() {
		address = &n.IP
	}
	var lifetime *time.Duration
	if n.TokenEnds != nil {
		lifetime = &n.TokenLifetime
	}
	batch.Queue(insertConsoleSessionSQL, n.ID, n.CookieHash[:], orNull(n.OrganizationID), n.Via, orNull(n.Issuer), orNull(n.Subject), orNull(n.Name),
		orNull(n.Email), n.Role, orNull(n.Operator), memberships, n.NonceHash, lifetime, n.TokenEnds, n.RefreshToken, n.IDToken, n.CreatedAt,
		n.EndsAt, address, n.UserAgent)
	if more != nil {
		if err := more(&batch); err != nil {
			return err
		}
	}
	e := entry{}
	if n.OrganizationID != "" {
		e = entry{SessionCreated, n.OrganizationID, sessionTarget, n.ID, map[string]any{"via": n.Via}}
	}
	_, err = tx.finishBatch(ctx, &batch, e)
	return err
}

// lockPersonSQL lets a person sign in once at a time, so that the number of sessions is exact.
const lockPersonSQL = `select pg_advisory_xact_lock(hashtextextended('console ' || $1 || ' ' || $2, 0))`

// makeRoom ends sessions of a person in an organization, so that one more may be created.
func (tx *transaction) makeRoom(ctx context.Context, batch *pgx.Batch, orgID, issuer, subject string, liveSince time.Time) error {
	if subject == "" {
		return nil
	}
	if _, err := tx.Exec(ctx, lockPersonSQL, issuer, subject); err != nil {
		return err
	}
	return tx.endConsoleSessions(ctx, batch, EndLimit, liveSince, `id in (
		select id from console_sessions
		where issuer = $1 and subject = $2 and coalesce(organization_id::text, '') = $3
		order by last_seen_at desc, id desc offset $4)`, issuer, subject, orgID, MaxConsoleSessions-1)
}

// endConsoleSessions deletes the sessions that match the condition, and adds an audit entry to the batch for each that was live and had an
// organization.
func (tx *transaction) endConsoleSessions(ctx context.Context, batch *pgx.Batch, reason EndReason, liveSince time.Time, condition string, arguments ...any) error {
	rows, err := tx.Query(ctx, `delete from console_sessions c where `+condition+` returning c.id, c.organization_id, c.last_seen_at, c.ends_at`, arguments...)
	if err != nil {
		return err
	}
	var id string
	var orgID *string
	var seen, ends time.Time
	_, err = pgx.ForEachRow(rows, []any{&id, &orgID, &seen, &ends}, func() error {
		if orgID == nil || seen.Before(liveSince) || ends.Before(time.Now()) {
			return nil
		}
		return tx.record(batch, entry{SessionEnded, *orgID, sessionTarget, id, map[string]any{"reason": reason}})
	})
	return err
}

// EndConsoleSession ends the session. It does nothing if the session has ended.
func (s *Store) EndConsoleSession(ctx context.Context, actor Actor, c ConsoleSession, reason EndReason) error {
	return s.write(ctx, actor, c.ID, "end a console session", func(tx *transaction) error {
		var batch pgx.Batch
		if err := tx.endConsoleSessions(ctx, &batch, reason, time.Time{}, `id = $1`, c.ID); err != nil {
			return err
		}
		_, err := tx.finishBatch(ctx, &batch, entry{})
		return err
	})
}

// SealedTokens are the tokens of a session as they are stored. Either may be nil.
type SealedTokens struct{ Refresh, ID []byte }

const consoleTokensSQL = `
	select refresh_token, id_token, coalesce(lease_until > clock_timestamp(), false), memberships, coalesce(organization_id::text, '')
	from console_sessions where id = $1 for update`

// ConsoleTokens returns the sealed tokens of a session, or ErrNotFound.
func (s *Store) ConsoleTokens(ctx context.Context, id string) (t SealedTokens, err error) {
	err = retry("read the tokens of a console session", func() error {
		return s.pool.QueryRow(ctx, `select refresh_token, id_token from console_sessions where id = $1`, id).Scan(&t.Refresh, &t.ID)
	})
	return t, err
}

// moveConsoleSessionSQL copies a session to another id, cookie and organization.
const moveConsoleSessionSQL = `
	insert into console_sessions (id, cookie_hash, organization_id, role, refresh_token, id_token, via, issuer, subject, name, email, operator,
	                              memberships, nonce_hash, token_lifetime, token_ends_at, renewal_uncertain, renewal_before, renewal_refused,
	                              renewal_failed_at, created_at, last_seen_at, ends_at, ip, user_agent)
	select $2, $3, $4, $5, $6, $7, via, issuer, subject, name, email, operator, memberships, nonce_hash, token_lifetime, token_ends_at,
	       renewal_uncertain, renewal_before, renewal_refused, renewal_failed_at, created_at, last_seen_at, ends_at, ip, user_agent
	from console_sessions where id = $1`

// SwitchConsoleSession replaces the session by one with the id newID and another cookie for the organization with the external id. reseal seals
// the tokens for the new id; it must be quick. Errors: ErrOrganizationNotFound, ErrRenewing, ErrNotFound when the session has ended.
func (s *Store) SwitchConsoleSession(ctx context.Context, actor Actor, c ConsoleSession, newID string, cookieHash [32]byte, externalID string, liveSince time.Time, reseal func(SealedTokens) (SealedTokens, error)) error {
	o, err := s.ExternalOrganization(ctx, externalID)
	if errors.Is(err, ErrNotFound) || err == nil && (o.Suspended || externalID == CanaryOrganization) {
		return ErrOrganizationNotFound
	}
	if err != nil {
		return err
	}
	return s.write(ctx, actor, o.ID, "switch a console session", func(tx *transaction) error {
		var sealed SealedTokens
		var renewing bool
		var text []byte
		var before string
		if err := tx.QueryRow(ctx, consoleTokensSQL, c.ID).Scan(&sealed.Refresh, &sealed.ID, &renewing, &text, &before); err != nil {
			return err
		}
		if renewing {
			return ErrRenewing
		}
		var memberships []ConsoleMembership
		if err := json.Unmarshal(text, &memberships); err != nil {
			return err
		}
		role, member := "", false
		for _, m := range memberships {
			if m.ExternalID == externalID {
				role, member = m.Role, true
			}
		}
		if !member {
			return ErrOrganizationNotFound
		}
		sealed, err := reseal(sealed)
		if err != nil {
			return err
		}
		var batch pgx.Batch
		if before != o.ID {
			if err := tx.makeRoom(ctx, &batch, o.ID, c.Issuer, c.Subject, liveSince); err != nil {
				return err
			}
		}
		batch.Queue(moveConsoleSessionSQL, c.ID, newID, cookieHash[:], o.ID, role, sealed.Refresh, sealed.ID)
		batch.Queue(`delete from console_sessions where id = $1`, c.ID)
		if before == "" {
			_, err = tx.finishBatch(ctx, &batch, entry{SessionCreated, o.ID, sessionTarget, newID, map[string]any{"via": c.Via}})
			return err
		}
		if before != o.ID {
			// The organization that was left must not learn where the person went, nor the other one from where.
			if err := tx.record(&batch, entry{SessionSwitched, before, sessionTarget, c.ID, map[string]any{"direction": "out"}}); err != nil {
				return err
			}
		}
		_, err = tx.finishBatch(ctx, &batch, entry{SessionSwitched, o.ID, sessionTarget, newID, map[string]any{"direction": "in"}})
		return err
	})
}

// ConsolePerson selects sessions of a person. The zero value selects all sessions of an organization.
type ConsolePerson struct {
	// SessionID selects one session.
	SessionID string
	// Subject selects the sessions of a person, of all issuers if Issuer is empty.
	Issuer, Subject string
}

const consolePersonCondition = `
	c.organization_id = $1 and ($2 = '' or c.id::text = $2) and ($3 = '' or c.issuer = $3) and ($4 = '' or c.subject = $4)`

// maxConsoleSessionsListed bounds a list. An organization with more has them ended by owners without a list.
const maxConsoleSessionsListed = 1000

const listConsoleSessionsSQL = `select ` + consoleSessionColumns + `, ` + organizationColumns + consoleSessionTables + `
	where ` + consolePersonCondition + ` and c.ends_at > $5 and c.last_seen_at >= $6 order by c.created_at desc, c.id desc limit $7`

// ConsoleSessions returns the sessions of the organization that have not expired, the newest first, at most 1,000.
func (s *Store) ConsoleSessions(ctx context.Context, orgID string, p ConsolePerson, now, liveSince time.Time) (all []ConsoleSession, err error) {
	err = retry("list console sessions", func() error {
		rows, err := s.pool.Query(ctx, listConsoleSessionsSQL, orgID, p.SessionID, p.Issuer, p.Subject, now, liveSince, maxConsoleSessionsListed)
		if err != nil {
			return err
		}
		all, err = pgx.AppendRows([]ConsoleSession{}, rows, func(row pgx.CollectableRow) (ConsoleSession, error) { return scanConsoleSession(row) })
		return err
	})
	return all, err
}

// RevokeConsoleSessions ends the sessions of the organization that have not expired, and returns their number.
func (s *Store) RevokeConsoleSessions(ctx context.Context, actor Actor, orgID string, p ConsolePerson, liveSince time.Time) (revoked int, err error) {
	err = s.write(ctx, actor, orgID, "revoke console sessions", func(tx *transaction) error {
		var batch pgx.Batch
		before := len(tx.entries)
		if err := tx.endConsoleSessions(ctx, &batch, EndRevoked, liveSince, consolePersonCondition, orgID, p.SessionID, p.Issuer, p.Subject); err != nil {
			return err
		}
		revoked = len(tx.entries) - before
		_, err := tx.finishBatch(ctx, &batch, entry{})
		return err
	})
	return revoked, err
}

const purgeConsoleSQL = `
	with s as (delete from console_sessions where id in (select id from console_sessions where ends_at < $1 limit $2) returning 1),
	     a as (delete from console_sign_ins where state_hash in (select state_hash from console_sign_ins where created_at < $1 limit $2) returning 1),
	     l as (delete from console_links where id in (select id from console_links where expires_at < $1 limit $2) returning 1)
	select (select count(*) from s) + (select count(*) from a) + (select count(*) from l), greatest((select count(*) from s), (select count(*) from a), (select count(*) from l))`

// consoleKept is how long rows of the console stay after they have expired. Controls whose clocks differ may still accept them.
const consoleKept = 15 * time.Minute

// consolePurged is how many rows of a table a statement deletes.
const consolePurged = 1000

// PurgeConsole deletes some of the console's sessions, sign-ins and links that have expired.
func (s *Store) PurgeConsole(ctx context.Context) (done Purged, err error) {
	var most int64
	err = s.purge(ctx, "the console's sessions", purgeConsoleSQL, []any{time.Now().Add(-consoleKept), consolePurged}, &done.Rows, &most)
	done.Done = most < consolePurged
	return done, err
}

// NewID returns a new UUIDv7.
func NewID() string { return uuid.Must(uuid.NewV7()).String() }
