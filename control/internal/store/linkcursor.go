package store

import (
	"context"
	"crypto/rand"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"deeplink/shared/catalog"
)

// LinkPosition is a place in a list of links: behind the link that was created at this time and has this id. The link need not exist.
type LinkPosition struct {
	CreatedAt time.Time
	ID        string
}

// LinksAfter returns the links that match and follow the position, the newest first, at most f.Limit of them. more reports whether others
// follow. A nil position is before the newest link. f.Page is not used. With total, it also counts all matches, in the same snapshot. A list
// without filters, or with exactly one of channel, domain and external id, costs the same at every position; any other waits for the
// organization's share of such lists.
func (s *Store) LinksAfter(
	ctx context.Context, orgID string, f LinkFilter, after *LinkPosition, withTotal bool,
) (links []catalog.LinkWithDomain, more bool, total int64, err error) {
	f.Page = 1
	indexed := f.indexed()
	if !indexed || withTotal && f.long() {
		leave, err := enter(ctx, s.shares.lists, orgID, "list links")
		if err != nil {
			return nil, false, 0, err
		}
		defer leave()
	}
	err = s.snapshot(ctx, "list links", func(tx pgx.Tx) error {
		links = []catalog.LinkWithDomain{}
		rare := ""
		if !indexed {
			if rare, err = rareWord(ctx, tx, orgID, f.Search); err != nil {
				return err
			}
		}
		l := newListing(orgID, f, rare)
		var all int64
		if withTotal || !indexed {
			sql, arguments := l.count()
			if err := tx.QueryRow(ctx, sql, arguments...).Scan(&all, &total, &l.found); err != nil {
				return err
			}
		}
		sql, arguments := l.after(after, indexed, all, total)
		rows, err := tx.Query(ctx, sql, arguments...)
		if err != nil {
			return err
		}
		links, err = pgx.AppendRows(links, rows, func(row pgx.CollectableRow) (catalog.LinkWithDomain, error) {
			link, _, err := s.scanLink(row)
			return link, err
		})
		return err
	})
	if err != nil {
		return nil, false, 0, err
	}
	if more = len(links) > f.Limit; more {
		links = links[:f.Limit]
	}
	return links, more, total, nil
}

// indexed reports whether an index has the matching links in the order of the list.
func (f LinkFilter) indexed() bool {
	equal := 0
	for _, value := range []string{f.Channel, f.DomainID, f.ExternalID} {
		if value != "" {
			equal++
		}
	}
	return equal <= 1 && f.IsActive == nil && f.Search+f.Tag == ""
}

// after returns the query for a page that follows the position, and for one link more. Of a list that no index has, all and total are as for
// page.
func (l *listing) after(position *LinkPosition, indexed bool, all, total int64) (sql string, arguments []any) {
	chosen, arguments := `select l.id from links l where `+l.where, l.arguments
	switch {
	case l.found != nil:
		chosen, arguments = `select l.id from links l where l.id = any ($1)`, []any{l.found}
	case !indexed && total < l.length*all/max(total, 1):
		chosen = `with matching as materialized (select l.id, l.created_at from links l where ` + l.where + `) select l.id from matching l where true`
	}
	if position != nil {
		n := len(arguments)
		chosen += fmt.Sprintf(` and (l.created_at, l.id) < ($%d, $%d::uuid)`, n+1, n+2)
		arguments = append(arguments, position.CreatedAt, position.ID)
	}
	chosen += fmt.Sprintf(` order by l.created_at desc, l.id desc limit $%d`, len(arguments)+1)
	sql = `select ` + linkColumns + ` from ` + linkTables + ` where l.id = any (array(` + chosen + `)) order by l.created_at desc, l.id desc`
	return sql, l.withPlan(append(arguments, l.length+1))
}

// CursorKeySize is the size of the key of [Store.CursorKey] in bytes.
const CursorKeySize = 32

const (
	addCursorKeySQL = `insert into signing_keys (name, key) values ('cursor', $1) on conflict (name) do nothing`
	cursorKeySQL    = `select key from signing_keys where name = 'cursor'`
)

// CursorKey returns the key that authenticates cursors. It is the same for all controls of a database, and never changes: the first call ever
// generates it.
func (s *Store) CursorKey(ctx context.Context) ([]byte, error) {
	if key := s.cursorKey.Load(); key != nil {
		return *key, nil
	}
	var key []byte
	err := retry("read the key of cursors", func() error {
		var found bool
		if err := scanIfFound(&found, &key)(s.pool.QueryRow(ctx, cursorKeySQL)); err != nil || found {
			return err
		}
		generated := make([]byte, CursorKeySize)
		rand.Read(generated) // never fails, by its contract
		if _, err := s.pool.Exec(ctx, addCursorKeySQL, generated); err != nil {
			return err
		}
		return s.pool.QueryRow(ctx, cursorKeySQL).Scan(&key)
	})
	if err != nil {
		return nil, err
	}
	s.cursorKey.Store(&key)
	return key, nil
}

// cachedKey is a key that has been read from the database.
type cachedKey = atomic.Pointer[[]byte]
