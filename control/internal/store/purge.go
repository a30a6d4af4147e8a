package store

import (
	"context"
	"errors"
	"time"

	"deeplink/shared/feed"
	"deeplink/shared/postgres"
)

const pointSQL = `select pg_current_snapshot()::text, ` + postgres.History

// Point returns what is finished now. Kept for ten minutes, it is what [Store.PurgeBefore] needs.
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

// In a restored database the same numbers are those of new transactions, which edges have not asked for yet.
const sameHistorySQL = ` and $2 = ` + postgres.History

const purgeChangesSQL = `delete from changes where xid < $1` + sameHistorySQL

const purgeDeletedLinksSQL = `delete from deleted_links where xid < $1` + sameHistorySQL

// The margin of an hour over the 24 of a match token (decisions.md 4) is for clocks that differ.
const purgeRedemptionsSQL = `delete from match_redemptions where matched_at < now() - interval '25 hours'`

// PurgeBefore drops the changes and deletions that were finished before everything which ran at the time of the point, unless the
// database's history is another one by now, and the redemptions of match tokens that have expired since. Any number of processes
// may run it at once.
func (s *Store) PurgeBefore(ctx context.Context, point feed.Point) error {
	return retry("purge", func() error {
		for _, sql := range []string{purgeChangesSQL, purgeDeletedLinksSQL} {
			if _, err := s.pool.Exec(ctx, sql, point.Snapshot.Xmin(), point.History); err != nil {
				return err
			}
		}
		_, err := s.pool.Exec(ctx, purgeRedemptionsSQL)
		return err
	})
}

const dropPartitionsSQL = `select drop_event_partitions($1)`

// The rows are deleted by their places: by their keys Postgres may take a second look at the whole table. What is counted is what was
// found: others who purge at the same time may have deleted some of it, and still there may be more.
const (
	purgeSessionsSQL = `
		with old as materialized (select ctid from sessions where started_at < now() - $1::interval order by started_at limit $2),
			gone as (delete from sessions where ctid = any(array(select ctid from old)))
		select count(*) from old`
	purgeEventIDsSQL = `
		with old as materialized (select ctid from event_ids where received_at < now() - $1::interval order by received_at limit $2),
			gone as (delete from event_ids where ctid = any(array(select ctid from old)))
		select count(*) from old`
)

// purgedAtOnce bounds how many rows one statement of a purge deletes, so that it is short.
const purgedAtOnce = 10_000

// PurgeEvents drops events and sessions that are older than retention, a day at least, and the ids that need not be remembered any
// more. Events go by whole days (UTC). It goes on until nothing is left or ctx ends, which is no error. Any number of processes may
// run it at once.
func (s *Store) PurgeEvents(ctx context.Context, retention time.Duration) error {
	err := retry("drop old events", func() error {
		_, err := s.pool.Exec(ctx, dropPartitionsSQL, retention)
		return err
	})
	return errors.Join(err, s.purgeRows(ctx, purgeSessionsSQL, retention), s.purgeRows(ctx, purgeEventIDsSQL, dedupWindow))
}

func (s *Store) purgeRows(ctx context.Context, sql string, age time.Duration) error {
	for ctx.Err() == nil {
		var found int
		err := retry("purge what phones reported", func() error {
			return s.pool.QueryRow(ctx, sql, age, purgedAtOnce).Scan(&found)
		})
		if err != nil && ctx.Err() == nil {
			return err
		}
		if found < purgedAtOnce {
			return nil
		}
	}
	return nil
}

// TendSearchIndexes puts what is new in links into the search indexes, so that no create has to and searches need not look through
// it. Any number of processes may run it at once.
func (s *Store) TendSearchIndexes(ctx context.Context) error {
	return retry("tend the search indexes", func() error {
		_, err := s.pool.Exec(ctx, `select tend_search_indexes()`)
		return err
	})
}
