package store

import (
	"context"
	"encoding/json"
	"time"

	"github.com/google/uuid"

	"deeplink/shared/catalog"
)

// SessionIdle is how long a session goes on without a sign of life (decisions.md 7).
const SessionIdle = 30 * time.Minute

// Device is what the SDK tells about where it runs. Nil: not told, and what is known stays.
type Device struct {
	ID                                                                   string
	Platform, OSVersion, AppVersion, SDKVersion, Model, Locale, Timezone *string
}

// Session is a visit of a device, as POST /sdk/session answers it, but for its link.
type Session struct {
	ID        string       `json:"sessionId"`
	DeviceID  string       `json:"deviceId"`
	UserID    *string      `json:"userId"`
	IsFirst   bool         `json:"isFirstSession"`
	StartedAt catalog.Time `json:"startedAt"`
	ExpiresAt catalog.Time `json:"expiresAt"`
}

// The row of the device is locked by its insert or update, so that of many calls at once one begins a session and the others
// find it. clock_timestamp() and not now(): whoever waited for the lock came later.
const openSessionSQL = `
	with device as (
		insert into devices as d (organization_id, id, platform, os_version, app_version, sdk_version, model, locale, timezone,
		                          session_id, session_first, session_started_at, session_active_at)
		values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, true, clock_timestamp(), clock_timestamp())
		on conflict (organization_id, id) do update set
			platform = coalesce(excluded.platform, d.platform), os_version = coalesce(excluded.os_version, d.os_version),
			app_version = coalesce(excluded.app_version, d.app_version), sdk_version = coalesce(excluded.sdk_version, d.sdk_version),
			model = coalesce(excluded.model, d.model), locale = coalesce(excluded.locale, d.locale),
			timezone = coalesce(excluded.timezone, d.timezone), session_active_at = clock_timestamp(),
			(session_id, session_first, session_started_at) = (
				select case when goes_on then d.session_id else excluded.session_id end,
				       case when goes_on then d.session_first else d.session_id is null end,
				       case when goes_on then d.session_started_at else clock_timestamp() end
				from (select coalesce(d.session_active_at > clock_timestamp() - $11::interval, false)) as s (goes_on))
		returning session_id, session_first, session_started_at, session_active_at, user_id, platform, app_version
	), session as (
		insert into sessions as s (organization_id, id, device_id, is_first, link_id, platform, app_version, started_at, active_at)
		select $1, session_id, $2, session_first, $12::uuid, platform, app_version, session_started_at, session_active_at from device
		on conflict (organization_id, id) do update set active_at = excluded.active_at, link_id = coalesce(s.link_id, excluded.link_id)
	)
	select session_id, session_first, session_started_at, session_active_at, user_id from device`

// OpenSession returns the session of the device: the one before when it has not been idle for SessionIdle, else a new one. linkID is the
// link that opened the app, or nil.
func (s *Store) OpenSession(ctx context.Context, orgID string, d Device, linkID *string) (Session, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return Session{}, err
	}
	session := Session{DeviceID: d.ID}
	err = retry("open a session", func() error {
		return s.pool.QueryRow(ctx, openSessionSQL, orgID, d.ID, d.Platform, d.OSVersion, d.AppVersion, d.SDKVersion, d.Model, d.Locale,
			d.Timezone, id.String(), SessionIdle, linkID).
			Scan(&session.ID, &session.IsFirst, &session.StartedAt.Time, &session.ExpiresAt.Time, &session.UserID)
	})
	if err != nil {
		return Session{}, err
	}
	session.ExpiresAt.Time = session.ExpiresAt.Add(SessionIdle)
	return session, nil
}

const identifySQL = `
	with device as (
		insert into devices as d (organization_id, id, user_id) values ($1, $2, $3)
		on conflict (organization_id, id) do update set user_id = excluded.user_id
		returning user_id
	)
	insert into identities as i (organization_id, user_id, traits) select $1, user_id, $4::json from device
	on conflict (organization_id, user_id) do update set traits = coalesce(excluded.traits, i.traits), updated_at = clock_timestamp()`

// Identify says who uses the device, known or not. Traits replace those of before, unless they are nil.
func (s *Store) Identify(ctx context.Context, orgID, deviceID, userID string, traits json.RawMessage) error {
	return retry("identify a device", func() error {
		_, err := s.pool.Exec(ctx, identifySQL, orgID, deviceID, userID, orNull(string(traits)))
		return err
	})
}

const clearIdentitySQL = `update devices set user_id = null where organization_id = $1 and id = $2`

// ClearIdentity says that nobody known uses the device any more. For a device that is unknown this is so.
func (s *Store) ClearIdentity(ctx context.Context, orgID, deviceID string) error {
	return retry("clear the identity of a device", func() error {
		_, err := s.pool.Exec(ctx, clearIdentitySQL, orgID, deviceID)
		return err
	})
}
