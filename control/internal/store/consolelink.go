package store

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"deeplink/shared/catalog"
)

// MaxConsoleLinks is how many unspent sign-in links an organization may have.
const MaxConsoleLinks = 20

// ConsoleLink is a one-time sign-in link without its token.
type ConsoleLink struct {
	ID           string
	Organization catalog.Organization
	// Role is member, admin or owner.
	Role string
	// Operator created the link.
	Operator  string
	ExpiresAt time.Time
}

const dropConsoleLinksSQL = `
	delete from console_links where id in (
		select id from console_links where organization_id = $1 and spent_at is null and expires_at >= $2 order by created_at desc, id desc offset $3)`

const insertConsoleLinkSQL = `
	insert into console_links (id, token_hash, organization_id, role, operator, created_at, expires_at) values ($1, $2, $3, $4, $5, $6, $7)`

// CreateConsoleLink stores a sign-in link whose token has the hash, and deletes the oldest unspent ones of the organization beyond
// MaxConsoleLinks. Errors: ErrNotFound when the organization does not exist, and that of require.
func (s *Store) CreateConsoleLink(ctx context.Context, actor Actor, require Requirement, l ConsoleLink, tokenHash [32]byte, now time.Time) error {
	return s.write(ctx, actor, l.Organization.ID, "create a sign-in link", func(tx *transaction) error {
		if err := lockOrganization(ctx, tx, l.Organization.ID, require); err != nil {
			return err
		}
		var batch pgx.Batch
		batch.Queue(dropConsoleLinksSQL, l.Organization.ID, now, MaxConsoleLinks-1)
		batch.Queue(insertConsoleLinkSQL, l.ID, tokenHash[:], l.Organization.ID, l.Role, l.Operator, now, l.ExpiresAt)
		_, err := tx.finishBatch(ctx, &batch, entry{ConsoleLinkCreated, l.Organization.ID, consoleLinkTarget, l.ID, map[string]any{"role": l.Role}})
		return err
	})
}

const consoleLinkSQL = `
	select l.id, l.role, l.operator, l.expires_at, ` + organizationColumns + `
	from console_links l join organizations o on o.id = l.organization_id
	where l.token_hash = $1 and l.spent_at is null and l.expires_at >= $2 and not o.suspended`

// ConsoleLink returns the link whose token has the hash and spends nothing, or ErrLinkInvalid.
func (s *Store) ConsoleLink(ctx context.Context, tokenHash [32]byte, now time.Time) (l ConsoleLink, err error) {
	err = retry("read a sign-in link", func() error {
		return s.pool.QueryRow(ctx, consoleLinkSQL, tokenHash[:], now).Scan(
			append([]any{&l.ID, &l.Role, &l.Operator, &l.ExpiresAt}, organizationFields(&l.Organization)...)...)
	})
	if errors.Is(err, ErrNotFound) {
		err = ErrLinkInvalid
	}
	return l, err
}

const spendConsoleLinkSQL = `update console_links set spent_at = $2 where id = $1 and spent_at is null and expires_at >= $2`

// SpendConsoleLink spends the link and creates the session n, which is for its organization and role. Of several calls one spends it; the
// others get ErrLinkInvalid.
func (s *Store) SpendConsoleLink(ctx context.Context, actor Actor, l ConsoleLink, n NewConsoleSession) error {
	n.OrganizationID, n.Role, n.Operator, n.Via = l.Organization.ID, l.Role, l.Operator, ViaLink
	return s.write(ctx, actor, n.OrganizationID, "spend a sign-in link", func(tx *transaction) error {
		spent, err := tx.Exec(ctx, spendConsoleLinkSQL, l.ID, n.CreatedAt)
		if err != nil {
			return err
		}
		if spent.RowsAffected() == 0 {
			return ErrLinkInvalid
		}
		return tx.createConsoleSession(ctx, n, func(batch *pgx.Batch) error {
			return tx.record(batch, entry{ConsoleLinkSpent, l.Organization.ID, consoleLinkTarget, l.ID, map[string]any{"role": l.Role}})
		})
	})
}
