package clicks

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"deeplink/control/internal/store"
	"deeplink/shared/postgres"
)

const (
	// housekeepingEvery is the interval of rounds: without retention, a click is deleted within a minute.
	housekeepingEvery = 20 * time.Second
	// observeEvery is the interval of the metrics.
	observeEvery = 5 * time.Second
	// lostAfter is when a log in memory counts as lost with its process.
	lostAfter = 10 * time.Minute
	// partitionsAhead is the number of days for which partitions exist in advance. Control may be down for that long.
	partitionsAhead = 7
	// deletedRows is the number of rows per statement.
	deletedRows = 10_000
	// lockPatience bounds the retries of what waits for a lock on a partition.
	lockPatience = 5 * time.Second
)

// Housekeeping creates partitions, deletes what has expired, and gives up logs in memory whose process is gone. Every control runs one.
type Housekeeping struct {
	pool      *pgxpool.Pool
	raw       Raw
	retention time.Duration
	metrics   *Metrics
	log       *slog.Logger
}

// NewHousekeeping returns the housekeeping of a control. retention is CLICKS_RETENTION.
func NewHousekeeping(pool *pgxpool.Pool, retention time.Duration, metrics *Metrics, log *slog.Logger) *Housekeeping {
	return &Housekeeping{pool: pool, raw: table{}, retention: retention, metrics: metrics, log: log}
}

