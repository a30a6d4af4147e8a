package clicks

import (
	"context"
	"errors"
	"fmt"
	"time"
)

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
		if l.Slot == "" {
			l.Slot = s.recorder.options.Slot
		}
		if err := s.exec(ctx, insertLog, l.Log, l.Slot, "open", true); err != nil {
			return false, fmt.Errorf("register an older log: %w", err)
		}
		row, err = s.stateOf(ctx, l.Log)
		row.silent = quiet
		l.early = row.through.UnixMilli()
	}
	switch {
	case err != nil:
		return false, err
	case row.state == "closed":
		return true, s.recorder.drop(l)
	case row.state == "open" && row.silent < quiet:
		return false, nil
	}
	l.Slot = row.slot // its file may be damaged
	unsure := false
	if l.recovered {
		if unsure, err = l.closeGaps(row.last); err != nil {
			return false, err
		}
	}
	if err := s.reconcile(ctx, l, row.last); err != nil {
		return false, err
	}
	if l.recovered && !l.reported {
		if err := s.reportDamage(ctx, l, row, unsure); err != nil {
			return false, err
		}
		l.reported = true
	}
	return true, s.complete(ctx, l)
}

// reportDamage reports the interval from which clicks are missing because the machine lost power, or because files are damaged.
func (s *shipper) reportDamage(ctx context.Context, l *log, row logState, unsure bool) error {
	var since int64
	switch {
	case unsure || l.damaged():
		since = row.through.UnixMilli() // every click from before is in Postgres
	case l.lostPower():
		since = max(l.synced, l.Started.UnixMilli())
	default:
		return nil
	}
	// The process synced at least that often for as long as it ran.
	until := max(l.synced+l.Sync, row.publishedAt.UnixMilli())
	if l.synced == 0 {
		until = s.recorder.clock.at(time.Now())
	}
	if err := s.reportLost(ctx, l, time.UnixMilli(since), time.UnixMilli(until)); err != nil {
		return err
	}
	s.recorder.counts.lost.Add(1)
	return nil
}
