package store

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"deeplink/shared/catalog"
	"deeplink/shared/feed"
)

// linkColumns are what a link is read from, in the order of scanLink.
const linkColumns = `
	l.id, l.organization_id, l.domain_id, l.short_code, l.path, l.channel, l.utm_source, l.utm_medium, l.utm_campaign, l.utm_term,
	l.utm_content, l.fallback_url, l.og_title, l.og_description, l.og_image_url, l.title, l.tags, l.expiry, l.template_id, l.params,
	l.is_active, l.created_at, l.updated_at, l.changed_xid, o.org_key, d.host, d.status, d.created_at`

const linkTables = `
	links l join organizations o on o.id = l.organization_id join domains d on d.id = l.domain_id`

func (s *Store) scanLink(row pgx.Row) (l catalog.LinkWithDomain, changedXID uint64, err error) {
	var og catalog.OpenGraph
	var expiry *time.Time
	var params []byte
	var orgKey string
	var host *string
	err = row.Scan(&l.ID, &l.OrganizationID, &l.DomainID, &l.ShortCode, &l.Path, &l.Channel, &l.UTMSource, &l.UTMMedium,
		&l.UTMCampaign, &l.UTMTerm, &l.UTMContent, &l.FallbackURL, &og.Title, &og.Description, &og.ImageURL, &l.Title, &l.Tags,
		&expiry, &l.TemplateID, &params, &l.IsActive, &l.CreatedAt.Time, &l.UpdatedAt.Time, &changedXID, &orgKey, &host,
		&l.Domain.Status, &l.Domain.CreatedAt.Time)
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

const lockUsageSQL = `select links from link_usage where organization_id = $1 for no key update`

// lockLinks makes the transaction the only writer of the organization's links and returns how many there are. Every write
// of links begins with it: that makes the quota exact, and writers cannot deadlock, not even two that swap their codes. It
// is ErrNotFound for an organization that does not exist.
func lockLinks(ctx context.Context, tx pgx.Tx, orgID string) (links int64, err error) {
	err = tx.QueryRow(ctx, lockUsageSQL, orgID).Scan(&links)
	return links, err
}

const targetDomainSQL = `
	select d.id, d.host from domains d
	where d.organization_id = $1 and case when $2::uuid is null then d.host is null else d.id = $2 end`

const appConfigRegisteredSQL = `
	select exists (select from app_configs a where a.organization_id = $1
	               and (num_nonnulls(a.ios_bundle_id, a.ios_team_id, a.ios_app_store_id, a.ios_scheme, a.android_package_name,
	                                 a.android_sha256_cert_fingerprints, a.android_scheme, a.fallback_url) > 0))`

// lockForMore is lockLinks for a transaction that makes links. ErrAppConfigMissing when the organization may have none yet.
func lockForMore(ctx context.Context, tx pgx.Tx, orgID string) (links int64, err error) {
	if links, err = lockLinks(ctx, tx, orgID); err != nil {
		return 0, err
	}
	var registered bool
	if err := tx.QueryRow(ctx, appConfigRegisteredSQL, orgID).Scan(&registered); err != nil {
		return 0, err
	}
	if !registered {
		return 0, ErrAppConfigMissing
	}
	return links, nil
}

const insertLinkSQL = `
	insert into links (id, organization_id, domain_id, short_code, path, channel, utm_source, utm_medium, utm_campaign, utm_term,
	                   utm_content, fallback_url, og_title, og_description, og_image_url, title, tags, expiry, template_id, params,
	                   is_active)
	values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21)
	on conflict (organization_id, lower(short_code)) do nothing
	returning created_at, updated_at`

// generatedCodes bounds how often another code is drawn. With a million links one draw in 850,000 collides.
const generatedCodes = 8

// CreateLink makes a link of org from the fields that catalog.ReadLink read, and returns its row with URL. It checks in the
// order of decisions.md 5: ErrAppConfigMissing, ErrDomainNotFound, ErrQuotaExceeded, ErrShortCodeTaken. The quota is that
// of org.Plan.
func (s *Store) CreateLink(ctx context.Context, org catalog.Organization, l catalog.Link) (created catalog.Link, changed feed.Change, err error) {
	custom := l.ShortCode != ""
	for range generatedCodes {
		if !custom {
			l.ShortCode = catalog.GenerateCode()
		}
		if created, changed, err = s.createLink(ctx, org, l); custom || !errors.Is(err, ErrShortCodeTaken) {
			break
		}
	}
	if err != nil {
		return catalog.Link{}, feed.Change{}, err
	}
	return created, changed, nil
}

// createLink makes a link that has its code, in four round trips: to begin, to look, to write and to commit.
func (s *Store) createLink(ctx context.Context, org catalog.Organization, l catalog.Link) (created catalog.Link, changed feed.Change, err error) {
	id, err := uuid.NewV7()
	if err != nil {
		return created, changed, err
	}
	l.ID, l.OrganizationID = id.String(), org.ID
	err = s.write(ctx, "create a link", func(tx *transaction) error {
		created = l
		host, err := findRoom(ctx, tx, org, &created)
		if err != nil {
			return err
		}
		created.URL = catalog.ShortURL(s.linkBase, org.OrgKey, host, created.ShortCode)
		changed, err = s.insertLink(ctx, tx, &created)
		return err
	})
	return created, changed, err
}

// findRoom begins a transaction that makes one link: it locks the organization's links as lockForMore does, and places the link as
// placeLink does, in one round trip.
func findRoom(ctx context.Context, tx pgx.Tx, org catalog.Organization, l *catalog.Link) (host string, err error) {
	var links int64
	var registered, found bool
	var domainHost *string
	var batch pgx.Batch
	batch.Queue(lockUsageSQL, org.ID).QueryRow(func(row pgx.Row) error { return row.Scan(&links) })
	batch.Queue(appConfigRegisteredSQL, org.ID).QueryRow(func(row pgx.Row) error { return row.Scan(&registered) })
	batch.Queue(targetDomainSQL, org.ID, orNull(l.DomainID)).QueryRow(scanIfFound(&found, &l.DomainID, &domainHost))
	if err := tx.SendBatch(ctx, &batch).Close(); err != nil {
		return "", err
	}
	quota := terms(org).Links
	switch {
	case !registered:
		return "", ErrAppConfigMissing
	case !found:
		return "", ErrDomainNotFound
	case quota != catalog.Unlimited && links >= quota:
		return "", ErrQuotaExceeded
	}
	return deref(domainHost), nil
}

// insertLink writes the link, gives it its times, and concludes the transaction, in one round trip. After ErrShortCodeTaken it must not be
// committed.
func (s *Store) insertLink(ctx context.Context, tx *transaction, l *catalog.Link) (changed feed.Change, err error) {
	var batch pgx.Batch
	var inserted bool
	arguments := append([]any{l.ID, l.OrganizationID}, linkArguments(*l)...)
	batch.Queue(insertLinkSQL, arguments...).QueryRow(scanIfFound(&inserted, &l.CreatedAt.Time, &l.UpdatedAt.Time))
	changed, err = s.concludeBatch(ctx, tx, &batch, linkEntry(LinkCreated, *l, nil))
	if err == nil && !inserted {
		err = ErrShortCodeTaken
	}
	return changed, err
}

// scanIfFound scans the only row of a query in a batch, and notes whether there is one. That there is none is no error: after one, pgx
// forgets the statements of the whole batch, and Postgres has to plan them again.
func scanIfFound(found *bool, fields ...any) func(pgx.Row) error {
	return func(row pgx.Row) error {
		err := row.Scan(fields...)
		*found = err == nil
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		return err
	}
}

func terms(org catalog.Organization) catalog.Terms {
	if org.Plan == nil {
		return catalog.Terms{}
	}
	return org.Plan.Terms()
}

// placeLink finds the domain of the link, the organization's default one when it names none, and returns its host, which is
// empty for the default.
func placeLink(ctx context.Context, tx pgx.Tx, orgID string, l *catalog.Link) (host string, err error) {
	var found *string
	err = tx.QueryRow(ctx, targetDomainSQL, orgID, orNull(l.DomainID)).Scan(&l.DomainID, &found)
	if errors.Is(err, pgx.ErrNoRows) {
		return "", ErrDomainNotFound
	}
	return deref(found), err
}

// linkArguments are the columns that a client sets, in the order of insertLinkSQL and updateLinkSQL.
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
		l.FallbackURL, og.Title, og.Description, og.ImageURL, l.Title, l.Tags, expiry, l.TemplateID, []byte(l.Params), l.IsActive}
}

