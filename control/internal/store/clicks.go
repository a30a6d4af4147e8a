package store

import (
	"context"
	"fmt"
	"time"

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

// ClickCheckup is the state of clicks, for an operator.
type ClickCheckup struct {
	// Logs are those in memory, off or waiting.
	Logs []ClickLog
	// RollUpLag is the age of the oldest batch that no roll-up has counted, 0 if there is none. AsOfAge is the age of asOf.
	RollUpLag, AsOfAge time.Duration
	// HasSalt reports whether there is a salt for today. OverdueSalts are those that should have been deleted.
	HasSalt      bool
	OverdueSalts int64
	// Edges reports whether an edge has a log.
	Edges bool
	// MissingPartitions are the tables that have no partition for a week ahead.
	MissingPartitions []string
}

// ClickLog is a log that needs attention.
type ClickLog struct {
	Slot, State string
	Since       time.Time
}

const clickLogsSQL = `
	select slot, case when state = 'off' then 'off' when published_at < clock_timestamp() - interval '10 seconds' then 'waiting' else 'in memory' end as state,
	       case when state = 'off' or published_at >= clock_timestamp() - interval '10 seconds' then created_at else through end
	from click_logs where state = 'off' or state = 'open' and (not durable or published_at < clock_timestamp() - interval '10 seconds')
	order by 2, 3 limit 100`

const clickStateSQL = `
	select coalesce((select clock_timestamp() - min(shipped_at) from click_batches where rolled_at is null), interval '0'),
	       (select clock_timestamp() - as_of from click_as_of),
	       exists (select from click_salts where day = (now() at time zone 'UTC')::date),
	       (select count(*) from click_salts where (day + 1)::timestamp at time zone 'UTC' + interval '49 hours' < now()),
	       exists (select from click_logs where state = 'open'),
	       array(select name from (values ('clicks', 'YYYYMMDD'), ('click_visitors', 'YYYYMMDD'), ('click_quarters', 'YYYYMM'), ('click_days', 'YYYYMM'),
	             ('click_org_quarters', 'YYYYMM'), ('click_org_days', 'YYYYMM'), ('click_dimensions', 'YYYYMM'), ('click_org_dimensions', 'YYYYMM')) t (name, form)
	             where to_regclass(name || '_' || to_char((now() at time zone 'UTC')::date + 6, form)) is null)`

// ClickCheckup returns the state of clicks.
func (s *Store) ClickCheckup(ctx context.Context) (c ClickCheckup, err error) {
	err = retry("check clicks", func() error {
		rows, err := s.pool.Query(ctx, clickLogsSQL)
		if err != nil {
			return err
		}
		if c.Logs, err = pgx.CollectRows(rows, pgx.RowToStructByPos[ClickLog]); err != nil {
			return err
		}
		return s.pool.QueryRow(ctx, clickStateSQL).Scan(&c.RollUpLag, &c.AsOfAge, &c.HasSalt, &c.OverdueSalts, &c.Edges, &c.MissingPartitions)
	})
	return c, err
}
