package replica

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"deeplink/shared/feed"
	"deeplink/shared/postgres"
)

const (
	pollEvery = feed.PollEvery
	// pollSoon is the pause before the next poll if this poll found changes that arrived without a hint: control waits until the row in
	// edges says that they were applied, and only the next poll writes that.
	pollSoon = 25 * time.Millisecond
	// pollTimeout bounds one poll, and separately the connection attempt before it.
	pollTimeout = time.Second
	// windowAge is the maximum age of the previous snapshot. Control purges changes after ten minutes. From half of that on the edge
	// bumps the epoch instead of trusting its window.
	windowAge = 5 * time.Minute
	// watchSlot is how long an edge watches a row that it finds on its slot for renewals before it takes the slot over.
	watchSlot = 5 * pollEvery / 2
)

// window is what a completed poll saw.
type window struct {
	feed.Point
	start time.Time
}

// keepPolling polls on its own connection until ctx ends or Leave is called. It reconnects after every failure.
func (r *Replica) keepPolling(ctx context.Context) error {
	defer close(r.left)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(r.active, cancel)()
	p := poller{replica: r}
	// Give up the lease first, then delete the row: control stops waiting for this edge when the row is gone.
	defer p.deregister()
	defer r.lease.Store(nil)
	for {
		pause, err := p.poll(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, ErrSlotTaken):
			return err
		case err != nil:
			r.counts.pollErrors.Add(1)
			r.options.Log.Warn("poll failed", "error", err)
			p.disconnect()
			pause = pollEvery/2 + rand.N(pollEvery)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
	}
}

// poller is the state of the one goroutine that polls.
type poller struct {
	replica *Replica
	conn    *pgx.Conn
	claimed bool
	last    window
	// current says that last was read on this connection. Before that, the server may be another one or a restored one, which reuses
	// transaction numbers that last shows as finished. Then last proves nothing about what was applied.
	current bool
	address *string // where control can reach this edge; nil if unknown
}

func (p *poller) poll(ctx context.Context) (pause time.Duration, err error) {
	if p.conn == nil {
		if err := p.connect(ctx); err != nil {
			return 0, err
		}
	}
	if !p.claimed {
		if err := p.claim(ctx); err != nil {
			return 0, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, pollTimeout)
	defer cancel()

	r := p.replica
	start := time.Now()
	if err := p.register(ctx); err != nil {
		return 0, err
	}
	// This must be a new statement, so that its snapshot is later than the commit of the row. Then control finds the row if its change
	// commits after the snapshot, and the window contains the change if it committed before.
	now, tags, missed, err := p.read(ctx)
	if err != nil {
		return 0, err
	}
	if !p.current {
		// The first poll on a connection usually voids all entries. Requests must be able to load them at once.
		r.links.record(true, time.Now())
		r.files.record(true, time.Now())
	}
	now.start = start
	if p.last.trusts(now) {
		r.bump(tags)
	} else {
		r.bump([]string{feed.Everything})
	}
	// Only the next poll writes to the row what this poll applied.
	unreported := missed > 0 || !p.current
	r.counts.polled(p.last.start, start)
	r.counts.hintsMissed.Add(int64(missed))
	p.last, p.current = now, true
	r.lease.Store(&lease{start: start})
	if unreported {
		return pollSoon, nil
	}
	return pollEvery, nil
}

// trusts reports whether the rows read for next are all changes since w: same history of the database, and w is not too old.
func (w window) trusts(next window) bool {
	old := lease{start: w.start}
	return !w.Snapshot.IsZero() && w.LeadsTo(next.Point) && old.covers(next.start, windowAge)
}

const upsertEdge = `
insert into edges as e (slot, incarnation, lease_ms, hold_ms, applied, address, release) values ($1, $2, $3, $4, $5::text::pg_snapshot, $6, nullif($7, ''))
on conflict (slot) do update set renewals = e.renewals + 1, applied = excluded.applied, address = excluded.address
where e.incarnation = excluded.incarnation`

// register renews the row in edges and commits. ErrSlotTaken: the row belongs to another process, which has replaced this one.
func (p *poller) register(ctx context.Context) error {
	tag, err := p.conn.Exec(ctx, upsertEdge, p.row()...)
	if err != nil {
		return fmt.Errorf("renew the row in edges: %w", err)
	}
	if tag.RowsAffected() == 0 {
		return ErrSlotTaken
	}
	return nil
}

func (p *poller) row() []any {
	o := p.replica.options
	var applied *string
	if p.current {
		text := p.last.Snapshot.String()
		applied = &text
	}
	return []any{o.Slot, p.replica.incarnation, o.Lease.Milliseconds(), (o.Lease + o.StaleIfError).Milliseconds(), applied, p.address, o.Release}
}

const selectWindow = `
with now as materialized (select pg_current_snapshot() as snapshot, ` + postgres.History + ` as history)
select now.snapshot::text, now.history, c.id, c.tags
from now left join changes c on c.xid >= $1::text::xid8 and not pg_visible_in_snapshot(c.xid, $2::text::pg_snapshot)`

// read returns the current window, the tags of all changes by transactions that the previous snapshot had not seen as finished, and how
// many of those changes arrived without a hint. It does not select by changes.id: transactions do not commit in the order of their
// identities, so a poll with "id > last id" misses rows.
func (p *poller) read(ctx context.Context) (now window, tags []string, missed int, err error) {
	last := p.last.Snapshot
	since, seen := fmt.Sprint(last.Xmin()), last.String()
	if last.IsZero() {
		// The first poll bumps the epoch, so it needs no changes: no transaction has a number this high.
		since, seen = "18446744073709551615", "1:1:"
	}
	rows, err := p.conn.Query(ctx, selectWindow, since, seen)
	if err != nil {
		return now, nil, 0, fmt.Errorf("read the window of changes: %w", err)
	}
	defer rows.Close()
	var ids []int64
	for rows.Next() {
		var snapshot string
		var id *int64
		var changed []string
		if err := rows.Scan(&snapshot, &now.History, &id, &changed); err != nil {
			return now, nil, 0, fmt.Errorf("read the window of changes: %w", err)
		}
		if now.Snapshot, err = feed.ParseSnapshot(snapshot); err != nil {
			return now, nil, 0, err
		}
		if id != nil {
			ids = append(ids, *id)
			tags = append(tags, changed...)
		}
	}
	if err := rows.Err(); err != nil {
		return now, nil, 0, fmt.Errorf("read the window of changes: %w", err)
	}
	return now, tags, p.replica.received.missed(ids), nil
}

func (p *poller) connect(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, pollTimeout)
	defer cancel()
	config := p.replica.options.Database.Copy()
	postgres.BoundConnecting(&config.Config, pollTimeout)
	config.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsPrimary
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return fmt.Errorf("connect to poll: %w", err)
	}
	p.conn, p.current = conn, false
	if p.address, err = advertisedAddress(p.replica.options.Address, conn.PgConn().Conn().LocalAddr()); err != nil {
		p.replica.options.Log.Warn("control cannot check this edge: no usable address for it; set its address with host and port", "error", err)
	}
	return postgres.Durable(ctx, conn)
}

