package store

import (
	"context"
	"errors"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"deeplink/shared/apikey"
	"deeplink/shared/catalog"
	"deeplink/shared/feed"
)

const organizationColumns = `o.id, o.org_key, o.name, o.external_id, o.plan, o.suspended, o.created_at`

// organizationFields returns the scan targets for organizationColumns.
func organizationFields(o *catalog.Organization) []any {
	return []any{&o.ID, &o.OrgKey, &o.Name, &o.ExternalID, &o.Plan, &o.Suspended, &o.CreatedAt.Time}
}

func scanOrganization(row pgx.Row) (o catalog.Organization, err error) {
	err = row.Scan(organizationFields(&o)...)
	return o, err
}

// NewOrganization is the input of CreateOrganization.
type NewOrganization struct {
	// Name is 1 to 255 characters.
	Name string
	// OrgKey is a key that catalog.ValidOrgKey accepts, or empty for one to be generated.
	OrgKey     string
	ExternalID *string
	Plan       *catalog.Plan
	AppConfig  *catalog.AppConfig
}

// CreatedOrganization is a new organization with its raw keys, which are not stored. They are nil for a plan without api_access.
type CreatedOrganization struct {
	catalog.Organization
	ServerKey *string `json:"serverKey"`
	ClientKey *string `json:"clientKey"`
}

const insertOrganizationSQL = `
	insert into organizations as o (id, org_key, name, external_id, plan) values ($1, $2, $3, $4, $5)
	returning ` + organizationColumns

const insertUsageSQL = `insert into link_usage (organization_id) values ($1)`

// generatedOrgKeys bounds the attempts to generate a free key. With a tenth of all keys taken, eight attempts fail once in 10^8.
const generatedOrgKeys = 8

// CreateOrganization creates the organization with its default domain, its app config if given, and a key of each tier if its
// plan has api_access. Errors: ErrOrgKeyTaken, ErrExternalIDTaken.
func (s *Store) CreateOrganization(ctx context.Context, actor Actor, n NewOrganization) (CreatedOrganization, feed.Change, error) {
	if n.OrgKey != "" {
		return s.createOrganization(ctx, actor, n)
	}
	for try := 1; ; try++ {
		n.OrgKey = catalog.GenerateOrgKey()
		created, changed, err := s.createOrganization(ctx, actor, n)
		if !errors.Is(err, ErrOrgKeyTaken) || try == generatedOrgKeys {
			return created, changed, err
		}
	}
}

func (s *Store) createOrganization(ctx context.Context, actor Actor, n NewOrganization) (CreatedOrganization, feed.Change, error) {
	var created CreatedOrganization
	var changed feed.Change
	id, err := uuid.NewV7()
	if err != nil {
		return CreatedOrganization{}, feed.Change{}, err
	}
	err = s.write(ctx, actor, id.String(), "create an organization", func(tx *transaction) error {
		created = CreatedOrganization{}
		row := tx.QueryRow(ctx, insertOrganizationSQL, id.String(), n.OrgKey, n.Name, n.ExternalID, n.Plan)
		if created.Organization, err = scanOrganization(row); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, insertUsageSQL, created.ID); err != nil {
			return err
		}
		if _, err := s.insertDomain(ctx, tx, created.ID, nil, catalog.DomainVerified, nil); err != nil {
			return err
		}
		if n.AppConfig != nil {
			if err := putAppConfig(ctx, tx, created.ID, *n.AppConfig); err != nil {
				return err
			}
		}
		if terms(created.Organization).APIAccess {
			if err := insertKeys(ctx, tx, &created); err != nil {
				return err
			}
		}
		changed, err = tx.finish(ctx, entry{OrganizationCreated, created.ID, organizationTarget, created.ID,
			map[string]any{"orgKey": created.OrgKey, "plan": created.Plan}})
		return err
	})
	if err != nil {
		return CreatedOrganization{}, feed.Change{}, err
	}
	return created, changed, nil
}

func insertKeys(ctx context.Context, tx *transaction, o *CreatedOrganization) error {
	server, err := insertKey(ctx, tx, o.ID, apikey.Server)
	if err != nil {
		return err
	}
	client, err := insertKey(ctx, tx, o.ID, apikey.Client)
	if err != nil {
		return err
	}
	o.ServerKey, o.ClientKey = &server.RawKey, &client.RawKey
	return nil
}

const organizationsSQL = `select ` + organizationColumns + ` from organizations o order by o.created_at, o.id`

// Organizations returns all organizations, the oldest first.
func (s *Store) Organizations(ctx context.Context) (all []catalog.Organization, err error) {
	err = retry("list organizations", func() error {
		rows, err := s.pool.Query(ctx, organizationsSQL)
		if err != nil {
			return err
		}
		all, err = pgx.AppendRows([]catalog.Organization{}, rows, func(row pgx.CollectableRow) (catalog.Organization, error) {
			return scanOrganization(row)
		})
		return err
	})
	return all, err
}

