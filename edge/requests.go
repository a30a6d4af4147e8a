package main

import (
	"strconv"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	minStatus, maxStatus = 200, 599
	// counterShards keep cores from waiting for each other to count; a power of two.
	counterShards = 8
)

// requests counts answers by kind and status. It is a prometheus.Collector; the zero value is ready. Counting is one atomic
// addition, in a place of its own for each eighth of the connections.
type requests struct {
	shards [counterShards][kinds][maxStatus - minStatus + 1]atomic.Int64
	// leftOut is how many organizations each association file of the shared host had no room for when it was last answered.
	leftOut [len(associationFiles)]atomic.Int64
}

// add counts one answer on a connection.
func (r *requests) add(connection uint64, k kind, status int) {
	if minStatus <= status && status <= maxStatus {
		r.shards[connection%counterShards][k][status-minStatus].Add(1)
	}
}

var (
	requestsDescription = prometheus.NewDesc("deeplink_edge_requests_total", "Requests answered.", []string{"kind", "status"}, nil)
	leftOutDescription  = prometheus.NewDesc("deeplink_edge_association_left_out",
		"Organizations that the shared host's association file had no room for when it was last answered: they need a custom domain.", []string{"path"}, nil)
)

// Describe implements prometheus.Collector.
func (r *requests) Describe(descriptions chan<- *prometheus.Desc) {
	descriptions <- requestsDescription
	descriptions <- leftOutDescription
}

// Collect implements prometheus.Collector. Requests that never came have no series.
func (r *requests) Collect(metrics chan<- prometheus.Metric) {
	for i := range r.leftOut {
		metrics <- prometheus.MustNewConstMetric(leftOutDescription, prometheus.GaugeValue, float64(r.leftOut[i].Load()), associationFiles[i].path)
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
