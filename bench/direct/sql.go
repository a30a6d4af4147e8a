package direct

import (
	"context"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"deeplink/shared/catalog"
)

// What control sends for a create (control/internal/store, CreateLink), a get and the first page of a list.
const (
	usageSQL  = `select links from link_usage where organization_id = $1 for no key update`
	configSQL = `
		select exists (select from app_configs a where a.organization_id = $1
		               and (num_nonnulls(a.ios_bundle_id, a.ios_team_id, a.ios_app_store_id, a.ios_scheme, a.android_package_name,
		                                 a.android_sha256_cert_fingerprints, a.android_scheme, a.fallback_url) > 0))`
	domainSQL = `select d.id, d.host from domains d where d.organization_id = $1 and d.host is null`
	insertSQL = `
		insert into links (id, organization_id, domain_id, short_code, path, title, fallback_url, is_active) values ($1, $2, $3, $4, $5, $6, $7, true)
		on conflict (organization_id, lower(short_code)) do nothing
		returning created_at, updated_at`
	byIndexSQL = `set local enable_seqscan = off`
	changeSQL  = `
		select pg_current_xact_id(), coalesce(max(c.id), 0), array_agg(distinct t.tag) filter (where t.tag is not null)
		from changes c left join lateral unnest(c.tags) as t (tag) on true where c.xid = pg_current_xact_id()`
	auditSQL = `
		insert into audit_log (id, organization_id, actor_type, actor_id, actor_display_key, ip, request_id, action, target_type, target_id, detail)
		values ($1, $2, 'key', $3, 'svc_api_…', '127.0.0.1', $4, 'link.create', 'link', $5, $6)`
	linkSQL = `
		select l.id, l.organization_id, l.domain_id, l.short_code, l.path, l.channel, l.utm_source, l.utm_medium, l.utm_campaign, l.utm_term,
		       l.utm_content, l.fallback_url, l.og_title, l.og_description, l.og_image_url, l.title, l.tags, l.expiry, l.template_id, l.params,
		       l.is_active, l.created_at, l.updated_at, o.org_key, d.host, d.status, d.created_at
		from links l join organizations o on o.id = l.organization_id join domains d on d.id = l.domain_id`
	getSQL  = linkSQL + ` where l.organization_id = $1 and l.id = $2`
	listSQL = linkSQL + `
		where l.id = any (array(select l.id from links l where l.organization_id = $1 order by l.created_at desc, l.id desc limit 100))
		order by l.created_at desc, l.id desc`
)

// createDirectly makes a link in one transaction of four round trips, as control does for a key.
func createDirectly(ctx context.Context, pool *pgxpool.Pool, c *tenant) error {
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		var domain [16]byte
		var look pgx.Batch
		look.Queue(usageSQL, c.ID)
		look.Queue(configSQL, c.ID)
		look.Queue(domainSQL, c.ID).QueryRow(func(row pgx.Row) error { return row.Scan(&domain, nil) })
		if err := tx.SendBatch(ctx, &look).Close(); err != nil {
			return err
		}
		id, err := uuid.NewV7()
		if err != nil {
			return err
		}
		entry, err := uuid.NewV7()
		if err != nil {
			return err
		}
		var write pgx.Batch
		write.Queue(insertSQL, id, c.ID, domain, catalog.GenerateCode(), "/made", "Made on the side", "https://shop.example.com/made")
		write.Queue(byIndexSQL)
		write.Queue(changeSQL)
		write.Queue(auditSQL, entry, c.ID, uuid.UUID(c.ID).String(), entry.String(), id, []byte(`{"shortCode": "direct"}`))
		return tx.SendBatch(ctx, &write).Close()
	})
}

// getDirectly reads one link after the other.
func getDirectly(ctx context.Context, pool *pgxpool.Pool, c *tenant) error {
	c.next = (c.next + 1) % len(c.links)
	return readAll(pool.Query(ctx, getSQL, c.ID, c.links[c.next]))
}

// listDirectly reads the first page, and how many links there are.
func listDirectly(ctx context.Context, pool *pgxpool.Pool, c *tenant) error {
	return pgx.BeginTxFunc(ctx, pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		if err := readAll(tx.Query(ctx, `select links from link_usage where organization_id = $1`, c.ID)); err != nil {
			return err
		}
		return readAll(tx.Query(ctx, listSQL, c.ID))
	})
}

// readAll decodes every value of every row.
func readAll(rows pgx.Rows, err error) error {
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if _, err := rows.Values(); err != nil {
			return err
		}
	}
	return rows.Err()
}
