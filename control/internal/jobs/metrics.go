// Package jobs is the background work of control: purges and partitions, flushes of the search indexes, transfers of custom domains, and a
// watch for long transactions. No request waits for it. Every control runs all jobs; they agree through Postgres which one works.
package jobs

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// stepTimeout bounds one statement or lookup of a job.
const stepTimeout = 10 * time.Second

// Metrics are the metrics of the background jobs. All jobs of a control share one.
type Metrics struct {
	purges, flushes, transferChecks   *prometheus.CounterVec
	purgedRows, purgesUnfinished      *prometheus.CounterVec
	purged                            prometheus.Gauge
	oldestTransaction, hiddenSessions prometheus.Gauge
}

// NewMetrics returns the metrics, with every label at 0.
func NewMetrics() *Metrics {
	m := &Metrics{
		purges: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "deeplink_control_purges_total",
			Help: "Rounds of deleting expired rows and creating partitions, by result.",
		}, []string{"result"}),
		flushes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "deeplink_control_search_tendings_total",
			Help: "Flushes of the pending lists of the search indexes, by result.",
		}, []string{"result"}),
		transferChecks: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "deeplink_control_transfer_checks_total",
			Help: "Checks of contested custom domains, by result: success, unanswered (DNS failed) or error (Postgres failed).",
		}, []string{"result"}),
		purged: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "deeplink_control_last_purge_timestamp_seconds",
			Help: "Time of the last successful purge; 0 before the first.",
		}),
		purgedRows: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "deeplink_control_purged_rows_total",
			Help: "Rows deleted and partitions dropped by purges, by job.",
		}, []string{"job"}),
		purgesUnfinished: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "deeplink_control_purges_unfinished_total",
			Help: "Rounds in which a purge job ran out of time before it had deleted everything; the next round continues.",
		}, []string{"job"}),
		oldestTransaction: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "deeplink_control_oldest_transaction_seconds",
			Help: "Age of the oldest open transaction in any database of the Postgres server; -1: unknown.",
		}),
		hiddenSessions: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "deeplink_control_hidden_sessions",
			Help: "Sessions of the Postgres server whose transactions the owner of the schema may not see; they are missing in the oldest transaction.",
		}),
	}
	m.oldestTransaction.Set(-1)
	for _, job := range new(Purger).newJobs() {
		m.purgedRows.WithLabelValues(job.name)
		m.purgesUnfinished.WithLabelValues(job.name)
	}
	for _, v := range []*prometheus.CounterVec{m.purges, m.flushes} {
		v.WithLabelValues("success")
		v.WithLabelValues("error")
	}
	for _, result := range []string{checkDone, checkUnanswered, checkFailed} {
		m.transferChecks.WithLabelValues(result)
	}
	return m
}

// Collectors returns the metrics, which a registry takes once.
func (m *Metrics) Collectors() []prometheus.Collector {
	return []prometheus.Collector{m.purges, m.flushes, m.transferChecks, m.purged, m.purgedRows, m.purgesUnfinished, m.oldestTransaction, m.hiddenSessions}
}

func result(err error) string {
	if err != nil {
		return "error"
	}
	return "success"
}
