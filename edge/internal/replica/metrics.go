package replica

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"deeplink/shared/admin"
)

// counts holds the counters since the start. A cache hit updates none of them.
type counts struct {
	pollErrors, hints, hintsMissed, subscriptionsLost, acksLost, loads, loadErrors, stale atomic.Int64

	subscribed atomic.Bool // the subscription to hints is up
	sending    admin.Pulse // of acknowledgements

	pollTimes, pollGaps, loadTimes, misses prometheus.Histogram
}

func newCounts() counts {
	histogram := func(name, help string, buckets ...float64) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{Name: "deeplink_edge_" + name, Help: help, Buckets: buckets})
	}
	return counts{
		pollTimes: histogram("poll_duration_seconds", "How long completed polls of the changes in Postgres took.",
			.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1),
		pollGaps: histogram("poll_gap_seconds", "Time from the start of one completed poll to the start of the next: the maximum age of the lease.",
			.1, .2, .3, .5, .75, 1, 1.5, 2, 3, 5, 10, 30, 120),
		loadTimes: histogram("load_duration_seconds", "How long database lookups for a single link took, including the retry.",
			.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5),
		misses: histogram("miss_duration_seconds", "How long requests that missed the cache waited for Postgres.",
			.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5),
	}
}

func observe(h prometheus.Histogram, start time.Time) { h.Observe(time.Since(start).Seconds()) }

// polled records a completed poll. last is the start of the previous poll, zero for the first.
func (c *counts) polled(last, start time.Time) {
	observe(c.pollTimes, start)
	if !last.IsZero() {
		c.pollGaps.Observe(start.Sub(last).Seconds())
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
			Name: "deeplink_edge_cache_bytes", Help: "Memory in use for keys that resolve (links) and for keys that do not (misses).",
			ConstLabels: prometheus.Labels{"of": of},
		}, func() float64 { return float64(cache.MaxCost() - cache.RemainingCost()) })
	}
	return []prometheus.Collector{
		held("links", r.positive), held("misses", r.negative),
		c.misses, c.pollTimes, c.pollGaps, c.loadTimes,
		counter("poll_errors_total", "Polls that failed.", &c.pollErrors),
		counter("hints_total", "Changes received as hints through Redis.", &c.hints),
		counter("hints_missed_total", "Changes that arrived by polling without a hint. They took longer to complete.", &c.hintsMissed),
		counter("subscriptions_lost_total", "Losses of the subscription to hints.", &c.subscriptionsLost),
		counter("acks_lost_total", "Acknowledgements that could not be sent.", &c.acksLost),
		counter("loads_total", "Database lookups for a single link.", &c.loads),
		counter("load_errors_total", "Database lookups for a single link that failed.", &c.loadErrors),
		counter("stale_answers_total", "Responses from the cache while Postgres could not be reached.", &c.stale),
		admin.RedisUp("hints", c.subscribed.Load),
		admin.RedisUp("acks", c.sending.Up),
		seconds("lease_seconds", "EDGE_LEASE: how old a lease may be.", func() time.Duration { return r.options.Lease }),
		seconds("stale_if_error_seconds", "EDGE_STALE_IF_ERROR: how much longer the edge serves from its cache while Postgres cannot be reached.",
			func() time.Duration { return r.options.StaleIfError }),
		seconds("lease_age_seconds", "Time since the start of the poll that the lease counts from; -1 without a lease.", r.leaseAge),
	}
}

func (r *Replica) leaseAge() time.Duration {
	l := r.lease.Load()
	if l == nil {
		return -time.Second
	}
	return time.Since(l.start)
}
