package store

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// Erased is the result of erasing a device or a user.
type Erased struct {
	Devices    int64 `json:"devices"`
	Identities int64 `json:"identities"`
	Sessions   int64 `json:"sessions"`
	// Events is the number of anonymized events.
	Events int64 `json:"events"`
	// AuditID is the id of the audit entry, or nil if there was nothing to erase.
	AuditID *string `json:"auditId"`
}

// DeleteDevice erases a device of the organization: its row, its sessions, and the identity of its user if the user has no other device. It
// anonymizes the events of the device (anonymize_events). It walks all sessions and events of the organization in bounded statements and
// may take minutes. The next call continues an interrupted one. If the device sends further reports, it counts as a new device.
//
// The audit entry is committed with the first erased rows. It contains neither the id of the device or user nor its hash: an id can be an
// email address, whose hash can be found by trying addresses.
func (s *Store) DeleteDevice(ctx context.Context, actor Actor, orgID, deviceID string) (Erased, error) {
	e := erasure{store: s, actor: actor, orgID: orgID, by: "device", device: &deviceID}
	return e.run(ctx)
}

// DeleteUser is DeleteDevice for a user: it erases the identity with its traits and all current devices of the user with their sessions, and
// anonymizes the events of these devices and of the user on other devices.
func (s *Store) DeleteUser(ctx context.Context, actor Actor, orgID, userID string) (Erased, error) {
	e := erasure{store: s, actor: actor, orgID: orgID, by: "user", user: &userID}
	return e.run(ctx)
}

// erasure is a call of DeleteDevice or DeleteUser.
type erasure struct {
	store        *Store
	actor        Actor
	orgID, by    string
	device, user *string // exactly one is set
	// cleaned holds the devices without remaining sessions and events.
	cleaned []string
	done    Erased
}

// erasedRows is the number of sessions or events per statement.
const erasedRows = 10_000

// run erases the rows of devices last, because the next call needs them to continue an interrupted one.
func (e *erasure) run(ctx context.Context) (Erased, error) {
	for {
		devices, err := e.devices(ctx)
		if err != nil {
			return e.done, err
		}
		if err := e.events(ctx, devices); err != nil {
			return e.done, err
		}
		if err := e.sessions(ctx, devices); err != nil {
			return e.done, err
		}
		e.cleaned = append(e.cleaned, devices...)
		if err := e.rows(ctx); !errors.Is(err, errMoreDevices) {
			return e.done, err
		}
	}
}

// errMoreDevices: the user has a new device.
var errMoreDevices = errors.New("the user has another device")

const devicesOfUserSQL = `select id from devices where organization_id = $1 and user_id collate "C" = $2`

// devices returns the devices to erase.
func (e *erasure) devices(ctx context.Context) ([]string, error) {
	if e.device != nil {
		return []string{*e.device}, nil
	}
	return e.store.texts(ctx, "find the devices of a user", devicesOfUserSQL, e.orgID, *e.user)
}

// step runs f in a transaction. f returns the number of erased rows; the first step that erases any also writes the audit entry.
func (e *erasure) step(ctx context.Context, what string, f func(*transaction) (int64, error)) (erased int64, err error) {
	id := e.done.AuditID
	err = e.store.write(ctx, e.actor, e.orgID, what, func(tx *transaction) error {
		if erased, err = f(tx); err != nil {
			return err
		}
		var record entry
		if erased > 0 && e.done.AuditID == nil {
			record = entry{DeviceDeleted, e.orgID, organizationTarget, e.orgID, map[string]any{"by": e.by}}
		}
		_, err := tx.finish(ctx, record)
		if len(tx.entries) > 0 {
			id = &tx.entries[0].ID
		}
		return err
	})
	if err != nil {
		return 0, err
	}
	e.done.AuditID = id
	return erased, nil
}

const (
	// eventPageSQL finds the last event of a page.
	eventPageSQL = `
		select received_at, id from events
		where organization_id = $1 and received_at >= $2 and (received_at, id) > ($2, $3::uuid) order by received_at, id offset $4 limit 1`
	anonymizeEventsSQL = `select anonymize_events($1, $2, $3, $4, $5, $6, $7)`
)

// lastID sorts after every other id.
const lastID = "ffffffff-ffff-ffff-ffff-ffffffffffff"

