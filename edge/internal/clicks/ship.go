package clicks

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"deeplink/shared/postgres"
)

const (
	// maxBatch is the number of clicks in one transaction.
	maxBatch = 100_000
	// connectTimeout bounds a connection attempt, statementTimeout a statement, batchTimeout the transaction of one batch.
	connectTimeout   = time.Second
	statementTimeout = 2 * time.Second
	batchTimeout     = 10 * time.Second
	// writersTimeout bounds the wait for records that are being written.
	writersTimeout = time.Second
	// olderEvery is how often logs of earlier processes are looked at. One whose process published within quiet is left alone.
	olderEvery = 10 * time.Second
	quiet      = 10 * time.Second
)

// The codes with which the triggers refuse a batch.
const (
	logIsClosed = "55000"
	noSuchLog   = "23503"
)

var (
	// errGivenUp: the log is no longer open. An operator forgot it, or control took its process for dead.
	errGivenUp = errors.New("the log was given up")
	errNoLog   = errors.New("the log is not registered")
)

// shipper sends batches over its own connection. It is for one goroutine at a time.
type shipper struct {
	recorder *Recorder
	conn     *pgx.Conn
	// current says that this connection has registered the log, and compared its last batch with that of Postgres.
	current bool
	agents  map[string]agentID
	looked  time.Time // when older logs were looked at
	salted  time.Time // when salts were fetched
}

