package store

import (
	"context"

	"github.com/jackc/pgx/v5"

	"deeplink/shared/catalog"
)

// Requirement says what a write requires of its organization, for example a feature of its plan. The store calls it with the organization's
// row, read under the lock that SetPlan and SetSuspended also take. If it fails, nothing is written, and the write returns an error that
// wraps its error. A write that an earlier plan allowed is therefore committed before SetPlan returns.
type Requirement func(catalog.Organization) error

// Unconditional is the Requirement of writes that are allowed for every organization: those of operators and of background jobs.
func Unconditional(catalog.Organization) error { return nil }

const lockOrganizationSQL = organizationByIDSQL + ` for no key update`

// lockOrganization makes the transaction the only one that changes keys, domains, app config or plan of the organization. Errors:
// ErrNotFound when it does not exist, and that of require.
func lockOrganization(ctx context.Context, tx *transaction, orgID string, require Requirement) error {
	var o catalog.Organization
	var batch pgx.Batch
	batch.Queue(lockOrganizationSQL, orgID).QueryRow(func(row pgx.Row) error { return row.Scan(organizationFields(&o)...) })
	if err := tx.SendBatch(ctx, &batch).Close(); err != nil {
		return err
	}
	return require(o)
}

const lockUsageSQL = `select links from link_usage where organization_id = $1 for no key update`

// lockedLinks is the state of the organization that a writer of links has read under the lock.
type lockedLinks struct {
	organization catalog.Organization
	used         int64
	// isFirst and isStored are set for a request with an idempotency key: it has the lock of the key, or there is a stored response.
	isFirst, isStored bool
	stored            storedResponse
}

// queue adds to the batch the lock on the organization's links, and a read of the organization. The read is a separate statement: the
// statement that waits for the lock would return the plan from before the wait. The batch fails with ErrNotFound when the organization does
// not exist.
func (l *lockedLinks) queue(batch *pgx.Batch, orgID string) {
	batch.Queue(lockUsageSQL, orgID).QueryRow(func(row pgx.Row) error { return row.Scan(&l.used) })
	batch.Queue(organizationByIDSQL, orgID).QueryRow(func(row pgx.Row) error { return row.Scan(organizationFields(&l.organization)...) })
}

// queueFor is queue for a write that may have an idempotency key. Unless the request is the first one with its key, it locks nothing.
func (l *lockedLinks) queueFor(batch *pgx.Batch, w Write) {
	if w.Key == nil {
		l.queue(batch, w.OrganizationID)
		return
	}
	batch.Queue(lockUsageByKeySQL, w.OrganizationID, w.Key.Scope[:], w.Key.lockID(w.OrganizationID)).QueryRow(scanIfFound(&l.isFirst, &l.used))
	batch.Queue(organizationByIDSQL, w.OrganizationID).QueryRow(func(row pgx.Row) error { return row.Scan(organizationFields(&l.organization)...) })
	// A statement of its own: it sees what the request that had the lock before has committed.
	queueStored(batch, w, &l.isStored, &l.stored)
}

// admit checks what queueFor has read: first the requirement, then the idempotency key. If repeated, the transaction has ended, and out is
// the response. Errors: that of the requirement, ErrKeyReused, errKeyHeld.
func (l *lockedLinks) admit(ctx context.Context, tx *transaction, w Write, out *Written) (repeated bool, err error) {
	if err := w.Require(l.organization); err != nil {
		return false, err
	}
	switch {
	case w.Key == nil, l.isFirst && !l.isStored:
		return false, nil
	case !l.isStored:
		return false, errKeyHeld
	}
	*out, err = l.stored.replay(ctx, tx, w)
	return true, err
}

// full reports whether more further links would exceed the quota of the plan.
func (l *lockedLinks) full(more int64) bool {
	quota := terms(l.organization).Links
	return quota != catalog.Unlimited && l.used+more >= quota
}

// lockLinks makes the transaction the only writer of the organization's links, and returns how many there are. Every write of links begins
// with it: that makes the quota exact, and writers cannot deadlock, not even two that swap their codes. Errors: ErrNotFound when the
// organization does not exist, and that of require.
func lockLinks(ctx context.Context, tx *transaction, orgID string, require Requirement) (l lockedLinks, err error) {
	var batch pgx.Batch
	l.queue(&batch, orgID)
	if err := tx.SendBatch(ctx, &batch).Close(); err != nil {
		return l, err
	}
	return l, require(l.organization)
}
