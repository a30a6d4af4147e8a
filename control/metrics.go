package main

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"deeplink/shared/ratelimit"
)

// metrics are what the API counts. Labels are patterns, methods, statuses and surfaces: never input.
type metrics struct {
	requests  *prometheus.CounterVec
	durations *prometheus.HistogramVec
	refusals  *prometheus.CounterVec
	fallbacks prometheus.CounterFunc
	events    *prometheus.CounterVec
}

func newMetrics(limiter *ratelimit.Limiter) *metrics {
	return &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "deeplink_control_requests_total",
			Help: "Requests answered. Status 499: the client hung up first.",
		}, []string{"route", "method", "status"}),
		durations: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "deeplink_control_request_seconds",
			Help:    "Time from a parsed header to a complete answer.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 10},
		}, []string{"route", "method"}),
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
	}
}

// collectors are all of them, to be registered once.
func (m *metrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.requests, m.durations, m.refusals, m.fallbacks, m.events}
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
