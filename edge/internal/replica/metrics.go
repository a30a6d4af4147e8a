package replica

import (
	"sync/atomic"
	"time"

	"github.com/dgraph-io/ristretto/v2"
	"github.com/prometheus/client_golang/prometheus"
)

// counts is what happened since the start, off the path of a hit.
type counts struct {
	polls, pollErrors, hints, subscriptionsLost, acksLost, loads, loadErrors, stale atomic.Int64
}

// Collectors returns the replica's metrics, to be registered once.
func (r *Replica) Collectors() []prometheus.Collector {
	counter := func(name, help string, n *atomic.Int64) prometheus.Collector {
		return prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "deeplink_edge_" + name, Help: help},
			func() float64 { return float64(n.Load()) })
	}
	held := func(of string, cache *ristretto.Cache[uint64, entry]) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "deeplink_edge_cache_bytes", Help: "Memory that is in use for what leads somewhere (links) and for what leads nowhere (misses).",
			ConstLabels: prometheus.Labels{"of": of},
		}, func() float64 { return float64(cache.MaxCost() - cache.RemainingCost()) })
	}
	return []prometheus.Collector{
		held("links", r.known), held("misses", r.unknown),
		counter("polls_total", "Completed polls of the changes in Postgres.", &r.counts.polls),
		counter("poll_errors_total", "Polls that failed.", &r.counts.pollErrors),
		counter("hints_total", "Changes heard through Redis.", &r.counts.hints),
		counter("subscriptions_lost_total", "Losses of the subscription to hints.", &r.counts.subscriptionsLost),
		counter("acks_lost_total", "Acknowledgements that could not be sent.", &r.counts.acksLost),
		counter("loads_total", "Questions to Postgres for one link.", &r.counts.loads),
		counter("load_errors_total", "Questions to Postgres that failed.", &r.counts.loadErrors),
		counter("stale_answers_total", "Answers from the cache while Postgres could not be reached.", &r.counts.stale),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "deeplink_edge_lease_age_seconds", Help: "Time since the begin of the poll the lease counts from; -1 without a lease.",
		}, func() float64 {
			l := r.lease.Load()
			if l == nil {
				return -1
			}
			return time.Since(l.begun).Seconds()
		}),
	}
}