func (p *poller) disconnect() {
	if p.conn == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	p.conn.Close(ctx)
	p.conn = nil
}

// claim takes the slot. A row that is there belongs to a process that crashed or that still runs. If the row does not move for watchSlot,
// claim deletes it, and from then on control waits for this incarnation instead.
func (p *poller) claim(ctx context.Context) error {
	var before, after *edgeRow
	before, err := p.slot(ctx)
	if err != nil {
		return err
	}
	if before != nil {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(watchSlot):
		}
		if after, err = p.slot(ctx); err != nil {
			return err
		}
		if after != nil && *after != *before {
			return ErrSlotTaken
		}
		ctx, cancel := context.WithTimeout(ctx, pollTimeout)
		defer cancel()
		if _, err := p.conn.Exec(ctx, `delete from edges where slot = $1 and incarnation = $2 and renewals = $3`,
			p.replica.options.Slot, before.incarnation, before.renewals); err != nil {
			return fmt.Errorf("replace the row of a crashed process: %w", err)
		}
	}
	p.claimed = true
	return nil
}

type edgeRow struct {
	incarnation string
	renewals    int64
}

// slot returns the row of this edge's slot, or nil.
func (p *poller) slot(ctx context.Context) (*edgeRow, error) {
	ctx, cancel := context.WithTimeout(ctx, pollTimeout)
	defer cancel()
	var row edgeRow
	err := p.conn.QueryRow(ctx, `select incarnation::text, renewals from edges where slot = $1`, p.replica.options.Slot).
		Scan(&row.incarnation, &row.renewals)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the row on the slot: %w", err)
	}
	return &row, nil
}

// deregister deletes the row, on a new connection if the old one is closed. If that fails, control waits for this edge until the row has
// not moved for the edge's hold.
func (p *poller) deregister() {
	if !p.claimed {
		p.disconnect()
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), pollTimeout)
	defer cancel()
	defer p.disconnect()
	if p.conn == nil || p.conn.IsClosed() {
		if err := p.connect(ctx); err != nil {
			p.replica.options.Log.Warn("could not deregister; control will wait for the lease to expire", "error", err)
			return
		}
	}
	_, err := p.conn.Exec(ctx, `delete from edges where slot = $1 and incarnation = $2`, p.replica.options.Slot, p.replica.incarnation)
	if err != nil {
		p.replica.options.Log.Warn("could not deregister; control will wait for the lease to expire", "error", err)
	}
}
