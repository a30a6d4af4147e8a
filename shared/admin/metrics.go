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

// liveHeap is what was alive in the heap at the last collection.
var liveHeap = regexp.MustCompile(`^/gc/heap/live:bytes$`)

// Metrics returns a registry that already collects the Go runtime, the process and which build it is.
func Metrics(program string) *prometheus.Registry {
	registry := prometheus.NewRegistry()
	registry.MustRegister(
		collectors.NewGoCollector(collectors.WithGoCollectorRuntimeMetrics(collectors.GoRuntimeMetricsRule{Matcher: liveHeap})),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		buildInfo(program),
	)
	return registry
}

// buildInfo says what was built. The revision is empty for a build outside a repository, or with -buildvcs=false.
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

// RedisUp is a gauge that is 1 while Redis answers for one of the uses that a program has for it, and 0 otherwise.
func RedisUp(use string, up func() bool) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "deeplink_redis_up", Help: "0 when Redis did not answer last, and that is less than a minute ago, otherwise 1, by what it is asked for.",
		ConstLabels: prometheus.Labels{"use": use},
	}, func() float64 {
		if up() {
			return 1
		}
		return 0
	})
}

// failureLasts is how long a failure counts when nothing is asked after it: on a quiet night nobody finds out that Redis is back.
const failureLasts = time.Minute

// Pulse is how the last of some exchanges went. The zero value is well.
type Pulse struct {
	failed atomic.Int64 // when the last one failed, in nanoseconds since 1970; 0 when it did not
}

// Heard notes how one went.
func (p *Pulse) Heard(err error) {
	var at int64
	if err != nil {
		at = time.Now().UnixNano()
	}
	p.failed.Store(at)
}

// Up reports whether the last one went well, or is a minute ago.
func (p *Pulse) Up() bool {
	at := p.failed.Load()
	return at == 0 || time.Since(time.Unix(0, at)) > failureLasts
}

var (
	postgresConnections = poolDescription("deeplink_postgres_pool_connections", "Connections to Postgres, by pool and state.", "state")
	postgresMost        = poolDescription("deeplink_postgres_pool_connections_max", "How many connections a pool may have.")
	postgresAcquires    = poolDescription("deeplink_postgres_pool_acquires_total", "Connections that were taken from a pool.")
	postgresWaits       = poolDescription("deeplink_postgres_pool_waits_total", "Connections that had to be waited for, because all were in use or had to be made.")
	postgresWaited      = poolDescription("deeplink_postgres_pool_wait_seconds_total", "How long connections were waited for.")
	postgresGivenUp     = poolDescription("deeplink_postgres_pool_acquires_canceled_total", "Waits for a connection that were given up.")
	redisConnections    = poolDescription("deeplink_redis_pool_connections", "Connections to Redis, by pool and state.", "state")
	redisTimeouts       = poolDescription("deeplink_redis_pool_timeouts_total", "Waits for a connection to Redis that ended without one.")
)

func poolDescription(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, append([]string{"pool"}, labels...), nil)
}

// Pools collects the use of pools, which say it themselves, each by its name.
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
