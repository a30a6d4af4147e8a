package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
)

// deletes measures how long a delete takes: with all edges alive, with Redis hung, after an edge was killed and after that one is back
// on its slot. The fields say how many are made of each.
type deletes struct{ alive, hung, restarted int }

const (
	// whileDead is how many deletes wait for the lease of an edge that was killed.
	whileDead = 5
	// drifted is the longest that control waits for a lease: L(1 + m).
	drifted = lease + lease/100 + 10*time.Millisecond
)

func (d deletes) run(ctx context.Context, f *fleet) (all []finding, err error) {
	t, err := f.newTenant(ctx)
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
	spans, err := t.deleteMany(ctx, d.hung)
	if err != nil {
		return all, err
	}
	if err := f.Redis.Resume(); err != nil {
		return all, err
	}
	all = append(all, atMost("Redis hung: p99", percentile(spans, 99), 400*time.Millisecond))

	last := len(f.edges) - 1
	dead := f.edges[last]
	if err := dead.Kill(); err != nil {
		return all, err
	}
	f.edges = f.edges[:last] // the others are still asked
	if spans, err = t.deleteMany(ctx, whileDead); err != nil {
		return all, err
	}
	all = append(all, atMost("an edge killed: longest", percentile(spans, 100), drifted+100*time.Millisecond))
	again, err := f.StartEdge(ctx, dead.Addr, f.edgeSettings...)
	if err != nil {
		return all, err
	}
	f.edges = append(f.edges, again)
	if spans, err = t.deleteMany(ctx, d.restarted); err != nil {
		return all, err
	}
	return append(all, atMost("it is back on its slot: p99", percentile(spans, 99), 20*time.Millisecond)), nil
}

// above compares a percentile of ascending spans with that of bare ones.
func above(bare, whole []time.Duration, p int, bound time.Duration) finding {
	less, more := percentile(bare, p), percentile(whole, p)
	return atMost(fmt.Sprintf("p%d above the bare commit (%s of %s)", p, milliseconds(less), milliseconds(more)), more-less, bound)
}

// besideBare alternates deletes by the API with bare ones: the same transaction on a connection of its own, with nobody waiting
// for the edges. Both return ascending.
func (d deletes) besideBare(ctx context.Context, t *tenant) (bare, whole []time.Duration, err error) {
	conn, err := pgx.Connect(ctx, t.fleet.Control)
	if err != nil {
		return nil, nil, err
	}
	defer conn.Close(ctx)
	for range d.alive {
		k, err := t.makeHotLink(ctx)
		if err != nil {
			return nil, nil, err
		}
		began := time.Now()
		if _, err := conn.Exec(ctx, `delete from links where id = $1`, k.id); err != nil {
			return nil, nil, fmt.Errorf("delete a link by hand: %w", err)
		}
		bare = append(bare, time.Since(began))
		took, err := t.deleteOne(ctx)
		if err != nil {
			return nil, nil, err
		}
		whole = append(whole, took)
	}
	slices.Sort(bare)
	slices.Sort(whole)
	return bare, whole, nil
}

// deleteMany deletes links that every edge serves, one after the other, and returns how long each took, ascending.
func (t *tenant) deleteMany(ctx context.Context, n int) (spans []time.Duration, err error) {
	for range n {
		took, err := t.deleteOne(ctx)
		if err != nil {
			return nil, err
		}
		spans = append(spans, took)
	}
	slices.Sort(spans)
	return spans, nil
}

func (t *tenant) deleteOne(ctx context.Context) (time.Duration, error) {
	k, err := t.makeHotLink(ctx)
	if err != nil {
		return 0, err
	}
	a, err := t.call(ctx, "DELETE", "/links/"+k.id, nil, 200)
	return a.took, err
}

// makeHotLink makes a link and has every edge serve it from memory.
func (t *tenant) makeHotLink(ctx context.Context) (key, error) {
	k, err := t.makeLink(ctx)
	if err != nil {
		return k, err
	}
	for _, edge := range t.fleet.edges {
		if err := expectStatus(newVisitor(edge.Addr), k.path, 302); err != nil {
			return k, err
		}
	}
	return k, nil
}

// expectStatus clicks once and hangs up.
func expectStatus(v *visitor, path string, want int) error {
	defer v.hangUp()
	status, err := v.click(path)
	if err == nil && status != want {
		err = fmt.Errorf("%s on %s: %d, expected %d", path, v.addr, status, want)
	}
	return err
}
