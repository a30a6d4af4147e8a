package replica

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"deeplink/shared/admin"
)

// counts is what happened since the start, off the path of a hit.
type counts struct {
	pollErrors, hints, hintsMissed, subscriptionsLost, acksLost, loads, loadErrors, stale atomic.Int64

	hearing atomic.Bool // the subscription to hints is there
	sending admin.Pulse // of acknowledgements

	pollTimes, pollGaps, loadTimes, misses prometheus.Histogram
}

func newCounts() counts {
	histogram := func(name, help string, buckets ...float64) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{Name: "deeplink_edge_" + name, Help: help, Buckets: buckets})
	}
	return counts{
		pollTimes: histogram("poll_duration_seconds", "How long completed polls of the changes in Postgres took.",
			.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1),
		pollGaps: histogram("poll_gap_seconds", "Time from the begin of a completed poll to that of the next: how old the lease was allowed to get.",
			.1, .2, .3, .5, .75, 1, 1.5, 2, 3, 5, 10, 30, 120),
		loadTimes: histogram("load_duration_seconds", "How long questions to Postgres for one link took, its second try included.",
			.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5),
		misses: histogram("miss_duration_seconds", "How long requests that memory could not answer waited for Postgres.",
			.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5),
	}
}

func observe(h prometheus.Histogram, begun time.Time) { h.Observe(time.Since(begun).Seconds()) }

// polled notes a completed poll; last is the begin of the one before, zero before the first.
func (c *counts) polled(last, begun time.Time) {
	observe(c.pollTimes, begun)
	if !last.IsZero() {
		c.pollGaps.Observe(begun.Sub(last).Seconds())
	}
}

// Collectors returns the replica's metrics, to be registered once.
func (r *Replica) Collectors() []prometheus.Collector {
	c := &r.counts
	counter := func(name, help string, n *atomic.Int64) prometheus.Collector {
		return prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "deeplink_edge_" + name, Help: help},
			func() float64 { return float64(n.Load()) })
	}
	seconds := func(name, help string, span func() time.Duration) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "deeplink_edge_" + name, Help: help},
			func() float64 { return span().Seconds() })
	}
	held := func(of string, cache *cache) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "deeplink_edge_cache_bytes", Help: "Memory that is in use for what leads somewhere (links) and for what leads nowhere (misses).",
			ConstLabels: prometheus.Labels{"of": of},
		}, func() float64 { return float64(cache.MaxCost() - cache.RemainingCost()) })
	}
	return []prometheus.Collector{
		held("links", r.known), held("misses", r.unknown),
		c.misses, c.pollTimes, c.pollGaps, c.loadTimes,
		counter("poll_errors_total", "Polls that failed.", &c.pollErrors),
		counter("hints_total", "Changes heard through Redis.", &c.hints),
		counter("hints_missed_total", "Changes that a poll brought and no hint had: they took longer to be complete.", &c.hintsMissed),
		counter("subscriptions_lost_total", "Losses of the subscription to hints.", &c.subscriptionsLost),
		counter("acks_lost_total", "Acknowledgements that could not be sent.", &c.acksLost),
		counter("loads_total", "Questions to Postgres for one link.", &c.loads),
		counter("load_errors_total", "Questions to Postgres that failed.", &c.loadErrors),
		counter("stale_answers_total", "Answers from the cache while Postgres could not be reached.", &c.stale),
		admin.RedisUp("hints", c.hearing.Load),
		admin.RedisUp("acks", c.sending.Up),
		seconds("lease_seconds", "EDGE_LEASE: how old a lease may be.", func() time.Duration { return r.options.Lease }),
		seconds("stale_if_error_seconds", "EDGE_STALE_IF_ERROR: how much longer memory answers while Postgres cannot be reached.",
			func() time.Duration { return r.options.StaleIfError }),
		seconds("lease_age_seconds", "Time since the begin of the poll the lease counts from; -1 without a lease.", r.leaseAge),
	}
}

func (r *Replica) leaseAge() time.Duration {
	l := r.lease.Load()
	if l == nil {
		return -time.Second
	}
	return time.Since(l.begun)
}
