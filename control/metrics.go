package main

import (
	"net/http"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"deeplink/control/internal/store"
	"deeplink/shared/admin"
	"deeplink/shared/ratelimit"
)

// registry has all that this program measures; deploy/metrics.md lists it. Only what is set up is there: without an identity provider
// there are no session tokens to count, and canary is nil without one.
func (s *server) registry(b *backends, duties *dutyMetrics, canary *canary) *prometheus.Registry {
	registry := admin.Metrics("control")
	registry.MustRegister(s.metrics.collectors()...)
	registry.MustRegister(s.relay.Collectors()...)
	registry.MustRegister(duties.collectors()...)
	if s.sessions != nil {
		registry.MustRegister(s.sessions.Collectors()...)
	}
	if canary != nil {
		registry.MustRegister(canary.metrics.collectors()...)
	}
	registry.MustRegister(
		admin.RedisUp("limits", s.limiter.Up),
		admin.Pools{
			Postgres: map[string]func() *pgxpool.Stat{
				"requests": b.requests.Stat, "phones": b.phones.Stat, "relay": b.relay.Stat, "duties": b.duties.Stat,
			},
			Redis: map[string]func() *redis.PoolStats{"hints": b.hints.PoolStats, "limits": b.counter.PoolStats},
		},
	)
	return registry
}

// dutyMetrics are what the work counts that nobody waits for.
type dutyMetrics struct {
	purges, tendings *prometheus.CounterVec
	purged           prometheus.Gauge
}

func newDutyMetrics() *dutyMetrics {
	m := &dutyMetrics{
		purges: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "deeplink_control_purges_total",
			Help: "Rounds of deleting what is too old and of making room for the events of the next days, by how they ended.",
		}, []string{"result"}),
		tendings: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "deeplink_control_search_tendings_total",
			Help: "Rounds of tending the search indexes, by how they ended.",
		}, []string{"result"}),
		purged: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "deeplink_control_last_purge_timestamp_seconds",
			Help: "When a purge last succeeded; 0 before the first.",
		}),
	}
	for _, v := range []*prometheus.CounterVec{m.purges, m.tendings} {
		v.WithLabelValues("success")
		v.WithLabelValues("error")
	}
	return m
}

func (m *dutyMetrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.purges, m.tendings, m.purged}
}

func result(err error) string {
	if err != nil {
		return "error"
	}
	return "success"
}

// metrics are what the API counts. Labels are patterns, methods, statuses and surfaces: never input.
type metrics struct {
	requests  *prometheus.CounterVec
	durations *prometheus.HistogramVec
	inFlight  prometheus.Gauge
	refusals  *prometheus.CounterVec
	fallbacks prometheus.CounterFunc
	events    *prometheus.CounterVec
	changes   *prometheus.CounterVec
}

func newMetrics(limiter *ratelimit.Limiter) *metrics {
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "deeplink_control_requests_total",
			Help: "Requests answered. Status 499: the client hung up first.",
		}, []string{"route", "method", "status"}),
		durations: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "deeplink_control_request_duration_seconds",
			Help:    "Time from a parsed header to a complete answer.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 10},
		}, []string{"route", "method"}),
		inFlight: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "deeplink_control_requests_in_flight",
			Help: "Requests that are being answered.",
		}),
		refusals: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "deeplink_control_rate_limited_total",
			Help: "Requests refused by a rate limit.",
		}, []string{"surface"}),
		fallbacks: prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "deeplink_control_rate_limit_fallbacks_total",
			Help: "Requests counted within this process because Redis did not answer.",
		}, func() float64 { return float64(limiter.Fallbacks()) }),
		events: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "deeplink_control_events_total",
			Help: "Events that apps reported: accepted, duplicate or rejected.",
		}, []string{"outcome"}),
		changes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "deeplink_control_changes_total",
			Help: "Changes made through this process that are in the audit trail.",
		}, []string{"action"}),
	}
	// What never happened is 0, not missing: an alert on its increase must see the first one.
	for _, surface := range surfaces {
		m.refusals.WithLabelValues(surface.Name)
	}
	m.recorded(receipt{})
	for _, action := range store.Actions {
		m.changes.WithLabelValues(string(action))
	}
	return m
}

// collectors are all of them, to be registered once.
func (m *metrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.requests, m.durations, m.inFlight, m.refusals, m.fallbacks, m.events, m.changes}
}

func (m *metrics) observe(route, method string, status int, took time.Duration) {
	method = known(method)
	m.requests.WithLabelValues(route, method, strconv.Itoa(status)).Inc()
	m.durations.WithLabelValues(route, method).Observe(took.Seconds())
}

func (m *metrics) limited(surface ratelimit.Surface) {
	m.refusals.WithLabelValues(surface.Name).Inc()
}

func (m *metrics) recorded(r receipt) {
	for outcome, n := range map[string]int{"accepted": r.Accepted, "duplicate": r.Duplicates, "rejected": len(r.Rejected)} {
		m.events.WithLabelValues(outcome).Add(float64(n))
	}
}

// known returns the method, or "other": a client can send any word.
func known(method string) string {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
		http.MethodConnect, http.MethodOptions, http.MethodTrace:
		return method
	}
	return "other"
}
