package origin

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"deeplink/shared/feed"
)

// Platform is one whose devices ask a host which apps may open its links.
type Platform uint8

// The platforms.
const (
	IOS Platform = iota
	Android
)

// maxApps bounds what is read for the shared host. The files have room for about 1,200 apps on iOS and 2,500 on Android.
const maxApps = 4096

// Apps are those of one platform that may open the links of a domain.
type Apps struct {
	// OrgKey names the organization of a custom domain. Empty: no verified domain of this name, or the shared host.
	OrgKey string
	// List has the apps in the order of their organizations' ids, which is that of their age; at most 4,096 of them.
	List []App
	// Total is how many there are.
	Total int
}

// App is the app of an organization on one platform. What belongs together for the platform is all set.
type App struct {
	// OrgKey begins the paths of its links; empty on a custom domain.
	OrgKey string
	// ID is the application identifier on iOS, which is the team's id and the bundle's, and the package name on Android.
	ID string
	// Fingerprints are the SHA-256 of the certificates that may have signed it; only on Android.
	Fingerprints []string
}

// selectApps has for each platform those who have an app on it.
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
// Whether an organization is suspended makes no difference. What is unknown is no error.
func (o *Origin) Apps(ctx context.Context, platform Platform, domain string) (Apps, error) {
	var apps Apps
	err := again(func() (err error) {
		apps, err = o.askApps(ctx, platform, domain)
		return err
	})
	if err != nil {
		return Apps{}, fmt.Errorf("look up apps: %w", err)
	}
	return apps, nil
}

func (o *Origin) askApps(ctx context.Context, platform Platform, domain string) (Apps, error) {
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
