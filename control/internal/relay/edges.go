package relay

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"deeplink/shared/feed"
	"deeplink/shared/postgres"
)

// reapAfter is how long a row must not move, in addition to its edge's hold, before control deletes it. Until then an operator can see in
// the table which edge died.
const reapAfter = 10 * time.Minute

// view is the content of the table edges at one time. It is immutable.
type view struct {
	feed.Point
	start time.Time // before the statement was sent
	edges map[process]edge
}

// process identifies an edge process: the sender of acknowledgements and the owner of a row in edges.
type process struct{ slot, incarnation string }

// edge is a row of edges as this control has observed it.
type edge struct {
	renewals    int64
	lease, hold time.Duration
	applied     feed.Snapshot
	// moved is when this control first read this value of renewals, by its own clock. That is later than the renewal, so a wait that
	// counts from here is long enough. A row counts as alive when control reads it for the first time.
	moved time.Time
	// lost: the database was restored to a state without this row. The edge may still serve from its cache, so control waits for it
	// until its hold has passed or its row is back.
	lost bool
}

// watch reads edges until ctx ends: at once when a call starts to wait, every 50 ms while calls wait, otherwise at the poll interval of
// the edges.
func (r *Relay) watch(ctx context.Context) {
	failing := false
	for {
		if err := r.refresh(ctx); err != nil && ctx.Err() == nil {
			r.counts.refreshesFailed.Add(1)
			if !failing {
				r.log.Warn("could not read the table edges; changes stay pending", "error", err)
			}
			failing = true
		} else {
			failing = false
		}
		pause := time.NewTimer(r.pace())
		select {
		case <-ctx.Done():
			pause.Stop()
			return
		case <-r.refreshNow:
		case <-pause.C:
		}
		pause.Stop()
	}
}

func (r *Relay) pace() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.waiting.all) > 0 {
		return refreshEvery
	}
	return pollEvery
}

// refresh reads edges once and wakes all waiting calls.
func (r *Relay) refresh(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	r.mu.Lock()
	last := r.view
	r.mu.Unlock()
	next, err := r.read(ctx, last)
	if err != nil {
		return err
	}
	r.mu.Lock()
	if last != nil && !last.LeadsTo(next.Point) {
		r.log.Warn("the database was restarted, failed over or restored")
	}
	r.view = next
	for w := range r.waiting.all {
		w.wake()
	}
	r.mu.Unlock()
	if err := r.reap(ctx, next); err != nil {
		r.log.Warn("could not delete the row of a dead edge; will retry", "error", err)
	}
	return nil
}

// selectEdges is one statement, so that the rows belong to the history that it returns. Without edges it returns one row of nulls.
const selectEdges = `
with now as materialized (select pg_current_snapshot()::text as snapshot, ` + postgres.History + ` as history)
select now.snapshot, now.history, slot, incarnation::text, renewals, lease_ms, hold_ms, applied::text from now left join edges on true`

func (r *Relay) read(ctx context.Context, last *view) (*view, error) {
	v := &view{start: time.Now(), edges: make(map[process]edge)}
	rows, err := r.pool.Query(ctx, selectEdges)
	if err != nil {
		return nil, fmt.Errorf("read edges: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		if err := v.scan(rows); err != nil {
			return nil, fmt.Errorf("read edges: %w", err)
		}
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("read edges: %w", err)
	}
	v.follow(last, time.Now())
	return v, nil
}

// scan reads one row of selectEdges.
func (v *view) scan(rows pgx.Rows) (err error) {
	var snapshot string
	var slot, incarnation, applied *string
	var renewals, lease, hold *int64
	if err := rows.Scan(&snapshot, &v.History, &slot, &incarnation, &renewals, &lease, &hold, &applied); err != nil {
		return err
	}
	if v.Snapshot, err = feed.ParseSnapshot(snapshot); err != nil || slot == nil {
		return err
	}
	e := edge{renewals: *renewals, lease: time.Duration(*lease) * time.Millisecond, hold: time.Duration(*hold) * time.Millisecond}
	if applied != nil {
		if e.applied, err = feed.ParseSnapshot(*applied); err != nil {
			return err
		}
	}
	v.edges[process{*slot, *incarnation}] = e
	return nil
}

// follow compares v with the last view, which may be nil. It sets since when each row has not moved, and keeps the edges that control must
// wait for although their rows are gone. If the history has changed, a row with the same renewals counts as moved: it may have moved and
// then been restored.
func (v *view) follow(last *view, ended time.Time) {
	if last == nil {
		last = &view{Point: v.Point}
	}
	continued := last.LeadsTo(v.Point)
	for p, e := range v.edges {
		e.moved = ended
		if before, ok := last.edges[p]; ok && continued && !before.lost && before.renewals == e.renewals {
			e.moved = before.moved
		}
		v.edges[p] = e
	}
	for p, e := range last.edges {
		if _, ok := v.edges[p]; ok {
			continue
		}
		if !continued {
			e.lost, e.moved, e.applied = true, ended, feed.Snapshot{}
		}
		if e.lost && v.start.Sub(e.moved) < drift(e.hold) {
			v.edges[p] = e
		}
	}
}

// reap deletes the rows that have not moved for much longer than control waits for them. The condition on renewals keeps a row that has
// moved meanwhile. An edge that was only paused recreates its row.
func (r *Relay) reap(ctx context.Context, v *view) error {
	for p, e := range v.edges {
		if v.start.Sub(e.moved) < drift(e.hold)+reapAfter {
			continue
		}
		_, err := r.pool.Exec(ctx, `delete from edges where slot = $1 and incarnation = $2 and renewals = $3`, p.slot, p.incarnation, e.renewals)
		if err != nil {
			return fmt.Errorf("delete the row of a dead edge: %w", err)
		}
		r.log.Info("deleted the row of a dead edge", "slot", p.slot)
	}
	return nil
}
