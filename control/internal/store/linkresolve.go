package store

import (
	"context"
	"time"

	"deeplink/shared/catalog"
)

// ShortURLRef identifies the link of a short URL: a code in lower case, on a custom domain (Host) or, if Host is empty, on the shared host.
type ShortURLRef struct{ OrgKey, Host, Code string }

// ResolvedLink returns the link of a short URL if an edge would redirect to it now, otherwise ErrNotFound. The organization must not be
// suspended.
func (s *Store) ResolvedLink(ctx context.Context, orgID string, ref ShortURLRef) (catalog.Link, error) {
	sql, domain := linkOnSharedHostSQL, ref.OrgKey
	if ref.Host != "" {
		sql, domain = linkOnCustomDomainSQL, ref.Host
	}
	var link catalog.LinkWithDomain
	err := retry("resolve a link", func() (err error) {
		link, _, err = s.scanLink(s.pool.QueryRow(ctx, sql, orgID, ref.Code, domain))
		return err
	})
	if err != nil {
		return catalog.Link{}, err
	}
	expiry := int64(catalog.NoExpiry)
	if link.Expiry != nil {
		expiry = link.Expiry.UnixMilli()
	}
	if catalog.Judge(false, link.IsActive, expiry, time.Now()) != catalog.Resolves {
		return catalog.Link{}, ErrNotFound
	}
	return link.Link, nil
}
