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

// domain completes a domain of which status and time were read. host is nil for the shared host.
func (s *Store) domain(id string, host *string, d catalog.Domain) catalog.Domain {
	d.ID, d.Host, d.IsDefault, d.IsCustom = id, s.linkHost, host == nil, host != nil
	if host != nil {
		d.Host = *host
	}
	return d
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

// AddDomain gives the organization a custom domain, whose host catalog.CheckHost returned. It resolves at once when
// verified, and otherwise once the token it returns was found in DNS (decisions.md 2). Errors: ErrNotFound when the
// organization does not exist, ErrHostTaken when the host is anyone's already, or the shared one.
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
	err = s.write(ctx, "add a domain", func(tx pgx.Tx) error {
		if d, err = s.insertDomain(ctx, tx, orgID, &host, status, &token); err != nil {
			return err
		}
		changed, err = change(ctx, tx)
		return err
	})
	if err != nil {
		return catalog.Domain{}, "", feed.Change{}, err
	}
	return d, token, changed, nil
}

const deleteDomainSQL = `delete from domains where organization_id = $1 and id = $2 and host is not null`

// DeleteDomain removes a custom domain; its host is free again. Errors: ErrNotFound, also for the default domain, which
// stays, and ErrDomainInUse.
func (s *Store) DeleteDomain(ctx context.Context, orgID, id string) (changed feed.Change, err error) {
	err = s.write(ctx, "delete a domain", func(tx pgx.Tx) error {
		result, err := tx.Exec(ctx, deleteDomainSQL, orgID, id)
		var failed *pgconn.PgError
		switch {
		case errors.As(err, &failed) && failed.Code == foreignKeyViolation:
			return ErrDomainInUse
		case err != nil:
			return err
		case result.RowsAffected() == 0:
			return ErrNotFound
		}
		changed, err = change(ctx, tx)
		return err
	})
	if err != nil {
		return feed.Change{}, err
	}
	return changed, nil
}
