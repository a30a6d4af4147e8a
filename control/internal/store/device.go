package store

import (
	"context"
	"encoding/json"
	"time"

	"github.com/google/uuid"

	"deeplink/shared/catalog"
)

// SessionIdle is how long an SDK session lasts without a request.
const SessionIdle = 30 * time.Minute

// Device is what the SDK reports about its device. A nil field was not reported; the stored value stays.
type Device struct {
	ID                                                                   string
	Platform, OSVersion, AppVersion, SDKVersion, Model, Locale, Timezone *string
}

// Session is an SDK session: the response of POST /sdk/session without the link.
type Session struct {
	ID        string       `json:"sessionId"`
	DeviceID  string       `json:"deviceId"`
	UserID    *string      `json:"userId"`
	IsFirst   bool         `json:"isFirstSession"`
	StartedAt catalog.Time `json:"startedAt"`
	ExpiresAt catalog.Time `json:"expiresAt"`
}

// The insert or update locks the row of the device, so that of concurrent calls one starts a session and the others find it. It uses
// clock_timestamp(), because now() is the time before the wait for the lock.
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

// OpenSession returns the device's last session if it has not been idle for SessionIdle, otherwise a new one. linkID is the link that opened
// the app, or nil.
func (s *Store) OpenSession(ctx context.Context, orgID string, d Device, linkID *string) (Session, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return Session{}, err
	}
	session := Session{DeviceID: d.ID}
	err = s.report(ctx, orgID, d.ID, "open a session", func() error {
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
		insert into devices as d (organization_id, id, user_id, identified_at) values ($1, $2, $3, clock_timestamp())
		on conflict (organization_id, id) do update set user_id = excluded.user_id, identified_at = excluded.identified_at
		returning user_id
	)
	insert into identities as i (organization_id, user_id, traits) select $1, user_id, $4::json from device
	on conflict (organization_id, user_id) do update set traits = coalesce(excluded.traits, i.traits), updated_at = clock_timestamp()`

// Identify sets the user of the device, which need not exist yet. Traits replace the stored ones, unless they are nil.
func (s *Store) Identify(ctx context.Context, orgID, deviceID, userID string, traits json.RawMessage) error {
	return s.report(ctx, orgID, deviceID, "identify a device", func() error {
		_, err := s.pool.Exec(ctx, identifySQL, orgID, deviceID, userID, orNull(string(traits)))
		return err
	})
}

const clearIdentitySQL = `update devices set user_id = null, identified_at = clock_timestamp() where organization_id = $1 and id = $2`

// ClearIdentity removes the user of the device. It does nothing for an unknown device.
func (s *Store) ClearIdentity(ctx context.Context, orgID, deviceID string) error {
	return s.report(ctx, orgID, deviceID, "clear the identity of a device", func() error {
		_, err := s.pool.Exec(ctx, clearIdentitySQL, orgID, deviceID)
		return err
	})
}
