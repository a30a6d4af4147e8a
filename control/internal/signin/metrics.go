package signin

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics count sign-ins and renewals. Labels are constants of this package, never input.
type Metrics struct {
	signIns, renewals *prometheus.CounterVec
	durations         prometheus.Histogram
}

// The results of renewals.
const (
	renewalOK            = "ok"
	renewalRefused       = "refused"
	renewalUncertain     = "uncertain"
	renewalUnreachable   = "unreachable"
	renewalMisconfigured = "misconfigured"
)

// NewMetrics returns the metrics of all services of a process.
func NewMetrics() *Metrics {
	m := &Metrics{
		signIns: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "deeplink_control_console_sign_ins_total",
			Help: "Sign-ins to the console: ok with the identity provider, link, or the problem.",
		}, []string{"result"}),
		renewals: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "deeplink_control_console_renewals_total",
			Help: "Renewals of tokens of console sessions, by result. Uncertain: the request was sent and no complete response was read.",
		}, []string{"result"}),
		durations: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "deeplink_control_console_renewal_duration_seconds",
			Help:    "Time that the identity provider took to renew a token.",
			Buckets: []float64{.01, .025, .05, .1, .25, .5, 1, 2.5, 5},
		}),
	}
	// Every label starts at 0, because an alert on an increase must see the first one.
	for _, p := range problems {
		m.signIns.WithLabelValues(string(p))
	}
	for _, result := range []string{"ok", "link"} {
		m.signIns.WithLabelValues(result)
	}
	for _, result := range []string{renewalOK, renewalRefused, renewalUncertain, renewalUnreachable, renewalMisconfigured} {
		m.renewals.WithLabelValues(result)
	}
	return m
}

// Collectors returns the metrics, to be registered once.
func (m *Metrics) Collectors() []prometheus.Collector {
	return []prometheus.Collector{m.signIns, m.renewals, m.durations}
}

func (m *Metrics) signedIn(result string) { m.signIns.WithLabelValues(result).Inc() }

// Failed counts a sign-in that failed.
func (m *Metrics) Failed(p Problem) { m.signedIn(string(p)) }

func (m *Metrics) renewed(result string, took time.Duration) {
	m.renewals.WithLabelValues(result).Inc()
	m.durations.Observe(took.Seconds())
}
