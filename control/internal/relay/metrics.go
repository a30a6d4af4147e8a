package relay

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

type counts struct {
	hintsLost, looksFailed atomic.Int64
	waits                  *prometheus.HistogramVec
}

func newCounts() counts {
	return counts{waits: prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "deeplink_control_propagation_seconds",
		Help:    "How long calls waited for the edges to forget, by outcome.",
		Buckets: []float64{.0005, .001, .002, .003, .005, .01, .02, .05, .1, .2, .3, .5, 1, 2, 3},
	}, []string{"propagation"})}
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
	return []prometheus.Collector{
		r.counts.waits,
		counter("hints_lost_total", "Hints that could not be sent.", &r.counts.hintsLost),
		counter("edge_looks_failed_total", "Looks at the table edges that failed.", &r.counts.looksFailed),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "deeplink_control_edges", Help: "Registered edges."}, func() float64 {
			r.mu.Lock()
			defer r.mu.Unlock()
			if r.view == nil {
				return 0
			}
			return float64(len(r.view.edges))
		}),
	}
}
