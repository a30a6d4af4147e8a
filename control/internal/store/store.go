// Package store is all the SQL of control: every read and every write of links, organizations, domains, keys and app
// configs, and of what phones report.
//
// It promises that a call has happened whole or not at all, that a quota is never exceeded, that nothing of one
// organization is seen or changed in the name of another, and that a change by an [Actor] is in the audit trail. What edges
// have to forget is written by the database's triggers; the store hands it on as a [feed.Change]. It does not tell edges
// anything, and does not judge plans, suspension or tiers.
//
// A Store may be used concurrently. Every call lives as long as its context allows; give each a deadline. Ids must be UUIDs
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
	actor    Actor
	tell     func(Recorded) // nil: nobody is told
	// longLists has room for those that may be read at once.
	longLists chan struct{}
}

// New returns the store over pool, whose role needs what migrations grant to deeplink_control. linkBase is LINK_BASE_URL
// without a trailing slash: the store fills in Link.URL and Domain.Host. The pool stays the caller's.
func New(pool *pgxpool.Pool, linkBase string) *Store {
	_, host, _ := strings.Cut(linkBase, "://")
	host, _, _ = strings.Cut(host, "/")
	return &Store{pool: pool, linkBase: linkBase, linkHost: host, longLists: make(chan struct{}, max(1, pool.Config().MaxConns/2))}
}

// transaction is one that writes, with what it adds to the audit trail.
type transaction struct {
	pgx.Tx
	recorded []Recorded
}

// write runs one transaction and commits it. It runs again, from the start, when Postgres chose the transaction as the
// victim of a deadlock.
func (s *Store) write(ctx context.Context, what string, statements func(*transaction) error) error {
	var t transaction
	err := retry(what, func() error {
		return s.in(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
			t = transaction{Tx: tx}
			return statements(&t)
		})
	})
	if err == nil && s.tell != nil {
		for _, r := range t.recorded {
			s.tell(r)
		}
	}
	return err
}

// snapshot runs reads which must agree with each other.
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
	// Also when f panics. After the commit it does nothing; an error means that the connection is gone, and the transaction with it.
	defer func() { _ = tx.Rollback(ctx) }()
	if err := f(tx); err != nil {
		return err
	}
	err = tx.Commit(ctx)
	if err != nil && postgres.Code(err) == "" {
		// Nobody knows whether it is committed, even if it was the caller who gave up.
		return fmt.Errorf("%w: commit: %w", ErrUnavailable, err)
	}
	return err
}

// changeRows joins what one transaction wrote into changes, as far as it was not purged.
const changeRows = `
	coalesce(max(c.id), 0), array_agg(distinct t.tag) filter (where t.tag is not null)
	from changes c left join lateral unnest(c.tags) as t (tag) on true`

const changeSQL = `select pg_current_xact_id(),` + changeRows + ` where c.xid = pg_current_xact_id()`

// byIndexSQL keeps what follows it in its transaction from reading whole tables. A plan that Postgres keeps from when there were few
// changes would read all of them, until it looks again: thousands, when many links are made.
const byIndexSQL = `set local enable_seqscan = off`

// queueChange queues what reads into c what the transaction made edges forget so far.
func queueChange(batch *pgx.Batch, c *feed.Change) {
	batch.Queue(byIndexSQL)
	batch.Queue(changeSQL).QueryRow(func(row pgx.Row) error { return row.Scan(&c.XID, &c.ID, &c.Tags) })
}

// change returns what the transaction made edges forget so far.
func change(ctx context.Context, tx pgx.Tx) (c feed.Change, err error) {
	var batch pgx.Batch
	queueChange(&batch, &c)
	err = tx.SendBatch(ctx, &batch).Close()
	return c, err
}

// Barrier returns a change of nothing. An edge that applied it applied everything that was committed before: for repeated calls
// that no longer know what the first one changed.
func (s *Store) Barrier(ctx context.Context) (c feed.Change, err error) {
	err = s.write(ctx, "make a barrier", func(tx *transaction) error {
		c, err = change(ctx, tx)
		return err
	})
	return c, err
}

const earlierChangeSQL = `select` + changeRows + ` where c.xid = $1`

// queueEarlierChange queues what reads into c what the earlier transaction c.XID made edges forget.
func queueEarlierChange(batch *pgx.Batch, c *feed.Change) {
	batch.Queue(byIndexSQL)
	batch.Queue(earlierChangeSQL, c.XID).QueryRow(func(row pgx.Row) error { return row.Scan(&c.ID, &c.Tags) })
}

// earlierChange returns what an earlier transaction made edges forget, so that a repeated call can tell them again and wait
// for what the first one waited for.
func earlierChange(ctx context.Context, tx pgx.Tx, xid uint64) (feed.Change, error) {
	c := feed.Change{XID: xid}
	var batch pgx.Batch
	queueEarlierChange(&batch, &c)
	err := tx.SendBatch(ctx, &batch).Close()
	return c, err
}
