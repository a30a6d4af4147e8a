package store

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"deeplink/shared/catalog"
)

// lockForImport is lockLinks for a transaction that creates many links. It returns ErrAppConfigMissing when the organization has not registered
// an app config.
func lockForImport(ctx context.Context, tx *transaction, orgID string, require Requirement) (locked lockedLinks, err error) {
	var registered bool
	var batch pgx.Batch
	locked.queue(&batch, orgID)
	batch.Queue(appConfigRegisteredSQL, orgID).QueryRow(func(row pgx.Row) error { return row.Scan(&registered) })
	if err := tx.SendBatch(ctx, &batch).Close(); err != nil {
		return locked, err
	}
	if err := require(locked.organization); err != nil {
		return locked, err
	}
	if !registered {
		return locked, ErrAppConfigMissing
	}
	return locked, nil
}

// target is the domain that a link is to be on, as far as it was found.
type targetDomain struct {
	found  bool
	host   *string
	domain catalog.Domain // with id, status and time
}

// queue reads the domain with the id in the batch; an empty id is the default domain.
func (d *targetDomain) queue(batch *pgx.Batch, orgID, id string) {
	batch.Queue(targetDomainSQL, orgID, orNull(id)).QueryRow(scanIfFound(&d.found, &d.domain.ID, &d.host, &d.domain.Status, &d.domain.CreatedAt.Time))
}

// newLinkChecks is what a create must know besides lockedLinks.
type newLinkChecks struct {
	registered, codeTaken, externalIDTaken bool
	target                                 targetDomain
	now                                    time.Time
}

// check returns the first reason why the link cannot be created.
func (c *newLinkChecks) check(locked lockedLinks) error {
	switch {
	case !c.registered:
		return ErrAppConfigMissing
	case !c.target.found:
		return ErrDomainNotFound
	case locked.full(0):
		return ErrQuotaExceeded
	case c.codeTaken:
		return ErrShortCodeTaken
	case c.externalIDTaken:
		return ErrLinkExternalIDTaken
	}
	return nil
}

// queueNow reads the time that the columns of a new row get: now() does not change within a transaction.
func (c *newLinkChecks) queueNow(batch *pgx.Batch) {
	batch.Queue(nowSQL).QueryRow(func(row pgx.Row) error { return row.Scan(&c.now) })
}

// createLink creates a link in two round trips: one locks and checks, one writes and commits. code is that of a link without one.
func (s *Store) createLink(ctx context.Context, tx *transaction, w Write, o Operation, code string, render Render, out *Written) error {
	l := o.Link
	if code != "" {
		l.ShortCode = code
	}
	id, err := uuid.NewV7()
	if err != nil {
		return err
	}
	l.ID, l.OrganizationID = id.String(), w.OrganizationID
	var checks newLinkChecks
	locked, repeated, err := start(ctx, tx, w, true, out, func(batch *pgx.Batch) {
		checks.queueNow(batch)
		batch.Queue(appConfigRegisteredSQL, l.OrganizationID).QueryRow(func(row pgx.Row) error { return row.Scan(&checks.registered) })
		checks.target.queue(batch, l.OrganizationID, l.DomainID)
		batch.Queue(codeTakenSQL, l.OrganizationID, l.ShortCode, l.ID).QueryRow(func(row pgx.Row) error { return row.Scan(&checks.codeTaken) })
		if l.ExternalID != nil {
			batch.Queue(externalIDTakenSQL, l.OrganizationID, *l.ExternalID, l.ID).QueryRow(func(row pgx.Row) error { return row.Scan(&checks.externalIDTaken) })
		}
	})
	if err != nil || repeated {
		return err
	}
	if err := checks.check(locked); err != nil {
		return err
	}
	return s.insertLink(ctx, tx, w, s.created(l, locked.organization, checks.target, checks.now), render, out)
}

// created returns the new link as it will be read.
func (s *Store) created(l catalog.Link, organization catalog.Organization, target targetDomain, now time.Time) catalog.LinkWithDomain {
	l.DomainID, l.Version = target.domain.ID, 1
	l.CreatedAt.Time, l.UpdatedAt.Time = now, now
	l.URL = catalog.ShortURL(s.linkBase, organization.OrgKey, deref(target.host), l.ShortCode)
	return catalog.LinkWithDomain{Link: l, Domain: s.domain(l.DomainID, target.host, target.domain)}
}

// insertLink writes the link and finishes the transaction, in one round trip.
func (s *Store) insertLink(ctx context.Context, tx *transaction, w Write, l catalog.LinkWithDomain, render Render, out *Written) error {
	response, err := render(l, Created)
	if err != nil {
		return err
	}
	out.IsCreate = true
	var batch pgx.Batch
	batch.Queue(insertLinkSQL, append([]any{l.ID, l.OrganizationID}, linkArguments(l.Link)...)...)
	return out.finish(ctx, tx, w, &batch, linkEntry(LinkCreated, l.Link, nil), response)
}

func terms(org catalog.Organization) catalog.Terms {
	if org.Plan == nil {
		return catalog.Terms{}
	}
	return org.Plan.Terms()
}
