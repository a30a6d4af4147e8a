package store

import (
	"context"

	"github.com/jackc/pgx/v5"

	"deeplink/shared/catalog"
)

// deleteLink deletes a link in two round trips, or in three with a key.
func (s *Store) deleteLink(ctx context.Context, tx *transaction, w Write, o Operation, _ string, render Render, out *Written) error {
	deleted := catalog.LinkWithDomain{Link: catalog.Link{OrganizationID: w.OrganizationID}}
	var host *string
	var found bool
	sql, id := lockDoomedLinkSQL, o.Target.ID
	if o.Target.ExternalID != "" {
		sql, id = lockDoomedLinkByExternalIDSQL, o.Target.ExternalID
	}
	_, repeated, err := start(ctx, tx, w, false, out, func(batch *pgx.Batch) {
		batch.Queue(sql, w.OrganizationID, id).QueryRow(scanIfFound(&found, &deleted.ID, &deleted.ShortCode, &deleted.Version, &deleted.DomainID, &host, &deleted.Domain.Status))
	})
	if err != nil || repeated {
		return err
	}
	if !found {
		return ErrNotFound
	}
	deleted.Domain = s.domain(deleted.DomainID, host, deleted.Domain)
	if err := o.meets(deleted.ETag()); err != nil {
		return err
	}
	response, err := render(deleted, Deleted)
	if err != nil {
		return err
	}
	var batch pgx.Batch
	batch.Queue(deleteLinkSQL, w.OrganizationID, deleted.ID)
	return out.finish(ctx, tx, w, &batch, linkEntry(LinkDeleted, deleted.Link, nil), response)
}