// Run makes rounds until ctx ends. The next round repeats what failed.
func (h *Housekeeping) Run(ctx context.Context) error {
	var next time.Time
	ticker := time.NewTicker(observeEvery)
	defer ticker.Stop()
	for {
		if now := time.Now(); !now.Before(next) {
			next = now.Add(housekeepingEvery)
			err := h.Round(ctx)
			if ctx.Err() != nil {
				return nil
			}
			result := "success"
			if err != nil {
				result = "error"
				h.log.Warn("housekeeping of clicks failed", "error", err)
			}
			h.metrics.housekeeping.WithLabelValues(result).Inc()
		}
		h.observe(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// Round does everything once. A step that fails does not stop the others.
func (h *Housekeeping) Round(ctx context.Context) error {
	var errs []error
	for _, step := range []struct {
		what string
		do   func(context.Context) error
	}{
		{"partitions of clicks", h.call(`select make_click_partitions($1)`, partitionsAhead)},
		{"partitions of figures", h.call(`select make_click_figure_partitions($1)`, partitionsAhead)},
		{"logs", h.endLogs},
		{"expired clicks", h.deleteClicks},
		{"expired partitions of clicks", h.call(`select drop_click_partitions($1)`, h.retention)},
		{"expired partitions of figures", h.call(`select drop_click_figure_partitions($1)`, max(h.retention, visitorsKept))},
		{"expired quarters", h.call(`delete from click_quarters_other where quarter < now() - $1::interval`, QuartersKept+day)},
		{"expired quarters of organizations", h.call(`delete from click_org_quarters_other where quarter < now() - $1::interval`, QuartersKept+day)},
		{"expired visitors", h.repeat(`delete from click_visitors_other where ctid = any (array(
			select ctid from click_visitors_other where day < ((now() - $1::interval) at time zone 'UTC')::date limit $2))`, max(h.retention, visitorsKept))},
		{"batches of closed logs", h.repeat(`delete from click_batches where ctid = any (array(
			select b.ctid from click_batches b join click_logs l on l.log = b.log
			where l.state = 'closed' and b.rolled_at < now() - $1::interval limit $2))`, time.Minute)},
		{"agents", h.repeat(`delete from click_agents where ctid = any (array(
			select a.ctid from click_agents a
			where a.id <> 0 and a.seen_on < ((now() - $1::interval) at time zone 'UTC')::date - 1
			  and not exists (select from click_batches where rolled_at is null and first_at < now() - interval '12 hours')
			  and not exists (select from click_logs where state = 'open' and through < now() - interval '12 hours') limit $2))`, max(h.retention, day))},
		{"salts", h.call(`delete from click_salts where (day + 1)::timestamp at time zone 'UTC' + $1::interval <= now()`, visitorsKept)},
	} {
		bounded, cancel := context.WithTimeout(ctx, 30*time.Second)
		err := step.do(bounded)
		cancel()
		if err != nil && ctx.Err() == nil {
			errs = append(errs, fmt.Errorf("%s: %w", step.what, err))
		}
	}
	return errors.Join(errs...)
}

// call returns a step that runs one statement.
func (h *Housekeeping) call(sql string, arguments ...any) func(context.Context) error {
	return func(ctx context.Context) error {
		return postgres.RetryLocks(ctx, lockPatience, func() error {
			return within(ctx, h.pool, func(tx pgx.Tx) error {
				_, err := tx.Exec(ctx, sql, arguments...)
				return err
			})
		})
	}
}

// repeat returns a step that repeats a statement until it deletes fewer than deletedRows rows, its second parameter.
func (h *Housekeeping) repeat(sql string, age time.Duration) func(context.Context) error {
	return func(ctx context.Context) error {
		for ctx.Err() == nil {
			var deleted int64
			err := within(ctx, h.pool, func(tx pgx.Tx) error {
				tag, err := tx.Exec(ctx, sql, age, deletedRows)
				deleted = tag.RowsAffected()
				return err
			})
			if err != nil || deleted < deletedRows {
				return err
			}
		}
		return nil // the next round continues
	}
}

// deleteClicks deletes expired clicks of days without a partition.
func (h *Housekeeping) deleteClicks(ctx context.Context) error {
	for ctx.Err() == nil {
		var done bool
		err := within(ctx, h.pool, func(tx pgx.Tx) (err error) {
			_, done, err = h.raw.DeleteBefore(ctx, tx, keptFrom(time.Now(), h.retention))
			return err
		})
		if err != nil || done {
			return err
		}
	}
	return nil
}

const (
	// A log in memory is lost if its slot has a newer log, or if nothing was heard of it for lostAfter. What it had not shipped is gone.
	loseLogsSQL = `
		update click_logs l set state = 'lost', ended_at = coalesce(
			(select min(n.created_at) from click_logs n where n.slot = l.slot and n.created_at > l.created_at and n.state <> 'lost'), clock_timestamp())
		where l.state = 'open' and not l.durable and (
			l.published_at < clock_timestamp() - $1::interval
			or l.published_at < clock_timestamp() - $2::interval
			   and exists (select from click_logs n where n.slot = l.slot and n.created_at > l.created_at and n.state <> 'lost'))`
	// An edge that records nothing publishes nothing. It is gone when its row in edges is.
	closeOffLogsSQL = `
		update click_logs l set state = 'closed'
		where l.state = 'off' and l.published_at < clock_timestamp() - $1::interval
		  and not exists (select from edges e where e.incarnation = l.log)`
)

// replacedAfter is how long a log whose slot has a newer log must have published nothing: a process that shuts down ships its last clicks
// while its successor starts.
const replacedAfter = 5 * time.Second

func (h *Housekeeping) endLogs(ctx context.Context) error {
	return errors.Join(h.call(loseLogsSQL, lostAfter, replacedAfter)(ctx), h.call(closeOffLogsSQL, lostAfter)(ctx))
}

const observeSQL = `
	select extract(epoch from clock_timestamp() - as_of),
	       coalesce((select extract(epoch from clock_timestamp() - min(shipped_at)) from click_batches where rolled_at is null), 0)
	from click_as_of`

const logsSQL = `
	select case when state = 'open' and published_at < clock_timestamp() - $1::interval then 'waiting' else state::text end, count(*)
	from click_logs where state <> 'closed' and (state <> 'lost' or ended_at > clock_timestamp() - interval '1 day') group by 1`

// observe sets the gauges.
func (h *Housekeeping) observe(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	var asOfAge, lag float64
	counts := map[string]float64{}
	err := store.Retry("read the state of clicks", func() error {
		return within(ctx, h.pool, func(tx pgx.Tx) error {
			if err := tx.QueryRow(ctx, observeSQL).Scan(&asOfAge, &lag); err != nil {
				return err
			}
			rows, err := tx.Query(ctx, logsSQL, waitingAfter)
			if err != nil {
				return err
			}
			var state string
			var n int64
			_, err = pgx.ForEachRow(rows, []any{&state, &n}, func() error {
				counts[state] = float64(n)
				return nil
			})
			return err
		})
	})
	if err != nil {
		h.metrics.asOfAge.Set(-1)
		return
	}
	h.metrics.asOfAge.Set(asOfAge)
	h.metrics.rollUpLag.Set(lag)
	for _, state := range logStates {
		h.metrics.logs.WithLabelValues(string(state)).Set(counts[string(state)])
	}
}