// keepShipping ships until ctx ends.
func (r *Recorder) keepShipping(ctx context.Context) {
	tick := time.NewTicker(shipEvery)
	defer tick.Stop()
	for {
		if err := r.ship.round(ctx); err != nil && ctx.Err() == nil {
			r.counts.shipErrors.Add(1)
			r.options.Log.Warn("clicks could not be shipped; they are kept", "error", err)
			r.ship.disconnect()
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// round ships everything that has been recorded, or publishes through alone.
func (s *shipper) round(ctx context.Context) error {
	if err := s.begin(ctx); err != nil {
		return err
	}
	r := s.recorder
	if !r.on {
		return nil
	}
	if err := s.fetchSalts(ctx); err != nil {
		return err
	}
	err := s.shipActive(ctx, r.active)
	if errors.Is(err, errGivenUp) {
		r.options.Log.Warn("this edge was given up while it was cut off; it starts a new log, and its former clicks are late")
		s.current, s.looked = false, time.Time{}
		if err = r.startLog(); err == nil {
			err = s.begin(ctx)
		}
	}
	if err != nil {
		return err
	}
	if time.Since(s.looked) >= olderEvery {
		s.looked = time.Now()
		return s.shipOlder(ctx)
	}
	return nil
}

func (s *shipper) connect(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	config := s.recorder.options.Database.Copy()
	postgres.BoundConnecting(&config.Config, connectTimeout)
	config.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsPrimary
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return fmt.Errorf("connect to ship clicks: %w", err)
	}
	s.conn, s.current = conn, false
	return postgres.Durable(ctx, conn)
}

func (s *shipper) disconnect() {
	if s.conn == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	s.conn.Close(ctx)
	s.conn, s.current = nil, false
}

// shipActive sends what waits, then everything that was recorded until now.
func (s *shipper) shipActive(ctx context.Context, l *log) error {
	r := s.recorder
	if err := s.sendPending(ctx, l, false); err != nil {
		return err
	}
	// While more than one batch waits, batches are cut without a seal.
	for s.boundary()-l.cut > maxBatch {
		if err := s.cutOnce(l, s.boundary(), 0); err != nil {
			return err
		}
		if err := s.sendPending(ctx, l, false); err != nil {
			return err
		}
	}
	seal := r.clock.raise(r.clock.at(time.Now()))
	boundary := s.boundary()
	before := l.sequence
	if err := s.cutCounters(l, s.switchCounters(l)); err != nil {
		return err
	}
	counted := l.sequence
	if err := s.cut(l, boundary, seal); err != nil {
		return err
	}
	if l.sequence > before {
		if err := s.sendPending(ctx, l, false); err != nil {
			return err
		}
	}
	if l.sequence == counted { // no batch advances through
		return s.publish(ctx, l, seal)
	}
	return nil
}

// sendPending sends the batches that are cut and not committed. close ends the log in the transaction of the last one.
func (s *shipper) sendPending(ctx context.Context, l *log, close bool) error {
	pending := l.pending()
	for i, b := range pending {
		state, err := s.send(ctx, l, b, close && i == len(pending)-1)
		if err != nil {
			return err
		}
		l.acknowledge(b.sequence)
		if state == "" && !l.ended {
			return errGivenUp
		}
	}
	s.recorder.mu.Lock()
	oldest := l.cut
	if len(l.segments) > 0 {
		oldest = l.segments[0].base
	}
	s.recorder.mu.Unlock()
	return l.compact(oldest, s.recorder.store.entries)
}

const (
	insertBatch = `insert into click_batches (slot, log, sequence, first_at, through, clicks) values ($1, $2, $3, $4, $5, $6) on conflict do nothing`
	publish     = `update click_logs set through = greatest(through, $2), published_at = clock_timestamp() where log = $1 and state = 'open'
		returning clock_timestamp()`
	closeLog = `update click_logs set through = case when state = 'open' then greatest(through, $2) else through end, published_at = clock_timestamp(),
		state = 'closed', ended_at = clock_timestamp() where log = $1 returning clock_timestamp()`
)

// send sends one batch in a transaction. state is empty if the log is no longer open: then the batch is late.
func (s *shipper) send(ctx context.Context, l *log, b boundary, close bool) (state string, err error) {
	ctx, cancel := context.WithTimeout(ctx, batchTimeout)
	defer cancel()
	batch, err := s.read(ctx, l, b)
	if err != nil {
		return "", err
	}
	tx, err := s.conn.Begin(ctx)
	if err != nil {
		return "", fmt.Errorf("begin a batch: %w", err)
	}
	defer tx.Rollback(context.WithoutCancel(ctx)) // does nothing after a commit
	var through *time.Time
	if b.last {
		at := time.UnixMilli(b.through)
		through = &at
	}
	tag, err := tx.Exec(ctx, insertBatch, l.Slot, l.Log, b.sequence, time.UnixMilli(batch.first), through, batch.clicks)
	switch code := postgres.Code(err); {
	case code == noSuchLog:
		return "", errNoLog
	case code == logIsClosed:
		return "", errGivenUp
	case err != nil:
		return "", fmt.Errorf("insert a batch: %w", err)
	}
	if tag.RowsAffected() == 1 {
		if err := batch.copy(ctx, tx.Conn(), l.Log, b.sequence); err != nil {
			return "", err
		}
	}
	state = "open"
	if close {
		_, err = s.update(ctx, closeLog, l.Log, through)
	} else {
		// Also a batch that does not advance through says that the process is alive.
		var open bool
		if open, err = s.update(ctx, publish, l.Log, through); !open {
			state = ""
		}
	}
	if err != nil {
		return "", err
	}
	if err := tx.Commit(ctx); err != nil {
		return "", fmt.Errorf("commit a batch: %w", err)
	}
	if tag.RowsAffected() == 1 {
		s.recorder.counts.shipped.Add(batch.clicks)
	}
	if b.last && !l.ended {
		s.recorder.counts.through.Store(b.through)
	}
	return state, nil
}

// update sets the row of a log, and the click clock from the reply. It returns false if the log is not open.
func (s *shipper) update(ctx context.Context, sql string, id uuid.UUID, through *time.Time) (bool, error) {
	var now time.Time
	err := s.conn.QueryRow(ctx, sql, id, through).Scan(&now)
	if errors.Is(err, pgx.ErrNoRows) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("publish: %w", err)
	}
	s.recorder.clock.set(now, time.Now())
	return true, nil
}

// publish advances through when there is nothing to send.
func (s *shipper) publish(ctx context.Context, l *log, seal int64) error {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	at := time.UnixMilli(seal)
	open, err := s.update(ctx, publish, l.Log, &at)
	if err != nil {
		return err
	}
	if !open {
		if _, err := s.stateOf(ctx, l.Log); errors.Is(err, errNoLog) {
			return err // restored: the next round registers again
		}
		return errGivenUp
	}
	s.recorder.counts.through.Store(seal)
	return nil
}

// finish ships the rest of a log that gets no further records, and closes it.
func (s *shipper) finish(ctx context.Context, l *log) error {
	if err := s.begin(ctx); err != nil {
		return err
	}
	return s.complete(ctx, l)
}

// complete sends everything of a log that has ended, closes it and removes it.
func (s *shipper) complete(ctx context.Context, l *log) error {
	if err := s.sendPending(ctx, l, false); err != nil {
		return err
	}
	s.recorder.mu.Lock()
	end := l.cut
	if n := len(l.segments); n > 0 {
		end = max(end, l.segments[n-1].end())
	}
	s.recorder.mu.Unlock()
	for end-l.cut > maxBatch {
		if err := s.cutOnce(l, end, 0); err != nil {
			return err
		}
		if err := s.sendPending(ctx, l, false); err != nil {
			return err
		}
	}
	for _, g := range l.counters.inOrder() {
		if !g.isUsed() || l.hasSent(g.epoch()) {
			continue
		}
		for g.users.Load() > 0 {
			runtime.Gosched()
		}
		if err := s.cutCounters(l, g); err != nil {
			return err
		}
	}
	seal := s.recorder.clock.raise(s.recorder.clock.at(time.Now()))
	if err := s.cutOnce(l, end, seal); err != nil {
		return err
	}
	closes := len(l.pending()) > 0
	if err := s.sendPending(ctx, l, true); err != nil {
		return err
	}
	if !closes {
		ctx, cancel := context.WithTimeout(ctx, statementTimeout)
		defer cancel()
		at := time.UnixMilli(seal)
		if _, err := s.update(ctx, closeLog, l.Log, &at); err != nil {
			return err
		}
	}
	return s.recorder.drop(l)
}

// drop gives back the segments of a log that is closed, and removes its files.
func (r *Recorder) drop(l *log) error {
	r.storeMu.Lock()
	defer r.storeMu.Unlock()
	r.mu.Lock()
	segments := l.segments
	l.segments = nil
	r.mu.Unlock()
	var err error
	if l.dir != "" {
		err = r.store.closed.add(closedLog{l.Log, l.sequence, r.clock.at(time.Now())})
	}
	for _, s := range segments {
		err = errors.Join(err, r.store.release(s))
	}
	return errors.Join(err, l.remove())
}

const ownOff = `update click_logs set state = 'closed', ended_at = clock_timestamp() where log = $1`

// endOff says that an edge which records nothing has ended.
func (s *shipper) endOff(ctx context.Context) error {
	if s.conn == nil {
		return nil
	}
	return s.exec(ctx, ownOff, s.recorder.options.Incarnation)
}
