package fill

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"deeplink/shared/apikey"
	"deeplink/shared/catalog"
)

// Tenancy is an organization that gets links.
type Tenancy struct {
	Key        string `json:"orgKey"`
	ExternalID string `json:"externalId"`
	// Links is the number of links that it gets.
	Links     int    `json:"links"`
	ServerKey string `json:"serverKey,omitempty"` // of a new organization

	ID     [16]byte `json:"-"`
	domain [16]byte
	plan   *catalog.Plan
}

// newTenancies creates organizations as `control org create` does, each with its default domain, its keys and an app config.
func newTenancies(ctx context.Context, owner *pgx.Conn, sizes []int) (tenants []*Tenancy, err error) {
	taken, err := orgKeys(ctx, owner)
	if err != nil {
		return nil, err
	}
	var rows tenancyRows
	for _, links := range sizes {
		key := catalog.GenerateOrgKey()
		for taken[key] {
			key = catalog.GenerateOrgKey()
		}
		taken[key] = true
		t := &Tenancy{Key: key, ExternalID: "org_" + key, Links: links, plan: new(catalog.Enterprise), ServerKey: apikey.New(apikey.Server)}
		if err := rows.add(t); err != nil {
			return nil, err
		}
		tenants = append(tenants, t)
	}
	return tenants, pgx.BeginFunc(ctx, owner, func(tx pgx.Tx) error { return rows.write(ctx, tx) })
}

func orgKeys(ctx context.Context, owner *pgx.Conn) (map[string]bool, error) {
	rows, _ := owner.Query(ctx, `select org_key from organizations`)
	keys, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, fmt.Errorf("read the keys of organizations: %w", err)
	}
	taken := make(map[string]bool, len(keys))
	for _, key := range keys {
		taken[key] = true
	}
	return taken, nil
}

// tenancyRows are the rows of new organizations, by table.
type tenancyRows struct{ organizations, usages, domains, configs, keys, entries [][]any }

func (r *tenancyRows) add(t *Tenancy) error {
	var ids [5][16]byte
	for i := range ids {
		id, err := uuid.NewV7()
		if err != nil {
			return err
		}
		ids[i] = id
	}
	t.ID, t.domain = ids[0], ids[1]
	r.organizations = append(r.organizations, []any{t.ID, t.Key, "Organization " + t.Key, t.ExternalID, string(*t.plan)})
	r.usages = append(r.usages, []any{t.ID})
	r.domains = append(r.domains, []any{t.domain, t.ID, string(catalog.DomainVerified)})
	r.configs = append(r.configs, []any{t.ID, "com.example." + t.Key, "ABCDE12345", "123456789", "app" + t.Key, "com.example.app" + t.Key,
		"app" + t.Key, "https://shop.example.com/" + t.Key})
	server := apikey.Hash(t.ServerKey)
	unknown := apikey.New(apikey.Client) // for the SDK; it is never shown, so regenerate it before use
	hash := apikey.Hash(unknown)
	r.keys = append(r.keys, []any{ids[2], t.ID, string(apikey.Server), server[:], apikey.Display(t.ServerKey)},
		[]any{ids[3], t.ID, string(apikey.Client), hash[:], apikey.Display(unknown)})
	r.entries = append(r.entries, []any{ids[4], t.ID, "operator", "bench", "organization.create", "organization", t.ID,
		[]byte(fmt.Sprintf(`{"plan": %q, "orgKey": %q}`, *t.plan, t.Key))})
	return nil
}

// write copies the rows. Triggers of the database notify the edges.
func (r *tenancyRows) write(ctx context.Context, tx pgx.Tx) error {
	for _, table := range []struct {
		name    string
		columns []string
		rows    [][]any
	}{
		{"organizations", []string{"id", "org_key", "name", "external_id", "plan"}, r.organizations},
		{"link_usage", []string{"organization_id"}, r.usages},
		{"domains", []string{"id", "organization_id", "status"}, r.domains},
		{"app_configs", []string{"organization_id", "ios_bundle_id", "ios_team_id", "ios_app_store_id", "ios_scheme",
			"android_package_name", "android_scheme", "fallback_url"}, r.configs},
		{"api_keys", []string{"id", "organization_id", "tier", "hash", "display_key"}, r.keys},
		{"audit_log", []string{"id", "organization_id", "actor_type", "actor_id", "action", "target_type", "target_id", "detail"}, r.entries},
	} {
		if _, err := tx.CopyFrom(ctx, pgx.Identifier{table.name}, table.columns, pgx.CopyFromRows(table.rows)); err != nil {
			return fmt.Errorf("make organizations: %s: %w", table.name, err)
		}
	}
	return nil
}
