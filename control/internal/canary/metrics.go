package canary

import "github.com/prometheus/client_golang/prometheus"

// metrics are the metrics of the canary.
type metrics struct {
	violations         prometheus.Counter
	rounds, checks     *prometheus.CounterVec
	propagation        *prometheus.HistogramVec
	served             prometheus.Histogram
	succeeded          prometheus.Gauge
	edges, unaddressed prometheus.Gauge
}

// propagationBuckets are those of deeplink_control_propagation_seconds.
var propagationBuckets = []float64{.0005, .001, .002, .003, .005, .01, .02, .05, .1, .2, .3, .5, 1, 2, 3}

func newMetrics() *metrics {
	const prefix = "deeplink_control_canary_"
	m := &metrics{
		violations: prometheus.NewCounter(prometheus.CounterOpts{
			Name: prefix + "violations_total",
			Help: "Responses of edges that were older than a change that was complete when control sent the request. The promise is 0.",
		}),
		rounds: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: prefix + "rounds_total",
			Help: "Rounds of the canary, by result.",
		}, []string{"result"}),
		checks: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: prefix + "checks_total",
			Help: "Requests to edges, by result: fresh is correct, stale is a violation, pending is neither, all others are failed requests.",
		}, []string{"result"}),
		propagation: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    prefix + "propagation_seconds",
			Help:    "How long the canary waited for the edges, as a call of the API waits.",
			Buckets: propagationBuckets,
		}, []string{"change"}),
		served: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    prefix + "served_seconds",
			Help:    "Time from the commit of a new link until the canary got it from an edge. The canary sends its requests after the wait for all edges.",
			Buckets: propagationBuckets,
		}),
		succeeded: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: prefix + "last_success_timestamp_seconds",
			Help: "Time of the last round in which every requested edge served every change; 0 before the first.",
		}),
		edges: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: prefix + "edges",
			Help: "Registered edges at the last check of the canary.",
		}),
		unaddressed: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: prefix + "edges_without_address",
			Help: "Registered edges without an address. The canary cannot send them requests.",
		}),
	}
	// Every label starts at 0, because an alert on an increase must see the first one.
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

// collectors returns the metrics, which a registry takes once.
func (m *metrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.violations, m.rounds, m.checks, m.propagation, m.served, m.succeeded, m.edges, m.unaddressed}
}
