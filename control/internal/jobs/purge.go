package jobs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"deeplink/control/internal/store"
	"deeplink/shared/feed"
)

const (
	// purgeEvery is the interval of the rounds.
	purgeEvery = time.Minute
	// changeRetention is how long changes stay in the feed. An edge whose last poll is older empties its cache instead of reading changes.
	changeRetention = 10 * time.Minute
	// sweepRest is the pause between two scans of all devices, identities or audit entries, which stay for days at least.
	sweepRest = 6 * time.Hour
	// forgetCursors is how often the purges by time start with the oldest row again. An operator may have inserted old rows by hand.
	forgetCursors = 24 * time.Hour

	// MinRetention and MaxRetention bound EVENTS_RETENTION and DEVICES_RETENTION. Apps queue events for days.
	MinRetention = 24 * time.Hour
	MaxRetention = 87600 * time.Hour
)

// Purger deletes expired rows, and creates the partitions of the coming days and months. Every control runs one; several may run at the same
// time.
type Purger struct {
	store   *store.Store
	log     *slog.Logger
	metrics *Metrics
	// eventRetention is how long to keep SDK events, and deviceRetention how long to keep a device or a user after the last contact.
	eventRetention, deviceRetention time.Duration

	// snapshots are those of the last changeRetention and the newest one before them, oldest first.
	snapshots []snapshot
	jobs      []*purgeJob
	jobsSince time.Time
}

// NewPurger returns a purger. Both retentions are at least MinRetention.
func NewPurger(s *store.Store, eventRetention, deviceRetention time.Duration, metrics *Metrics, log *slog.Logger) *Purger {
	return &Purger{store: s, log: log, metrics: metrics, eventRetention: eventRetention, deviceRetention: deviceRetention}
}

// snapshot is which transactions had ended at a time.
type snapshot struct {
	at    time.Time
	point feed.Point
}

// purgeJob deletes one kind of rows. A step is one statement with a bound on its rows.
type purgeJob struct {
	name string // a label of metrics
	// budget is how much of a round the job may take, so that a job with many rows leaves time for the others.
	budget time.Duration
	step   func(context.Context) (store.Purged, error)
	// rest is how long the job pauses after it has deleted everything. 0: it runs in each round.
	rest      time.Duration
	notBefore time.Time
}

// newJobs returns the jobs with new cursors.
func (p *Purger) newJobs() []*purgeJob {
	var changes, deleted, audit, devices, identities store.Sweep
	var redemptions, sessions, ids, keys store.Cursor
	return []*purgeJob{
		{name: "changes", budget: 15 * time.Second, step: p.finished(func(ctx context.Context, point feed.Point) (store.Purged, error) {
			return p.store.PurgeChanges(ctx, &changes, point)
		})},
		{name: "deletedLinks", budget: 5 * time.Second, step: p.finished(func(ctx context.Context, point feed.Point) (store.Purged, error) {
			return p.store.PurgeDeletedLinks(ctx, &deleted, point)
		})},
		{name: "redemptions", budget: 5 * time.Second, step: func(ctx context.Context) (store.Purged, error) {
			return p.store.PurgeRedemptions(ctx, &redemptions)
		}},
		{name: "idempotencyKeys", budget: 10 * time.Second, step: func(ctx context.Context) (store.Purged, error) {
			return p.store.PurgeIdempotencyKeys(ctx, &keys)
		}},
		{name: "audit", budget: 5 * time.Second, step: func(ctx context.Context) (store.Purged, error) {
			return p.store.PurgeAuditLog(ctx)
		}},
		{name: "auditEntries", budget: 10 * time.Second, rest: sweepRest, step: func(ctx context.Context) (store.Purged, error) {
			return p.store.PurgeAuditEntries(ctx, &audit)
		}},
		{name: "events", budget: 5 * time.Second, step: func(ctx context.Context) (store.Purged, error) {
			return p.store.PurgeEvents(ctx, p.eventRetention)
		}},
		{name: "sessions", budget: 10 * time.Second, step: func(ctx context.Context) (store.Purged, error) {
			return p.store.PurgeSessions(ctx, &sessions, p.eventRetention)
		}},
		{name: "eventIds", budget: 10 * time.Second, step: func(ctx context.Context) (store.Purged, error) {
			return p.store.PurgeEventIDs(ctx, &ids)
		}},
		{name: "consoleSessions", budget: 5 * time.Second, step: func(ctx context.Context) (store.Purged, error) {
			return p.store.PurgeConsole(ctx)
		}},
		{name: "devices", budget: 5 * time.Second, rest: sweepRest, step: func(ctx context.Context) (store.Purged, error) {
			return p.store.PurgeDevices(ctx, &devices, p.deviceRetention)
		}},
		{name: "identities", budget: 5 * time.Second, rest: sweepRest, step: func(ctx context.Context) (store.Purged, error) {
			return p.store.PurgeIdentities(ctx, &identities, p.deviceRetention)
		}},
	}
}

