package origin

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"deeplink/shared/feed"
)

// Platform is a mobile platform whose devices request an association file from a host.
type Platform uint8

// The platforms.
const (
	IOS Platform = iota
	Android
)

// maxApps bounds the rows read for the shared host. The files have room for about 1,200 apps on iOS and 2,500 on Android.
const maxApps = 4096

// Apps lists the apps of one platform that may open the links of a domain.
type Apps struct {
	// OrgKey is the key of the organization of a custom domain. Empty: no verified domain of this name, or the shared host.
	OrgKey string
	// List holds at most 4,096 apps in the order of their organizations' ids, so the oldest organizations come first.
	List []App
	// Total is the number of apps, which can be greater than len(List).
	Total int
}

// App is the app of an organization on one platform. All fields that the platform's file needs are set.
type App struct {
	// OrgKey is the first segment of the paths of its links; empty on a custom domain.
	OrgKey string
	// ID is the application identifier on iOS (team id, dot, bundle id) and the package name on Android.
	ID string
	// Fingerprints are the SHA-256 fingerprints of the signing certificates; only on Android.
	Fingerprints []string
}

// selectApps selects, per platform, the organizations that have an app on it.
var selectApps = [...]string{
	IOS: `
with apps as not materialized (
    select organization_id, ios_team_id || '.' || ios_bundle_id as id, null::text[] as fingerprints
    from app_configs
    where ios_team_id is not null and ios_bundle_id is not null
)`,
	Android: `
with apps as not materialized (
    select organization_id, android_package_name as id, android_sha256_cert_fingerprints as fingerprints
    from app_configs
    where android_package_name is not null and cardinality(android_sha256_cert_fingerprints) > 0
)`,
}

const (
	ofSharedHost = `
select o.org_key, a.id, a.fingerprints, (select count(*) from apps)
from apps a
join organizations o on o.id = a.organization_id
order by o.id
limit $1`
	ofCustomDomain = `
select o.org_key, a.id, a.fingerprints, count(a.id) over ()
from domains d
join organizations o on o.id = d.organization_id
left join apps a on a.organization_id = d.organization_id
where d.host = $1 and d.status = 'verified'`
)

// Apps returns the apps that may open the links of a custom domain or, when domain is [feed.SharedDomain], those of the shared host.
// Apps of suspended organizations are included. An unknown domain is not an error.
func (o *Origin) Apps(ctx context.Context, platform Platform, domain string) (Apps, error) {
	var apps Apps
	err := withCurrentPlan(func() (err error) {
		apps, err = o.queryApps(ctx, platform, domain)
		return err
	})
	if err != nil {
		return Apps{}, fmt.Errorf("look up apps: %w", err)
	}
	return apps, nil
}

func (o *Origin) queryApps(ctx context.Context, platform Platform, domain string) (Apps, error) {
	query, argument := selectApps[platform]+ofCustomDomain, any(domain)
	if domain == feed.SharedDomain {
		query, argument = selectApps[platform]+ofSharedHost, maxApps
	}
	rows, err := o.pool.Query(ctx, query, argument)
	if err != nil {
		return Apps{}, err
	}
	var apps Apps
	var orgKey string
	var id *string
	var fingerprints []string
	_, err = pgx.ForEachRow(rows, []any{&orgKey, &id, &fingerprints, &apps.Total}, func() error {
		app := App{OrgKey: orgKey, Fingerprints: fingerprints}
		if domain != feed.SharedDomain {
			apps.OrgKey, app.OrgKey = orgKey, ""
		}
		if id != nil {
			app.ID = *id
			apps.List = append(apps.List, app)
		}
		return nil
	})
	return apps, err
}
