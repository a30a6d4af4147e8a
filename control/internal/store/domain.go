package store

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"deeplink/shared/catalog"
	"deeplink/shared/feed"
)

// MaxDomains is how many custom domains an organization may have.
const MaxDomains = 100

// domain completes a domain whose status and time were read from the database. host is nil for the shared host.
func (s *Store) domain(id string, host *string, d catalog.Domain) catalog.Domain {
	d.ID, d.Host, d.IsDefault, d.IsCustom = id, s.linkHost, host == nil, host != nil
	if host != nil {
		d.Host = *host
	}
	return d
}

// OwnDomain is a domain as its own organization sees it.
type OwnDomain struct {
	catalog.Domain
	// Token is expected in DNS. It is empty for the default domain.
	Token string
	// LostAt is when the host moved to another organization. It is nil if the host has not moved since the domain was last verified.
	LostAt *catalog.Time
	// Transfer is the next transfer of the host that affects the domain, or nil.
	Transfer *Transfer
	// ReadAt is the time of the database when the domain was read, for the [Proofs] of a later lookup.
	ReadAt time.Time
}

const (
	domainColumns = `
		d.id, d.host, d.status, d.created_at, d.verification_token, d.lost_at, t.incoming, t.started_at, t.completes_at, clock_timestamp()`
	domainTables = `
		domains d left join lateral (
			select c.domain_id = d.id as incoming, c.started_at, c.completes_at from domain_transfers c
			where c.host = d.host and (c.domain_id = d.id or d.status = 'verified') order by c.completes_at, c.domain_id limit 1
		) t on true`
)

func (s *Store) scanDomain(row pgx.Row) (OwnDomain, error) {
	var own OwnDomain
	var id string
	var host, token *string
	var d catalog.Domain
	var lostAt, startedAt, completesAt *time.Time
	var incoming *bool
	err := row.Scan(&id, &host, &d.Status, &d.CreatedAt.Time, &token, &lostAt, &incoming, &startedAt, &completesAt, &own.ReadAt)
	own.Domain, own.Token = s.domain(id, host, d), deref(token)
	if lostAt != nil {
		own.LostAt = &catalog.Time{Time: *lostAt}
	}
	if incoming != nil && startedAt != nil && completesAt != nil {
		own.Transfer = &Transfer{*incoming, catalog.Time{Time: *startedAt}, catalog.Time{Time: *completesAt}}
	}
	return own, err
}

