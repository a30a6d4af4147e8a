package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"deeplink/shared/feed"
	"deeplink/shared/postgres"
)

const pointSQL = `select pg_current_snapshot()::text, ` + postgres.History

// Point returns the current position in the database's history. [Store.PurgeChanges] needs one that is ten minutes old.
func (s *Store) Point(ctx context.Context) (point feed.Point, err error) {
	err = retry("read the snapshot", func() error {
		var text string
		if err := s.pool.QueryRow(ctx, pointSQL).Scan(&text, &point.History); err != nil {
			return err
		}
		point.Snapshot, err = feed.ParseSnapshot(text)
		return err
	})
	return point, err
}

// Purged is the result of one step of a purge.
type Purged struct {
	Rows int64 // how many it deleted
	// Done: there is nothing more to delete for now.
	Done bool
}

const (
	// purgeTimeout bounds each statement of a purge. After a timeout the next statement is smaller.
	purgeTimeout = 2 * time.Second
	// purgeLockTimeout bounds its wait for locked rows.
	purgeLockTimeout = time.Second
	// statementTimedOut is the code of a statement that exceeded its timeout.
	statementTimedOut = "57014"
)

// purge runs one statement of a purge within its bounds, and scans its row.
func (s *Store) purge(ctx context.Context, what, sql string, arguments []any, row ...any) error {
	return retry("purge "+what, func() error {
		return s.in(ctx, readCommitted, func(tx pgx.Tx) error {
			var batch pgx.Batch
			batch.Queue(fmt.Sprintf(`set local statement_timeout = %d`, purgeTimeout.Milliseconds()))
			batch.Queue(fmt.Sprintf(`set local lock_timeout = %d`, purgeLockTimeout.Milliseconds()))
			// A cached plan from when the table was small would read the whole table.
			batch.Queue(byIndexSQL)
			batch.Queue(sql, arguments...).QueryRow(func(r pgx.Row) error { return r.Scan(row...) })
			return tx.SendBatch(ctx, &batch).Close()
		})
	})
}

// portion is the number of rows or pages per statement of a purge. It adapts to slow machines.
type portion struct{ n int64 }

// size returns the portion, which is at most most.
func (p *portion) size(most int64) int64 {
	if p.n == 0 {
		p.n = most
	}
	return p.n
}

// adapt returns nil for a statement that timed out and of which a smaller one may succeed.
func (p *portion) adapt(err error, most int64) error {
	switch {
	case err == nil:
		p.n = min(most, p.n*2)
	case postgres.Code(err) == statementTimedOut && p.n > 1:
		p.n = max(1, p.n/8)
		return errSmaller
	}
	return err
}

// errSmaller: the statement timed out, and the next one is smaller.
var errSmaller = errors.New("the next statement is smaller")

// Sweep is the state of a purge that walks the table by pages: each step reads the next pages, so that its cost depends neither on the
// number of rows to delete nor on dead rows that wait for vacuum, as an index scan's would. The zero Sweep starts with the first page. It is
// not safe for concurrent use.
type Sweep struct {
	page  int64 // the next one
	pages portion
}

// sweptPages is how many pages a step looks at. They hold at most some 60,000 rows.
const sweptPages = 500

// sweepSQL is the statement of a sweep. $1 and $2 are places, and the condition begins with $3. It may name the row t.
func sweepSQL(table, condition string) string {
	return `
	with gone as (delete from ` + table + ` t where ctid >= $1::text::tid and ctid < $2::text::tid and ` + condition + ` returning 1)
	select count(*), pg_relation_size('` + table + `') / current_setting('block_size')::bigint from gone`
}

