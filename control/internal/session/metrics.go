package session

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// counts holds the verifier's metrics. Labels are outcomes and refusals, never input.
type counts struct {
	fetches, refusals *prometheus.CounterVec
}

func newCounts() counts {
	c := counts{
		fetches: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "deeplink_control_session_key_fetches_total",
			Help: "Fetches of the identity provider's keys, by result.",
		}, []string{"result"}),
		refusals: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "deeplink_control_session_refusals_total",
			Help: "Session tokens rejected, by reason.",
		}, []string{"reason"}),
	}
	for _, o := range outcomes {
		c.fetches.WithLabelValues(string(o))
	}
	for _, r := range refusals {
		c.refusals.WithLabelValues(string(r))
	}
	return c
}

func (c *counts) fetched(o outcome) { c.fetches.WithLabelValues(string(o)).Inc() }
func (c *counts) refused(r refusal) { c.refusals.WithLabelValues(string(r)).Inc() }

// Collectors returns the verifier's metrics, to be registered once.
func (v *Verifier) Collectors() []prometheus.Collector {
	return []prometheus.Collector{
		v.counts.fetches,
		v.counts.refusals,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "deeplink_control_session_keys",
			Help: "Keys that the identity provider published at the last successful fetch.",
		}, func() float64 { return float64(v.keyring.view.Load().published()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "deeplink_control_session_keys_age_seconds",
			Help: "Time since the identity provider's keys were fetched; -1 before the first time.",
		}, func() float64 {
			view := v.keyring.view.Load()
			if view.keys == nil {
				return -1
			}
			return time.Since(view.at).Seconds()
		}),
	}
}
