package store

import (
	"context"
	"errors"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"deeplink/shared/catalog"
	"deeplink/shared/feed"
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

// generatedCodes bounds the number of attempts to generate a free code. With a million links one code in 850,000 is taken.
const generatedCodes = 8

// CreateLink creates a link of the organization from the fields that catalog.ReadLink read, and returns its row with URL. It checks in this
// order: ErrNotFound when the organization does not exist, require, ErrAppConfigMissing, ErrDomainNotFound, ErrQuotaExceeded,
// ErrShortCodeTaken. The quota is that of the organization's plan under the lock.
func (s *Store) CreateLink(
	ctx context.Context, actor Actor, orgID string, require Requirement, l catalog.Link,
) (created catalog.Link, changed feed.Change, err error) {
	custom := l.ShortCode != ""
	for range generatedCodes {
		if !custom {
			l.ShortCode = catalog.GenerateCode()
		}
		if created, changed, err = s.createLink(ctx, actor, orgID, require, l); custom || !errors.Is(err, ErrShortCodeTaken) {
			break
		}
	}
	if err != nil {
		return catalog.Link{}, feed.Change{}, err
	}
	return created, changed, nil
}

// createLink creates a link with a given code in two round trips: one locks and checks, one writes and commits.
func (s *Store) createLink(
	ctx context.Context, actor Actor, orgID string, require Requirement, l catalog.Link,
) (created catalog.Link, changed feed.Change, err error) {
	id, err := uuid.NewV7()
	if err != nil {
		return created, changed, err
	}
	l.ID, l.OrganizationID = id.String(), orgID
	err = s.write(ctx, actor, orgID, "create a link", func(tx *transaction) error {
		created = l
		orgKey, host, err := lockForCreate(ctx, tx, require, &created)
		if err != nil {
			return err
		}
		created.URL = catalog.ShortURL(s.linkBase, orgKey, host, created.ShortCode)
		changed, err = insertLink(ctx, tx, &created)
		return err
	})
	return created, changed, err
}

// lockForCreate begins a transaction that creates one link: it locks the organization's links as lockForImport does, and checks the quota, the
// link's domain and its code, in one round trip. It sets DomainID of the link.
func lockForCreate(ctx context.Context, tx *transaction, require Requirement, l *catalog.Link) (orgKey, host string, err error) {
	var locked lockedLinks
	var registered, found, taken bool
	var domainHost *string
	var batch pgx.Batch
	locked.queue(&batch, l.OrganizationID)
	batch.Queue(appConfigRegisteredSQL, l.OrganizationID).QueryRow(func(row pgx.Row) error { return row.Scan(&registered) })
	batch.Queue(targetDomainSQL, l.OrganizationID, orNull(l.DomainID)).QueryRow(scanIfFound(&found, &l.DomainID, &domainHost))
	batch.Queue(codeTakenSQL, l.OrganizationID, l.ShortCode, l.ID).QueryRow(func(row pgx.Row) error { return row.Scan(&taken) })
	if err := tx.SendBatch(ctx, &batch).Close(); err != nil {
		return "", "", err
	}
	if err := require(locked.organization); err != nil {
		return "", "", err
	}
	switch {
	case !registered:
		return "", "", ErrAppConfigMissing
	case !found:
		return "", "", ErrDomainNotFound
	case locked.full(0):
		return "", "", ErrQuotaExceeded
	case taken:
		return "", "", ErrShortCodeTaken
	}
	return locked.organization.OrgKey, deref(domainHost), nil
}

// insertLink writes the link, sets its times, and finishes the transaction, in one round trip.
func insertLink(ctx context.Context, tx *transaction, l *catalog.Link) (changed feed.Change, err error) {
	var batch pgx.Batch
	arguments := append([]any{l.ID, l.OrganizationID}, linkArguments(*l)...)
	batch.Queue(insertLinkSQL, arguments...).QueryRow(func(row pgx.Row) error { return row.Scan(&l.CreatedAt.Time, &l.UpdatedAt.Time) })
	return tx.finishBatch(ctx, &batch, linkEntry(LinkCreated, *l, nil))
}

func terms(org catalog.Organization) catalog.Terms {
	if org.Plan == nil {
		return catalog.Terms{}
	}
	return org.Plan.Terms()
}
