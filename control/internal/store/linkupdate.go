package store

import (
	"context"

	"github.com/jackc/pgx/v5"

	"deeplink/shared/catalog"
	"deeplink/shared/feed"
)

// UpdateLink applies the patch and returns the row with URL. Errors: that of require, ErrNotFound, ErrDomainNotFound, ErrShortCodeTaken. If
// the patch changes nothing that edges serve (a new title, or the current values), the returned change is the last one that did, so that a
// repeated call waits for the same edges as the first one.
func (s *Store) UpdateLink(
	ctx context.Context, actor Actor, orgID string, require Requirement, id string, p catalog.Patch,
) (catalog.Link, feed.Change, error) {
	var updated catalog.Link
	var changed feed.Change
	err := s.write(ctx, actor, orgID, "update a link", func(tx *transaction) error {
		before, after, changedXID, err := s.patchLink(ctx, tx, orgID, require, id, p)
		if err != nil {
			return err
		}
		fields, err := differences(before, after)
		if err != nil {
			return err
		}
		if fields == nil {
			updated = before
			changed, err = tx.finishRepeat(ctx, changedXID)
			return err
		}
		updated, changed, err = s.replaceLink(ctx, tx, after, fields)
		return err
	})
	if err != nil {
		return catalog.Link{}, feed.Change{}, err
	}
	return updated, changed, nil
}

// patchLink starts a transaction that updates one link: in one round trip it locks the organization's links and the link, applies the patch,
// and checks that its domain exists and its code is free. changedXID is the last transaction that changed what edges serve of the link.
func (s *Store) patchLink(
	ctx context.Context, tx *transaction, orgID string, require Requirement, id string, p catalog.Patch,
) (before, after catalog.Link, changedXID uint64, err error) {
	var wanted catalog.Link // only what the patch sets
	p.Apply(&wanted)
	var locked lockedLinks
	var old catalog.LinkWithDomain
	var found, placed, taken bool
	var domainID string
	var batch pgx.Batch
	locked.queue(&batch, orgID)
	batch.Queue(lockLinkSQL, orgID, id).QueryRow(func(row pgx.Row) (err error) {
		old, changedXID, err = s.scanLink(row)
		found = err == nil
		return unlessMissing(err)
	})
	// A patch without a domain looks up the default domain, whose result is not used.
	batch.Queue(targetDomainSQL, orgID, orNull(wanted.DomainID)).QueryRow(scanIfFound(&placed, &domainID, new(*string)))
	if wanted.ShortCode != "" {
		batch.Queue(codeTakenSQL, orgID, wanted.ShortCode, id).QueryRow(func(row pgx.Row) error { return row.Scan(&taken) })
	}
	if err := tx.SendBatch(ctx, &batch).Close(); err != nil {
		return before, after, 0, err
	}
	if err := require(locked.organization); err != nil {
		return before, after, 0, err
	}
	before, after = old.Link, old.Link
	p.Apply(&after)
	moves := after.DomainID != before.DomainID
	switch {
	case !found:
		return before, after, 0, ErrNotFound
	case moves && !placed:
		return before, after, 0, ErrDomainNotFound
	case taken:
		return before, after, 0, ErrShortCodeTaken
	case moves:
		after.DomainID = domainID
	}
	return before, after, changedXID, nil
}

// replaceLink writes the row of a link, reads it back and finishes the transaction, in one round trip. fields are the changed fields.
func (s *Store) replaceLink(
	ctx context.Context, tx *transaction, l catalog.Link, fields []string,
) (updated catalog.Link, changed feed.Change, err error) {
	var batch pgx.Batch
	batch.Queue(updateLinkSQL, append([]any{l.OrganizationID, l.ID}, linkArguments(l)...)...)
	batch.Queue(linkSQL, l.OrganizationID, l.ID).QueryRow(func(row pgx.Row) error {
		result, _, err := s.scanLink(row)
		updated = result.Link
		return err
	})
	queueLastChange(&batch, &changed, l.OrganizationID, l.ID)
	err = tx.commit(ctx, &batch, linkEntry(LinkUpdated, l, fields))
	return updated, changed, err
}
