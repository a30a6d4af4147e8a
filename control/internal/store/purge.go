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
	Rows int64 // number of deleted rows
	// Done: nothing more to delete for now.
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

// adapt returns nil for a statement that timed out and can be retried with fewer rows.
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

// errSmaller: the statement timed out, and the next one will be smaller.
var errSmaller = errors.New("the next statement is smaller")

// Sweep is the state of a purge that walks the table by pages: each step reads the next pages. Unlike an index scan, its cost depends
// neither on the number of rows to delete nor on dead rows that wait for vacuum. The zero Sweep starts with the first page. It is not safe
// for concurrent use.
type Sweep struct {
	page  int64 // the next page
	pages portion
}

// sweptPages is the number of pages per step. They hold at most about 60,000 rows.
const sweptPages = 500

// sweepSQL is the statement of a sweep. $1 and $2 are positions, and the parameters of the condition start with $3. It may refer to the row
// as t.
func sweepSQL(table, condition string) string {
	return `
	with gone as (delete from ` + table + ` t where ctid >= $1::text::tid and ctid < $2::text::tid and ` + condition + ` returning 1)
	select count(*), pg_relation_size('` + table + `') / current_setting('block_size')::bigint from gone`
}

// sweep does one step. Done: it reached the last page, and the next step starts with the first.
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
	// Rows that were added behind the last page meanwhile are not old.
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

// PurgeChanges deletes, from the next pages, the changes that were finished before every transaction that ran at the time of the point,
// unless the database's history has changed since. This and the other purges may run in several processes concurrently, each with its own
// sweep.
func (s *Store) PurgeChanges(ctx context.Context, at *Sweep, point feed.Point) (Purged, error) {
	return s.sweep(ctx, "changes", purgeChangesSQL, at, point.Snapshot.Xmin(), point.History)
}

// PurgeDeletedLinks is PurgeChanges for the table deleted_links.
func (s *Store) PurgeDeletedLinks(ctx context.Context, at *Sweep, point feed.Point) (Purged, error) {
	return s.sweep(ctx, "deleted links", purgeDeletedLinksSQL, at, point.Snapshot.Xmin(), point.History)
}

// PurgeDevices deletes, from the next pages, the devices that were not used for retention.
func (s *Store) PurgeDevices(ctx context.Context, at *Sweep, retention time.Duration) (Purged, error) {
	return s.sweep(ctx, "devices", purgeDevicesSQL, at, retention)
}

// PurgeIdentities deletes, from the next pages, the users that were not identified for retention and have no device.
func (s *Store) PurgeIdentities(ctx context.Context, at *Sweep, retention time.Duration) (Purged, error) {
	return s.sweep(ctx, "identities", purgeIdentitiesSQL, at, retention)
}

// Cursor is the state of a purge that deletes rows by their time, the oldest first. Each step continues where the last one ended, and so
// skips the dead rows before it. The zero Cursor starts with the oldest row. It is not safe for concurrent use.
type Cursor struct {
	at   time.Time
	rows portion
}

// purgedRows is the maximum number of rows per step.
const purgedRows = 10_000

// cursorSQL is the statement of a purge by time, for rows older than $1. It deletes rows by ctid: by their keys, Postgres might scan the
// whole table a second time. It first counts the rows that it found, because a concurrent purge may have deleted some of them, and more may
// follow.
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

// redemptionsKept is how long spent match tokens are kept. A token is valid for 24 hours; the additional hour allows for different clocks.
const redemptionsKept = 25 * time.Hour

// byTime does one step. Done: fewer rows were left than the maximum of a step, and they were deleted.
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

// PurgeSessions deletes some of the sessions that started longer ago than retention.
func (s *Store) PurgeSessions(ctx context.Context, from *Cursor, retention time.Duration) (Purged, error) {
	return s.byTime(ctx, "sessions", purgeSessionsSQL, from, retention)
}

// PurgeEventIDs deletes some of the ids of events that are older than dedupWindow.
func (s *Store) PurgeEventIDs(ctx context.Context, from *Cursor) (Purged, error) {
	return s.byTime(ctx, "ids of events", purgeEventIDsSQL, from, dedupWindow)
}

// PurgeRedemptions deletes some of the redemptions of match tokens that have expired.
func (s *Store) PurgeRedemptions(ctx context.Context, from *Cursor) (Purged, error) {
	return s.byTime(ctx, "redemptions", purgeRedemptionsSQL, from, redemptionsKept)
}

// dropPatience is how long the drop of a partition is retried while a query reads it. A query that reads it for longer is an export, and
// the next round starts in a minute.
const dropPatience = 2 * time.Second

// drop runs a function that drops at most one partition, and returns how much it deleted.
func (s *Store) drop(ctx context.Context, what, sql string, arguments []any) (done Purged, err error) {
	err = postgres.RetryLocks(ctx, dropPatience, func() error { return s.purge(ctx, what, sql, arguments, &done.Rows) })
	done.Done = done.Rows == 0
	return done, err
}

// PurgeEvents drops the oldest day of events if all of it is older than retention, which is at least a day. Days are in UTC. It fails while
// a query, such as an export, reads that day.
func (s *Store) PurgeEvents(ctx context.Context, retention time.Duration) (Purged, error) {
	return s.drop(ctx, "events", `select drop_event_partitions($1)`, []any{retention})
}

// PurgeAuditLog drops the oldest month of the audit trail if all of it is older than 400 days. Otherwise it deletes such entries from a
// random portion of the partition that predates the monthly ones. It fails while a query reads that month.
func (s *Store) PurgeAuditLog(ctx context.Context) (Purged, error) {
	return s.drop(ctx, "the audit trail", `select purge_audit_log()`, nil)
}

const purgeAuditEntriesSQL = `select deleted, pages from purge_audit_entries($1::text::tid, $2::text::tid)`

// PurgeAuditEntries deletes, from the next pages, the entries older than 400 days of the partition that predates the monthly ones.
func (s *Store) PurgeAuditEntries(ctx context.Context, at *Sweep) (Purged, error) {
	return s.sweep(ctx, "the audit trail", purgeAuditEntriesSQL, at)
}

// FlushSearchIndexes moves new links from the pending lists of the search indexes into the indexes, so that no create has to, and searches
// need not scan the lists. Several processes may run it concurrently.
func (s *Store) FlushSearchIndexes(ctx context.Context) error {
	return retry("flush the search indexes", func() error {
		_, err := s.pool.Exec(ctx, `select tend_search_indexes()`)
		return err
	})
}
