package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"deeplink/shared/catalog"
	"deeplink/shared/feed"
)

// BulkOperation is one operation of a bulk write.
type BulkOperation struct {
	Operation
	// Err says why the operation is malformed. It is its outcome then. Nil: it is well formed.
	Err error
}

// BulkOutcome is the outcome of one operation of a bulk write: what it did, with the link afterwards, or an error of [Store.WriteLink].
type BulkOutcome struct {
	Result Result
	// Link is the link as it is after the operation. Of a deleted one only the ids and the short code are of use.
	Link catalog.LinkWithDomain
	Err  error
}

// RenderBulk returns the response to a bulk write, given an outcome for each operation.
type RenderBulk func([]BulkOutcome) (Response, error)

// FailedOperation is the error of an atomic bulk write of which nothing was written: the first operation that failed.
type FailedOperation struct {
	Index int
	Err   error
}

func (e *FailedOperation) Error() string { return fmt.Sprintf("operation %d: %v", e.Index, e.Err) }

// Unwrap returns the error of the operation.
func (e *FailedOperation) Unwrap() error { return e.Err }

// bulkTries bounds how often a bulk write starts again because a writer that takes no lock, such as psql, took a code, an external id or a
// domain between its checks and its writes.
const bulkTries = 3

// WriteLinks runs the operations in order, in one transaction, as if each were a call of [Store.WriteLink] and no other writer came in
// between. It returns an outcome for each, none for a repeated request. If atomic, the first operation that fails undoes all, and the error
// is a FailedOperation. Other errors are that of the requirement, ErrKeyReused and ErrKeyInProgress; then nothing was written.
func (s *Store) WriteLinks(
	ctx context.Context, actor Actor, w Write, operations []BulkOperation, atomic bool, render RenderBulk,
) (out Written, outcomes []BulkOutcome, err error) {
	for range bulkTries {
		err = s.writeLinks(ctx, actor, w, "write links", func(tx *transaction) error {
			b := newBulk(s, tx, w, operations)
			out, outcomes = Written{}, nil
			repeated, err := b.start(ctx, &out)
			if err != nil || repeated {
				return err
			}
			outcomes = b.outcomes
			return b.run(ctx, atomic, render, &out)
		})
		var failed *FailedOperation
		interrupted := errors.Is(err, ErrShortCodeTaken) || errors.Is(err, ErrLinkExternalIDTaken) || errors.Is(err, ErrDomainNotFound)
		if !interrupted || errors.As(err, &failed) {
			break
		}
	}
	if err != nil {
		return Written{}, nil, err
	}
	return out, outcomes, nil
}

// run runs the operations and commits.
func (b *bulk) run(ctx context.Context, atomic bool, render RenderBulk, out *Written) (err error) {
	for i := range b.operations {
		if err := b.apply(ctx, i); err != nil {
			return err
		}
		if failed := b.outcomes[i].Err; atomic && failed != nil {
			return &FailedOperation{i, failed}
		}
	}
	if err := b.flush(ctx); err != nil {
		return err
	}
	if err := b.findDeleted(ctx); err != nil {
		return err
	}
	if err := b.tx.recordEntries(ctx, b.entries); err != nil {
		return err
	}
	if out.Response, err = render(b.outcomes); err != nil {
		return err
	}
	out.IsCreate = b.onlyCreates()
	var batch pgx.Batch
	b.w.store(&batch, *out, 0, len(b.earlier) > 0)
	if b.wrote {
		queueChange(&batch, &out.Change)
	}
	err = b.tx.commit(ctx, &batch, entry{})
	delete(b.earlier, out.Change.XID)
	if out.Change.ID == 0 {
		// The edges serve nothing of what was written, such as titles.
		out.Change = feed.Change{}
	}
	for xid := range b.earlier {
		out.Also = append(out.Also, xid)
	}
	return err
}

// onlyCreates reports whether at least one operation succeeded and each of those created a link.
func (b *bulk) onlyCreates() bool {
	succeeded := false
	for _, o := range b.outcomes {
		if o.Err == nil && o.Result != Created {
			return false
		}
		succeeded = succeeded || o.Err == nil
	}
	return succeeded
}

// flushed bounds the links of a statement that inserts or deletes. A trigger names the keys of at most 256 links, and otherwise all links of
// the organization, so that the edges would load every one of them again.
const flushed = 250

// flush writes what is pending. No two pending writes concern the same link, code or external id, so their order does not matter.
func (b *bulk) flush(ctx context.Context) error {
	if len(b.deleted)+len(b.updated)+len(b.created) == 0 {
		return nil
	}
	b.wrote = true
	if err := b.send(ctx, b.tx); err != nil {
		return err
	}
	for _, u := range b.updated {
		b.outcomes[u.operation].Link = u.link.link
		b.seen(u.link.changedXID)
	}
	b.created, b.updated, b.deleted = nil, nil, nil
	clear(b.touched)
	clear(b.releasedCodes)
	clear(b.releasedIDs)
	return nil
}

// send sends the statements of the pending writes, and reads what triggers set.
func (b *bulk) send(ctx context.Context, tx *transaction) error {
	var batch pgx.Batch
	for from := 0; from < len(b.deleted); from += flushed {
		batch.Queue(deleteLinksSQL, b.w.OrganizationID, b.deleted[from:min(from+flushed, len(b.deleted))])
	}
	for _, u := range b.updated {
		l := &u.link.link
		batch.Queue(updateLinkSQL+returningSQL, append([]any{l.OrganizationID, l.ID}, linkArguments(l.Link)...)...).QueryRow(func(row pgx.Row) error {
			return row.Scan(&l.Version, &l.UpdatedAt.Time, &u.link.changedXID)
		})
	}
	if batch.Len() > 0 {
		if err := tx.SendBatch(ctx, &batch).Close(); err != nil {
			return err
		}
	}
	for from := 0; from < len(b.created); from += flushed {
		if err := copyLinks(ctx, tx, b.created[from:min(from+flushed, len(b.created))]); err != nil {
			return err
		}
	}
	return nil
}

// findDeleted adds the deletions of the last minutes of links that operations did not find.
func (b *bulk) findDeleted(ctx context.Context) error {
	var ids, externalIDs []string
	for _, missing := range b.missing {
		if missing.ExternalID != "" {
			externalIDs = append(externalIDs, missing.ExternalID)
		} else {
			ids = append(ids, missing.ID)
		}
	}
	if len(b.missing) == 0 {
		return nil
	}
	rows, err := b.tx.Query(ctx, deletedLinksSQL, b.w.OrganizationID, ids, externalIDs)
	if err != nil {
		return err
	}
	var xid uint64
	_, err = pgx.ForEachRow(rows, []any{&xid}, func() error {
		b.earlier[xid] = struct{}{}
		return nil
	})
	return err
}

// recordEntries adds audit entries, in order, and reports them to the hook after the commit.
func (tx *transaction) recordEntries(ctx context.Context, entries []entry) error {
	if !tx.actor.recorded() || len(entries) == 0 {
		return nil
	}
	rows := make([][]any, len(entries))
	for i, e := range entries {
		id, row, err := auditRow(tx.actor, e)
		if err != nil {
			return err
		}
		rows[i] = row
		tx.entries = append(tx.entries, Recorded{id, tx.actor, e.action, e.organizationID, string(e.target), e.targetID})
	}
	_, err := tx.CopyFrom(ctx, pgx.Identifier{"audit_log"}, auditColumns, pgx.CopyFromRows(rows))
	return err
}
