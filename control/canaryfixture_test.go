package main

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"deeplink/control/internal/relay"
	"deeplink/control/internal/store"
	"deeplink/shared/bus"
)

// testCanary is a canary whose rounds are the test's to make.
type testCanary struct {
	*canary
	t       testing.TB
	printed *lockedBuffer
}

// canary returns one with a relay of its own, as a control has it.
func (w *world) canary() *testCanary {
	w.t.Helper()
	hints, err := bus.Open(w.redis.URL())
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { hints.Close() })
	pool, printed := w.open(w.db.ControlURL), new(lockedBuffer)
	spreading := relay.New(pool, hints, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- spreading.Run(ctx) }()
	w.t.Cleanup(func() { cancel(); <-ended })
	c := newCanary(store.New(pool, testLinkBase), spreading, testLinkBase, time.Second, slog.New(slog.NewJSONHandler(printed, nil)))
	c.visitor.http.Timeout = 20 * time.Second // those who are asked here ask a database in turn
	return &testCanary{canary: c, t: w.t, printed: printed}
}

// live makes a round and checks how it ended. On a machine with too much to do a create may be pending that need not be: such a round
// says nothing, and is made again.
func (c *testCanary) live(expected string) {
	c.t.Helper()
	var result string
	var err error
	await(c.t, "a round in which nothing was late", func() error {
		c.metrics = newCanaryMetrics()
		before := c.printed.String()
		result, err = c.round(c.t.Context())
		if late := result == roundPending || metric(c.exposed(), `checks_total{result="pending"}`) > 0; late && expected != roundPending {
			c.printed.reset(before)
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

// metric returns a value of what was scraped, -1 when it is not there. The name is without the canary's prefix.
func metric(exposed, name string) float64 {
	_, after, _ := strings.Cut(exposed, "\ndeeplink_control_canary_"+name+" ")
	line, _, _ := strings.Cut(after, "\n")
	value, err := strconv.ParseFloat(line, 64)
	if err != nil {
		return -1
	}
	return value
}

// counts are values of metrics, by their names without the canary's prefix.
type counts map[string]float64

// counted checks the metrics of the last round.
func (c *testCanary) counted(expected counts) {
	c.t.Helper()
	exposed := c.exposed()
	for name, n := range expected {
		if got := metric(exposed, name); got != n {
			c.t.Errorf("%s is %v, expected %v", name, got, n)
		}
	}
}

// links returns the codes of the canary's organization.
func (w *world) canaryLinks() (codes string) {
	w.t.Helper()
	err := w.pool.QueryRow(context.Background(), `
		select coalesce(string_agg(l.short_code, ',' order by l.short_code), '') from links l join organizations o on o.id = l.organization_id where o.external_id = $1`,
		canaryOrganization).Scan(&codes)
	if err != nil {
		w.t.Fatal(err)
	}
	return codes
}

// falseEdge registers a server as an edge that control does not wait for.
func (w *world) falseEdge(handler http.HandlerFunc) {
	w.t.Helper()
	server := httptest.NewServer(handler)
	w.t.Cleanup(server.Close)
	w.register(server.Listener.Addr().String())
}

func (w *world) register(address string) {
	w.t.Helper()
	w.exec(`insert into edges (slot, incarnation, lease_ms, hold_ms, address) values ($1, gen_random_uuid(), 1, 1, $1)`, address)
}

// resolve answers a click from the database, as an edge that remembers nothing.
func (w *world) resolve(r *http.Request) answer {
	var target string
	err := w.pool.QueryRow(context.Background(), `
		select l.fallback_url from links l join organizations o on o.id = l.organization_id where '/' || o.org_key || '/' || l.short_code = $1`,
		r.URL.Path).Scan(&target)
	if errors.Is(err, pgx.ErrNoRows) {
		return unknown
	}
	if err != nil {
		w.t.Error(err)
	}
	return leadingTo(target)
}

// tell writes an answer as an edge does.
func tell(rw http.ResponseWriter, a answer) {
	rw.Header().Set(versionHeader, version)
	if a.location != "" {
		rw.Header().Set("Location", a.location)
	}
	rw.WriteHeader(a.status)
}

// stubborn is an edge that never forgets an answer of the given status.
type stubborn struct {
	world  *world
	status int

	mu       sync.Mutex
	kept     map[string]answer
	requests []*http.Request
}

func (s *stubborn) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = append(s.requests, r)
	a, known := s.kept[r.URL.Path]
	if !known {
		if a = s.world.resolve(r); a.status == s.status {
			s.kept[r.URL.Path] = a
		}
	}
	tell(rw, a)
}

func (w *world) stubborn(status int) *stubborn {
	s := &stubborn{world: w, status: status, kept: make(map[string]answer)}
	w.falseEdge(s.ServeHTTP)
	return s
}
