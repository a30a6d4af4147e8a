package clicks

import (
	"github.com/prometheus/client_golang/prometheus"
)

// Metrics are the metrics of the roll-ups.
type Metrics struct {
	rolled, late prometheus.Counter
	rollUps      *prometheus.CounterVec
	rollUpLag    prometheus.Gauge
	asOfAge      prometheus.Gauge
	logs         *prometheus.GaugeVec
	housekeeping *prometheus.CounterVec
}

// logStates are the labels of the gauge of logs.
var logStates = []State{stateOpen, Waiting, Forgotten, Lost, Off}

// NewMetrics returns the metrics, with every label at 0.
func NewMetrics() *Metrics {
	m := &Metrics{
		rolled: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "deeplink_control_clicks_rolled_total",
			Help: "Clicks that this control counted in roll-ups.",
		}),
		late: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "deeplink_control_clicks_late_total",
			Help: "Clicks that this control counted after figures of their time were final.",
		}),
		rollUps: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "deeplink_control_clicks_rollups_total",
			Help: "Roll-ups of clicks, by result.",
		}, []string{"result"}),
		rollUpLag: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "deeplink_control_clicks_rollup_lag_seconds",
			Help: "Age of the oldest batch of clicks that no roll-up has counted; 0: there is none, or it is unknown.",
		}),
		asOfAge: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "deeplink_control_clicks_as_of_age_seconds",
			Help: "Age of asOf, the time before which all figures of clicks are final; -1: unknown.",
		}),
		logs: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "deeplink_control_clicks_logs",
			Help: "Logs of clicks by state. Logs that are closed are not among them; lost ones count for a day.",
		}, []string{"state"}),
		housekeeping: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "deeplink_control_clicks_housekeeping_total",
			Help: "Rounds of deleting expired clicks, salts and agents, and of creating partitions, by result.",
		}, []string{"result"}),
	}
	m.asOfAge.Set(-1)
	for _, result := range []string{"success", "error"} {
		m.rollUps.WithLabelValues(result)
		m.housekeeping.WithLabelValues(result)
	}
	for _, state := range logStates {
		m.logs.WithLabelValues(string(state))
	}
	return m
}

// Collectors returns the metrics, which a registry takes once.
func (m *Metrics) Collectors() []prometheus.Collector {
	return []prometheus.Collector{m.rolled, m.late, m.rollUps, m.rollUpLag, m.asOfAge, m.logs, m.housekeeping}
}

func (m *Metrics) rolledUp(done rolled, err error) {
	if err != nil {
		m.rollUps.WithLabelValues("error").Inc()
		return
	}
	m.rollUps.WithLabelValues("success").Inc()
	m.rolled.Add(float64(done.clicks))
	m.late.Add(float64(done.late))
}
