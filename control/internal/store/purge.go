package store

import (
	"context"

	"deeplink/shared/feed"
)

// Snapshot returns what is finished now. Kept for ten minutes, it is what [Store.PurgeBefore] needs.
func (s *Store) Snapshot(ctx context.Context) (snapshot feed.Snapshot, err error) {
	err = retry("read the snapshot", func() error {
		var text string
		if err := s.pool.QueryRow(ctx, `select pg_current_snapshot()::text`).Scan(&text); err != nil {
			return err
		}
		snapshot, err = feed.ParseSnapshot(text)
		return err
	})
	return snapshot, err
}

const purgeChangesSQL = `delete from changes where xid < $1`

const purgeDeletedLinksSQL = `delete from deleted_links where xid < $1`

// The margin of an hour over the 24 of a match token (decisions.md 4) is for clocks that differ.
const purgeRedemptionsSQL = `delete from match_redemptions where matched_at < now() - interval '25 hours'`

// PurgeBefore drops the changes and deletions that were finished before everything which ran at the time of the snapshot,
// and the redemptions of match tokens that have expired since. Any number of processes may run it at once.
func (s *Store) PurgeBefore(ctx context.Context, snapshot feed.Snapshot) error {
	return retry("purge", func() error {
		for _, sql := range []string{purgeChangesSQL, purgeDeletedLinksSQL} {
			if _, err := s.pool.Exec(ctx, sql, snapshot.Xmin()); err != nil {
				return err
			}
		}
		_, err := s.pool.Exec(ctx, purgeRedemptionsSQL)
		return err
	})
}

// TendSearchIndexes puts what is new in links into the search indexes, so that no create has to and searches need not look through
// it. Any number of processes may run it at once.
func (s *Store) TendSearchIndexes(ctx context.Context) error {
	return retry("tend the search indexes", func() error {
		_, err := s.pool.Exec(ctx, `select tend_search_indexes()`)
		return err
	})
}
