package relay

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"deeplink/shared/admin"
)

type counts struct {
	hintsLost, refreshesFailed atomic.Int64
	subscribed                 atomic.Bool // the subscription to acknowledgements is up
	sending                    admin.Pulse // of hints
	waits                      *prometheus.HistogramVec
}

func newCounts() counts {
	waits := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "deeplink_control_propagation_seconds",
		Help:    "How long calls waited for their change to reach all edges, by outcome.",
		Buckets: []float64{.0005, .001, .002, .003, .005, .01, .02, .05, .1, .2, .3, .5, 1, 2, 3},
	}, []string{"propagation"})
	for _, p := range []Propagation{Complete, Pending} {
		waits.WithLabelValues(string(p))
	}
	return counts{waits: waits}
}

func (c *counts) observe(p Propagation, took time.Duration) {
	c.waits.WithLabelValues(string(p)).Observe(took.Seconds())
}

// Collectors returns the relay's metrics, to be registered once.
func (r *Relay) Collectors() []prometheus.Collector {
	counter := func(name, help string, n *atomic.Int64) prometheus.Collector {
		return prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "deeplink_control_" + name, Help: help},
			func() float64 { return float64(n.Load()) })
	}
	gauge := func(name, help string, value func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "deeplink_control_" + name, Help: help}, value)
	}
	return []prometheus.Collector{
		r.counts.waits,
		counter("hints_lost_total", "Hints that could not be sent.", &r.counts.hintsLost),
		counter("edge_looks_failed_total", "Reads of the table edges that failed.", &r.counts.refreshesFailed),
		admin.RedisUp("acks", r.counts.subscribed.Load),
		admin.RedisUp("hints", r.counts.sending.Up),
		gauge("edges", "Registered edges.", func() float64 { edges, _ := r.registered(); return float64(edges) }),
		gauge("edges_silent", "Registered edges whose row has not moved for longer than their lease. They keep changes pending.",
			func() float64 { _, silent := r.registered(); return float64(silent) }),
		gauge("waiting_calls", "Calls that wait for their change to reach all edges.", func() float64 {
			r.mu.Lock()
			defer r.mu.Unlock()
			return float64(len(r.waiting.all))
		}),
	}
}

// registered returns the number of edges, and how many of them have not moved their row for longer than their lease.
func (r *Relay) registered() (edges, silent int) {
	r.mu.Lock()
	view := r.view
	r.mu.Unlock()
	if view == nil {
		return 0, 0
	}
	for _, e := range view.edges {
		if view.start.Sub(e.moved) >= drift(e.lease) {
			silent++
		}
	}
	return len(view.edges), silent
}