const linkSQL = `select ` + linkColumns + ` from ` + linkTables + ` where l.organization_id = $1 and l.id = $2`

// Link returns the link. After ErrNotFound see [Store.Deleted].
func (s *Store) Link(ctx context.Context, orgID, id string) (l catalog.LinkWithDomain, err error) {
	err = retry("read a link", func() error {
		l, _, err = s.scanLink(s.pool.QueryRow(ctx, linkSQL, orgID, id))
		return err
	})
	return l, err
}

const deletedSQL = `select xid from deleted_links where organization_id = $1 and id = $2`

// Deleted returns the change that deleted the link, when that was within the last minutes, and otherwise the zero Change.
// Whoever says that a link is gone waits for it first, as the deletion did (freshness.md, control 4).
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

const lockLinkSQL = linkSQL + ` for no key update of l`

const updateLinkSQL = `
	update links
	set domain_id = $3, short_code = $4, path = $5, channel = $6, utm_source = $7, utm_medium = $8, utm_campaign = $9, utm_term = $10,
	    utm_content = $11, fallback_url = $12, og_title = $13, og_description = $14, og_image_url = $15, title = $16, tags = $17,
	    expiry = $18, template_id = $19, params = $20, is_active = $21
	where organization_id = $1 and id = $2`

// UpdateLink applies the patch and returns the row with URL. Errors: ErrNotFound, ErrDomainNotFound, ErrShortCodeTaken. The
// change names what edges must forget; when there is nothing (a new title, or a patch that repeats what is there and so
// writes nothing), it is the last change that gave edges something to forget, so that a repeated call waits for what the
// first one waited for.
func (s *Store) UpdateLink(ctx context.Context, orgID, id string, p catalog.Patch) (catalog.Link, feed.Change, error) {
	var updated catalog.Link
	var changed feed.Change
	err := s.write(ctx, "update a link", func(tx *transaction) error {
		if _, err := lockLinks(ctx, tx, orgID); err != nil {
			return err
		}
		before, changedXID, err := s.scanLink(tx.QueryRow(ctx, lockLinkSQL, orgID, id))
		if err != nil {
			return err
		}
		after := before.Link
		p.Apply(&after)
		if after.DomainID != before.DomainID {
			if _, err := placeLink(ctx, tx, orgID, &after); err != nil {
				return err
			}
		}
		fields, err := differences(before.Link, after)
		if err != nil {
			return err
		}
		if fields == nil {
			updated = before.Link
			changed, err = earlierChange(ctx, tx, changedXID)
			return err
		}
		arguments := append([]any{orgID, id}, linkArguments(after)...)
		if _, err := tx.Exec(ctx, updateLinkSQL, arguments...); err != nil {
			return err
		}
		result, changedXID, err := s.scanLink(tx.QueryRow(ctx, linkSQL, orgID, id))
		if err != nil {
			return err
		}
		updated = result.Link
		changed, err = s.concludeWith(ctx, tx, linkEntry(LinkUpdated, updated, fields), changedXID)
		return err
	})
	if err != nil {
		return catalog.Link{}, feed.Change{}, err
	}
	return updated, changed, nil
}

