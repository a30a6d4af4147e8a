package store

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"deeplink/shared/postgres"
)

const (
	// partitionsAhead is the number of days for which control creates partitions of events in advance, auditMonthsAhead the number of months
	// for the audit trail. control may be down for that long.
	partitionsAhead, auditMonthsAhead = 7, 6
	// noPartition is the code of an insert without a partition for its time (check_violation).
	noPartition = "23514"
	// partitionPatience bounds the retries of creating partitions after lost locks, for example to a drop of old partitions.
	partitionPatience = 5 * time.Second
)

// MakeEventPartitions creates the missing partitions of events for today and a week ahead. Several processes may run it concurrently.
func (s *Store) MakeEventPartitions(ctx context.Context) error {
	return s.makePartitions(ctx, "make partitions of events", `select make_event_partitions($1)`, partitionsAhead)
}

// MakeAuditPartitions creates the missing partitions of the audit trail for this month and half a year ahead. Several processes may run it
// concurrently.
func (s *Store) MakeAuditPartitions(ctx context.Context) error {
	return s.makePartitions(ctx, "make partitions of the audit trail", `select make_audit_partitions($1)`, auditMonthsAhead)
}

func (s *Store) makePartitions(ctx context.Context, what, sql string, ahead int) error {
	return retry(what, func() error {
		return postgres.RetryLocks(ctx, partitionPatience, func() error {
			_, err := s.pool.Exec(ctx, sql, ahead)
			return err
		})
	})
}

// lacksPartition reports whether an insert failed because the table has no partition for its time.
func lacksPartition(err error, table string) bool {
	var failed *pgconn.PgError
	return errors.As(err, &failed) && failed.Code == noPartition && failed.TableName == table && failed.ConstraintName == ""
}

const missingEventPartitionsSQL = `
	select to_char(day, 'YYYY-MM-DD') from generate_series((now() at time zone 'UTC')::date, (now() at time zone 'UTC')::date + $1::int, interval '1 day') day
	where not exists (select from pg_inherits i join pg_class c on c.oid = i.inhrelid
	                  where i.inhparent = to_regclass('events') and c.relname = 'events_' || to_char(day, 'YYYYMMDD'))
	order by 1`

// MissingEventPartitions returns the days from today to a week ahead that have no partition of events.
func (s *Store) MissingEventPartitions(ctx context.Context) ([]string, error) {
	return s.texts(ctx, "read the partitions of events", missingEventPartitionsSQL, partitionsAhead)
}

// The name of the first partition has the month before which it holds all entries.
const missingAuditPartitionsSQL = `
	select to_char(month, 'YYYY-MM')
	from generate_series(date_trunc('month', now() at time zone 'UTC'), date_trunc('month', now() at time zone 'UTC') + $1::int * interval '1 month', interval '1 month') month
	where not exists (select from pg_inherits i join pg_class c on c.oid = i.inhrelid
	                  where i.inhparent = to_regclass('audit_log')
	                    and (c.relname = 'audit_log_' || to_char(month, 'YYYYMM') or c.relname > 'audit_log_before_' || to_char(month, 'YYYYMM')))
	order by 1`

// MissingAuditPartitions returns the months from this one to half a year ahead that have no partition of the audit trail.
func (s *Store) MissingAuditPartitions(ctx context.Context) ([]string, error) {
	return s.texts(ctx, "read the partitions of the audit trail", missingAuditPartitionsSQL, auditMonthsAhead)
}
