package clicks

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"deeplink/shared/clientip"
)

// Options configure a recorder. Database, Slot, Incarnation and Log are required.
type Options struct {
	// On is false if the edge records nothing. It then only registers that.
	On bool
	// Dir is the directory of the log, for one edge. Empty: the log is in memory.
	Dir string
	// Bytes is the space for logs, in bytes.
	Bytes int64
	// Sync is how often records are made safe against power loss.
	Sync time.Duration
	// Database connects to the primary as the edge's role. The recorder keeps one connection.
	Database *pgx.ConnConfig
	Slot     string
	// Incarnation identifies the process of the edge, and its log.
	Incarnation uuid.UUID
	// CountryHeader names a header with the country of the client. It is read from peers in Proxies only.
	CountryHeader string
	Proxies       clientip.Proxies
	// GeoIPFile is a database of countries in MaxMind's format. Empty: none.
	GeoIPFile string
	Log       *slog.Logger
}

const (
	// shipEvery is half of the interval that is promised, so that one slow round does not exceed it.
	shipEvery = 500 * time.Millisecond
	// registerTimeout bounds the registration at start.
	registerTimeout = time.Second
	// shutdownTimeout bounds the shipping of what is left at shutdown.
	shutdownTimeout = 3 * time.Second
	// prefaultEvery is how often pages are made writable ahead of the writer, and minAhead for how many slots at least.
	prefaultEvery = 20 * time.Millisecond
	minAhead      = 1 << 10
)

// ErrSettings is the error of New for a setting that is wrong.
var ErrSettings = errors.New("a setting of clicks is wrong")

// New opens the log. A directory that cannot be used is not an error: the recorder then records in memory, and logs that. Errors: the file
// of countries cannot be read, or there is no memory.
func New(o Options) (*Recorder, error) {
	r := &Recorder{on: o.On, options: o, wake: make(chan struct{}, 1)}
	if o.On {
		r.agents.of, r.referrers.of = agentsToRecord, referrers
	}
	r.ship = &shipper{recorder: r, agents: make(map[string]agentID)}
	r.clock.init(time.Now())
	var err error
	if r.countries, err = openCountries(o.CountryHeader, o.GeoIPFile, o.Proxies, o.Log); err != nil || !o.On {
		return r, err
	}
	if err := r.open(o.Dir); err != nil {
		if o.Dir == "" {
			return nil, err
		}
		o.Log.Error("the directory of clicks cannot be used: clicks are recorded in memory, and a crash of this process loses those of the last second",
			"dir", o.Dir, "error", err)
		if err := r.open(""); err != nil {
			return nil, err
		}
	} else if o.Dir == "" {
		o.Log.Warn("EDGE_CLICKS_DIR is not set: clicks are recorded in memory, and a crash of this process loses those of the last second")
	}
	return r, nil
}

// open opens the store, creates the log of this process, and starts its first segment.
func (r *Recorder) open(dir string) error {
	st, segments, err := openStore(dir, r.options.Bytes)
	if err != nil {
		return err
	}
	var older []*log
	if dir != "" {
		older, err = st.openLogs(segments, r.options.Log)
	}
	if err == nil {
		r.store = st
		err = r.startLog()
	}
	if err != nil {
		return errors.Join(err, st.close())
	}
	r.older = older
	r.durable.Store(dir != "")
	return nil
}

