package store

import (
	"context"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"

	"deeplink/shared/catalog"
)

const (
	// dedupWindow is how long control remembers the ids of events: as long as it accepts the timestamp of an event (maxEventAge), and one
	// day more.
	dedupWindow = 31 * 24 * time.Hour
)

// The allowed difference of a device's clock. Queued events may be old; events in the future are invalid.
const (
	maxEventAge  = 30 * 24 * time.Hour
	maxEventLead = 5 * time.Minute
)

// Batch is one batch of events of a device. Its event ids are unique.
type Batch struct {
	DeviceID string
	// SessionID is a UUID or nil. It keeps the device's current session alive.
	SessionID *string
	Events    []Event
}

// Event is something that happened in an app.
type Event struct {
	ID   string // a UUID
	Name string
	// At is the time by the device's clock; nil: the time of arrival.
	At     *time.Time
	LinkID *string // a UUID
	// Revenue is a number within numeric(18, 6).
	Revenue    *string
	Currency   *string
	Properties json.RawMessage
}

// Ids are inserted in ascending order, so that batches with common ids cannot deadlock. The statement that inserts an id also stores its
// event, and all events are committed before the response.
const insertEventsSQL = `
	with arrival as materialized (
		select clock_timestamp()::timestamptz(3) as received_at
	), sent as materialized (
		select * from unnest($4::text[]::uuid[], $5::text[], $6::timestamptz[], $7::text[]::uuid[], $8::text[]::numeric[], $9::text[], $10::text[]::json[])
			as e (id, name, at, link_id, revenue, currency, properties)
	), fresh as (
		insert into event_ids (organization_id, id, received_at)
		select $1, id, received_at from sent, arrival order by id
		on conflict (organization_id, id) do nothing
		returning id
	), stored as (
		insert into events (organization_id, id, device_id, session_id, user_id, name, occurred_at, claimed_at, link_id, revenue, currency,
		                    properties, received_at)
		select $1, e.id, $2, $3::uuid, (select user_id from devices d where d.organization_id = $1 and d.id = $2), e.name,
		       case when e.at is null or e.at > a.received_at + $12::interval then a.received_at
		            else greatest(e.at, a.received_at - $11::interval) end,
		       case when e.at < a.received_at - $11::interval or e.at > a.received_at + $12::interval then e.at end,
		       e.link_id, e.revenue, e.currency, e.properties, a.received_at
		from sent e join fresh using (id), arrival a
	), alive as (
		update devices set session_active_at = greatest(session_active_at, clock_timestamp())
		where organization_id = $1 and id = $2 and session_id = $3::uuid and session_active_at > clock_timestamp() - $13::interval
			and exists (select from fresh)
	)
	select count(*) from fresh`

// InsertEvents stores the events whose ids are new in the organization, and returns their number. When it returns without an error, they
// are committed.
func (s *Store) InsertEvents(ctx context.Context, orgID string, b Batch) (stored int, err error) {
	arguments := append([]any{orgID, b.DeviceID, b.SessionID}, columns(b.Events)...)
	arguments = append(arguments, maxEventAge, maxEventLead, SessionIdle)
	insert := func() error { return s.pool.QueryRow(ctx, insertEventsSQL, arguments...).Scan(&stored) }
	err = s.report(ctx, orgID, b.DeviceID, "store events", func() error {
		err := insert()
		if !lacksPartition(err, "events") {
			return err
		}
		// control creates partitions a week ahead, so no control has run for that long.
		if err := s.MakeEventPartitions(ctx); err != nil {
			return err
		}
		return insert()
	})
	if err != nil {
		return 0, err
	}
	return stored, nil
}

// columns are the events as arrays, in the order of insertEventsSQL.
func columns(events []Event) []any {
	n := len(events)
	ids, names, times := make([]string, n), make([]string, n), make([]*time.Time, n)
	links, revenues, currencies, properties := make([]*string, n), make([]*string, n), make([]*string, n), make([]*string, n)
	for i, e := range events {
		ids[i], names[i], times[i] = e.ID, e.Name, e.At
		links[i], revenues[i], currencies[i], properties[i] = e.LinkID, e.Revenue, e.Currency, orNull(string(e.Properties))
	}
	return []any{ids, names, times, links, revenues, currencies, properties}
}