// sweep does one step. Done: those were the last pages, and the next step begins with the first.
func (s *Store) sweep(ctx context.Context, what, sql string, at *Sweep, arguments ...any) (done Purged, err error) {
	place := func(page int64) string { return fmt.Sprintf("(%d,0)", page) }
	end := at.page + at.pages.size(sweptPages)
	var pages int64
	err = s.purge(ctx, what, sql, append([]any{place(at.page), place(end)}, arguments...), &done.Rows, &pages)
	if err := at.pages.adapt(err, sweptPages); err != nil {
		if err == errSmaller {
			return Purged{}, nil
		}
		return Purged{}, err
	}
	at.page = end
	// Rows added after the last page meanwhile are not old.
	if end >= pages {
		at.page, done.Done = 0, true
	}
	return done, nil
}

// A restored database reuses transaction numbers for new transactions, which edges have not polled yet, so the history must match. Without
// coalesce Postgres might scan the index of xid with all its dead rows instead of the pages.
const finished = `coalesce(xid, '0') < $3 and $4 = (select ` + postgres.History + `)`

var (
	purgeChangesSQL      = sweepSQL("changes", finished)
	purgeDeletedLinksSQL = sweepSQL("deleted_links", finished)
	purgeDevicesSQL      = sweepSQL("devices", `greatest(created_at, session_active_at, identified_at) < now() - $3::interval`)
	// An identity stays as long as the user has a device: the app may identify the user only once.
	purgeIdentitiesSQL = sweepSQL("identities", `updated_at < now() - $3::interval
		and not exists (select from devices d where d.organization_id = t.organization_id and d.user_id collate "C" = t.user_id)`)
)

// PurgeChanges deletes, of the next pages, the changes that were finished before everything which ran at the time of the point, unless the
// database's history is another one by now. Any number of processes may run it at once, each with its own sweep; so may they the other
// purges.
func (s *Store) PurgeChanges(ctx context.Context, at *Sweep, point feed.Point) (Purged, error) {
	return s.sweep(ctx, "changes", purgeChangesSQL, at, point.Snapshot.Xmin(), point.History)
}

// PurgeDeletedLinks is PurgeChanges for the table deleted_links.
func (s *Store) PurgeDeletedLinks(ctx context.Context, at *Sweep, point feed.Point) (Purged, error) {
	return s.sweep(ctx, "deleted links", purgeDeletedLinksSQL, at, point.Snapshot.Xmin(), point.History)
}

// PurgeDevices deletes, of the next pages, the devices that were not used for retention.
func (s *Store) PurgeDevices(ctx context.Context, at *Sweep, retention time.Duration) (Purged, error) {
	return s.sweep(ctx, "devices", purgeDevicesSQL, at, retention)
}

// PurgeIdentities deletes, of the next pages, the users that were not named for retention and have no device.
func (s *Store) PurgeIdentities(ctx context.Context, at *Sweep, retention time.Duration) (Purged, error) {
	return s.sweep(ctx, "identities", purgeIdentitiesSQL, at, retention)
}

// Cursor is the state of a purge that deletes rows by their time, the oldest first: each step goes on where the one before ended, and does
// not pass the dead rows before it. The zero Cursor begins with the oldest row. It is for one goroutine.
type Cursor struct {
	at   time.Time
	rows portion
}

// purgedRows is how many rows a step deletes at most.
const purgedRows = 10_000

// cursorSQL is the statement of a purge by time, for rows older than $1. The rows are deleted by their places: by their keys Postgres may
// take a second look at the whole table. What is counted first is what was found: others who purge at the same time may have deleted some
// of it, and still there may be more.
func cursorSQL(table, column string) string {
	return `
	with old as materialized (
		select ctid, ` + column + ` as at from ` + table + ` where ` + column + ` < now() - $1::interval and ` + column + ` >= $2 order by ` + column + ` limit $3),
	gone as (delete from ` + table + ` where ctid = any(array(select ctid from old)) returning 1)
	select (select count(*) from old), (select count(*) from gone), (select max(at) from old)`
}

var (
	purgeSessionsSQL    = cursorSQL("sessions", "started_at")
	purgeEventIDsSQL    = cursorSQL("event_ids", "received_at")
	purgeRedemptionsSQL = cursorSQL("match_redemptions", "matched_at")
)

