package store

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"deeplink/shared/catalog"
	"deeplink/shared/feed"
)

// MaxDomains is how many custom domains an organization may have.
const MaxDomains = 100

// domain completes a domain of which status and time were read. host is nil for the shared host.
func (s *Store) domain(id string, host *string, d catalog.Domain) catalog.Domain {
	d.ID, d.Host, d.IsDefault, d.IsCustom = id, s.linkHost, host == nil, host != nil
	if host != nil {
		d.Host = *host
	}
	return d
}

// OwnDomain is a domain as its organization knows it.
type OwnDomain struct {
	catalog.Domain
	// Token is expected in DNS (decisions.md 2). It is empty for the default domain.
	Token string
}

const domainColumns = `d.id, d.host, d.status, d.created_at, d.verification_token`

func (s *Store) scanDomain(row pgx.Row) (OwnDomain, error) {
	var id string
	var host, token *string
	var d catalog.Domain
	err := row.Scan(&id, &host, &d.Status, &d.CreatedAt.Time, &token)
	return OwnDomain{s.domain(id, host, d), deref(token)}, err
}

const domainsSQL = `
	select ` + domainColumns + ` from domains d where d.organization_id = $1
	order by d.host is not null, d.created_at, d.id`

// Domains returns the organization's domains: the default one, then the others, the oldest first.
func (s *Store) Domains(ctx context.Context, orgID string) (all []OwnDomain, err error) {
	err = retry("list domains", func() error {
		rows, err := s.pool.Query(ctx, domainsSQL, orgID)
		if err != nil {
			return err
		}
		all, err = pgx.AppendRows([]OwnDomain{}, rows, func(row pgx.CollectableRow) (OwnDomain, error) { return s.scanDomain(row) })
		return err
	})
	return all, err
}

const domainSQL = `select ` + domainColumns + ` from domains d where d.organization_id = $1 and d.id = $2`

// Domain returns the organization's domain with the id, or ErrDomainNotFound.
func (s *Store) Domain(ctx context.Context, orgID, id string) (d OwnDomain, err error) {
	err = retry("read a domain", func() error {
		d, err = s.scanDomain(s.pool.QueryRow(ctx, domainSQL, orgID, id))
		return noDomain(err)
	})
	return d, err
}

func noDomain(err error) error {
	if errors.Is(err, pgx.ErrNoRows) {
		return ErrDomainNotFound
	}
	return err
}

const insertDomainSQL = `
	insert into domains (id, organization_id, host, status, verification_token) values ($1, $2, $3, $4, $5)
	returning created_at`

func (s *Store) insertDomain(
	ctx context.Context, tx pgx.Tx, orgID string, host *string, status catalog.DomainStatus, token *string,
) (catalog.Domain, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return catalog.Domain{}, err
	}
	d := catalog.Domain{Status: status}
	err = tx.QueryRow(ctx, insertDomainSQL, id.String(), orgID, host, status, token).Scan(&d.CreatedAt.Time)
	return s.domain(id.String(), host, d), err
}

const domainRoomSQL = `
	select (select count(*) from domains d where d.organization_id = $1 and d.host is not null),
	       exists (select from domains d where d.host = $2 and d.status = 'verified')`

// AddDomain gives the organization a custom domain, whose host catalog.CheckHost returned. It resolves at once when
// verified, and otherwise once the token it returns was found in DNS (decisions.md 2). Until then it excludes nobody: a host belongs
// to the organization that proved it first. Errors: ErrNotFound when the organization does not exist, ErrDomainQuota, ErrHostTaken
// when the host is verified by anyone, has been added already, or is the shared one.
func (s *Store) AddDomain(
	ctx context.Context, orgID, host string, verified bool,
) (d catalog.Domain, token string, changed feed.Change, err error) {
	if shared, _, _ := strings.Cut(s.linkHost, ":"); host == strings.ToLower(shared) {
		return catalog.Domain{}, "", feed.Change{}, ErrHostTaken
	}
	status := catalog.DomainPending
	if verified {
		status = catalog.DomainVerified
	}
	token = rand.Text()
	err = s.write(ctx, "add a domain", func(tx *transaction) error {
		if err := lockOrganization(ctx, tx, orgID); err != nil {
			return err
		}
		var domains int
		var taken bool
		if err := tx.QueryRow(ctx, domainRoomSQL, orgID, host).Scan(&domains, &taken); err != nil {
			return err
		}
		switch {
		case domains >= MaxDomains:
			return ErrDomainQuota
		case taken:
			// Also because each row makes edges forget the domain: a stranger must not be able to do that to its owner.
			return ErrHostTaken
		}
		if d, err = s.insertDomain(ctx, tx, orgID, &host, status, &token); err != nil {
			return err
		}
		changed, err = s.conclude(ctx, tx, domainEntry(DomainAdded, orgID, d))
		return err
	})
	if err != nil {
		return catalog.Domain{}, "", feed.Change{}, err
	}
	return d, token, changed, nil
}

const lockDomainSQL = domainSQL + ` for no key update`

const verifyDomainSQL = `update domains set status = 'verified' where organization_id = $1 and id = $2`

// VerifyDomain makes a domain of which DNS has the token resolve. One that is verified already stays as it is; the change is then what
// [Store.Barrier] returns.
// Errors: ErrDomainNotFound, and ErrHostTaken when another organization has verified the host before.
func (s *Store) VerifyDomain(ctx context.Context, orgID, id string) (d OwnDomain, changed feed.Change, err error) {
	err = s.write(ctx, "verify a domain", func(tx *transaction) error {
		if d, err = s.scanDomain(tx.QueryRow(ctx, lockDomainSQL, orgID, id)); err != nil {
			return noDomain(err)
		}
		if d.Status == catalog.DomainVerified {
			changed, err = change(ctx, tx)
			return err
		}
		if _, err := tx.Exec(ctx, verifyDomainSQL, orgID, id); err != nil {
			return err
		}
		d.Status = catalog.DomainVerified
		changed, err = s.conclude(ctx, tx, domainEntry(DomainVerified, orgID, d.Domain))
		return err
	})
	if err != nil {
		return OwnDomain{}, feed.Change{}, err
	}
	return d, changed, nil
}

const deleteDomainSQL = `delete from domains where organization_id = $1 and id = $2`

// DeleteDomain removes a custom domain; its host is free again. Errors: ErrDomainNotFound, ErrDomainDefault and ErrDomainInUse.
func (s *Store) DeleteDomain(ctx context.Context, orgID, id string) (changed feed.Change, err error) {
	err = s.write(ctx, "delete a domain", func(tx *transaction) error {
		d, err := s.scanDomain(tx.QueryRow(ctx, lockDomainSQL, orgID, id))
		switch {
		case err != nil:
			return noDomain(err)
		case d.IsDefault:
			return ErrDomainDefault
		}
		_, err = tx.Exec(ctx, deleteDomainSQL, orgID, id)
		if failed := (*pgconn.PgError)(nil); errors.As(err, &failed) && failed.Code == foreignKeyViolation {
			return ErrDomainInUse
		}
		if err != nil {
			return err
		}
		changed, err = s.conclude(ctx, tx, domainEntry(DomainDeleted, orgID, d.Domain))
		return err
	})
	if err != nil {
		return feed.Change{}, err
	}
	return changed, nil
}

func domainEntry(action Action, orgID string, d catalog.Domain) entry {
	return entry{action, orgID, domainTarget, d.ID, map[string]any{"host": d.Host, "status": d.Status}}
}
