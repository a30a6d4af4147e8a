package keyguard

import "github.com/prometheus/client_golang/prometheus"

// Collectors returns the metrics of a Guard, to be registered once.
func (g *Guard) Collectors() []prometheus.Collector {
	lookups := func(how string, count func() int64) prometheus.Collector {
		return prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "deeplink_control_unproven_keys_total",
			Help: "Requests with an API key that this process has not seen valid lately, by how it was looked up: " +
				"by a query of its own (single), or together with others because too many keys were not valid (batch).",
			ConstLabels: prometheus.Labels{"lookup": how},
		}, func() float64 { return float64(count()) })
	}
	return []prometheus.Collector{
		lookups("single", g.singles.Load),
		lookups("batch", g.batched.Load),
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "deeplink_control_key_batches_total",
			Help: "Queries that looked up several API keys together.",
		}, func() float64 { return float64(g.batches.Load()) }),
	}
}
