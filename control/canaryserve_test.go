package main

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"deeplink/control/internal/testenv"
	"deeplink/shared/devservers"
)

// edge starts an edge as an operator has it and waits until it is ready.
func (w *testEnv) edge(path string) *devservers.Program {
	w.T.Helper()
	address, admin := testenv.FreeAddress(w.T), testenv.FreeAddress(w.T)
	settings := testenv.Environ("DATABASE_URL="+w.DB.EdgeURL, "REDIS_URL="+w.Redis.URL(), "LINK_BASE_URL="+testLinkBase,
		"EDGE_ADDR="+address, "EDGE_ADMIN_ADDR="+admin, "EDGE_DRAIN=0s", "EDGE_CACHE_BYTES=16777216")
	program, err := devservers.StartProgram(path, nil, settings, new(logBuffer))
	if err != nil {
		w.T.Fatal(err)
	}
	w.T.Cleanup(func() {
		if err := program.Stop(context.Background(), 20*time.Second); err != nil {
			w.T.Error(err)
		}
	})
	p := &process{&testenv.Control{T: w.T, Admin: "http://" + admin}}
	p.AwaitReady()
	return program
}

// reached returns an error unless the canary's metrics are at least so high.
func (p *process) reached(expected map[string]float64) error {
	exposed := p.Metrics()
	for name, n := range expected {
		if got := testenv.CanaryMetric(exposed, name); got < n {
			return fmt.Errorf("%s is %v, expected %v", name, got, n)
		}
	}
	return nil
}

func TestCanariesOfTwoControlsFindTwoEdgesRight(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	path, err := devservers.Build(t.Context(), "deeplink/edge")
	if err != nil {
		t.Fatal(err)
	}
	w.edge(path)
	second := w.edge(path)
	var controls []*process
	began := time.Now()
	for range 2 {
		controls = append(controls, start(t, w.DB.ControlURL, w.Redis.URL(), "--control-canary=1s"))
	}
	for _, p := range controls {
		p.AwaitReady()
		await(t, "two rounds", func() error {
			return p.reached(map[string]float64{
				`rounds_total{result="success"}`: 2, `checks_total{result="fresh"}`: 16, `propagation_seconds_count{change="create"}`: 2,
				`propagation_seconds_count{change="edit"}`: 2, `propagation_seconds_count{change="delete"}`: 2, "served_seconds_count": 4,
				"edges": 2, "last_success_timestamp_seconds": float64(began.Unix()),
			})
		})
		for name, n := range map[string]float64{
			"violations_total": 0, `checks_total{result="unexpected"}`: 0, "edges": 2, "edges_without_address": 0,
		} {
			if got := testenv.CanaryMetric(p.Metrics(), name); got != n {
				t.Errorf("%s is %v, expected %v", name, got, n)
			}
		}
	}
	if all, err := w.Store.Organizations(t.Context()); err != nil || len(all) != 1 {
		t.Errorf("organizations %+v, %v; expected one", all, err)
	}
	if err := second.Kill(); err != nil {
		t.Fatal(err)
	}
	for _, p := range controls {
		await(t, "a round with a dead edge", func() error {
			return p.reached(map[string]float64{`rounds_total{result="failed"}`: 1, `checks_total{result="unreachable"}`: 1, "edges": 2})
		})
		if n := testenv.CanaryMetric(p.Metrics(), "violations_total"); n != 0 {
			t.Errorf("%v violations of a dead edge", n)
		}
		if status, body := p.Ready(); status != http.StatusOK {
			t.Errorf("readiness: %d %s, expected 200", status, body)
		}
		// Between two rounds: of a create that it breaks off a control does not know whether it was made.
		rounds := testenv.CanaryMetric(p.Metrics(), `rounds_total{result="failed"}`)
		await(t, "the end of a round", func() error { return p.reached(map[string]float64{`rounds_total{result="failed"}`: rounds + 1}) })
		p.Stop()
	}
	if left := w.CanaryLinks(); left != "" {
		t.Errorf("links are left: %s", left)
	}
}

func TestNoCanaryByItsSetting(t *testing.T) {
	t.Parallel()
	without, with := newTestEnv(t), newTestEnv(t)
	p := without.serve("--control-canary=0s")
	other := with.serve("--control-canary=1s")
	await(t, "two rounds of another control", func() error { return other.reached(map[string]float64{`rounds_total{result="unchecked"}`: 2}) })
	if all, err := without.Store.Organizations(t.Context()); err != nil || len(all) != 0 {
		t.Errorf("organizations %+v, %v; expected none", all, err)
	}
	if strings.Contains(p.Metrics(), "canary") {
		t.Error("there are metrics of a canary")
	}
}

func TestIntervalOfTheCanaryIsBounded(t *testing.T) {
	t.Parallel()
	for value, good := range map[string]bool{
		"": true, "0s": true, "0": true, "1s": true, "1h": true, "999ms": false, "1h1s": false, "-1s": false, "10": false,
	} {
		arguments := []string{"--database-url=postgres://127.0.0.1:1/d", "--redis-url=redis://127.0.0.1:1", "--link-base-url=" + testLinkBase}
		expected := 10 * time.Second
		if value != "" {
			arguments = append(arguments, "--control-canary="+value)
			expected, _ = time.ParseDuration(value)
		}
		c, _, err := parseCommand(arguments, new(logBuffer), new(logBuffer), func(int) {})
		if (err == nil) != good || good && c.Serve.Canary != expected {
			t.Errorf("%q: %v, %v; expected that it is taken: %v", value, c.Serve.Canary, err, good)
		}
	}
}

// TestCanaryLeavesNoGoroutineBehind is not parallel: it looks at all goroutines.
func TestCanaryLeavesNoGoroutineBehind(t *testing.T) {
	w := newTestEnv(t)
	w.NewStaleEdge(0)
	before := goleak.IgnoreCurrent()
	p := start(t, w.DB.ControlURL, w.Redis.URL(), "--control-canary=1s")
	p.AwaitReady()
	await(t, "a round", func() error { return p.reached(map[string]float64{`rounds_total{result="success"}`: 1}) })
	if code := p.Stop(); code != 0 {
		t.Errorf("exit code %d, expected 0", code)
	}
	http.DefaultClient.CloseIdleConnections()
	w.Pool.Reset()
	goleak.VerifyNone(t, before)
}
