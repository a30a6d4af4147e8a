package store

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"deeplink/shared/catalog"
	"deeplink/shared/feed"
)

func (s *Store) scanLink(row pgx.Row) (l catalog.LinkWithDomain, changedXID uint64, err error) {
	var og catalog.OpenGraph
	var expiry *time.Time
	var params []byte
	var orgKey string
	var host *string
	err = row.Scan(&l.ID, &l.OrganizationID, &l.DomainID, &l.ShortCode, &l.Path, &l.Channel, &l.UTMSource, &l.UTMMedium,
		&l.UTMCampaign, &l.UTMTerm, &l.UTMContent, &l.FallbackURL, &og.Title, &og.Description, &og.ImageURL, &l.Title, &l.Tags,
		&expiry, &l.TemplateID, &params, &l.IsActive, &l.ExternalID, &l.Version, &l.CreatedAt.Time, &l.UpdatedAt.Time, &changedXID, &orgKey,
		&host, &l.Domain.Status, &l.Domain.CreatedAt.Time)
	if err != nil {
		return catalog.LinkWithDomain{}, 0, err
	}
	if og != (catalog.OpenGraph{}) {
		l.OG = &og
	}
	if expiry != nil {
		l.Expiry = &catalog.Time{Time: *expiry}
	}
	l.Params = params
	l.Domain = s.domain(l.DomainID, host, l.Domain)
	l.URL = catalog.ShortURL(s.linkBase, orgKey, deref(host), l.ShortCode)
	return l, changedXID, nil
}

// scanIfFound scans the only row of a query in a batch and sets found. A missing row is not an error: after an error pgx drops the prepared
// statements of the whole batch, and Postgres must plan them again.
func scanIfFound(found *bool, fields ...any) func(pgx.Row) error {
	return func(row pgx.Row) error {
		err := row.Scan(fields...)
		*found = err == nil
		return unlessMissing(err)
	}
}

// unlessMissing returns err, or nil if err only says that there is no row.
func unlessMissing(err error) error {
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	return err
}

// linkArguments returns the columns that a client sets, in the order of insertLinkSQL and updateLinkSQL.
func linkArguments(l catalog.Link) []any {
	var og catalog.OpenGraph
	if l.OG != nil {
		og = *l.OG
	}
	var expiry *time.Time
	if l.Expiry != nil {
		expiry = &l.Expiry.Time
	}
	return []any{l.DomainID, l.ShortCode, l.Path, l.Channel, l.UTMSource, l.UTMMedium, l.UTMCampaign, l.UTMTerm, l.UTMContent,
		l.FallbackURL, og.Title, og.Description, og.ImageURL, l.Title, l.Tags, expiry, l.TemplateID, []byte(l.Params), l.IsActive, l.ExternalID}
}

// Link returns the link. After ErrNotFound see [Store.Deleted].
func (s *Store) Link(ctx context.Context, orgID, id string) (l catalog.LinkWithDomain, err error) {
	err = retry("read a link", func() error {
		l, _, err = s.scanLink(s.pool.QueryRow(ctx, linkSQL, orgID, id))
		return err
	})
	return l, err
}

// LinkByExternalID is [Store.Link] by external id. After ErrNotFound see [Store.DeletedLink].
func (s *Store) LinkByExternalID(ctx context.Context, orgID, externalID string) (l catalog.LinkWithDomain, err error) {
	err = retry("read a link", func() error {
		l, _, err = s.scanLink(s.pool.QueryRow(ctx, linkByExternalIDSQL, orgID, externalID))
		return err
	})
	return l, err
}

// Deleted returns the change that deleted the link if that was within the last minutes, otherwise the zero Change. Before a caller responds
// that a link is gone, it must wait for this change, as the delete did (shared/feed/README.md, C4).
func (s *Store) Deleted(ctx context.Context, orgID, id string) (c feed.Change, err error) {
	err = s.snapshot(ctx, "read a deletion", func(tx pgx.Tx) error {
		var xid uint64
		if err := tx.QueryRow(ctx, deletedSQL, orgID, id).Scan(&xid); err != nil {
			return err
		}
		c, err = earlierChange(ctx, tx, xid)
		return err
	})
	if errors.Is(err, ErrNotFound) {
		return feed.Change{}, nil
	}
	return c, err
}

// DeletedLink is [Store.Deleted] for either id. There may have been several links with an external id, so that change has no id, and a wait
// for it is one for all of them.
func (s *Store) DeletedLink(ctx context.Context, orgID string, link LinkRef) (c feed.Change, err error) {
	if link.ExternalID == "" {
		return s.Deleted(ctx, orgID, link.ID)
	}
	var last *uint64
	err = retry("read a deletion", func() error {
		return s.pool.QueryRow(ctx, deletedByExternalIDSQL, orgID, link.ExternalID).Scan(&last)
	})
	if err != nil || last == nil {
		return feed.Change{}, err
	}
	return feed.Change{XID: *last}, nil
}

// DeleteOldLinks deletes the links of the organization that are older than age by the clock of Postgres, and returns their number. Error:
// ErrNotFound if the organization does not exist.
func (s *Store) DeleteOldLinks(ctx context.Context, actor Actor, orgID string, age time.Duration) (deleted int64, changed feed.Change, err error) {
	err = s.write(ctx, actor, orgID, "delete old links", func(tx *transaction) error {
		if _, err := lockLinks(ctx, tx, orgID, Unconditional); err != nil {
			return err
		}
		rows, err := tx.Query(ctx, deleteOldLinksSQL, orgID, age)
		if err != nil {
			return err
		}
		old, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (l catalog.Link, err error) {
			err = row.Scan(&l.ID, &l.OrganizationID, &l.ShortCode)
			return l, err
		})
		if err != nil {
			return err
		}
		deleted = int64(len(old))
		if err := tx.recordAll(ctx, LinkDeleted, old); err != nil {
			return err
		}
		changed, err = tx.finish(ctx, entry{})
		return err
	})
	if err != nil {
		return 0, feed.Change{}, err
	}
	return deleted, changed, nil
}

// linkEntry returns an audit entry that names the link by its code. It contains no other field of the link: they may be confidential, and
// the trail outlives the link.
func linkEntry(action Action, l catalog.Link, fields []string) entry {
	detail := map[string]any{"shortCode": l.ShortCode}
	if fields != nil {
		detail["fields"] = fields
	}
	if slices.Contains(fields, "isActive") {
		detail["isActive"] = l.IsActive
	}
	return entry{action, l.OrganizationID, linkTarget, l.ID, detail}
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

func orNull(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
