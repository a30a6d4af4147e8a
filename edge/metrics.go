package main

import (
	"strconv"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"deeplink/edge/internal/origin"
	"deeplink/edge/internal/wellknown"
	"deeplink/shared/admin"
)

// registry has all metrics of the program; deploy/metrics.md lists them. Labels are kinds, statuses and names of pools, never input.
func (s *server) registry(from *origin.Origin, hints redis.UniversalClient) *prometheus.Registry {
	registry := admin.Metrics("edge")
	registry.MustRegister(
		&s.requests,
		s.latencies.histograms,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "deeplink_edge_connections", Help: "Open connections on the public address."},
			func() float64 { return float64(s.http.GetOpenConnectionsCount()) }),
		admin.Pools{
			Postgres: map[string]func() *pgxpool.Stat{"links": from.Stat, "matches": s.tokens.PostgresStat},
			Redis:    map[string]func() *redis.PoolStats{"hints": hints.PoolStats, "limits": s.tokens.RedisStat},
		},
	)
	registry.MustRegister(s.links.Collectors()...)
	registry.MustRegister(s.tokens.Collectors()...)
	return registry
}

const (
	minStatus, maxStatus = 200, 599
	// counterShards keep processor cores from contending for one counter. A power of two.
	counterShards = 8
)

// requests counts responses by kind and status. It is a prometheus.Collector. The zero value is ready to use. Counting is one atomic
// addition, in one of several shards that the connection chooses: a CounterVec would hash the labels on each click.
type requests struct {
	shards [counterShards][kinds][maxStatus - minStatus + 1]atomic.Int64
	// leftOut is, for each association file of the shared host, the number of organizations that it had no room for when it was last
	// served.
	leftOut [len(wellknown.Files)]atomic.Int64
}

// add counts one response on a connection.
func (r *requests) add(connection uint64, k kind, status int) {
	if minStatus <= status && status <= maxStatus {
		r.shards[connection%counterShards][k][status-minStatus].Add(1)
	}
}

var (
	requestsDescription = prometheus.NewDesc("deeplink_edge_requests_total", "Requests answered.", []string{"kind", "status"}, nil)
	leftOutDescription  = prometheus.NewDesc("deeplink_edge_association_left_out",
		"Organizations that the shared host's association file had no room for when it was last served: each needs a custom domain.", []string{"path"}, nil)
)

// Describe implements prometheus.Collector.
func (r *requests) Describe(descriptions chan<- *prometheus.Desc) {
	descriptions <- requestsDescription
	descriptions <- leftOutDescription
}

// Collect implements prometheus.Collector. A kind and status that never occurred has no series.
func (r *requests) Collect(metrics chan<- prometheus.Metric) {
	for i := range r.leftOut {
		metrics <- prometheus.MustNewConstMetric(leftOutDescription, prometheus.GaugeValue, float64(r.leftOut[i].Load()), wellknown.Files[i].Path)
	}
	for k := range kinds {
		for status := minStatus; status <= maxStatus; status++ {
			var n int64
			for shard := range r.shards {
				n += r.shards[shard][k][status-minStatus].Load()
			}
			if n > 0 {
				metrics <- prometheus.MustNewConstMetric(requestsDescription, prometheus.CounterValue, float64(n),
					kindNames[k], strconv.Itoa(status))
			}
		}
	}
}

// latencies are the durations of requests, by kind. Use newLatencies to make one.
type latencies struct {
	histograms *prometheus.HistogramVec
	kinds      [kinds]prometheus.Observer
}

// sampleEvery says which requests of a connection are measured: the first, and every 64th after it. A click on a cached link is too
// short to read the clock a second time for each.
const sampleEvery = 64

func newLatencies() (l latencies) {
	l.histograms = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "deeplink_edge_request_duration_seconds",
		Help:    "Time from a parsed header to a response that is ready to be sent, for the first request of each connection and every 64th after it.",
		Buckets: []float64{.00001, .000025, .00005, .0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5},
	}, []string{"kind"})
	for k, name := range kindNames {
		l.kinds[k] = l.histograms.WithLabelValues(name)
	}
	return l
}

// sample measures request number n of a connection, counted from 1, if it is one of those to measure.
func (l *latencies) sample(n uint64, k kind, start time.Time) {
	if n%sampleEvery == 1 {
		l.kinds[k].Observe(time.Since(start).Seconds())
	}
}