// startLog makes a new log the active one. The log before, if there is one, gets no further records.
func (r *Recorder) startLog() error {
	r.storeMu.Lock()
	defer r.storeMu.Unlock()
	id := r.options.Incarnation
	if r.active != nil {
		id = uuid.New() // the log of this process was given up
	}
	l, err := r.store.newLog(id, r.options.Slot, r.options.Sync)
	if err != nil {
		return err
	}
	s, err := r.next(l)
	if err != nil {
		return errors.Join(err, l.remove())
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	former, spare := r.active, r.spare
	r.active, r.spare = l, s
	if last := r.current.Load(); last != nil {
		last.close()
	}
	r.counting.Store(l.counters.generations[0])
	r.current.Store(nil)
	r.full.Store(s == nil) // logs of earlier processes take all space
	if s != nil {
		r.openSpare()
	}
	if former != nil {
		former.ended = true
		r.older = append(r.older, former)
	}
	if spare != nil {
		return r.store.release(spare)
	}
	return nil
}

// prepare makes a segment ready to become the current one, if there is space. Nothing waits for it but other calls of the store.
func (r *Recorder) prepare() error {
	r.storeMu.Lock()
	defer r.storeMu.Unlock()
	r.mu.Lock()
	l, ready := r.active, r.spare != nil
	r.mu.Unlock()
	if ready {
		return nil
	}
	s, err := r.next(l)
	if err != nil || s == nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.active.segments = slices.Grow(r.active.segments, 1) // so that the click that opens the segment does not allocate
	r.spare = s
	return nil
}

// next returns a segment that can follow the last one of a log, or nil if there is no space. The caller holds storeMu.
func (r *Recorder) next(l *log) (*segment, error) {
	s, err := r.store.acquire()
	if err != nil || s == nil {
		if s = r.recycle(); s == nil {
			return nil, err
		}
	}
	r.mu.Lock()
	number := uint64(0)
	if n := len(l.segments); n > 0 {
		number = l.segments[n-1].number + 1
	}
	r.mu.Unlock()
	r.uses++
	return s, s.begin(l.Log, number, number*uint64(s.slots), r.uses)
}

// recycle takes the oldest segment whose clicks are committed, or returns nil. The caller holds storeMu.
func (r *Recorder) recycle() *segment {
	s := r.oldestShipped()
	if s == nil {
		return nil
	}
	if err := r.store.release(s); err != nil {
		r.options.Log.Error("a segment of clicks cannot be released", "error", err)
		return nil
	}
	s, _ = r.store.acquire()
	return s
}

func (r *Recorder) oldestShipped() *segment {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, l := range r.logs() {
		if len(l.segments) == 0 || l.segments[0] == r.current.Load() || l.segments[0].end() > l.acknowledged.Load() {
			continue
		}
		s := l.segments[0]
		if s.syncing {
			continue
		}
		l.segments = l.segments[1:]
		return s
	}
	return nil
}

// logs returns all logs, the oldest first. The caller holds mu.
func (r *Recorder) logs() []*log {
	if r.active == nil {
		return r.older
	}
	return append(r.older[:len(r.older):len(r.older)], r.active)
}

// Register registers the log, so that the clicks that follow are not late. It returns after a second at the latest; Run tries again.
func (r *Recorder) Register(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, registerTimeout)
	defer cancel()
	if err := r.ship.begin(ctx); err != nil {
		r.ship.disconnect()
		r.options.Log.Warn("the log of clicks is not registered yet: clicks until then will be marked late", "error", err)
	}
}

// Run ships clicks until ctx ends.
func (r *Recorder) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { r.keepShipping(ctx); return nil })
	if r.on {
		group.Go(func() error { r.keepReady(ctx); return nil })
		group.Go(func() error { r.keepSynced(ctx); return nil })
	}
	return group.Wait()
}

// keepReady prepares segments and pages ahead of the writers, and reads the file of countries again.
func (r *Recorder) keepReady(ctx context.Context) {
	tick := time.NewTicker(prefaultEvery)
	defer tick.Stop()
	var last int64
	loaded := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.wake:
		case <-tick.C:
		}
		if err := r.prepare(); err != nil {
			r.options.Log.Error("no new segment for clicks", "error", err)
		}
		r.mu.Lock()
		if r.full.Load() && r.spare != nil {
			r.openSpare()
		}
		s, spare := r.current.Load(), r.spare
		r.mu.Unlock()
		if s == nil {
			continue
		}
		if s.use.Load() != s.prefaulted {
			s.prefaulted, last = s.use.Load(), 0
		}
		n := int64(s.reserved())
		// Four times what was written since the last time.
		ahead := max(minAhead, int(4*(n-last)))
		last = n
		s.prefault(ahead)
		if spare != nil && s.slots-int(n) < 4*ahead {
			spare.prefaultStart(ahead)
		}
		if time.Since(loaded) >= reloadEvery {
			r.countries.reload()
			loaded = time.Now()
		}
	}
}

