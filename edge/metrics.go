package main

import (
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"deeplink/edge/internal/origin"
	"deeplink/shared/admin"
)

// registry has all that this program measures; deploy/metrics.md lists it. Labels are kinds, statuses and the names of pools: never
// input.
func (s *server) registry(from *origin.Origin, hints redis.UniversalClient) *prometheus.Registry {
	registry := admin.Metrics("edge")
	registry.MustRegister(
		&s.requests,
		s.latencies.histograms,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "deeplink_edge_connections", Help: "Open connections on the public address."},
			func() float64 { return float64(s.http.GetOpenConnectionsCount()) }),
		admin.Pools{
			Postgres: map[string]func() *pgxpool.Stat{"links": from.Stat, "matches": s.matches.redeemer.Stat},
			Redis:    map[string]func() *redis.PoolStats{"hints": hints.PoolStats, "limits": s.matches.counter.PoolStats},
		},
	)
	registry.MustRegister(s.links.Collectors()...)
	registry.MustRegister(s.matches.collectors()...)
	return registry
}

// collectors are the metrics, to be registered once.
func (m *matches) collectors() []prometheus.Collector {
	tokens := func(result string, n *atomic.Int64) prometheus.Collector {
		return prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "deeplink_edge_match_tokens_total", ConstLabels: prometheus.Labels{"result": result},
			Help: "Match tokens presented: matched got their link, spent have been presented before or their link is gone, invalid are none of ours or too old.",
		}, func() float64 { return float64(n.Load()) })
	}
	return []prometheus.Collector{
		tokens("matched", &m.made), tokens("spent", &m.spent), tokens("invalid", &m.unread),
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "deeplink_edge_match_limit_fallbacks_total", Help: "Requests counted within this process because Redis did not answer.",
		}, func() float64 { return float64(m.limiter.Fallbacks()) }),
		admin.RedisUp("limits", m.limiter.Up),
	}
}

// latencies are how long answers took, by kind. It must be made by newLatencies.
type latencies struct {
	histograms *prometheus.HistogramVec
	kinds      [kinds]prometheus.Observer
}

// sampleEvery is which requests of a connection are measured: the first, and every 64th after it. A click in memory is too short to read
// the clock once more for each.
const sampleEvery = 64

func newLatencies() (l latencies) {
	l.histograms = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "deeplink_edge_request_duration_seconds",
		Help:    "Time from a parsed header to an answer that is ready to be sent, of the first request of each connection and every 64th after it.",
		Buckets: []float64{.00001, .000025, .00005, .0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5},
	}, []string{"kind"})
	for k, name := range kindNames {
		l.kinds[k] = l.histograms.WithLabelValues(name)
	}
	return l
}

// sample measures the n-th request of a connection, from 1, if it is its turn.
func (l *latencies) sample(n uint64, k kind, begun time.Time) {
	if n%sampleEvery == 1 {
		l.kinds[k].Observe(time.Since(begun).Seconds())
	}
}