const deleteLinkSQL = `delete from links where organization_id = $1 and id = $2 returning short_code`

// DeleteLink removes the link for ever; its code is free again. After ErrNotFound see [Store.Deleted].
func (s *Store) DeleteLink(ctx context.Context, orgID, id string) (feed.Change, error) {
	var changed feed.Change
	err := s.write(ctx, "delete a link", func(tx *transaction) error {
		if _, err := lockLinks(ctx, tx, orgID); err != nil {
			return err
		}
		deleted := catalog.Link{ID: id, OrganizationID: orgID}
		if err := tx.QueryRow(ctx, deleteLinkSQL, orgID, id).Scan(&deleted.ShortCode); err != nil {
			return err
		}
		var err error
		changed, err = s.conclude(ctx, tx, linkEntry(LinkDeleted, deleted, nil))
		return err
	})
	if err != nil {
		return feed.Change{}, err
	}
	return changed, nil
}

const deleteOldLinksSQL = `delete from links where organization_id = $1 and created_at < now() - $2::interval`

// DeleteOldLinks removes those links of the organization that were made longer ago than age, by the clock of Postgres, and returns
// how many there were. ErrNotFound when the organization does not exist.
func (s *Store) DeleteOldLinks(ctx context.Context, orgID string, age time.Duration) (deleted int64, changed feed.Change, err error) {
	err = s.write(ctx, "delete old links", func(tx *transaction) error {
		if _, err := lockLinks(ctx, tx, orgID); err != nil {
			return err
		}
		result, err := tx.Exec(ctx, deleteOldLinksSQL, orgID, age)
		if err != nil {
			return err
		}
		deleted = result.RowsAffected()
		changed, err = change(ctx, tx)
		return err
	})
	if err != nil {
		return 0, feed.Change{}, err
	}
	return deleted, changed, nil
}

// linkEntry names the link by its code. What else is in it may be anything, and is not kept longer than the link.
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
