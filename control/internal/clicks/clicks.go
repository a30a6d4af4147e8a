// Package clicks turns the batches that edges ship into figures, and serves them. README.md in this folder is the protocol.
//
// It promises that each click of a batch is counted exactly once, with any number of controls that are killed at any moment, that a figure
// about the time before asOf changes only by late clicks, by a reclassification or by an edit of a link, and that asOf, missing and the
// figures of one response are from one snapshot.
package clicks

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"deeplink/shared/click"
)

const (
	// Quarter is the resolution of the figures.
	Quarter = 15 * time.Minute
	day     = 24 * time.Hour
	// QuartersKept is for how long figures per quarter exist; older ones exist per day only.
	QuartersKept = 400 * day
	// maxVisitorSet is the size up to which the visitors of a day are counted exactly.
	maxVisitorSet = 1_000_000
	// visitorsKept is for how long after a day its visitors are kept at least.
	visitorsKept = 48 * time.Hour

	// MinRetention, MaxRetention bound CLICKS_RETENTION.
	MinRetention, MaxRetention = 0 * time.Hour, 9600 * time.Hour
)

// Click is a click as edges store it, with its class by the rules of this control.
type Click struct {
	Position
	OrgKey   string
	LinkID   uuid.NullUUID
	Outcome  click.Outcome
	Reason   click.Reason
	Ruleset  int16
	Evidence click.Evidence
	AgentID  *int32 // nil: the request had no User-Agent
	Country  *string
	Language *string
	Referrer *string
	Visitor  *int64
	Late     bool
}

// Position is a place in the order of clicks: by time, then by id. It identifies a click.
type Position struct {
	At                time.Time
	Log               uuid.UUID
	Sequence, Ordinal int32
}

// bounds of transactions of jobs. A statement of a job takes at most 10 s; a control that stopped in a transaction loses it after 5 s, so
// that another one continues its work.
const boundsSQL = `
	select set_config('statement_timeout', '10s', true), set_config('lock_timeout', '5s', true), set_config('idle_in_transaction_session_timeout', '5s', true),
	       set_config('enable_seqscan', 'off', true)`

// beginner starts transactions: a pool or a connection.
type beginner interface {
	BeginTx(context.Context, pgx.TxOptions) (pgx.Tx, error)
}

// within runs f in a transaction of a job, and commits it.
func within(ctx context.Context, on beginner, f func(pgx.Tx) error) error {
	tx, err := on.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
	if err != nil {
		return err
	}
	defer tx.Rollback(context.WithoutCancel(ctx)) // does nothing after a commit
	if _, err := tx.Exec(ctx, boundsSQL); err != nil {
		return err
	}
	if err := f(tx); err != nil {
		return err
	}
	if err := tx.Commit(ctx); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	return nil
}

// dayOf returns the start of the day (UTC) of a time.
func dayOf(at time.Time) time.Time { return at.UTC().Truncate(day) }

// keptFrom returns the first day whose clicks are kept. Without retention that is tomorrow: no click is kept after its roll-up.
func keptFrom(now time.Time, retention time.Duration) time.Time {
	if retention == 0 {
		return dayOf(now).Add(day)
	}
	return dayOf(now.Add(-retention))
}

// visitorsFrom returns the first day whose visitors are kept.
func visitorsFrom(now time.Time, retention time.Duration) time.Time {
	return keptFrom(now, max(retention, visitorsKept))
}

// pools of this package: jobs and requests have connections of their own.
const (
	// JobConnections is the number of connections of the jobs of a control.
	JobConnections = 2
	// RequestConnections is the number of connections for requests of figures.
	RequestConnections = 6
)

var _ beginner = (*pgxpool.Pool)(nil)
