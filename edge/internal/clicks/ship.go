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
	off     uuid.UUID // the id of the row of an edge that records nothing
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

const (
	insertLog = `insert into click_logs (log, slot, state, durable) values ($1, $2, $3, $4) on conflict (log) do nothing`
	endOff    = `update click_logs set state = 'closed', ended_at = clock_timestamp() where slot = $1 and state = 'off' and log <> $2`
	selectLog = `select state::text, clock_timestamp() - published_at, published_at,
		coalesce((select max(b.sequence) from click_batches b where b.log = l.log), 0) from click_logs l where log = $1`
	selectFloor = `select click_floor(), clock_timestamp()`
)

// logState is the row of a log.
type logState struct {
	state       string
	silent      time.Duration // since the last publication
	publishedAt time.Time
	last        int32 // the last batch that is committed
}

func (s *shipper) stateOf(ctx context.Context, id uuid.UUID) (state logState, err error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	err = s.conn.QueryRow(ctx, selectLog, id).Scan(&state.state, &state.silent, &state.publishedAt, &state.last)
	if errors.Is(err, pgx.ErrNoRows) {
		return logState{}, errNoLog
	}
	if err != nil {
		return logState{}, fmt.Errorf("read the row of a log: %w", err)
	}
	return state, nil
}

func (s *shipper) exec(ctx context.Context, sql string, values ...any) error {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	_, err := s.conn.Exec(ctx, sql, values...)
	return err
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
	id, state := s.off, "off"
	if r.on {
		id, state = r.active.Log, "open"
	}
	if err := s.exec(ctx, insertLog, id, r.options.Slot, state, r.durable.Load()); err != nil {
		return fmt.Errorf("register the log: %w", err)
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
		if err := s.cut(l, s.boundary(), 0, nil); err != nil {
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
		lost := b.from < oldest || b.epoch != 0 && b.sequence <= l.acked && l.generation(b.epoch) == nil || i == 0 && b.sequence > last+1
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

// boundary returns the position behind the last reserved slot of the active log. Slots that are reserved later are behind it.
func (s *shipper) boundary() uint64 {
	r := s.recorder
	r.mu.Lock()
	defer r.mu.Unlock()
	last := r.current.Load()
	if last == nil {
		return 0
	}
	return last.base + uint64(last.reserved())
}

// shipActive sends what waits, then everything that was recorded until now.
func (s *shipper) shipActive(ctx context.Context, l *log) error {
	r := s.recorder
	if err := s.sendPending(ctx, l, false); err != nil {
		return err
	}
	// While more than one batch waits, batches are cut without a seal.
	for s.boundary()-l.cut > maxBatch {
		if err := s.cutOnce(l, s.boundary(), 0, nil); err != nil {
			return err
		}
		if err := s.sendPending(ctx, l, false); err != nil {
			return err
		}
	}
	seal := r.clock.raise(r.clock.at(time.Now()))
	boundary := s.boundary()
	before := l.sequence
	if err := s.cut(l, boundary, seal, s.switchCounters(l)); err != nil {
		return err
	}
	if l.sequence == before {
		return s.publish(ctx, l, seal)
	}
	return s.sendPending(ctx, l, false)
}

// switchCounters ends the generation that counts, if it has counted anything, and returns it.
func (s *shipper) switchCounters(l *log) *generation {
	counting := s.recorder.counting.Load()
	if counting == nil {
		return nil
	}
	other := l.counters.generations[0]
	if other == counting {
		other = l.counters.generations[1]
	}
	if other.isUsed() && !l.hasSent(other.epoch()) {
		return other // the round before failed before it was in the journal
	}
	if !counting.isUsed() {
		return nil
	}
	// No batch waits here, so the clicks of the other generation are committed.
	l.epoch++
	other.reset(l.epoch)
	s.recorder.counting.Store(other)
	for counting.users.Load() > 0 {
		runtime.Gosched()
	}
	return counting
}

// cut makes batches of the records up to a position, and of a generation of the counters. The last batch advances through to the seal,
// unless that is 0.
func (s *shipper) cut(l *log, to uint64, seal int64, counted *generation) error {
	to = max(to, l.cut)
	for to-l.cut > maxBatch {
		if err := s.cutOnce(l, to, 0, nil); err != nil {
			return err
		}
	}
	return s.cutOnce(l, to, seal, counted)
}

// cutOnce makes one batch of at most maxBatch slots.
func (s *shipper) cutOnce(l *log, to uint64, seal int64, counted *generation) error {
	from := l.cut
	if to-from > maxBatch {
		to = from + maxBatch
	}
	clicks := 0
	end := from
	err := s.each(l, from, to, func(seg *segment, i int) (int, error) {
		kind, n := seg.kindAt(i)
		for began := time.Now(); kind == 0 && !l.ended; kind, n = seg.kindAt(i) {
			if time.Since(began) > writersTimeout {
				return 0, errors.New("a record is not being written")
			}
			runtime.Gosched()
		}
		if kind == kindClick {
			clicks++
		}
		// A text may reach beyond the boundary. Its record comes after it.
		end = seg.base + uint64(i+n)
		return n, nil
	})
	if err != nil {
		return err
	}
	b := boundary{sequence: l.sequence + 1, from: from, to: max(end, to), through: seal, last: seal != 0}
	if counted != nil {
		b.epoch = counted.epoch()
	}
	if clicks == 0 && counted == nil {
		l.cut = b.to // the next batch starts behind these slots
		return nil
	}
	if seal == 0 {
		b.through = s.recorder.clock.seal.Load()
	}
	return l.appendJournal([]boundary{b})
}

// each calls f for the slots of a log between two positions. f returns the number of slots to go on by.
func (s *shipper) each(l *log, from, to uint64, f func(seg *segment, i int) (int, error)) error {
	s.recorder.mu.Lock()
	segments := append([]*segment(nil), l.segments...)
	s.recorder.mu.Unlock()
	for _, seg := range segments {
		if seg.end() <= from || seg.base >= to {
			continue
		}
		i := 0
		if from > seg.base {
			i = int(from - seg.base)
		}
		for i < seg.slots && seg.base+uint64(i) < to {
			n, err := f(seg, i)
			if err != nil {
				return err
			}
			i += n
		}
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
	return l.compact(oldest)
}

func (l *log) pending() []boundary {
	for i, b := range l.entries {
		if b.sequence > l.acked {
			return l.entries[i:]
		}
	}
	return nil
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
	switch at := time.UnixMilli(b.through); {
	case close:
		_, err = s.update(ctx, closeLog, l.Log, at)
	case b.last:
		var open bool
		if open, err = s.update(ctx, publish, l.Log, at); !open {
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
func (s *shipper) update(ctx context.Context, sql string, id uuid.UUID, through time.Time) (bool, error) {
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
	open, err := s.update(ctx, publish, l.Log, time.UnixMilli(seal))
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
		if err := s.cutOnce(l, end, 0, nil); err != nil {
			return err
		}
		if err := s.sendPending(ctx, l, false); err != nil {
			return err
		}
	}
	for _, g := range l.counters.generations {
		if g.epoch() == 0 || !g.isUsed() || l.hasSent(g.epoch()) {
			continue
		}
		for g.users.Load() > 0 {
			runtime.Gosched()
		}
		if err := s.cutOnce(l, l.cut, 0, g); err != nil {
			return err
		}
	}
	seal := s.recorder.clock.raise(s.recorder.clock.at(time.Now()))
	if err := s.cutOnce(l, end, seal, nil); err != nil {
		return err
	}
	closes := len(l.pending()) > 0
	if err := s.sendPending(ctx, l, true); err != nil {
		return err
	}
	if !closes {
		ctx, cancel := context.WithTimeout(ctx, statementTimeout)
		defer cancel()
		if _, err := s.update(ctx, closeLog, l.Log, time.UnixMilli(seal)); err != nil {
			return err
		}
	}
	return s.recorder.drop(l)
}

// hasSent reports whether a generation of the counters is in a batch.
func (l *log) hasSent(epoch uint64) bool {
	for _, b := range l.entries {
		if b.epoch == epoch {
			return true
		}
	}
	return false
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
	for _, s := range segments {
		err = errors.Join(err, r.store.release(s))
	}
	return errors.Join(err, l.remove())
}

// shipOlder ships the logs of earlier processes and closes them.
func (s *shipper) shipOlder(ctx context.Context) error {
	r := s.recorder
	r.mu.Lock()
	logs := append([]*log(nil), r.older...)
	r.mu.Unlock()
	for _, l := range logs {
		done, err := s.shipOld(ctx, l)
		if err != nil {
			return fmt.Errorf("ship an older log: %w", err)
		}
		if !done {
			continue
		}
		r.mu.Lock()
		for i, other := range r.older {
			if other == l {
				r.older = append(r.older[:i:i], r.older[i+1:]...)
				break
			}
		}
		r.mu.Unlock()
	}
	return nil
}

// shipOld ships one older log. done is false if its process may still run.
func (s *shipper) shipOld(ctx context.Context, l *log) (done bool, err error) {
	row, err := s.stateOf(ctx, l.Log)
	if errors.Is(err, errNoLog) {
		// Its process was never registered, or Postgres was restored: its clicks are late.
		if err := s.exec(ctx, insertLog, l.Log, l.Slot, "open", true); err != nil {
			return false, fmt.Errorf("register an older log: %w", err)
		}
		row, err = s.stateOf(ctx, l.Log)
		row.silent = quiet
	}
	switch {
	case err != nil:
		return false, err
	case row.state == "closed":
		return true, s.recorder.drop(l)
	case row.state == "open" && row.silent < quiet:
		return false, nil
	}
	if err := s.reconcile(ctx, l, row.last); err != nil {
		return false, err
	}
	if l.lostPower() {
		since := time.UnixMilli(max(l.synced, l.Started.UnixMilli()))
		until := since.Add(time.Duration(l.Sync) * time.Millisecond)
		if row.publishedAt.After(until) {
			until = row.publishedAt
		}
		if err := s.reportLost(ctx, l, since, until); err != nil {
			return false, err
		}
		s.recorder.counts.lost.Add(1)
	}
	return true, s.complete(ctx, l)
}

const ownOff = `update click_logs set state = 'closed', ended_at = clock_timestamp() where log = $1`

// endOff says that an edge which records nothing has ended.
func (s *shipper) endOff(ctx context.Context) error {
	if s.conn == nil {
		return nil
	}
	return s.exec(ctx, ownOff, s.off)
}

const selectSalts = `select d, click_salt(d) from unnest($1::date[]) d`

// saltsAhead is how long before a day its salt is fetched.
const saltsAhead = 12 * time.Hour

// fetchSalts fetches the salts of the current day and, in time, of the next one.
func (s *shipper) fetchSalts(ctx context.Context) error {
	r := s.recorder
	now := time.UnixMilli(r.clock.at(time.Now())).UTC()
	if time.Since(s.salted) < time.Minute && r.saltFor(now.UnixMilli()) != nil {
		return nil
	}
	var days []time.Time
	for _, at := range []time.Time{now, now.Add(saltsAhead)} {
		if r.saltFor(at.UnixMilli()) == nil {
			days = append(days, at.Truncate(24*time.Hour))
		}
	}
	s.salted = time.Now()
	if len(days) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	rows, err := s.conn.Query(ctx, selectSalts, days)
	if err != nil {
		return fmt.Errorf("fetch salts: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var day time.Time
		var key []byte
		if err := rows.Scan(&day, &key); err != nil {
			return fmt.Errorf("fetch salts: %w", err)
		}
		of := dayOf(day.UnixMilli())
		r.salts[uint64(of)%uint64(len(r.salts))].Store(newSalt(of, key))
	}
	if err := rows.Err(); err != nil && postgres.Code(err) != "22023" { // the clocks are not on the same day
		return fmt.Errorf("fetch salts: %w", err)
	}
	return nil
}
