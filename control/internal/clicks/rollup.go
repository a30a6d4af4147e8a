package clicks

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"deeplink/control/internal/store"
	"deeplink/shared/click"
)

const (
	// rollUpEvery is the interval of roll-ups. An edge ships every second, and a person who looks for a click should see it within two.
	rollUpEvery = 500 * time.Millisecond
	// rollUpTimeout bounds one roll-up. Its statements have bounds of their own.
	rollUpTimeout = 60 * time.Second
	// rolledClicks and rolledBatches bound one roll-up. A batch has at most 100,000 clicks.
	rolledClicks, rolledBatches = 100_000, 64
)

// RollUps counts batches, and advances asOf. Every control runs one.
type RollUps struct {
	pool      *pgxpool.Pool
	raw       Raw
	agents    *dictionary
	retention time.Duration
	metrics   *Metrics
	log       *slog.Logger
}

// NewRollUps returns the roll-ups of a control. retention is CLICKS_RETENTION.
func NewRollUps(pool *pgxpool.Pool, retention time.Duration, metrics *Metrics, log *slog.Logger) *RollUps {
	return &RollUps{pool: pool, raw: table{}, agents: newDictionary(), retention: retention, metrics: metrics, log: log}
}

// Run makes a round twice a second until ctx ends. The next round repeats what failed.
func (r *RollUps) Run(ctx context.Context) error {
	ticker := time.NewTicker(rollUpEvery)
	defer ticker.Stop()
	failing := false
	for {
		err := r.Round(ctx)
		if ctx.Err() != nil {
			return nil
		}
		// An outage is logged once, not twice a second.
		if err != nil && !failing {
			r.log.Warn("could not roll up clicks; the next round repeats it", "error", err)
		} else if err == nil && failing {
			r.log.Info("rolling up clicks again")
		}
		failing = err != nil
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// Round counts batches until none is left that no other control has claimed. It advances asOf after each roll-up.
func (r *RollUps) Round(ctx context.Context) error {
	for {
		more, err := r.step(ctx)
		if err != nil || !more {
			return err
		}
	}
}

func (r *RollUps) step(ctx context.Context) (more bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, rollUpTimeout)
	defer cancel()
	var done rolled
	err = store.Retry("roll up clicks", func() error {
		done = rolled{}
		return within(ctx, r.pool, func(tx pgx.Tx) (err error) {
			done, err = r.rollUp(ctx, tx)
			return err
		})
	})
	// A batch that was not rolled holds asOf back, so it may advance after a failure, too.
	err = errors.Join(err, store.Retry("advance asOf", func() error {
		return within(ctx, r.pool, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, `select advance_click_as_of()`)
			return err
		})
	}))
	if ctx.Err() == nil || !errors.Is(ctx.Err(), context.Canceled) {
		r.metrics.rolledUp(done, err)
	}
	return done.more, err
}

// rolled is the result of a roll-up.
type rolled struct {
	clicks, late int64
	more         bool // batches may be left
}

// batch is a claimed batch.
type batch struct {
	slot     string
	log      uuid.UUID
	sequence int32
	clicks   int64
	late     bool
}

const claimSQL = `
	select slot, log, sequence, clicks, late, clock_timestamp(),
	       coalesce((select org_key from organizations where external_id = '` + store.CanaryOrganization + `'), '')
	from click_batches where rolled_at is null order by shipped_at limit $1 for update skip locked`

const countsSQL = `
	select c.log, c.sequence, c.org_key, c.link_id, c.outcome::text, c.class::text, c.quarter, c.clicks
	from unnest($1::uuid[], $2::int[]) b (log, sequence) join click_counts c on c.log = b.log and c.sequence = b.sequence`

const deleteCountsSQL = `
	delete from click_counts c using unnest($1::uuid[], $2::int[]) b (log, sequence) where c.log = b.log and c.sequence = b.sequence`

const rolledSQL = `
	update click_batches c set rolled_at = clock_timestamp() from unnest($1::text[], $2::uuid[], $3::int[]) b (slot, log, sequence)
	where c.slot = b.slot and c.log = b.log and c.sequence = b.sequence`

