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
	// pollSoon is the pause before the next poll when this one found changes that no hint had brought: control, waiting, reads
	// what was applied from the row that the next poll writes.
	pollSoon = 25 * time.Millisecond
	// pollTimeout bounds one poll, and connecting for it.
	pollTimeout = time.Second
	// windowAge is how old the previous snapshot may be. Control keeps changes for ten minutes after every reader could have
	// seen them; past half of that this edge forgets everything instead of trusting its window.
	windowAge = 5 * time.Minute
	// watchSlot is how long a row left on the slot is watched for signs of life before it is taken over: two polls and a half.
	watchSlot = 5 * pollEvery / 2
)

// window is what the last complete poll saw.
type window struct {
	feed.Point
	begun time.Time
}

// keepPolling polls until ctx ends or Leave is called, on a connection of its own, made anew whenever it fails.
func (r *Replica) keepPolling(ctx context.Context) error {
	defer close(r.gone)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(r.staying, cancel)()
	p := poller{replica: r}
	// The lease goes first, the row after it: control stops waiting for this edge when the row is gone.
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
	// settled: last was read on this connection. Until then the server may be another one, or restored, in which a later
	// transaction has a number that last calls finished: it is no proof of what was applied.
	settled bool
	address *string // where control reaches this edge; nil: nowhere
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
	begun := time.Now()
	if err := p.register(ctx); err != nil {
		return 0, err
	}
	// A new statement, whose snapshot is later than the row's commit: whoever changes something after this snapshot finds the
	// row, and whatever changed before is in the window.
	now, tags, missed, err := p.read(ctx)
	if err != nil {
		return 0, err
	}
	if !p.settled {
		// What is about to be forgotten has to be asked for at once.
		r.postgres.heard(true, time.Now())
	}
	now.begun = begun
	if p.last.trusts(now) {
		r.forget(tags)
	} else {
		r.forget([]string{feed.Everything})
	}
	// The row says only with the next poll what was applied.
	untold := missed > 0 || !p.settled
	r.counts.polled(p.last.begun, begun)
	r.counts.hintsMissed.Add(int64(missed))
	p.last, p.settled = now, true
	r.lease.Store(&lease{begun: begun})
	if untold {
		return pollSoon, nil
	}
	return pollEvery, nil
}

// trusts reports whether the changes between two windows are all there: the same history, not too long ago.
func (w window) trusts(next window) bool {
	old := lease{begun: w.begun}
	return !w.Snapshot.IsZero() && w.LeadsTo(next.Point) && old.covers(next.begun, windowAge)
}

const upsertEdge = `
insert into edges as e (slot, incarnation, lease_ms, hold_ms, applied, address, release) values ($1, $2, $3, $4, $5::text::pg_snapshot, $6, nullif($7, ''))
on conflict (slot) do update set renewals = e.renewals + 1, applied = excluded.applied, address = excluded.address
where e.incarnation = excluded.incarnation`

// register renews the row and commits it. A row of another process means that this one was replaced.
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
	if p.settled {
		text := p.last.Snapshot.String()
		applied = &text
	}
	return []any{o.Slot, p.replica.incarnation, o.Lease.Milliseconds(), (o.Lease + o.StaleIfError).Milliseconds(), applied, p.address, o.Release}
}

const selectWindow = `
with now as materialized (select pg_current_snapshot() as snapshot, ` + postgres.History + ` as history)
select now.snapshot::text, now.history, c.id, c.tags
from now left join changes c on c.xid >= $1::text::xid8 and not pg_visible_in_snapshot(c.xid, $2::text::pg_snapshot)`

// read returns the present window, what was changed by transactions that the previous snapshot had not seen finished, and how many of
// those changes no hint had brought.
// Identities would not do: they commit out of order.
func (p *poller) read(ctx context.Context) (now window, tags []string, missed int, err error) {
	last := p.last.Snapshot
	since, seen := fmt.Sprint(last.Xmin()), last.String()
	if last.IsZero() {
		// Nothing can be told apart yet, and nothing needs to be: everything is forgotten after the first poll.
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
	return now, tags, p.replica.heard.missed(ids), nil
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
	p.conn, p.settled = conn, false
	if p.address, err = reachedAt(p.replica.options.Address, conn.PgConn().Conn().LocalAddr()); err != nil {
		p.replica.options.Log.Warn("control can't check this edge: it can't be told where to reach it", "error", err)
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

// claim takes the slot. A row that is there belongs to a process that crashed, is watched for a while in case it did not,
// and is replaced: from then on control waits for this incarnation in its place.
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
			return fmt.Errorf("replace the row of a process that crashed: %w", err)
		}
	}
	p.claimed = true
	return nil
}

type edgeRow struct {
	incarnation string
	renewals    int64
}

// slot returns the row on the slot, nil when there is none.
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

// deregister deletes the row, on a new connection if the old one is of no use. Should that fail, control waits for this edge
// until the row has not moved for as long as it could have gone on.
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
			p.replica.options.Log.Warn("the row in edges stays until it is found dead", "error", err)
			return
		}
	}
	_, err := p.conn.Exec(ctx, `delete from edges where slot = $1 and incarnation = $2`, p.replica.options.Slot, p.replica.incarnation)
	if err != nil {
		p.replica.options.Log.Warn("the row in edges stays until it is found dead", "error", err)
	}
}
