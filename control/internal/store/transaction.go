package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"deeplink/shared/feed"
	"deeplink/shared/postgres"
)

// transaction is a write transaction of an actor. "begin" is sent with its first batch and "commit" with its last, so that neither takes an
// extra round trip: other writers of the organization wait for every round trip between its locks and its commit. It must not be used after
// finish, and is not safe for concurrent use.
type transaction struct {
	conn  *pgx.Conn
	actor Actor
	// entries are the audit entries for the hook, which write calls after the commit.
	entries         []Recorded
	begun, finished bool
}

var (
	readCommitted = pgx.TxOptions{IsoLevel: pgx.ReadCommitted}

	errUnfinished = errors.New("transaction returned without finish")
	errFinished   = errors.New("statement after finish of its transaction")
)

// write runs one transaction on behalf of actor, which statements must end with finish, finishBatch or finishRepeat. It runs the
// transaction again, from the start, when Postgres chose it as the victim of a deadlock. What it changes belongs to the organization, in
// whose share it waits before it takes a connection.
func (s *Store) write(ctx context.Context, actor Actor, orgID, what string, statements func(*transaction) error) error {
	if actor == (Actor{}) {
		return fmt.Errorf("%s: %w", what, ErrNoActor)
	}
	leave, err := enter(ctx, s.shares.writes, orgID, what)
	if err != nil {
		return err
	}
	defer leave()
	return s.transact(ctx, actor, what, statements)
}

// transact is write for a caller that has a place in the organization's share.
func (s *Store) transact(ctx context.Context, actor Actor, what string, statements func(*transaction) error) error {
	var t transaction
	try := func() error {
		conn, err := s.pool.Acquire(ctx)
		if err != nil {
			return err
		}
		defer conn.Release()
		t = transaction{conn: conn.Conn(), actor: actor}
		defer t.rollback(ctx) // also when statements panic
		if err := statements(&t); err != nil {
			return err
		}
		if !t.finished {
			return errUnfinished
		}
		return nil
	}
	err := retry(what, try)
	if lacksPartition(err, "audit_log") {
		// control creates partitions half a year ahead, so no control has run for that long.
		if err := s.MakeAuditPartitions(ctx); err != nil {
			return err
		}
		err = retry(what, try)
	}
	if err == nil && s.auditHook != nil {
		for _, r := range t.entries {
			s.auditHook(r)
		}
	}
	return err
}

// rollback ends the transaction, unless it has ended.
func (tx *transaction) rollback(ctx context.Context) {
	if tx.conn.PgConn().TxStatus() == 'I' {
		return
	}
	// If this fails, the pool closes the connection, and with it the transaction.
	_, _ = tx.conn.Exec(ctx, "rollback")
}

// begin starts the transaction in an extra round trip, for a first statement that is not in a batch.
func (tx *transaction) begin(ctx context.Context) error {
	if tx.finished {
		return errFinished
	}
	if tx.begun {
		return nil
	}
	tx.begun = true
	var batch pgx.Batch
	batch.BeginTx(readCommitted)
	return tx.conn.SendBatch(ctx, &batch).Close()
}

// SendBatch sends the batch. The first one also begins the transaction.
func (tx *transaction) SendBatch(ctx context.Context, batch *pgx.Batch) pgx.BatchResults {
	if tx.finished {
		return pgx.FailedBatchResults(batch, errFinished)
	}
	return tx.send(ctx, batch)
}

func (tx *transaction) send(ctx context.Context, batch *pgx.Batch) pgx.BatchResults {
	if tx.begun {
		return tx.conn.SendBatch(ctx, batch)
	}
	tx.begun = true
	var first pgx.Batch
	first.BeginTx(readCommitted)
	first.QueuedQueries = append(first.QueuedQueries, batch.QueuedQueries...)
	return tx.conn.SendBatch(ctx, &first)
}

// Exec runs a statement in an extra round trip.
func (tx *transaction) Exec(ctx context.Context, sql string, arguments ...any) (pgconn.CommandTag, error) {
	if err := tx.begin(ctx); err != nil {
		return pgconn.CommandTag{}, err
	}
	return tx.conn.Exec(ctx, sql, arguments...)
}

// Query runs a query in an extra round trip.
func (tx *transaction) Query(ctx context.Context, sql string, arguments ...any) (pgx.Rows, error) {
	if err := tx.begin(ctx); err != nil {
		return nil, err
	}
	return tx.conn.Query(ctx, sql, arguments...)
}

// QueryRow runs a query for one row in an extra round trip.
func (tx *transaction) QueryRow(ctx context.Context, sql string, arguments ...any) pgx.Row {
	if err := tx.begin(ctx); err != nil {
		return failedRow{err}
	}
	return tx.conn.QueryRow(ctx, sql, arguments...)
}

// failedRow is the row of a query that could not be sent.
type failedRow struct{ err error }

func (r failedRow) Scan(...any) error { return r.err }

// CopyFrom copies rows into a table.
func (tx *transaction) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, rows pgx.CopyFromSource) (int64, error) {
	if err := tx.begin(ctx); err != nil {
		return 0, err
	}
	return tx.conn.CopyFrom(ctx, table, columns, rows)
}

// finish records the audit entry, commits, and returns the change for the edges, in one round trip. The zero entry records nothing: for a
// call that changes nothing.
func (tx *transaction) finish(ctx context.Context, e entry) (c feed.Change, err error) {
	var batch pgx.Batch
	return tx.finishBatch(ctx, &batch, e)
}

// finishBatch is finish in the round trip of the transaction's last batch. Either all of its statements and the entry are committed, or
// none is: after a failed statement Postgres skips the rest of the batch, including the commit. For Postgres a missing row is not a
// failure, so it does not prevent the commit: check for it in an earlier batch.
func (tx *transaction) finishBatch(ctx context.Context, batch *pgx.Batch, e entry) (c feed.Change, err error) {
	queueChange(batch, &c)
	err = tx.commit(ctx, batch, e)
	return c, err
}

// finishRepeat is finish for a transaction that changed nothing. It returns the change of the earlier transaction xid, so that a repeated
// call waits for the same edges as the first one.
func (tx *transaction) finishRepeat(ctx context.Context, xid uint64) (feed.Change, error) {
	var batch pgx.Batch
	return tx.finishRepeatBatch(ctx, &batch, xid)
}

// finishRepeatBatch is finishRepeat in the round trip of the transaction's last batch.
func (tx *transaction) finishRepeatBatch(ctx context.Context, batch *pgx.Batch, xid uint64) (feed.Change, error) {
	c := feed.Change{XID: xid}
	queueEarlierChange(batch, &c)
	err := tx.commit(ctx, batch, entry{})
	return c, err
}

// commit records the entry and commits, in the round trip of the batch.
func (tx *transaction) commit(ctx context.Context, batch *pgx.Batch, e entry) error {
	if tx.finished {
		return errFinished
	}
	if err := tx.record(batch, e); err != nil {
		return err
	}
	batch.Queue("commit").Exec(func(tag pgconn.CommandTag) error {
		if tag.String() != "COMMIT" {
			return pgx.ErrTxCommitRollback
		}
		return nil
	})
	tx.finished = true
	err := tx.send(ctx, batch).Close()
	var unsent pgx.ErrPreprocessingBatch
	if err != nil && postgres.Code(err) == "" && !errors.As(err, &unsent) {
		// The transaction may be committed or not, also if the caller's context ended.
		return fmt.Errorf("%w: commit: %w", ErrUnavailable, err)
	}
	return err
}