// rollUp claims batches, adds their clicks to the figures and marks them as rolled. The commit of the transaction counts them.
func (r *RollUps) rollUp(ctx context.Context, tx pgx.Tx) (done rolled, err error) {
	batches, now, canary, more, err := claim(ctx, tx)
	if err != nil || len(batches) == 0 {
		return rolled{}, err
	}
	slots, logs, sequences := make([]string, len(batches)), make([]uuid.UUID, len(batches)), make([]int32, len(batches))
	type id struct {
		log      uuid.UUID
		sequence int32
	}
	late := make(map[id]bool, len(batches))
	for i, b := range batches {
		slots[i], logs[i], sequences[i] = b.slot, b.log, b.sequence
		late[id{b.log, b.sequence}] = b.late
	}

	rows, err := tx.Query(ctx, batchClicksSQL, logs, sequences)
	if err != nil {
		return rolled{}, err
	}
	clicks, err := pgx.CollectRows(rows, scanClick)
	if err != nil {
		return rolled{}, err
	}
	if err := r.agents.load(ctx, tx, agentIDs(clicks), true); err != nil {
		return rolled{}, err
	}
	f := newFigures(visitorsFrom(now, r.retention))
	counted := make([]Counted, len(clicks))
	for i := range clicks {
		c := Counted{Click: clicks[i], storedReason: clicks[i].Reason, storedRuleset: clicks[i].Ruleset, storedLate: clicks[i].Late}
		c.Reason, c.Late = r.agents.classify(&c.Click, canary), late[id{c.Log, c.Sequence}]
		if _, known := r.agents.of(c.AgentID); known {
			c.Ruleset = click.Ruleset
		}
		facts, _ := r.agents.of(c.AgentID)
		f.add(&c.Click, c.Reason.Class(), facts, 1)
		counted[i] = c
		done.count(1, c.Late)
	}
	if err := r.raw.Append(ctx, tx, counted, r.keptFrom(now)); err != nil {
		return rolled{}, err
	}

	rows, err = tx.Query(ctx, countsSQL, logs, sequences)
	if err != nil {
		return rolled{}, err
	}
	var of id
	var orgKey, outcomeName, className string
	var link uuid.NullUUID
	var quarter time.Time
	var n int64
	if _, err := pgx.ForEachRow(rows, []any{&of.log, &of.sequence, &orgKey, &link, &outcomeName, &className, &quarter, &n}, func() error {
		class, _ := click.ParseClass(className)
		outcome, _ := click.ParseOutcome(outcomeName)
		if orgKey == canary {
			class = click.Internal
		}
		f.addCounted(orgKey, link, quarter, class, outcome, n, late[of])
		done.count(n, late[of])
		return nil
	}); err != nil {
		return rolled{}, err
	}

	if err := f.write(ctx, tx); err != nil {
		return rolled{}, err
	}
	if _, err := tx.Exec(ctx, deleteCountsSQL, logs, sequences); err != nil {
		return rolled{}, err
	}
	_, err = tx.Exec(ctx, rolledSQL, slots, logs, sequences)
	done.more = more
	return done, err
}

func (d *rolled) count(n int64, late bool) {
	d.clicks += n
	if late {
		d.late += n
	}
}

// keptFrom returns the start of the first day whose clicks are kept. Without retention none is kept.
func (r *RollUps) keptFrom(now time.Time) time.Time {
	if r.retention == 0 {
		return now.AddDate(100, 0, 0)
	}
	return keptFrom(now, r.retention)
}

// claim locks batches that no other control has locked, the first that arrived first, and returns as many as one roll-up may count. more:
// others are left.
func claim(ctx context.Context, tx pgx.Tx) (batches []batch, now time.Time, canary string, more bool, err error) {
	rows, err := tx.Query(ctx, claimSQL, rolledBatches)
	if err != nil {
		return nil, now, "", false, err
	}
	var total int64
	var b batch
	found := 0
	if _, err := pgx.ForEachRow(rows, []any{&b.slot, &b.log, &b.sequence, &b.clicks, &b.late, &now, &canary}, func() error {
		found++
		if total += b.clicks; len(batches) == 0 || total <= rolledClicks {
			batches = append(batches, b)
		}
		return nil
	}); err != nil {
		return nil, now, "", false, err
	}
	return batches, now, canary, found == rolledBatches || found > len(batches), nil
}