// StoredEvent is an event as operators read it.
type StoredEvent struct {
	ID        string       `json:"id"`
	Name      string       `json:"name"`
	DeviceID  string       `json:"deviceId"`
	SessionID *string      `json:"sessionId"`
	UserID    *string      `json:"userId"`
	Timestamp catalog.Time `json:"timestamp"`
	// ClaimedTimestamp is the time by the device's clock, if it was out of the allowed range.
	ClaimedTimestamp *catalog.Time   `json:"claimedTimestamp"`
	LinkID           *string         `json:"linkId"`
	Revenue          *json.Number    `json:"revenue"`
	Currency         *string         `json:"currency"`
	Properties       json.RawMessage `json:"properties"`
	ReceivedAt       catalog.Time    `json:"receivedAt"`
}

// EventCursor is a position in the order of events: by arrival, then by id.
type EventCursor struct {
	ReceivedAt time.Time
	ID         string
}

// FirstEvent is the position before all events that arrived at that time or later.
func FirstEvent(since time.Time) EventCursor {
	return EventCursor{arrivalFrom(since).Add(-time.Millisecond), "ffffffff-ffff-ffff-ffff-ffffffffffff"}
}

// arrivalFrom returns the first possible arrival time that is not before t: arrival times are whole milliseconds. Postgres would truncate t
// to microseconds.
func arrivalFrom(t time.Time) time.Time {
	return t.Add(time.Millisecond - time.Nanosecond).Truncate(time.Millisecond)
}

const settledSQL = `select clock_timestamp() - interval '1 minute'`

// Settled returns a time of the database's clock before which no further event can arrive: the statements that store such events have
// ended.
func (s *Store) Settled(ctx context.Context) (at time.Time, err error) {
	err = retry("read the clock", func() error { return s.pool.QueryRow(ctx, settledSQL).Scan(&at) })
	return at, err
}

// The row comparison already implies received_at >= $2, but only the simple condition excludes partitions.
const eventsSQL = `
	select id, name, device_id, session_id, user_id, occurred_at, claimed_at, link_id, trim_scale(revenue)::text, currency, properties, received_at
	from events
	where organization_id = $1 and received_at >= $2 and (received_at, id) > ($2, $3::uuid) and received_at < $4
	order by received_at, id limit $5`

// Events returns at most limit events of the organization that arrived before until, in order, from after the cursor on, and the next
// cursor. If there are fewer than limit, they are the last ones.
func (s *Store) Events(ctx context.Context, orgID string, after EventCursor, until time.Time, limit int) ([]StoredEvent, EventCursor, error) {
	var page []StoredEvent
	err := retry("read events", func() error {
		rows, err := s.pool.Query(ctx, eventsSQL, orgID, after.ReceivedAt, after.ID, arrivalFrom(until), limit)
		if err != nil {
			return err
		}
		page, err = pgx.CollectRows(rows, scanEvent)
		return err
	})
	if err != nil {
		return nil, after, err
	}
	if n := len(page); n > 0 {
		after = EventCursor{page[n-1].ReceivedAt.Time, page[n-1].ID}
	}
	return page, after, nil
}

func scanEvent(row pgx.CollectableRow) (e StoredEvent, err error) {
	var claimed *time.Time
	var revenue *string
	err = row.Scan(&e.ID, &e.Name, &e.DeviceID, &e.SessionID, &e.UserID, &e.Timestamp.Time, &claimed, &e.LinkID, &revenue, &e.Currency,
		(*[]byte)(&e.Properties), &e.ReceivedAt.Time)
	e.Revenue = (*json.Number)(revenue)
	if claimed != nil {
		e.ClaimedTimestamp = &catalog.Time{Time: *claimed}
	}
	return e, err
}
