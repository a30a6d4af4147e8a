package clicks

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

const (
	insertLog = `insert into click_logs (log, slot, state, durable) values ($1, $2, $3, $4) on conflict (log) do nothing`
	endOff    = `update click_logs set state = 'closed', ended_at = clock_timestamp() where slot = $1 and state = 'off' and log <> $2`
	selectLog = `select slot, state::text, through, clock_timestamp() - published_at, published_at,
		coalesce((select max(b.sequence) from click_batches b where b.log = l.log), 0) from click_logs l where log = $1`
	selectFloor = `select click_floor(), clock_timestamp()`
)

// logState is the row of a log.
type logState struct {
	slot        string
	state       string
	through     time.Time
	silent      time.Duration // since the last publication
	publishedAt time.Time
	last        int32 // the last batch that is committed
}

func (s *shipper) stateOf(ctx context.Context, id uuid.UUID) (state logState, err error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	err = s.conn.QueryRow(ctx, selectLog, id).Scan(&state.slot, &state.state, &state.through, &state.silent, &state.publishedAt, &state.last)
	if errors.Is(err, pgx.ErrNoRows) {
		return logState{}, errNoLog
	}
	if err != nil {
		return logState{}, fmt.Errorf("read the row of a log: %w", err)
	}
	return state, nil
}

func (s *shipper) exec(ctx context.Context, sql string, values ...any) error {
	_, err := s.execute(ctx, sql, values...)
	return err
}

// execute returns the number of rows that a statement has changed.
func (s *shipper) execute(ctx context.Context, sql string, values ...any) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	tag, err := s.conn.Exec(ctx, sql, values...)
	return tag.RowsAffected(), err
}

// begin connects and registers the log of this process, if that is not done.
func (s *shipper) begin(ctx context.Context) error {
	if s.conn == nil {
		if err := s.connect(ctx); err != nil {
			return err
		}
	}
	if s.current {
		return nil
	}
	r := s.recorder
	id, state := r.options.Incarnation, "off"
	if r.on {
		id, state = r.active.Log, "open"
	}
	inserted, err := s.execute(ctx, insertLog, id, r.options.Slot, state, r.durable.Load())
	if err != nil {
		return fmt.Errorf("register the log: %w", err)
	}
	if r.on && inserted > 0 {
		r.active.registered = false // also if Postgres was restored to a state from before the registration
	}
	if err := s.exec(ctx, endOff, r.options.Slot, id); err != nil {
		return fmt.Errorf("end the rows of earlier processes: %w", err)
	}
	if !r.on {
		s.current = true
		return nil
	}
	// A new statement, so that it is later than the commit of the row.
	if err := s.readFloor(ctx); err != nil {
		return err
	}
	if err := s.closeAgain(ctx); err != nil {
		return err
	}
	row, err := s.stateOf(ctx, id)
	if err != nil {
		return err
	}
	l := r.active
	if row.state != "open" {
		s.current = true // the next round starts a new log
		return nil
	}
	if err := s.reconcile(ctx, l, row.last); err != nil {
		return err
	}
	if !l.registered {
		// What was recorded before is in batches of its own: it is late, and nothing else is.
		l.early = row.through.UnixMilli()
		err := s.cut(l, s.boundary(), 0)
		l.early = 0
		if err != nil {
			return err
		}
		l.registered = true
	}
	if err := s.fetchSalts(ctx); err != nil {
		return err
	}
	s.current = true
	return nil
}

// readFloor sets the click clock, and gives no later record an earlier time than the floor.
func (s *shipper) readFloor(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	var floor, now time.Time
	if err := s.conn.QueryRow(ctx, selectFloor).Scan(&floor, &now); err != nil {
		return fmt.Errorf("read the floor: %w", err)
	}
	c := &s.recorder.clock
	c.set(now, time.Now())
	c.raise(floor.Add(time.Millisecond - 1).UnixMilli())
	return nil
}

// reconcile compares the batches of a log with those that Postgres has. After a restore of Postgres, batches that it had are sent again.
func (s *shipper) reconcile(ctx context.Context, l *log, last int32) error {
	if last >= l.acked {
		l.acknowledge(last)
		return nil
	}
	s.recorder.options.Log.Warn("Postgres has lost batches of clicks; those that are still on this edge are sent again",
		"log", l.Log.String(), "last", l.acked, "found", last)
	s.recorder.mu.Lock()
	oldest := l.cut
	if len(l.segments) > 0 {
		oldest = l.segments[0].base
	}
	s.recorder.mu.Unlock()
	var since, until int64
	for i, b := range l.entries {
		if b.sequence <= last {
			since = b.through
			continue
		}
		before := last
		if i > 0 {
			before = max(last, l.entries[i-1].sequence)
		}
		lost := b.from < oldest && b.to > b.from || b.epoch != 0 && b.sequence <= l.acked && l.generation(b.epoch) == nil || b.sequence > before+1
		if lost {
			if since == 0 {
				since = l.Started.UnixMilli()
			}
			until = b.through
		}
	}
	l.acknowledge(last)
	if until == 0 {
		return nil
	}
	return s.reportLost(ctx, l, time.UnixMilli(since), time.UnixMilli(until))
}

// generation returns the generation of the counters with this epoch, nil if it was used again.
func (l *log) generation(epoch uint64) *generation {
	for _, g := range l.counters.generations {
		if g.epoch() == epoch {
			return g
		}
	}
	return nil
}

const insertLost = `insert into click_logs (log, slot, state, durable, through, published_at, ended_at)
	values ($1, $2, 'lost', true, $3, $3, $4) on conflict (log) do nothing`

// reportLost records that clicks of an interval are gone. The id of the row follows from the log and the interval, so that a second report
// changes nothing.
func (s *shipper) reportLost(ctx context.Context, l *log, since, until time.Time) error {
	if !until.After(since) {
		until = since.Add(time.Millisecond)
	}
	id := uuid.NewSHA1(l.Log, fmt.Append(nil, "lost since ", since.UnixMilli()))
	s.recorder.options.Log.Error("clicks of an interval are lost", "log", l.Log.String(), "since", since.UTC(), "until", until.UTC())
	if err := s.exec(ctx, insertLost, id, l.Slot, since, until); err != nil {
		return fmt.Errorf("report lost clicks: %w", err)
	}
	return nil
}
