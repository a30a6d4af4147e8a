package store

import (
	"context"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"deeplink/shared/catalog"
)

// upsertLink updates the link with the external id, or creates it with the code. One round trip locks the organization's links and checks
// for both.
func (s *Store) upsertLink(ctx context.Context, tx *transaction, w Write, o Operation, code string, render Render, out *Written) error {
	l, _ := o.newLink()
	wantedCode := l.ShortCode
	if code != "" {
		l.ShortCode = code
	}
	var old foundLink
	var checks newLinkChecks
	locked, repeated, err := start(ctx, tx, w, false, out, func(batch *pgx.Batch) {
		old.queue(batch, s, w.OrganizationID, o.Target)
		checks.queueNow(batch)
		batch.Queue(appConfigRegisteredSQL, w.OrganizationID).QueryRow(func(row pgx.Row) error { return row.Scan(&checks.registered) })
		checks.target.queue(batch, w.OrganizationID, l.DomainID)
		batch.Queue(codeTakenByOtherSQL, w.OrganizationID, l.ShortCode, o.Target.ExternalID).QueryRow(func(row pgx.Row) error { return row.Scan(&checks.codeTaken) })
	})
	if err != nil || repeated {
		return err
	}
	if old.found {
		if err := o.meets(old.link.ETag()); err != nil {
			return err
		}
		return s.patchLink(ctx, tx, w, old, o.Patch, checks.target, checks.codeTaken && wantedCode != "", false, render, out)
	}
	if err := o.meets(""); err != nil {
		return err
	}
	if l.Path == "" {
		return catalog.ErrNoPath
	}
	if err := checks.check(locked); err != nil {
		return err
	}
	id, err := uuid.NewV7()
	if err != nil {
		return err
	}
	l.ID, l.OrganizationID = id.String(), w.OrganizationID
	return s.insertLink(ctx, tx, w, s.created(l, locked.organization, checks.target, checks.now), render, out)
}
