// Package store holds all SQL of control: reads and writes of links, organizations, domains, keys, app configs and the data that apps report
// through the SDK. Each noun has its files; the statements on links are in linksql.go.
//
// It promises that a call takes effect completely or not at all, that a quota is never exceeded, that a call for one organization never
// reads or changes data of another one, and that every change has an [Actor]: without its entry in the audit trail a change is not
// committed. Triggers of the database record what edges must void; the store returns it as a [feed.Change] and sends nothing to edges. The
// store checks the plan's quota of links. Every other condition on the organization is the caller's [Requirement].
//
// A Store is safe for concurrent use. A call ends with its context, so every context needs a deadline. Ids must be UUIDs
// (catalog.ValidUUID), text must be UTF-8 without U+0000.
package store

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"deeplink/shared/feed"
	"deeplink/shared/postgres"
)

// Store reads and writes the catalog of one database.
type Store struct {
	pool     *pgxpool.Pool
	linkBase string
	linkHost string
	// extraHosts are the other names of the shared host.
	extraHosts []string
	// auditHook may be nil.
	auditHook func(Recorded)
	shares    *shares
	cursorKey *cachedKey
	keys      *keyLookups
}

// New returns the store over pool, whose role needs what migrations grant to deeplink_control. linkBase is LINK_BASE_URL
// without a trailing slash: the store fills in Link.URL and Domain.Host. extraHosts are the other names of the shared host, in lower case
// and without a trailing dot; like the host of linkBase, none of them can be a custom domain. The caller owns the pool.
func New(pool *pgxpool.Pool, linkBase string, extraHosts ...string) *Store {
	_, host, _ := strings.Cut(linkBase, "://")
	host, _, _ = strings.Cut(host, "/")
	connections := int(pool.Config().MaxConns)
	s := &Store{pool: pool, linkBase: linkBase, linkHost: host, extraHosts: extraHosts, shares: newShares(connections), cursorKey: new(cachedKey)}
	s.keys = newKeyLookups(s, connections)
	return s
}

// snapshot runs reads in one snapshot.
func (s *Store) snapshot(ctx context.Context, what string, reads func(pgx.Tx) error) error {
	return retry(what, func() error {
		return s.in(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, reads)
	})
}

func (s *Store) in(ctx context.Context, options pgx.TxOptions, f func(pgx.Tx) error) error {
	tx, err := s.pool.BeginTx(ctx, options)
	if err != nil {
		return err
	}
	// This also runs when f panics, and does nothing after a commit. An error means that the connection is lost, and the transaction with it.
	defer func() { _ = tx.Rollback(ctx) }()
	if err := f(tx); err != nil {
		return err
	}
	err = tx.Commit(ctx)
	if err != nil && postgres.Code(err) == "" {
		// The transaction may be committed or not, also if the caller's context ended.
		return fmt.Errorf("%w: commit: %w", ErrUnavailable, err)
	}
	return err
}

// changeRows selects the rows of changes that one transaction wrote and that were not purged, joined into one.
const changeRows = `
	coalesce(max(c.id), 0), array_agg(distinct t.tag) filter (where t.tag is not null)
	from changes c left join lateral unnest(c.tags) as t (tag) on true`

const changeSQL = `select pg_current_xact_id(),` + changeRows + ` where c.xid = pg_current_xact_id()`

// byIndexSQL disables sequential scans for the rest of the transaction. Without it Postgres keeps using a cached plan from when the table
// was small, which reads the whole table: thousands of rows while many links are created.
const byIndexSQL = `set local enable_seqscan = off`

// queueChange queues statements that read into c the changes of the current transaction so far.
func queueChange(batch *pgx.Batch, c *feed.Change) {
	batch.Queue(byIndexSQL)
	batch.Queue(changeSQL).QueryRow(func(row pgx.Row) error { return row.Scan(&c.XID, &c.ID, &c.Tags) })
}

// Barrier returns a change without tags and modifies nothing. An edge that has applied it has applied everything that was committed before.
// It is for repeated calls that cannot find out what the first call changed. It takes no locks, so it needs no share of the connections.
func (s *Store) Barrier(ctx context.Context) (c feed.Change, err error) {
	err = retry("make a barrier", func() error {
		return s.in(ctx, readCommitted, func(tx pgx.Tx) error {
			var batch pgx.Batch
			queueChange(&batch, &c)
			return tx.SendBatch(ctx, &batch).Close()
		})
	})
	return c, err
}

const earlierChangeSQL = `select` + changeRows + ` where c.xid = $1`

// queueEarlierChange queues statements that read into c the change of the earlier transaction c.XID.
func queueEarlierChange(batch *pgx.Batch, c *feed.Change) {
	batch.Queue(byIndexSQL)
	batch.Queue(earlierChangeSQL, c.XID).QueryRow(func(row pgx.Row) error { return row.Scan(&c.ID, &c.Tags) })
}

// queueLastChange queues statements that read into c the last change of what edges serve of the link. It is from an earlier transaction if
// the current one only changed fields that edges do not serve, such as the title.
func queueLastChange(batch *pgx.Batch, c *feed.Change, orgID, id string) {
	batch.Queue(byIndexSQL)
	batch.Queue(linkChangeSQL, orgID, id).QueryRow(func(row pgx.Row) error { return row.Scan(&c.XID, &c.ID, &c.Tags) })
}

// earlierChange returns the change of an earlier transaction, so that a repeated call can send its hint again and wait for the same edges.
func earlierChange(ctx context.Context, tx pgx.Tx, xid uint64) (feed.Change, error) {
	c := feed.Change{XID: xid}
	var batch pgx.Batch
	queueEarlierChange(&batch, &c)
	err := tx.SendBatch(ctx, &batch).Close()
	return c, err
}
