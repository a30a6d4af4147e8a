package store

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"deeplink/shared/catalog"
	"deeplink/shared/feed"
)

const appConfigSQL = `
	select ios_bundle_id, ios_team_id, ios_app_store_id, ios_scheme, android_package_name, android_sha256_cert_fingerprints,
	       android_scheme, fallback_url, html_error_pages
	from app_configs where organization_id = $1`

// AppConfig returns the organization's app config, or the zero AppConfig if it has none.
func (s *Store) AppConfig(ctx context.Context, orgID string) (c catalog.AppConfig, err error) {
	err = retry("read an app config", func() error {
		c, err = scanAppConfig(s.pool.QueryRow(ctx, appConfigSQL, orgID))
		return err
	})
	return c, err
}

func scanAppConfig(row pgx.Row) (c catalog.AppConfig, err error) {
	var ios catalog.IOSApp
	var android catalog.AndroidApp
	err = row.Scan(&ios.BundleID, &ios.TeamID, &ios.AppStoreID, &ios.Scheme, &android.PackageName, &android.SHA256CertFingerprints,
		&android.Scheme, &c.FallbackURL, &c.HTMLErrorPages)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return catalog.AppConfig{}, nil
	case err != nil:
		return catalog.AppConfig{}, err
	}
	if ios != (catalog.IOSApp{}) {
		c.IOS = &ios
	}
	if android.PackageName != nil || android.SHA256CertFingerprints != nil || android.Scheme != nil {
		c.Android = &android
	}
	return c, nil
}

const putAppConfigSQL = `
	insert into app_configs as a (organization_id, ios_bundle_id, ios_team_id, ios_app_store_id, ios_scheme, android_package_name,
	                              android_sha256_cert_fingerprints, android_scheme, fallback_url, html_error_pages)
	values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
	on conflict (organization_id) do update
	set ios_bundle_id = excluded.ios_bundle_id, ios_team_id = excluded.ios_team_id, ios_app_store_id = excluded.ios_app_store_id,
	    ios_scheme = excluded.ios_scheme, android_package_name = excluded.android_package_name,
	    android_sha256_cert_fingerprints = excluded.android_sha256_cert_fingerprints, android_scheme = excluded.android_scheme,
	    fallback_url = excluded.fallback_url, html_error_pages = excluded.html_error_pages, updated_at = clock_timestamp()`

func putAppConfig(ctx context.Context, tx *transaction, orgID string, c catalog.AppConfig) error {
	var ios catalog.IOSApp
	if c.IOS != nil {
		ios = *c.IOS
	}
	var android catalog.AndroidApp
	if c.Android != nil {
		android = *c.Android
	}
	_, err := tx.Exec(ctx, putAppConfigSQL, orgID, ios.BundleID, ios.TeamID, ios.AppStoreID, ios.Scheme,
		android.PackageName, android.SHA256CertFingerprints, android.Scheme, c.FallbackURL, c.HTMLErrorPages)
	return err
}

// SetAppConfig replaces the organization's app config; the zero one is none. Errors: ErrNotFound when the organization does
// not exist, and that of require. A repeated call returns a change, too, so that it waits for the edges again.
func (s *Store) SetAppConfig(ctx context.Context, actor Actor, orgID string, require Requirement, c catalog.AppConfig) (changed feed.Change, err error) {
	err = s.write(ctx, actor, orgID, "set an app config", func(tx *transaction) error {
		if err := lockOrganization(ctx, tx, orgID, require); err != nil {
			return err
		}
		before, err := scanAppConfig(tx.QueryRow(ctx, appConfigSQL, orgID))
		if err != nil {
			return err
		}
		if err := putAppConfig(ctx, tx, orgID, c); err != nil {
			return err
		}
		fields, err := differences(before, c)
		if err != nil {
			return err
		}
		var e entry
		if fields != nil {
			e = entry{AppConfigSet, orgID, appConfigTarget, orgID, map[string]any{"fields": fields}}
		}
		changed, err = tx.finish(ctx, e)
		return err
	})
	if err != nil {
		return feed.Change{}, err
	}
	return changed, nil
}
