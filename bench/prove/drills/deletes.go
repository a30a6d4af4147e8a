package drills

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"deeplink/bench/prove/figures"
	"deeplink/bench/prove/fleet"
	"deeplink/bench/prove/visitor"
)

// deletes measures how long a delete takes: with all edges running, with Redis hung, after an edge was killed, and after that edge is back
// on its slot. The fields are the numbers of deletes of each kind.
type deletes struct{ alive, hung, restarted int }

const (
	// whileDead is the number of deletes that wait for the lease of a killed edge.
	whileDead = 5
	// drifted is the longest time that control waits for a lease: L(1 + m).
	drifted = fleet.Lease + fleet.Lease/100 + 10*time.Millisecond
)

func (d deletes) run(ctx context.Context, f *fleet.Fleet) (all []figures.Finding, err error) {
	t, err := f.NewTenant(ctx)
	if err != nil {
		return nil, err
	}
	bare, whole, err := d.besideBare(ctx, t)
	if err != nil {
		return nil, err
	}
	all = append(all,
		above(bare, whole, 50, 3*time.Millisecond),
		above(bare, whole, 99, 10*time.Millisecond))

	if err := f.Redis.Pause(); err != nil {
		return all, err
	}
	spans, err := deleteMany(ctx, t, d.hung)
	if err != nil {
		return all, err
	}
	if err := f.Redis.Resume(); err != nil {
		return all, err
	}
	all = append(all, figures.AtMost("Redis hung: p99", figures.Percentile(spans, 99), 400*time.Millisecond))

	last := len(f.Edges) - 1
	dead := f.Edges[last]
	if err := dead.Kill(); err != nil {
		return all, err
	}
	f.Edges = f.Edges[:last] // control still waits for the other edges
	if spans, err = deleteMany(ctx, t, whileDead); err != nil {
		return all, err
	}
	all = append(all, figures.AtMost("an edge killed: longest", figures.Percentile(spans, 100), drifted+100*time.Millisecond))
	again, err := f.StartEdge(ctx, dead.Addr, f.EdgeSettings...)
	if err != nil {
		return all, err
	}
	f.Edges = append(f.Edges, again)
	if spans, err = deleteMany(ctx, t, d.restarted); err != nil {
		return all, err
	}
	return append(all, figures.AtMost("it is back on its slot: p99", figures.Percentile(spans, 99), 20*time.Millisecond)), nil
}

// above compares a percentile of ascending spans with that of bare commits.
func above(bare, whole []time.Duration, p int, bound time.Duration) figures.Finding {
	less, more := figures.Percentile(bare, p), figures.Percentile(whole, p)
	return figures.AtMost(fmt.Sprintf("p%d above the bare commit (%s of %s)", p, figures.Milliseconds(less), figures.Milliseconds(more)), more-less, bound)
}

// besideBare alternates deletes through the API with bare deletes: the same transaction on its own connection, without the wait for edges.
// Both results are ascending.
func (d deletes) besideBare(ctx context.Context, t *fleet.Tenant) (bare, whole []time.Duration, err error) {
	conn, err := pgx.Connect(ctx, t.Fleet.Control)
	if err != nil {
		return nil, nil, err
	}
	defer conn.Close(ctx)
	for range d.alive {
		k, err := makeHotLink(ctx, t)
		if err != nil {
			return nil, nil, err
		}
		began := time.Now()
		if _, err := conn.Exec(ctx, `delete from links where id = $1`, k.ID); err != nil {
			return nil, nil, fmt.Errorf("delete a link by hand: %w", err)
		}
		bare = append(bare, time.Since(began))
		took, err := deleteOne(ctx, t)
		if err != nil {
			return nil, nil, err
		}
		whole = append(whole, took)
	}
	slices.Sort(bare)
	slices.Sort(whole)
	return bare, whole, nil
}

// deleteMany deletes, one after the other, links that every edge serves. It returns the durations, ascending.
func deleteMany(ctx context.Context, t *fleet.Tenant, n int) (spans []time.Duration, err error) {
	for range n {
		took, err := deleteOne(ctx, t)
		if err != nil {
			return nil, err
		}
		spans = append(spans, took)
	}
	slices.Sort(spans)
	return spans, nil
}

func deleteOne(ctx context.Context, t *fleet.Tenant) (time.Duration, error) {
	k, err := makeHotLink(ctx, t)
	if err != nil {
		return 0, err
	}
	a, err := t.Call(ctx, "DELETE", "/links/"+k.ID, nil, 200)
	return a.Took, err
}

// makeHotLink creates a link and has every edge serve it from memory.
func makeHotLink(ctx context.Context, t *fleet.Tenant) (fleet.Link, error) {
	k, err := t.MakeLink(ctx)
	if err != nil {
		return k, err
	}
	for _, edge := range t.Fleet.Edges {
		if err := expectStatus(visitor.New(edge.Addr), k.Path, 302); err != nil {
			return k, err
		}
	}
	return k, nil
}

// expectStatus clicks once and closes the connection.
func expectStatus(v *visitor.Visitor, path string, want int) error {
	defer v.HangUp()
	status, err := v.Click(path)
	if err == nil && status != want {
		err = fmt.Errorf("%s on %s: %d, expected %d", path, v.Addr, status, want)
	}
	return err
}