const domainsSQL = `
	select ` + domainColumns + ` from ` + domainTables + ` where d.organization_id = $1
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

const domainSQL = `select ` + domainColumns + ` from ` + domainTables + ` where d.organization_id = $1 and d.id = $2`

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
	ctx context.Context, tx *transaction, orgID string, host *string, status catalog.DomainStatus, token *string,
) (catalog.Domain, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return catalog.Domain{}, err
	}
	d := catalog.Domain{Status: status}
	err = tx.QueryRow(ctx, insertDomainSQL, id.String(), orgID, host, status, token).Scan(&d.CreatedAt.Time)
	return s.domain(id.String(), host, d), err
}

const countDomainsSQL = `select count(*) from domains d where d.organization_id = $1 and d.host is not null`

// AddDomain gives the organization a custom domain, whose host catalog.CheckHost returned. If verified is true, it resolves at once, and if
// the organization has the host pending, that domain is verified and returned. Otherwise [Store.VerifyDomain] must find the returned token
// in DNS first. A pending domain excludes no other claim: any number of organizations may have the same host pending, even while another
// one has it verified. Errors: ErrNotFound when the organization does not exist, that of require, ErrDomainQuota, and ErrHostTaken when the
// organization already has the host (verified, or verified is false), when the host is the shared one, or when verified is true and another
// organization has the host verified.
func (s *Store) AddDomain(
	ctx context.Context, actor Actor, orgID string, require Requirement, host string, verified bool,
) (d catalog.Domain, token string, changed feed.Change, err error) {
	status := catalog.DomainPending
	if verified {
		status = catalog.DomainVerified
	}
	token = rand.Text()
	err = s.write(ctx, actor, orgID, "add a domain", func(tx *transaction) error {
		if err := lockOrganization(ctx, tx, orgID, require); err != nil {
			return err
		}
		var domains int
		if err := tx.QueryRow(ctx, countDomainsSQL, orgID).Scan(&domains); err != nil {
			return err
		}
		switch {
		case domains >= MaxDomains:
			return ErrDomainQuota
		case s.isShared(host):
			return ErrHostTaken
		}
		action := DomainAdded
		if verified {
			own, ownToken, pending, err := s.verifyPending(ctx, tx, orgID, host)
			if err != nil {
				return err
			}
			if pending {
				action, d, token = DomainVerified, own, ownToken
			}
		}
		if action == DomainAdded {
			if d, err = s.insertDomain(ctx, tx, orgID, &host, status, &token); err != nil {
				return err
			}
		}
		changed, err = tx.finish(ctx, domainEntry(action, orgID, d))
		return err
	})
	if err != nil {
		return catalog.Domain{}, "", feed.Change{}, err
	}
	return d, token, changed, nil
}

const pendingDomainSQL = `
	select d.id, d.verification_token, d.created_at from domains d where d.organization_id = $1 and d.host = $2 and d.status = 'pending'`

// verifyPending verifies the organization's pending domain of the host, if there is one, without a DNS lookup. The unique index of verified
// hosts rejects a host that another organization has verified.
func (s *Store) verifyPending(ctx context.Context, tx *transaction, orgID, host string) (d catalog.Domain, token string, pending bool, err error) {
	d = catalog.Domain{Status: catalog.DomainVerified}
	var id string
	err = tx.QueryRow(ctx, pendingDomainSQL, orgID, host).Scan(&id, &token, &d.CreatedAt.Time)
	if errors.Is(err, pgx.ErrNoRows) {
		return catalog.Domain{}, "", false, nil
	}
	if err != nil {
		return catalog.Domain{}, "", false, err
	}
	var batch pgx.Batch
	batch.Queue(verifyDomainSQL, orgID, id)
	batch.Queue(endTransferSQL, id)
	if err := tx.SendBatch(ctx, &batch).Close(); err != nil {
		return catalog.Domain{}, "", false, err
	}
	return s.domain(id, &host, d), token, true, nil
}

// isShared reports whether the host is a name of the shared host. It has no port and no trailing dot, as catalog.CheckHost returns it.
func (s *Store) isShared(host string) bool {
	shared, _, _ := strings.Cut(s.linkHost, ":")
	return host == strings.TrimSuffix(strings.ToLower(shared), ".") || slices.Contains(s.extraHosts, host)
}

// VerifyDomain gives the organization the host of its domain if the proofs, from a lookup after the domain was read, prove the domain. If
// the host is free, it moves at once; otherwise after [TransferPeriod], if the record of the present owner is missing until then, and the
// returned domain has a Transfer. Without proof the domain stays pending. For a verified domain, VerifyDomain ends the transfers of its
// host if the proofs prove the domain. If nothing changes for edges, the returned change is that of [Store.Barrier]. Errors: that of
// require, ErrDomainNotFound, ErrHostTaken when the host has become a name of the shared host, and ErrHostOwned when another organization
// has the host and the proofs prove its domain, too.
func (s *Store) VerifyDomain(
	ctx context.Context, actor Actor, orgID string, require Requirement, id string, proofs Proofs,
) (d OwnDomain, changed feed.Change, err error) {
	var refused bool
	err = s.write(ctx, actor, orgID, "verify a domain", func(tx *transaction) error {
		refused = false
		if err := lockOrganization(ctx, tx, orgID, require); err != nil {
			return err
		}
		if d, err = s.scanDomain(tx.QueryRow(ctx, domainSQL, orgID, id)); err != nil {
			return noDomain(err)
		}
		switch {
		case d.IsDefault:
			changed, err = tx.finish(ctx, entry{})
			return err
		case d.Status == catalog.DomainPending && s.isShared(d.Host):
			return ErrHostTaken // the claim is older than the name of the shared host
		}
		claims, now, err := lockHost(ctx, tx, d.Host, id)
		if err != nil {
			return err
		}
		settled := settle(claims, id, proofs, now)
		refused = settled.refused
		var batch pgx.Batch
		if err := carryOut(tx, &batch, d.Host, orgID, settled, now); err != nil {
			return err
		}
		batch.Queue(domainSQL, orgID, id).QueryRow(func(row pgx.Row) (err error) {
			d, err = s.scanDomain(row)
			return noDomain(err)
		})
		changed, err = tx.finishBatch(ctx, &batch, entry{})
		return err
	})
	switch {
	case err != nil:
		return OwnDomain{}, feed.Change{}, err
	case refused:
		return OwnDomain{}, feed.Change{}, ErrHostOwned
	}
	return d, changed, nil
}

const (
	deleteDomainSQL = `delete from domains where organization_id = $1 and id = $2`
	// Claims that wait for the owner of the host need not wait any longer.
	hurryTransfersSQL = `update domain_transfers set check_at = now() where host = $1`
)

// DeleteDomain removes a custom domain; its host is free again. Errors: that of require, ErrDomainNotFound, ErrDomainDefault and
// ErrDomainInUse.
func (s *Store) DeleteDomain(ctx context.Context, actor Actor, orgID string, require Requirement, id string) (changed feed.Change, err error) {
	err = s.write(ctx, actor, orgID, "delete a domain", func(tx *transaction) error {
		if err := lockOrganization(ctx, tx, orgID, require); err != nil {
			return err
		}
		d, err := s.scanDomain(tx.QueryRow(ctx, domainSQL, orgID, id))
		switch {
		case err != nil:
			return noDomain(err)
		case d.IsDefault:
			return ErrDomainDefault
		}
		claims, _, err := lockHost(ctx, tx, d.Host, id)
		if err != nil {
			return err
		}
		own := slices.IndexFunc(claims, func(c claim) bool { return c.domainID == id })
		if own < 0 {
			return ErrDomainNotFound // another call deleted it first
		}
		_, err = tx.Exec(ctx, deleteDomainSQL, orgID, id)
		if failed := (*pgconn.PgError)(nil); errors.As(err, &failed) && failed.Code == foreignKeyViolation {
			return ErrDomainInUse
		}
		if err != nil {
			return err
		}
		changed, err = finishDeletion(ctx, tx, d.Domain, orgID, claims[own], claims)
		return err
	})
	if err != nil {
		return feed.Change{}, err
	}
	return changed, nil
}

// finishDeletion finishes the transaction that deleted own, one of the claims to its host: it records the deletion for the affected
// organizations.
func finishDeletion(ctx context.Context, tx *transaction, d catalog.Domain, orgID string, own claim, claims []claim) (feed.Change, error) {
	var batch pgx.Batch
	trail := hostTrail{tx: tx, batch: &batch, host: d.Host, actingID: orgID}
	d.Status = catalog.DomainPending
	if own.verified {
		d.Status = catalog.DomainVerified
		batch.Queue(hurryTransfersSQL, d.Host)
	}
	if owner := slices.IndexFunc(claims, func(c claim) bool { return c.verified }); own.transfer != nil && owner >= 0 {
		trail.add(DomainTransferEnded, &claims[owner], "out", map[string]any{"reason": claimDeleted})
	}
	if trail.err != nil {
		return feed.Change{}, trail.err
	}
	return tx.finishBatch(ctx, &batch, domainEntry(DomainDeleted, orgID, d))
}

func domainEntry(action Action, orgID string, d catalog.Domain) entry {
	return entry{action, orgID, domainTarget, d.ID, map[string]any{"host": d.Host, "status": d.Status}}
}
