package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/sethvargo/go-retry"
)

// LockTimeout is the lock_timeout of statements that change the schema. While such a statement waits for its lock, Postgres queues every
// later conflicting statement on the table behind it, so LockTimeout is also how long a schema change can delay requests.
const LockTimeout = 2 * time.Second

// Codes of lost locks (PostgreSQL, appendix A).
const (
	LockNotAvailable = "55P03"
	DeadlockDetected = "40P01"
)

// LostLock reports whether err means that a statement did not get a lock: lock_timeout expired, or Postgres chose the statement as the
// victim of a deadlock. Its transaction changed nothing and may run again.
func LostLock(err error) bool {
	code := Code(err)
	return code == LockNotAvailable || code == DeadlockDetected
}

// The pauses between attempts: short at first, because most locks are held for milliseconds, and bounded, so that an attempt falls into a
// gap of a few seconds.
const (
	firstPause   = 100 * time.Millisecond
	longestPause = 5 * time.Second
	jitter       = 50 // percent
)

// RetryLocks calls f again while it fails for a lost lock ([LostLock]), with exponential backoff and jitter. It starts no attempt later
// than limit after the call, and returns the error of the last attempt, or that of ctx if ctx ends during a pause.
func RetryLocks(ctx context.Context, limit time.Duration, f func() error) error {
	backoff := retry.WithCappedDuration(longestPause, retry.NewExponential(firstPause))
	backoff = retry.WithMaxDuration(limit, retry.WithJitterPercent(jitter, backoff))
	return retry.Do(ctx, backoff, func(context.Context) error {
		err := f()
		if LostLock(err) {
			return retry.RetryableError(err)
		}
		return err
	})
}

// BoundLockWaits sets the lock_timeout of a connection to most, unless the connection string, the role or the database sets one. Statements
// that wait longer fail with LockNotAvailable. It runs a statement instead of setting a startup parameter, because PgBouncer rejects
// connections with startup parameters that its configuration does not list.
func BoundLockWaits(ctx context.Context, conn *pgx.Conn, most time.Duration) error {
	if _, set := conn.Config().RuntimeParams["lock_timeout"]; set {
		return nil
	}
	const set = `select set_config('lock_timeout', $1, false) where current_setting('lock_timeout') = '0'`
	if _, err := conn.Exec(ctx, set, fmt.Sprintf("%dms", most.Milliseconds())); err != nil {
		return fmt.Errorf("bound the waits for locks: %w", err)
	}
	return nil
}
