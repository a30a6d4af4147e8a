package canary

import (
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"deeplink/control/internal/store"
	"deeplink/control/internal/testenv"
)

// testCanary is a canary whose rounds are the test's to make.
type testCanary struct {
	*Canary
	t       testing.TB
	printed *logBuffer
}

// canary returns one with a relay of its own, as a control has it.
func (w *testEnv) canary() *testCanary {
	w.T.Helper()
	pool, printed := w.Open(w.DB.ControlURL), new(logBuffer)
	c := New(store.New(pool, testLinkBase), w.RunRelay(pool), testLinkBase, time.Second, slog.New(slog.NewJSONHandler(printed, nil)))
	c.edges.HTTP.Timeout = 20 * time.Second // those who are asked here ask a database in turn
	return &testCanary{Canary: c, t: w.T, printed: printed}
}

// live makes a round and checks how it ended. On a machine with too much to do a create may be pending that need not be: such a round
// says nothing, and is made again.
func (c *testCanary) live(expected string) {
	c.t.Helper()
	var result string
	var err error
	await(c.t, "a round in which nothing was late", func() error {
		c.metrics = newMetrics()
		before := c.printed.String()
		result, err = c.round(c.t.Context())
		if late := result == roundPending || testenv.CanaryMetric(c.exposed(), `checks_total{result="pending"}`) > 0; late && expected != roundPending {
			c.printed.Reset(before)
			return errors.New(result)
		}
		return nil
	})
	if result != expected {
		c.t.Errorf("the round ended with %s (%v), expected %s", result, err, expected)
	}
	c.report(c.t.Context(), result, err)
}

// exposed returns the metrics of the last round as Prometheus would scrape them.
func (c *testCanary) exposed() string {
	registry := prometheus.NewRegistry()
	registry.MustRegister(c.metrics.collectors()...)
	recorder := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(recorder, httptest.NewRequest(http.MethodGet, "/", nil))
	return recorder.Body.String()
}

// counts are values of metrics, by their names without the canary's prefix.
type counts map[string]float64

// counted checks the metrics of the last round.
func (c *testCanary) counted(expected counts) {
	c.t.Helper()
	exposed := c.exposed()
	for name, n := range expected {
		if got := testenv.CanaryMetric(exposed, name); got != n {
			c.t.Errorf("%s is %v, expected %v", name, got, n)
		}
	}
}
