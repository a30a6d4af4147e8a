package main

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"deeplink/control/internal/store"
	"deeplink/shared/feed"
)

const (
	// purgeEvery is how often a purge is tried.
	purgeEvery = time.Minute
	// kept is how long changes stay: an edge whose last poll is older forgets all it knows instead (freshness.md).
	kept = 10 * time.Minute

	// minRetention and maxRetention bound EVENTS_RETENTION. Phones queue for days.
	minRetention = 24 * time.Hour
	maxRetention = 87600 * time.Hour
)

// purger deletes what no edge will ask for again, and what is too old for the audit trail or among events, and makes room for
// the events of the next days. Every control runs one; together they do no harm.
type purger struct {
	store *store.Store
	log   *slog.Logger
	// metrics are those of run alone.
	metrics *dutyMetrics
	// retention is how long what phones report is kept.
	retention time.Duration
	// moments are the points of the last kept minutes and the newest one before, the oldest first.
	moments []moment
}

// moment is what was finished at a time.
type moment struct {
	at    time.Time
	point feed.Point
}

// run purges every minute until ctx ends. What fails is tried again a minute later.
func (p *purger) run(ctx context.Context) error {
	ticker := time.NewTicker(purgeEvery)
	defer ticker.Stop()
	for {
		err := errors.Join(p.makePartitions(ctx), p.purge(ctx, time.Now()), p.purgeAuditLog(ctx), p.purgeEvents(ctx))
		if ctx.Err() == nil {
			p.report(err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// report counts a purge, and logs it when it failed.
func (p *purger) report(err error) {
	p.metrics.purges.WithLabelValues(result(err)).Inc()
	if err != nil {
		p.log.Warn("purge failed", "error", err)
		return
	}
	p.metrics.purged.SetToCurrentTime()
}

// purge remembers what is finished now, and deletes what was finished kept ago.
func (p *purger) purge(ctx context.Context, now time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	point, err := p.store.Point(ctx)
	if err != nil {
		return err
	}
	p.moments = append(p.moments, moment{now, point})
	old := -1
	for i, m := range p.moments {
		if now.Sub(m.at) >= kept {
			old = i
		}
	}
	if old < 0 {
		return nil
	}
	p.moments = p.moments[old:]
	return p.store.PurgeBefore(ctx, p.moments[0].point)
}

// purgeAuditLog deletes what is past its time.
func (p *purger) purgeAuditLog(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return p.store.PurgeAuditLog(ctx)
}

// makePartitions sees to it that there is one for the events of each of the next days.
func (p *purger) makePartitions(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return p.store.MakeEventPartitions(ctx)
}

// purgeEvents deletes what is past its time, and what is left when that is very much a minute later.
func (p *purger) purgeEvents(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, purgeEvery/2)
	defer cancel()
	return p.store.PurgeEvents(ctx, p.retention)
}
