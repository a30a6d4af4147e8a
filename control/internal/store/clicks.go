package store

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// Retry runs f, which reads or changes the tables of clicks, and runs it again after failures that had no effect and may not repeat. Its error
// is one of this package, as those of a Store are.
func Retry(what string, f func() error) error { return retry(what, f) }

// RecordClicks adds the entry of an action on clicks to the audit trail of the organization, in a transaction of the caller.
func RecordClicks(ctx context.Context, tx pgx.Tx, actor Actor, action Action, orgID string, detail map[string]any) error {
	if actor == (Actor{}) {
		return fmt.Errorf("%s: %w", action, ErrNoActor)
	}
	_, row, err := auditRow(actor, entry{action, orgID, organizationTarget, orgID, detail})
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, recordSQL, row...)
	return err
}
