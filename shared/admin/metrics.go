package admin

import (
	"regexp"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/redis/go-redis/v9"
)

// liveHeap is the memory that was live at the last garbage collection.
var liveHeap = regexp.MustCompile(`^/gc/heap/live:bytes$`)

// Metrics returns a registry with collectors for the Go runtime, the process and the build.
func Metrics(program string) *prometheus.Registry {
	registry := prometheus.NewRegistry()
	registry.MustRegister(
		collectors.NewGoCollector(collectors.WithGoCollectorRuntimeMetrics(collectors.GoRuntimeMetricsRule{Matcher: liveHeap})),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		buildInfo(program),
	)
	return registry
}

// buildInfo exports version and revision. The revision is empty for a build outside a repository, or with -buildvcs=false.
func buildInfo(program string) prometheus.Collector {
	labels := prometheus.Labels{"program": program, "version": "", "revision": "", "goversion": ""}
	if build, ok := debug.ReadBuildInfo(); ok {
		labels["version"], labels["goversion"] = build.Main.Version, build.GoVersion
		for _, setting := range build.Settings {
			if setting.Key == "vcs.revision" {
				labels["revision"] = setting.Value
			}
		}
	}
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "deeplink_build_info", Help: "Which build runs; always 1.", ConstLabels: labels,
	}, func() float64 { return 1 })
}

// RedisUp returns a gauge for one use of Redis by a program: 1 while up returns true, otherwise 0.
func RedisUp(use string, up func() bool) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "deeplink_redis_up", Help: "Whether Redis responds, per use: 0 from a failure (for limits: repeated failures) until the next response or for one minute, otherwise 1.",
		ConstLabels: prometheus.Labels{"use": use},
	}, func() float64 {
		if up() {
			return 1
		}
		return 0
	})
}

// failureLasts is how long a failure counts if no further request follows: without requests nothing shows that Redis is back.
const failureLasts = time.Minute

// Pulse holds the outcome of the last of several requests to a server. The zero value counts as a success.
type Pulse struct {
	failed atomic.Int64 // when the last request failed, in nanoseconds since 1970; 0 if it succeeded
}

// Record stores the outcome of a request.
func (p *Pulse) Record(err error) {
	var at int64
	if err != nil {
		at = time.Now().UnixNano()
	}
	p.failed.Store(at)
}

// Up reports whether the last request succeeded, or failed more than a minute ago.
func (p *Pulse) Up() bool {
	at := p.failed.Load()
	return at == 0 || time.Since(time.Unix(0, at)) > failureLasts
}

var (
	postgresConnections = poolDescription("deeplink_postgres_pool_connections", "Connections to Postgres, by pool and state.", "state")
	postgresMost        = poolDescription("deeplink_postgres_pool_connections_max", "Maximum connections of a pool.")
	postgresAcquires    = poolDescription("deeplink_postgres_pool_acquires_total", "Connections acquired from a pool.")
	postgresWaits       = poolDescription("deeplink_postgres_pool_waits_total", "Acquires that waited, because all connections were in use or a new one was opened.")
	postgresWaited      = poolDescription("deeplink_postgres_pool_wait_seconds_total", "Time spent waiting for a connection.")
	postgresGivenUp     = poolDescription("deeplink_postgres_pool_acquires_canceled_total", "Acquires that were canceled while waiting.")
	redisConnections    = poolDescription("deeplink_redis_pool_connections", "Connections to Redis, by pool and state.", "state")
	redisTimeouts       = poolDescription("deeplink_redis_pool_timeouts_total", "Acquires of a Redis connection that timed out.")
)

func poolDescription(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, append([]string{"pool"}, labels...), nil)
}

// Pools collects the statistics of connection pools by name.
type Pools struct {
	Postgres map[string]func() *pgxpool.Stat
	Redis    map[string]func() *redis.PoolStats
}

// Describe implements prometheus.Collector.
func (Pools) Describe(descriptions chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		postgresConnections, postgresMost, postgresAcquires, postgresWaits, postgresWaited, postgresGivenUp, redisConnections, redisTimeouts,
	} {
		descriptions <- d
	}
}

// Collect implements prometheus.Collector.
func (p Pools) Collect(metrics chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		metrics <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	counter := func(d *prometheus.Desc, value float64, labels ...string) {
		metrics <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, value, labels...)
	}
	for name, stat := range p.Postgres {
		s := stat()
		gauge(postgresConnections, float64(s.AcquiredConns()), name, "acquired")
		gauge(postgresConnections, float64(s.IdleConns()), name, "idle")
		gauge(postgresConnections, float64(s.ConstructingConns()), name, "connecting")
		gauge(postgresMost, float64(s.MaxConns()), name)
		counter(postgresAcquires, float64(s.AcquireCount()), name)
		counter(postgresWaits, float64(s.EmptyAcquireCount()), name)
		counter(postgresWaited, s.EmptyAcquireWaitTime().Seconds(), name)
		counter(postgresGivenUp, float64(s.CanceledAcquireCount()), name)
	}
	for name, stat := range p.Redis {
		s := stat()
		gauge(redisConnections, float64(s.TotalConns-min(s.IdleConns, s.TotalConns)), name, "acquired")
		gauge(redisConnections, float64(s.IdleConns), name, "idle")
		counter(redisTimeouts, float64(s.Timeouts), name)
	}
}