// finished returns a step that deletes what had ended changeRetention ago. It deletes nothing before control has run for so long.
func (p *Purger) finished(purge func(context.Context, feed.Point) (store.Purged, error)) func(context.Context) (store.Purged, error) {
	return func(ctx context.Context) (store.Purged, error) {
		// There is no snapshot before the first contact with Postgres.
		if n := len(p.snapshots); n == 0 || p.snapshots[n-1].at.Sub(p.snapshots[0].at) < changeRetention {
			return store.Purged{Done: true}, nil
		}
		return purge(ctx, p.snapshots[0].point)
	}
}

// Run makes a round every minute until ctx ends. The next round repeats what failed.
func (p *Purger) Run(ctx context.Context) error {
	ticker := time.NewTicker(purgeEvery)
	defer ticker.Stop()
	for {
		err := p.round(ctx, time.Now())
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

// report counts a round, and logs its errors.
func (p *Purger) report(err error) {
	p.metrics.purges.WithLabelValues(result(err)).Inc()
	if err != nil {
		p.log.Warn("purge failed", "error", err)
		return
	}
	p.metrics.purged.SetToCurrentTime()
}

// round creates partitions and runs each job. A job that fails does not stop the others.
func (p *Purger) round(ctx context.Context, now time.Time) error {
	errs := []error{p.makePartitions(ctx), p.remember(ctx, now)}
	if p.jobs == nil || now.Sub(p.jobsSince) >= forgetCursors {
		rests := map[string]time.Time{}
		for _, job := range p.jobs {
			rests[job.name] = job.notBefore
		}
		p.jobs, p.jobsSince = p.newJobs(), now
		for _, job := range p.jobs {
			job.notBefore = rests[job.name]
		}
	}
	for _, job := range p.jobs {
		if err := job.run(ctx, now, p.metrics); err != nil && ctx.Err() == nil {
			errs = append(errs, fmt.Errorf("%s: %w", job.name, err))
		}
	}
	return errors.Join(errs...)
}

// run makes steps until all is deleted, the budget is spent or ctx ends. The next round continues where this one stopped.
func (j *purgeJob) run(ctx context.Context, now time.Time, metrics *Metrics) error {
	if now.Before(j.notBefore) {
		return nil
	}
	spent := time.Now().Add(j.budget)
	for {
		// Every step may take stepTimeout, even when the budget is almost spent.
		bounded, cancel := context.WithTimeout(ctx, stepTimeout)
		purged, err := j.step(bounded)
		cancel()
		if err != nil {
			return err
		}
		metrics.purgedRows.WithLabelValues(j.name).Add(float64(purged.Rows))
		if purged.Done {
			j.notBefore = now.Add(j.rest)
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if time.Now().After(spent) {
			metrics.purgesUnfinished.WithLabelValues(j.name).Inc()
			return nil
		}
	}
}

// remember adds a snapshot.
func (p *Purger) remember(ctx context.Context, now time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	point, err := p.store.Point(ctx)
	if err != nil {
		return err
	}
	p.snapshots = append(p.snapshots, snapshot{now, point})
	old := 0
	for i, s := range p.snapshots {
		if now.Sub(s.at) >= changeRetention {
			old = i
		}
	}
	p.snapshots = p.snapshots[old:]
	return nil
}

// makePartitions creates the partitions of events of the next days and of the audit trail of the next months.
func (p *Purger) makePartitions(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	return errors.Join(p.store.MakeEventPartitions(ctx), p.store.MakeAuditPartitions(ctx))
}
