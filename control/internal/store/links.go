package store

import (
	"context"
	"strings"

	"github.com/jackc/pgx/v5"

	"deeplink/shared/catalog"
)

// LinkFilter says which links to list, and which page of them. Empty filters match every link.
type LinkFilter struct {
	// Page counts from 1, Limit is the size of a page; both must be positive.
	Page, Limit int
	IsActive    *bool
	// Search is looked for in title, path and short code, without regard to case.
	Search string
	// Tag, Channel and DomainID (a UUID) must be equal.
	Tag, Channel, DomainID string
}

func (f LinkFilter) everything() bool {
	return f.IsActive == nil && f.Search == "" && f.Tag == "" && f.Channel == "" && f.DomainID == ""
}

// usageSQL is how many links an organization has. link_usage changes in the transactions of the links, so it counts what
// the same snapshot sees, without reading a million rows.
const usageSQL = `select coalesce((select u.links from link_usage u where u.organization_id = $1), 0)`

const filtered = `
	l.organization_id = $1
	and ($2::boolean is null or l.is_active = $2)
	and ($3::text is null or l.title ilike $3 or l.path ilike $3 or l.short_code ilike $3)
	and ($4::text is null or $4 = any (l.tags))
	and ($5::text is null or l.channel = $5)
	and ($6::uuid is null or l.domain_id = $6)`

const countLinksSQL = `select count(*) from links l where ` + filtered

const linksSQL = `select ` + linkColumns + ` from ` + linkTables + ` where ` + filtered + `
	order by l.created_at desc, l.id desc limit $7 offset $8`

// Links returns a page of the links that match, the newest first, and how many match in all. Both are of one moment. A page
// past the end is empty.
func (s *Store) Links(ctx context.Context, orgID string, f LinkFilter) ([]catalog.LinkWithDomain, int64, error) {
	filters := []any{orgID, f.IsActive, pattern(f.Search), orNull(f.Tag), orNull(f.Channel), orNull(f.DomainID)}
	var links []catalog.LinkWithDomain
	var total int64
	err := s.snapshot(ctx, "list links", func(tx pgx.Tx) error {
		sql, arguments := countLinksSQL, filters
		if f.everything() {
			sql, arguments = usageSQL, filters[:1]
		}
		if err := tx.QueryRow(ctx, sql, arguments...).Scan(&total); err != nil {
			return err
		}
		links = []catalog.LinkWithDomain{}
		// Compared before it is multiplied: no page is so far that its offset overflows.
		if int64(f.Page-1) > total/int64(f.Limit) {
			return nil
		}
		rows, err := tx.Query(ctx, linksSQL, append(filters, f.Limit, int64(f.Page-1)*int64(f.Limit))...)
		if err != nil {
			return err
		}
		links, err = pgx.AppendRows(links, rows, func(row pgx.CollectableRow) (catalog.LinkWithDomain, error) {
			link, _, err := s.scanLink(row)
			return link, err
		})
		return err
	})
	if err != nil {
		return nil, 0, err
	}
	return links, total, nil
}

// wildcards escapes what ILIKE gives a meaning.
var wildcards = strings.NewReplacer(`\`, `\\`, `%`, `\%`, `_`, `\_`)

func pattern(search string) *string {
	if search == "" {
		return nil
	}
	p := "%" + wildcards.Replace(search) + "%"
	return &p
}
