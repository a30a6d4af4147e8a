package main

import "github.com/prometheus/client_golang/prometheus"

// canaryMetrics are what the canary counts. There are none without one.
type canaryMetrics struct {
	violations         prometheus.Counter
	rounds, checks     *prometheus.CounterVec
	propagation        *prometheus.HistogramVec
	served             prometheus.Histogram
	succeeded          prometheus.Gauge
	edges, unaddressed prometheus.Gauge
}

// propagationBuckets are those of deeplink_control_propagation_seconds.
var propagationBuckets = []float64{.0005, .001, .002, .003, .005, .01, .02, .05, .1, .2, .3, .5, 1, 2, 3}

func newCanaryMetrics() *canaryMetrics {
	const prefix = "deeplink_control_canary_"
	m := &canaryMetrics{
		violations: prometheus.NewCounter(prometheus.CounterOpts{
			Name: prefix + "violations_total",
			Help: "Answers of edges from before a change that was complete when they were asked. The promise is 0.",
		}),
		rounds: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: prefix + "rounds_total",
			Help: "Lives of the canary's link, by how they ended.",
		}, []string{"result"}),
		checks: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: prefix + "checks_total",
			Help: "Visits to edges, by what came of them: fresh is right, stale is a violation, pending is neither, all else is no answer.",
		}, []string{"result"}),
		propagation: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    prefix + "propagation_seconds",
			Help:    "How long the canary waited for the edges, as a call of the API would have.",
			Buckets: propagationBuckets,
		}, []string{"change"}),
		served: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    prefix + "served_seconds",
			Help:    "Time from the commit of a new link until an edge was seen to serve it. Edges are asked after the wait for all of them.",
			Buckets: propagationBuckets,
		}),
		succeeded: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: prefix + "last_success_timestamp_seconds",
			Help: "When the last round ended in which every edge that was asked showed every change; 0 before the first.",
		}),
		edges: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: prefix + "edges",
			Help: "Edges that were registered when the canary last looked.",
		}),
		unaddressed: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: prefix + "edges_without_address",
			Help: "Registered edges that do not say where they are reached, and are not asked.",
		}),
	}
	// What never happened is 0, not missing: an alert on its increase must see the first one.
	for _, result := range []string{roundSuccess, roundPending, roundUnchecked, roundSuspended, roundFailed, roundViolation} {
		m.rounds.WithLabelValues(result)
	}
	for _, result := range []string{
		checkFresh, checkPending, checkStale, checkUnreachable, checkTimeout, checkLimited, checkBroken, checkSuspended, checkUnexpected,
	} {
		m.checks.WithLabelValues(result)
	}
	for _, change := range []string{changeCreate, changeEdit, changeDelete} {
		m.propagation.WithLabelValues(change)
	}
	return m
}

// collectors are all of them, to be registered once.
func (m *canaryMetrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.violations, m.rounds, m.checks, m.propagation, m.served, m.succeeded, m.edges, m.unaddressed}
}
