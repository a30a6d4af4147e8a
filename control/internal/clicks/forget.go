package clicks

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"deeplink/control/internal/store"
	"deeplink/shared/catalog"
)

// ErrNotWaiting: no log of the slot is waiting.
var ErrNotWaiting = errors.New("no log of this slot is waiting")

// AllOrganizations is the id under which the audit trail has what concerns every organization.
const AllOrganizations = "00000000-0000-0000-0000-000000000000"

// Forgot is the result of forgetting the logs of a slot.
type Forgot struct {
	Slot        string         `json:"slot"`
	Logs        []ForgottenLog `json:"logs"`
	ForgottenAt catalog.Time   `json:"forgottenAt"`
}

// ForgottenLog is a log that was given up. Its clicks from Since on are missing, until its edge returns.
type ForgottenLog struct {
	Log   string       `json:"log"`
	Since catalog.Time `json:"since"`
}

// Forget gives up all waiting logs of a slot: they no longer hold asOf back. Error: ErrNotWaiting.
func Forget(ctx context.Context, pool *pgxpool.Pool, actor store.Actor, slot string) (forgot Forgot, err error) {
	err = store.Retry("forget the logs of a slot", func() error {
		forgot = Forgot{Slot: slot}
		return within(ctx, pool, func(tx pgx.Tx) error {
			rows, err := tx.Query(ctx, `
				update click_logs set state = 'forgotten', ended_at = clock_timestamp()
				where slot = $1 and state = 'open' and published_at < clock_timestamp() - $2::interval
				returning log::text, through, ended_at`, slot, waitingAfter)
			if err != nil {
				return err
			}
			var log string
			var since, at time.Time
			var ids []string
			if _, err := pgx.ForEachRow(rows, []any{&log, &since, &at}, func() error {
				forgot.Logs = append(forgot.Logs, ForgottenLog{log, catalog.Time{Time: since}})
				forgot.ForgottenAt = catalog.Time{Time: at}
				ids = append(ids, log)
				return nil
			}); err != nil {
				return err
			}
			if len(forgot.Logs) == 0 {
				return ErrNotWaiting
			}
			return store.RecordClicks(ctx, tx, actor, store.ClicksForgotten, AllOrganizations, map[string]any{"slot": slot, "logs": ids})
		})
	})
	if errors.Is(err, ErrNotWaiting) {
		err = ErrNotWaiting
	}
	return forgot, err
}
