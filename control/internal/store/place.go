package store

import (
	"context"
	"time"

	"deeplink/shared/catalog"
)

// Place is where a short URL leads: a code in lower case, on a custom domain (Host) or, when that is empty, on the shared host.
type Place struct{ OrgKey, Host, Code string }

const linkAtSQL = `select ` + linkColumns + ` from ` + linkTables + ` where l.organization_id = $1 and lower(l.short_code) = $2 and `

const (
	linkOnSharedHostSQL   = linkAtSQL + `d.host is null and o.org_key = $3`
	linkOnCustomDomainSQL = linkAtSQL + `d.host = $3 and d.status = 'verified'`
)

// ResolvedLink returns the link of the organization, which is not suspended, that a visitor of the place would be led to now, judged as
// an edge does (decisions.md 3). ErrNotFound when there is none, or it does not resolve.
func (s *Store) ResolvedLink(ctx context.Context, orgID string, place Place) (catalog.Link, error) {
	sql, domain := linkOnSharedHostSQL, place.OrgKey
	if place.Host != "" {
		sql, domain = linkOnCustomDomainSQL, place.Host
	}
	var link catalog.LinkWithDomain
	err := retry("resolve a link", func() (err error) {
		link, _, err = s.scanLink(s.pool.QueryRow(ctx, sql, orgID, place.Code, domain))
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