// redemptionsKept is how long spent match tokens are remembered. The margin of an hour over the 24 that a token is valid for is for clocks
// that differ.
const redemptionsKept = 25 * time.Hour

// byTime does one step. Done: fewer rows are left than fit into a step, and they were deleted.
func (s *Store) byTime(ctx context.Context, what, sql string, from *Cursor, age time.Duration) (done Purged, err error) {
	limit := from.rows.size(purgedRows)
	var found int64
	var last *time.Time
	err = s.purge(ctx, what, sql, []any{age, from.at, limit}, &found, &done.Rows, &last)
	if err := from.rows.adapt(err, purgedRows); err != nil {
		if err == errSmaller {
			return Purged{}, nil
		}
		return Purged{}, err
	}
	if last != nil {
		from.at = *last
	}
	done.Done = found < limit
	return done, nil
}

// PurgeSessions deletes some of the sessions that began longer ago than retention.
func (s *Store) PurgeSessions(ctx context.Context, from *Cursor, retention time.Duration) (Purged, error) {
	return s.byTime(ctx, "sessions", purgeSessionsSQL, from, retention)
}

// PurgeEventIDs deletes some of the ids of events that need not be remembered any more.
func (s *Store) PurgeEventIDs(ctx context.Context, from *Cursor) (Purged, error) {
	return s.byTime(ctx, "ids of events", purgeEventIDsSQL, from, dedupWindow)
}

// PurgeRedemptions deletes some of the redemptions of match tokens that have expired.
func (s *Store) PurgeRedemptions(ctx context.Context, from *Cursor) (Purged, error) {
	return s.byTime(ctx, "redemptions", purgeRedemptionsSQL, from, redemptionsKept)
}

// dropPatience is how long the drop of a partition is tried again while somebody reads it. What reads it for longer is an export, and the
// next round comes in a minute.
const dropPatience = 2 * time.Second

// drop runs a function that drops at most one partition, and returns how much it deleted.
func (s *Store) drop(ctx context.Context, what, sql string, arguments []any) (done Purged, err error) {
	err = postgres.RetryLocks(ctx, dropPatience, func() error { return s.purge(ctx, what, sql, arguments, &done.Rows) })
	done.Done = done.Rows == 0
	return done, err
}

// PurgeEvents drops the oldest day of events if all of it is older than retention, a day at least. Events go by whole days (UTC). It fails
// when somebody reads that day, as an export does.
func (s *Store) PurgeEvents(ctx context.Context, retention time.Duration) (Purged, error) {
	return s.drop(ctx, "events", `select drop_event_partitions($1)`, []any{retention})
}

// PurgeAuditLog drops the oldest month of the audit trail if all of it is older than 400 days. Otherwise it deletes such entries from a
// random portion of what was written before the trail had months. It fails when somebody reads that month.
func (s *Store) PurgeAuditLog(ctx context.Context) (Purged, error) {
	return s.drop(ctx, "the audit trail", `select purge_audit_log()`, nil)
}

const purgeAuditEntriesSQL = `select deleted, pages from purge_audit_entries($1::text::tid, $2::text::tid)`

// PurgeAuditEntries deletes, of the next pages, the entries older than 400 days from what was written before the trail had months.
func (s *Store) PurgeAuditEntries(ctx context.Context, at *Sweep) (Purged, error) {
	return s.sweep(ctx, "the audit trail", purgeAuditEntriesSQL, at)
}

// TendSearchIndexes puts what is new in links into the search indexes, so that no create has to and searches need not look through
// it. Any number of processes may run it at once.
func (s *Store) TendSearchIndexes(ctx context.Context) error {
	return retry("tend the search indexes", func() error {
		_, err := s.pool.Exec(ctx, `select tend_search_indexes()`)
		return err
	})
}
