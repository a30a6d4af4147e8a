package relay

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"deeplink/shared/feed"
	"deeplink/shared/postgres"
)

// buriedAfter is how long a row must have stood still, beyond its edge's hold, to be deleted: somebody may still want to see
// in the table which edge died.
const buriedAfter = 10 * time.Minute

// view is one look at the table edges. It is immutable.
type view struct {
	feed.Point
	begun time.Time // before the statement was sent
	edges map[process]edge
}

// process is one edge's: who acknowledges, and whose right to answer a row of edges is.
type process struct{ slot, incarnation string }

// edge is a row of edges as this process has seen it.
type edge struct {
	renewals    int64
	lease, hold time.Duration
	applied     feed.Snapshot
	// moved is when this process, by its own clock, had first seen these renewals: after the renewal itself, so waiting from
	// here is waiting long enough. A row met for the first time counts as alive.
	moved time.Time
	// lost: the database was set back, and the row with it. The process may still answer from what it had, and so is waited for
	// until its hold has passed, or its row is there again.
	lost bool
}

// watch looks at edges until ctx ends: at once when somebody begins to wait, every 50 ms while somebody waits, else at the
// pace of the edges.
func (r *Relay) watch(ctx context.Context) {
	failing := false
	for {
		if err := r.see(ctx); err != nil && ctx.Err() == nil {
			r.counts.looksFailed.Add(1)
			if !failing {
				r.log.Warn("the table edges can't be read; changes stay pending", "error", err)
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
		case <-r.look:
		case <-pause.C:
		}
		pause.Stop()
	}
}

func (r *Relay) pace() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.waiting) > 0 {
		return waitingEvery
	}
	return pollEvery
}

// see takes one look, and lets all who wait judge anew.
func (r *Relay) see(ctx context.Context) error {
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
	for w := range r.waiting {
		w.wake()
	}
	r.mu.Unlock()
	if err := r.bury(ctx, next); err != nil {
		r.log.Warn("the row of a dead edge stays for now", "error", err)
	}
	return nil
}

// One statement for both, so that the rows are of the history that is told. Without an edge there is a row of nulls.
const selectEdges = `
with now as materialized (select pg_current_snapshot()::text as snapshot, ` + postgres.History + ` as history)
select now.snapshot, now.history, slot, incarnation::text, renewals, lease_ms, hold_ms, applied::text from now left join edges on true`

func (r *Relay) read(ctx context.Context, last *view) (*view, error) {
	v := &view{begun: time.Now(), edges: make(map[process]edge)}
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

// follow works out how long the rows have stood still, and which edges of the last view, which may be nil, are to be waited for
// though their rows are gone. Where the last view was of another history it says nothing of what stood still: the row may have
// moved on and been set back.
func (v *view) follow(last *view, ended time.Time) {
	if last == nil {
		last = &view{Point: v.Point}
	}
	continued := last.LeadsTo(v.Point)
	for who, e := range v.edges {
		e.moved = ended
		if before, ok := last.edges[who]; ok && continued && !before.lost && before.renewals == e.renewals {
			e.moved = before.moved
		}
		v.edges[who] = e
	}
	for who, e := range last.edges {
		if _, ok := v.edges[who]; ok {
			continue
		}
		if !continued {
			e.lost, e.moved, e.applied = true, ended, feed.Snapshot{}
		}
		if e.lost && v.begun.Sub(e.moved) < drift(e.hold) {
			v.edges[who] = e
		}
	}
}

// bury deletes rows that have stood still for so long that nobody waits for them any more. The condition keeps a row that
// moved since; an edge that was only paused makes its row anew.
func (r *Relay) bury(ctx context.Context, v *view) error {
	for who, e := range v.edges {
		if v.begun.Sub(e.moved) < drift(e.hold)+buriedAfter {
			continue
		}
		_, err := r.pool.Exec(ctx, `delete from edges where slot = $1 and incarnation = $2 and renewals = $3`, who.slot, who.incarnation, e.renewals)
		if err != nil {
			return fmt.Errorf("delete the row of a dead edge: %w", err)
		}
		r.log.Info("deleted the row of a dead edge", "slot", who.slot)
	}
	return nil
}