// events anonymizes the events, page by page in the order of their arrival.
func (e *erasure) events(ctx context.Context, devices []string) error {
	after, end := EventCursor{ID: uuid.Nil.String()}, EventCursor{time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC), lastID}
	for until := after; until != end; after = until {
		err := retry("find the next events", func() error {
			return e.store.pool.QueryRow(ctx, eventPageSQL, e.orgID, after.ReceivedAt, after.ID, erasedRows-1).Scan(&until.ReceivedAt, &until.ID)
		})
		if errors.Is(err, ErrNotFound) {
			until, err = end, nil
		}
		if err != nil {
			return err
		}
		erased, err := e.step(ctx, "anonymize events", func(tx *transaction) (n int64, err error) {
			err = tx.QueryRow(ctx, anonymizeEventsSQL, e.orgID, devices, e.user, after.ReceivedAt, after.ID, until.ReceivedAt, until.ID).Scan(&n)
			return n, err
		})
		if err != nil {
			return err
		}
		e.done.Events += erased
	}
	return nil
}

const (
	// sessionPageSQL finds the last session of a page.
	sessionPageSQL   = `select id from sessions where organization_id = $1 and id > $2::uuid order by id offset $3 limit 1`
	eraseSessionsSQL = `
		with gone as (delete from sessions where organization_id = $1 and id > $2::uuid and id <= $3::uuid and device_id = any ($4) returning 1)
		select count(*) from gone`
)

// sessions erases the sessions of the devices, page by page in the order of ids.
func (e *erasure) sessions(ctx context.Context, devices []string) error {
	after := uuid.Nil.String()
	for until := after; until != lastID; after = until {
		err := retry("find the next sessions", func() error {
			return e.store.pool.QueryRow(ctx, sessionPageSQL, e.orgID, after, erasedRows-1).Scan(&until)
		})
		if errors.Is(err, ErrNotFound) {
			until, err = lastID, nil
		}
		if err != nil {
			return err
		}
		erased, err := e.step(ctx, "erase sessions", func(tx *transaction) (n int64, err error) {
			err = tx.QueryRow(ctx, eraseSessionsSQL, e.orgID, after, until, devices).Scan(&n)
			return n, err
		})
		if err != nil {
			return err
		}
		e.done.Sessions += erased
	}
	return nil
}

const (
	lockDevicesSQL = `
		select id, user_id from devices where organization_id = $1 and (id = $2 or user_id collate "C" = $3) order by id for update`
	eraseDevicesSQL = `
		with gone as (delete from devices where organization_id = $1 and id = any ($2) returning 1) select count(*) from gone`
	eraseIdentitiesSQL = `
		with gone as (
			delete from identities i where i.organization_id = $1 and i.user_id = any ($2)
				and not exists (select from devices d where d.organization_id = $1 and d.user_id collate "C" = i.user_id)
			returning 1)
		select count(*) from gone`
)

// rows erases the rows of devices and identities. It fails with errMoreDevices and erases none if one of the devices is not
// cleaned.
func (e *erasure) rows(ctx context.Context) error {
	var devices, identities int64
	_, err := e.step(ctx, "erase devices", func(tx *transaction) (int64, error) {
		ids, users, err := e.lock(ctx, tx)
		if err != nil {
			return 0, err
		}
		if err := tx.QueryRow(ctx, eraseDevicesSQL, e.orgID, ids).Scan(&devices); err != nil {
			return 0, err
		}
		err = tx.QueryRow(ctx, eraseIdentitiesSQL, e.orgID, users).Scan(&identities)
		return devices + identities, err
	})
	if err != nil {
		return err
	}
	e.done.Devices, e.done.Identities = devices, identities
	return nil
}

// lock locks the rows of the devices, and returns their ids and their users.
func (e *erasure) lock(ctx context.Context, tx *transaction) (ids, users []string, err error) {
	if e.user != nil {
		users = append(users, *e.user)
	}
	rows, err := tx.Query(ctx, lockDevicesSQL, e.orgID, e.device, e.user)
	if err != nil {
		return nil, nil, err
	}
	var id string
	var user *string
	_, err = pgx.ForEachRow(rows, []any{&id, &user}, func() error {
		if !slices.Contains(e.cleaned, id) {
			return errMoreDevices
		}
		ids = append(ids, id)
		if user != nil {
			users = append(users, *user)
		}
		return nil
	})
	return ids, users, err
}
