package relay

import (
	"context"
	"fmt"
	"time"

	"deeplink/shared/feed"
)

// buriedAfter is how long a row must have stood still, beyond its edge's hold, to be deleted: somebody may still want to see
// in the table which edge died.
const buriedAfter = 10 * time.Minute

// view is one look at the table edges. It is immutable.
type view struct {
	begun time.Time // before the statement was sent
	edges map[string]edge
}

// edge is a row of edges as this process has seen it.
type edge struct {
	incarnation string
	renewals    int64
	lease, hold time.Duration
	applied     feed.Snapshot
	// moved is when this process, by its own clock, had first seen these renewals: after the renewal itself, so waiting from
	// here is waiting long enough. A row met for the first time counts as alive.
	moved time.Time
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

const selectEdges = `select slot, incarnation::text, renewals, lease_ms, hold_ms, coalesce(applied::text, '') from edges`

func (r *Relay) read(ctx context.Context, last *view) (*view, error) {
	v := &view{begun: time.Now(), edges: make(map[string]edge)}
	rows, err := r.pool.Query(ctx, selectEdges)
	if err != nil {
		return nil, fmt.Errorf("read edges: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var slot, applied string
		var e edge
		var lease, hold int64
		if err := rows.Scan(&slot, &e.incarnation, &e.renewals, &lease, &hold, &applied); err != nil {
			return nil, fmt.Errorf("read edges: %w", err)
		}
		e.lease, e.hold = time.Duration(lease)*time.Millisecond, time.Duration(hold)*time.Millisecond
		if applied != "" {
			if e.applied, err = feed.ParseSnapshot(applied); err != nil {
				return nil, fmt.Errorf("read edges: %w", err)
			}
		}
		v.edges[slot] = e
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("read edges: %w", err)
	}
	ended := time.Now()
	for slot, e := range v.edges {
		e.moved = ended
		if last != nil {
			if before, ok := last.edges[slot]; ok && before.incarnation == e.incarnation && before.renewals == e.renewals {
				e.moved = before.moved
			}
		}
		v.edges[slot] = e
	}
	return v, nil
}

// bury deletes rows that have stood still for so long that nobody waits for them any more. The condition keeps a row that
// moved since; an edge that was only paused makes its row anew.
func (r *Relay) bury(ctx context.Context, v *view) error {
	for slot, e := range v.edges {
		if v.begun.Sub(e.moved) < drift(e.hold)+buriedAfter {
			continue
		}
		_, err := r.pool.Exec(ctx, `delete from edges where slot = $1 and incarnation = $2 and renewals = $3`, slot, e.incarnation, e.renewals)
		if err != nil {
			return fmt.Errorf("delete the row of a dead edge: %w", err)
		}
		r.log.Info("deleted the row of a dead edge", "slot", slot)
	}
	return nil
}