// keepSynced makes records safe against power loss.
func (r *Recorder) keepSynced(ctx context.Context) {
	if !r.durable.Load() {
		return
	}
	tick := time.NewTicker(r.options.Sync)
	defer tick.Stop()
	for turn := 0; ; turn++ {
		if err := r.sync(turn, false); err != nil {
			r.options.Log.Error("clicks cannot be written to the disk", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// sync writes all complete pages of the active log to the disk, and a copy of the last one.
func (r *Recorder) sync(turn int, clean bool) error {
	at := r.clock.at(time.Now())
	r.mu.Lock()
	l := r.active
	counting := r.full.Load()
	r.mu.Unlock()
	var page int
	last := r.nextToSync(l, nil)
	for s := last; s != nil; s = r.nextToSync(l, s) {
		n := s.reserved()
		synced := int(s.synced.Load())
		// Whole pages of records that are written.
		done := synced
		for done < n {
			kind, size := s.kindAt(done)
			if kind == 0 {
				break
			}
			done += size
		}
		whole := min(done, s.slots)
		if whole < s.slots {
			whole -= whole % (pageSize / slotSize)
		}
		if whole > synced {
			start := (pageSize + synced*slotSize) / pageSize * pageSize
			end := min((pageSize+whole*slotSize+pageSize-1)/pageSize*pageSize, len(s.data))
			if err := unix.Msync(s.data[start:end], unix.MS_SYNC); err != nil {
				r.syncedTo(s)
				return fmt.Errorf("write a segment: %w", err)
			}
			s.synced.Store(int64(whole))
		}
		last, page = s, (pageSize+whole*slotSize)/pageSize
	}
	if last != nil {
		defer r.syncedTo(last)
	}
	if counting || l.counters.generations[0].isUsed() || l.counters.generations[1].isUsed() {
		if err := l.counters.sync(); err != nil {
			return fmt.Errorf("write the counters: %w", err)
		}
	}
	if last == nil {
		return l.writeTail(turn, at, clean, 0, 0, nil)
	}
	end := min((page+1)*pageSize, len(last.data))
	return l.writeTail(turn, at, clean, last.number, page, last.data[page*pageSize:end])
}

// nextToSync returns the segment of a log after another one, nil for the first, that has records which are neither on disk nor committed. It may
// not be recycled until the next call, or that of syncedTo.
func (r *Recorder) nextToSync(l *log, before *segment) *segment {
	r.mu.Lock()
	defer r.mu.Unlock()
	if before != nil {
		before.syncing = false
	}
	for _, s := range l.segments {
		if (before == nil || s.number > before.number) && s.synced.Load() < int64(s.slots) && (s.end() > l.acknowledged.Load() || s == r.current.Load()) {
			s.syncing = true
			return s
		}
	}
	if before != nil {
		before.syncing = true // its last page is copied next
	}
	return nil
}

func (r *Recorder) syncedTo(s *segment) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s.syncing = false
}

// Finish ships what is left and closes the log. No click may be recorded any more. It returns after shutdownTimeout at the latest; clicks
// that are then not shipped stay in the directory, which is not an error. Run must have ended.
func (r *Recorder) Finish(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, shutdownTimeout)
	defer cancel()
	defer r.ship.disconnect()
	if !r.on {
		return r.ship.endOff(ctx)
	}
	r.mu.Lock()
	r.full.Store(true)
	if r.spare != nil {
		r.spare.free()
		r.spare = nil
	}
	if s := r.current.Load(); s != nil {
		s.close()
	}
	r.counting.Store(nil)
	r.active.ended = true
	r.mu.Unlock()
	err := r.ship.finish(ctx, r.active)
	switch {
	case err != nil && r.durable.Load():
		r.options.Log.Warn("not all clicks were shipped; the next process with this directory ships them", "error", err)
		err = errors.Join(r.sync(0, true), r.sync(1, true))
	case err != nil:
		if lost := r.unshipped(); lost > 0 {
			r.counts.lost.Add(lost)
			r.options.Log.Error("clicks were lost: they could not be shipped, and there is no directory", "clicks", lost, "error", err)
		}
		err = nil
	}
	return r.close(err)
}

// close gives up the store. Memory stays mapped: a request that was cut off may still write to it.
func (r *Recorder) close(err error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.current.Store(nil)
	r.counting.Store(nil)
	return errors.Join(err, r.store.close())
}

// unshipped returns the number of recorded clicks that are not committed in Postgres.
func (r *Recorder) unshipped() (n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, l := range r.logs() {
		from := l.acknowledged.Load()
		for _, s := range l.segments {
			for i := 0; i < s.reserved(); {
				kind, size := s.kindAt(i)
				if kind == kindClick && s.base+uint64(i) >= from {
					n++
				}
				i += size
			}
		}
		for _, g := range l.counters.generations {
			if !g.isUsed() || l.hasSent(g.epoch()) {
				continue
			}
			counts := make(map[count]int64)
			g.read(counts, 0, g.entries)
			for _, clicks := range counts {
				n += clicks
			}
		}
	}
	return n
}
