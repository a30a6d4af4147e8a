package clicks

import (
	"errors"
	"runtime"
	"time"
)

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

// cut makes batches of the records up to a position. The last batch advances through to the seal, unless that is 0.
func (s *shipper) cut(l *log, to uint64, seal int64) error {
	to = max(to, l.cut)
	for to-l.cut > maxBatch {
		if err := s.cutOnce(l, to, 0); err != nil {
			return err
		}
	}
	return s.cutOnce(l, to, seal)
}

// cutCounters makes batches of a generation of the counters, nil: none.
func (s *shipper) cutCounters(l *log, g *generation) error {
	if g == nil {
		return nil
	}
	var entries []boundary
	for first := 0; first < g.entries; first += maxBatch {
		b := s.newBoundary(l, 0)
		b.sequence += int32(len(entries))
		b.epoch, b.first, b.end = g.epoch(), uint32(first), uint32(min(first+maxBatch, g.entries))
		if g.read(make(map[count]int64), int(b.first), int(b.end)) > 0 {
			entries = append(entries, b)
		}
	}
	if len(entries) == 0 {
		return nil
	}
	entries[len(entries)-1].sent = g.epoch()
	return l.appendJournal(entries)
}

// newBoundary returns the boundary of the next batch, without clicks.
func (s *shipper) newBoundary(l *log, seal int64) boundary {
	b := boundary{sequence: l.sequence + 1, from: l.cut, to: l.cut, through: seal, last: seal != 0, early: l.early != 0, sent: l.sent}
	switch {
	case b.early:
		b.through = l.early
	case seal == 0:
		b.through = s.recorder.clock.seal.Load()
	}
	return b
}

// cutOnce makes one batch of at most maxBatch slots.
func (s *shipper) cutOnce(l *log, to uint64, seal int64) error {
	from := l.cut
	if to-from > maxBatch {
		to = from + maxBatch
	}
	clicks := 0
	end := from
	err := s.each(l, from, to, func(seg *segment, i int) (int, error) {
		kind, n := seg.kindAt(i)
		for began := time.Now(); kind == 0 && !l.recovered; kind, n = seg.kindAt(i) {
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
	b := s.newBoundary(l, seal)
	b.to = max(end, to)
	if clicks == 0 {
		l.cut = b.to // the next batch starts behind these slots
		return nil
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
