package api

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"deeplink/control/internal/bulkhead"
	"deeplink/control/internal/store"
	"deeplink/shared/admin"
	"deeplink/shared/ratelimit"
)

// metrics are the metrics of the API. Labels are route patterns, methods, statuses and surfaces, and never input.
type metrics struct {
	requests  *prometheus.CounterVec
	durations *prometheus.HistogramVec
	inFlight  prometheus.Gauge
	refusals  *prometheus.CounterVec
	fallbacks prometheus.CounterFunc
	events    *prometheus.CounterVec
	changes   *prometheus.CounterVec
	locked    prometheus.Counter

	preconditionsFailed prometheus.Counter
	idempotency         *prometheus.CounterVec
	bulkOperations      *prometheus.CounterVec
}

func newMetrics(limiter *ratelimit.Limiter) *metrics {
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "deeplink_control_requests_total",
			Help: "Responses. Status 499: the client disconnected first.",
		}, []string{"route", "method", "status"}),
		durations: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "deeplink_control_request_duration_seconds",
			Help:    "Time from the parsed header to the complete response.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 10},
		}, []string{"route", "method"}),
		inFlight: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "deeplink_control_requests_in_flight",
			Help: "Requests in progress.",
		}),
		refusals: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "deeplink_control_rate_limited_total",
			Help: "Requests rejected by a rate limit.",
		}, []string{"surface"}),
		fallbacks: prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "deeplink_control_rate_limit_fallbacks_total",
			Help: "Requests counted within this process because Redis did not respond.",
		}, func() float64 { return float64(limiter.Fallbacks()) }),
		events: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "deeplink_control_events_total",
			Help: "Events in SDK requests: accepted, duplicate or rejected.",
		}, []string{"outcome"}),
		changes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "deeplink_control_changes_total",
			Help: "Audit entries written by this process, by action.",
		}, []string{"action"}),
		locked: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "deeplink_control_lock_timeouts_total",
			Help: "Requests that got 503 because another transaction kept a lock that they needed.",
		}),
	}
	m.preconditionsFailed = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "deeplink_control_preconditions_failed_total",
		Help: "Requests that got 412 because the link's ETag did not meet If-Match or If-None-Match.",
	})
	m.idempotency = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "deeplink_control_idempotency_total",
		Help: "Writes with an Idempotency-Key: first (its response was stored), replayed, reused for another request (422), in_progress (409).",
	}, []string{"result"})
	for _, result := range []string{keyFirst, keyReplayed, keyReused, keyInProgress} {
		m.idempotency.WithLabelValues(result)
	}
	m.bulkOperations = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "deeplink_control_bulk_operations_total",
		Help: "Operations of bulk requests by op (unknown for a malformed one) and result: created, updated, unchanged, deleted or failed. An atomic request that fails counts as its failed operation.",
	}, []string{"op", "result"})
	for op, results := range bulkResults {
		for _, result := range results {
			m.bulkOperations.WithLabelValues(op, result)
		}
	}
	// Every label starts at 0, because an alert on an increase must see the first one.
	for _, surface := range surfaces {
		m.refusals.WithLabelValues(surface.Name)
	}
	m.recorded(eventsResponse{})
	for _, action := range store.Actions {
		m.changes.WithLabelValues(string(action))
	}
	return m
}

func (m *metrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.requests, m.durations, m.inFlight, m.refusals, m.fallbacks, m.events, m.changes, m.locked,
		m.preconditionsFailed, m.idempotency, m.bulkOperations}
}

func (m *metrics) observe(route, method string, status int, took time.Duration) {
	method = knownMethod(method)
	m.requests.WithLabelValues(route, method, strconv.Itoa(status)).Inc()
	m.durations.WithLabelValues(route, method).Observe(took.Seconds())
}

func (m *metrics) limited(surface ratelimit.Surface) {
	m.refusals.WithLabelValues(surface.Name).Inc()
}

func (m *metrics) recorded(r eventsResponse) {
	for outcome, n := range map[string]int{"accepted": r.Accepted, "duplicate": r.Duplicates, "rejected": len(r.Rejected)} {
		m.events.WithLabelValues(outcome).Add(float64(n))
	}
}

var (
	shareWaiting = prometheus.NewDesc("deeplink_control_share_waiting",
		"Requests that wait for the share of their organization or device, before they take a Postgres connection.", []string{"share"}, nil)
	shareRefused = prometheus.NewDesc("deeplink_control_share_refused_total",
		"Requests that got 503 because their organization or device had used up its share: too many were waiting (full), or the wait took too long (timeout).",
		[]string{"share", "reason"}, nil)
)

// shares collects the counts of the shares of both stores.
type shares struct{ api, sdk func() store.Shares }

// Describe implements prometheus.Collector.
func (shares) Describe(descriptions chan<- *prometheus.Desc) {
	descriptions <- shareWaiting
	descriptions <- shareRefused
}

// Collect implements prometheus.Collector.
func (s shares) Collect(metrics chan<- prometheus.Metric) {
	api, sdk := s.api(), s.sdk()
	for name, stats := range map[string]bulkhead.Stats{"writes": api.Writes, "lists": api.Lists, "reports": sdk.Reports, "devices": sdk.Devices} {
		metrics <- prometheus.MustNewConstMetric(shareWaiting, prometheus.GaugeValue, float64(stats.Waiting), name)
		metrics <- prometheus.MustNewConstMetric(shareRefused, prometheus.CounterValue, float64(stats.Full), name, "full")
		metrics <- prometheus.MustNewConstMetric(shareRefused, prometheus.CounterValue, float64(stats.TimedOut), name, "timeout")
	}
}

// knownMethod returns the method, or "other", because a client can send any word.
func knownMethod(method string) string {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
		http.MethodConnect, http.MethodOptions, http.MethodTrace:
		return method
	}
	return "other"
}

// Collectors returns the metrics of the API, which a registry takes once.
func (s *Server) Collectors() []prometheus.Collector {
	all := append(s.metrics.collectors(), s.keys.Collectors()...)
	return append(all, shares{api: s.Store.Shares, sdk: s.SDK.Shares}, admin.RedisUp("limits", s.limiter.Up))
}
