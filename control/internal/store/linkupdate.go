package store

import (
	"context"

	"github.com/jackc/pgx/v5"

	"deeplink/shared/catalog"
)

// foundLink is the link that a write changes, as it is under the lock.
type foundLink struct {
	found bool
	link  catalog.LinkWithDomain
	// changedXID is the last transaction that changed what edges serve of the link.
	changedXID uint64
}

// queue locks and reads the link in the batch.
func (f *foundLink) queue(batch *pgx.Batch, s *Store, orgID string, target LinkRef) {
	sql, id := lockLinkSQL, target.ID
	if target.ExternalID != "" {
		sql, id = lockLinkByExternalIDSQL, target.ExternalID
	}
	batch.Queue(sql, orgID, id).QueryRow(func(row pgx.Row) (err error) {
		f.link, f.changedXID, err = s.scanLink(row)
		f.found = err == nil
		return unlessMissing(err)
	})
}

// updateLink updates a link: one round trip locks the organization's links and the link, and checks that the new domain exists and the new
// code and external id are free.
func (s *Store) updateLink(ctx context.Context, tx *transaction, w Write, o Operation, _ string, render Render, out *Written) error {
	var wanted catalog.Link // what the patch sets, and nothing else
	o.Patch.Apply(&wanted)
	var old foundLink
	var target targetDomain
	var codeTaken, externalIDTaken bool
	_, repeated, err := start(ctx, tx, w, false, out, func(batch *pgx.Batch) {
		old.queue(batch, s, w.OrganizationID, o.Target)
		// A patch without a domain looks up the default domain, whose result is not used.
		target.queue(batch, w.OrganizationID, wanted.DomainID)
		if wanted.ShortCode != "" {
			batch.Queue(codeTakenSQL, w.OrganizationID, wanted.ShortCode, o.Target.ID).QueryRow(func(row pgx.Row) error { return row.Scan(&codeTaken) })
		}
		if wanted.ExternalID != nil {
			batch.Queue(externalIDTakenSQL, w.OrganizationID, *wanted.ExternalID, o.Target.ID).QueryRow(func(row pgx.Row) error { return row.Scan(&externalIDTaken) })
		}
	})
	if err != nil || repeated {
		return err
	}
	if !old.found {
		return ErrNotFound
	}
	if err := o.meets(old.link.ETag()); err != nil {
		return err
	}
	return s.patchLink(ctx, tx, w, old, o.Patch, target, codeTaken, externalIDTaken, render, out)
}

// meets checks the condition of the operation.
func (o Operation) meets(etag string) error {
	if o.Condition == nil {
		return nil
	}
	return o.Condition(etag)
}

// patchLink applies the patch to a link that start has locked, and finishes the transaction. target, codeTaken and externalIDTaken are about
// what the patch sets.
func (s *Store) patchLink(
	ctx context.Context, tx *transaction, w Write, old foundLink, p catalog.Patch, target targetDomain, codeTaken, externalIDTaken bool, render Render, out *Written,
) error {
	before, after := old.link.Link, old.link.Link
	p.Apply(&after)
	moves := after.DomainID != before.DomainID
	switch {
	case moves && !target.found:
		return ErrDomainNotFound
	case codeTaken:
		return ErrShortCodeTaken
	case externalIDTaken:
		return ErrLinkExternalIDTaken
	case moves:
		after.DomainID = target.domain.ID
	}
	fields, err := differences(before, after)
	if err != nil {
		return err
	}
	if fields != nil {
		return s.replaceLink(ctx, tx, w, after, fields, render, out)
	}
	if out.Response, err = render(old.link, Unchanged); err != nil {
		return err
	}
	var batch pgx.Batch
	w.store(&batch, *out, old.changedXID, false)
	out.Change, err = tx.finishRepeatBatch(ctx, &batch, old.changedXID)
	return err
}

// replaceLink writes the row of a link, reads it back and finishes the transaction, in one round trip, or in two with a key, because the
// response is stored with what was read. fields are the changed fields.
func (s *Store) replaceLink(ctx context.Context, tx *transaction, w Write, l catalog.Link, fields []string, render Render, out *Written) error {
	var updated foundLink
	batch := new(pgx.Batch)
	batch.Queue(updateLinkSQL, append([]any{l.OrganizationID, l.ID}, linkArguments(l)...)...)
	batch.Queue(linkSQL, l.OrganizationID, l.ID).QueryRow(func(row pgx.Row) (err error) {
		updated.link, updated.changedXID, err = s.scanLink(row)
		return err
	})
	if w.Key != nil {
		if err := tx.SendBatch(ctx, batch).Close(); err != nil {
			return err
		}
		batch = new(pgx.Batch)
		var err error
		if out.Response, err = render(updated.link, Updated); err != nil {
			return err
		}
		w.store(batch, *out, updated.changedXID, false)
	}
	queueLastChange(batch, &out.Change, l.OrganizationID, l.ID)
	if err := tx.commit(ctx, batch, linkEntry(LinkUpdated, l, fields)); err != nil || w.Key != nil {
		return err
	}
	var err error
	out.Response, err = render(updated.link, Updated)
	return err
}
