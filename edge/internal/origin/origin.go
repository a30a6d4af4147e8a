// Package origin holds the edge's queries to Postgres: it looks up links and apps, and redeems match tokens. Each lookup is a statement of
// its own on the primary, so its result is never older than the request. The edge's registration and its poll are in package replica.
package origin

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"deeplink/shared/catalog"
)

// clickConnect bounds how long a click waits for a connection.
const clickConnect = time.Second

// Origin reads links. It is safe for concurrent use.
type Origin struct {
	pool  *pgxpool.Pool
	links *lookups
}

// Open returns an Origin over at most conns connections to the primary at databaseURL. It connects on first use.
func Open(ctx context.Context, databaseURL string, conns int32) (*Origin, error) {
	pool, err := openPool(ctx, databaseURL, conns, clickConnect, nil)
	if err != nil {
		return nil, err
	}
	return &Origin{pool: pool, links: newLookups(pool)}, nil
}

// Close waits for the connections in use and closes all.
func (o *Origin) Close() { o.pool.Close() }

// Stat returns the statistics of the connection pool.
func (o *Origin) Stat() *pgxpool.Stat { return o.pool.Stat() }

// Found is what an edge needs to serve one short URL.
type Found struct {
	// OrgKey is the key of the organization of the domain. Empty: no verified domain of this name, and no other field is set.
	OrgKey    string
	Suspended bool
	AppConfig catalog.AppConfig
	// Host is the custom host, empty on the shared one.
	Host string
	// Link is nil when the domain has no such code. Its OrganizationID, DomainID, URL, Title, Tags, TemplateID and times are not read.
	Link *catalog.Link
}

const selectFound = `
select o.org_key, o.suspended, coalesce(d.host, ''),
       a.ios_bundle_id, a.ios_team_id, a.ios_app_store_id, a.ios_scheme,
       a.android_package_name, a.android_sha256_cert_fingerprints, a.android_scheme,
       a.fallback_url, coalesce(a.html_error_pages, false),
       l.id::text, l.short_code, l.path, l.channel,
       l.utm_source, l.utm_medium, l.utm_campaign, l.utm_term, l.utm_content,
       l.fallback_url, l.og_title, l.og_description, l.og_image_url, l.expiry, l.params, l.is_active
from domains d
join organizations o on o.id = d.organization_id
left join app_configs a on a.organization_id = d.organization_id
left join links l on l.organization_id = d.organization_id and lower(l.short_code) = $2 and l.domain_id = d.id
where `

const (
	onSharedHost   = selectFound + `o.org_key = $1 and d.host is null`
	onCustomDomain = selectFound + `d.host = $1 and d.status = 'verified'`
)

// Link looks up a code, in lower case, on a domain: an organization's key for the shared host (four characters), otherwise a
// custom host. An unknown code or domain is not an error. An error for which postgres.Unreachable is true says nothing about the link.
func (o *Origin) Link(ctx context.Context, domain, code string) (Found, error) {
	query := onSharedHost
	if strings.Contains(domain, ".") {
		query = onCustomDomain
	}
	found, err := o.links.query(ctx, query, domain, code)
	if err != nil {
		return Found{}, fmt.Errorf("look up a link: %w", err)
	}
	return found, nil
}

// scanFound reads a row of selectFound.
func scanFound(row pgx.Row) (Found, error) {
	var f Found
	err := row.Scan(&f)
	if errors.Is(err, pgx.ErrNoRows) {
		return Found{}, nil
	}
	return f, err
}

// ScanRow implements pgx.RowScanner. It reads the raw columns, because pgx would plan a scan for each of the many text columns of each
// row, which is most of the garbage of a lookup.
func (f *Found) ScanRow(rows pgx.Rows) error {
	c := columnsOf(rows)
	f.OrgKey, f.Suspended, f.Host = c.string(), c.bool(), c.string()
	ios := catalog.IOSApp{BundleID: c.text(), TeamID: c.text(), AppStoreID: c.text(), Scheme: c.text()}
	android := catalog.AndroidApp{PackageName: c.text(), SHA256CertFingerprints: c.texts(), Scheme: c.text()}
	f.AppConfig.FallbackURL, f.AppConfig.HTMLErrorPages = c.text(), c.bool()
	if ios != (catalog.IOSApp{}) {
		f.AppConfig.IOS = &ios
	}
	if android.PackageName != nil || android.SHA256CertFingerprints != nil || android.Scheme != nil {
		f.AppConfig.Android = &android
	}
	if c.isNull() {
		return c.err
	}
	f.Link = &catalog.Link{
		ID: c.string(), ShortCode: c.string(), Path: c.string(), Channel: c.text(),
		UTMSource: c.text(), UTMMedium: c.text(), UTMCampaign: c.text(), UTMTerm: c.text(), UTMContent: c.text(),
		FallbackURL: c.text(),
	}
	if og := (catalog.OpenGraph{Title: c.text(), Description: c.text(), ImageURL: c.text()}); og != (catalog.OpenGraph{}) {
		f.Link.OG = &og
	}
	f.Link.Expiry, f.Link.Params, f.Link.IsActive = c.time(), c.json(), c.bool()
	return c.err
}