const organizationSQL = `select ` + organizationColumns + ` from organizations o where o.org_key = $1`

// Organization returns the organization with the key, in lower case.
func (s *Store) Organization(ctx context.Context, orgKey string) (o catalog.Organization, err error) {
	err = retry("read an organization", func() error {
		o, err = scanOrganization(s.pool.QueryRow(ctx, organizationSQL, orgKey))
		return err
	})
	return o, err
}

const organizationByIDSQL = `select ` + organizationColumns + ` from organizations o where o.id = $1`

const externalOrganizationSQL = `select ` + organizationColumns + ` from organizations o where o.external_id = $1`

// ExternalOrganization returns the organization with the identity provider's id.
func (s *Store) ExternalOrganization(ctx context.Context, externalID string) (o catalog.Organization, err error) {
	err = retry("read an organization", func() error {
		o, err = scanOrganization(s.pool.QueryRow(ctx, externalOrganizationSQL, externalID))
		return err
	})
	return o, err
}

const organizationUsageSQL = `select links from link_usage where organization_id = $1`

// LinkUsage returns the organization's current number of links, or ErrNotFound.
func (s *Store) LinkUsage(ctx context.Context, orgID string) (links int64, err error) {
	err = retry("read the usage", func() error {
		return s.pool.QueryRow(ctx, organizationUsageSQL, orgID).Scan(&links)
	})
	return links, err
}

const setSuspendedSQL = `update organizations o set suspended = $2 where o.org_key = $1 returning ` + organizationColumns

// SetSuspended suspends the organization with the key, or resumes it. When it returns, every write that was allowed before it
// has been committed or has failed. A repeated call returns a change, too, so that it waits for the edges again.
func (s *Store) SetSuspended(ctx context.Context, actor Actor, orgKey string, suspended bool) (catalog.Organization, feed.Change, error) {
	action := OrganizationResumed
	if suspended {
		action = OrganizationSuspended
	}
	return s.setOrganization(ctx, actor, "suspend an organization", setSuspendedSQL, orgKey, suspended, func(before, after catalog.Organization) entry {
		if before.Suspended == after.Suspended {
			return entry{}
		}
		return entry{action, after.ID, organizationTarget, after.ID, map[string]any{}}
	})
}

const setPlanSQL = `update organizations o set plan = $2 where o.org_key = $1 returning ` + organizationColumns

// SetPlan sets the plan of the organization with the key, or removes it. When it returns, every write that the earlier plan allowed has been
// committed or has failed. Edges do not use plans. Links beyond the new quota stay.
func (s *Store) SetPlan(ctx context.Context, actor Actor, orgKey string, plan *catalog.Plan) (catalog.Organization, error) {
	o, _, err := s.setOrganization(ctx, actor, "set a plan", setPlanSQL, orgKey, plan, func(before, after catalog.Organization) entry {
		if equal(before.Plan, after.Plan) {
			return entry{}
		}
		return entry{PlanSet, after.ID, organizationTarget, after.ID, map[string]any{"from": before.Plan, "to": after.Plan}}
	})
	return o, err
}

func equal[T comparable](a, b *T) bool {
	return a == nil && b == nil || a != nil && b != nil && *a == *b
}

const lockOrganizationByKeySQL = organizationSQL + ` for no key update`

func (s *Store) setOrganization(
	ctx context.Context, actor Actor, what, sql, orgKey string, value any, recorded func(before, after catalog.Organization) entry,
) (o catalog.Organization, changed feed.Change, err error) {
	// Shares are keyed by the organization's id.
	named, err := s.Organization(ctx, orgKey)
	if err != nil {
		return catalog.Organization{}, feed.Change{}, err
	}
	err = s.write(ctx, actor, named.ID, what, func(tx *transaction) error {
		// Lock the organization first, then its links. No writer of links waits for the lock on the organization, so this cannot deadlock.
		var before catalog.Organization
		var batch pgx.Batch
		batch.Queue(lockOrganizationByKeySQL, orgKey).QueryRow(func(row pgx.Row) error { return row.Scan(organizationFields(&before)...) })
		batch.Queue(lockUsageSQL, named.ID)
		batch.Queue(sql, orgKey, value).QueryRow(func(row pgx.Row) error { return row.Scan(organizationFields(&o)...) })
		if err := tx.SendBatch(ctx, &batch).Close(); err != nil {
			return err
		}
		changed, err = tx.finish(ctx, recorded(before, o))
		return err
	})
	if err != nil {
		return catalog.Organization{}, feed.Change{}, err
	}
	return o, changed, nil
}
