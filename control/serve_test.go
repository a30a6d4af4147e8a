package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"deeplink/control/internal/relay"
	"deeplink/control/internal/store"
	"deeplink/shared/apikey"
	"deeplink/shared/catalog"
	"deeplink/shared/testdb"
	"deeplink/shared/testredis"
)

// TestServeLeavesNoGoroutineBehind is not parallel: it looks at all goroutines.
func TestServeLeavesNoGoroutineBehind(t *testing.T) {
	w := newWorld(t)
	c, provider := &client{}, w.provider()
	before := goleak.IgnoreCurrent()
	p := start(t, w.db.ControlURL, w.redis.URL(), "--portal-jwks-url="+provider.url, "--portal-issuer="+issuer)
	p.awaitReady()
	transport := &http.Transport{}
	c.t, c.base, c.key, c.http = t, p.base, *w.organization(catalog.Growth).ServerKey, &http.Client{Transport: transport}
	c.created(`{"path":"/a"}`)
	c.do("GET", "/links", "")
	c.do("GET", "/portal/organization", "", "Authorization", "", "Authorization", "Bearer "+provider.token("org_1", "owner"))
	if code := p.stop(); code != 0 {
		t.Errorf("exit code %d, expected 0", code)
	}
	transport.CloseIdleConnections()
	http.DefaultClient.CloseIdleConnections()
	// The pool of the test itself opened connections too.
	w.pool.Reset()
	goleak.VerifyNone(t, before)
}

func TestStopAnswersWhatIsUnderWay(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.serve("--control-drain=300ms")
	c := p.client(*w.organization(catalog.Growth).ServerKey)
	link := c.created(`{"path":"/a"}`)
	w.deafEdge(1500*time.Millisecond, time.Hour)

	deleted := make(chan reply, 1)
	go func() { deleted <- c.do("DELETE", "/links/"+link.ID, "") }()
	await(t, "the delete to be committed", func() error {
		var links int
		if err := w.pool.QueryRow(context.Background(), `select count(*) from links`).Scan(&links); err != nil || links > 0 {
			return fmt.Errorf("%d links, %v", links, err)
		}
		return nil
	})
	stopped := make(chan int, 1)
	go func() { stopped <- p.stop() }()
	await(t, "readiness to be given up", func() error {
		if status, body := p.ready(); status != http.StatusServiceUnavailable || !strings.Contains(body, "stopping") {
			return fmt.Errorf("%d %s", status, body)
		}
		return nil
	})
	if r := <-deleted; r.status != http.StatusOK || r.header.Get(relay.Header) != "pending" {
		t.Errorf("the delete under way: %s, expected its answer, as it would have been", r)
	}
	if code := <-stopped; code != 0 {
		t.Errorf("exit code %d, expected 0", code)
	}
	if _, err := c.try("GET", "/healthz", ""); err == nil {
		t.Error("the API still answers")
	}
}

func TestSecondSignalKills(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p, program := w.launch(build(t), "CONTROL_DRAIN=1m")
	signal := func() {
		t.Helper()
		if err := program.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
	}
	signal()
	await(t, "the first signal to be heard", func() error {
		if !strings.Contains(p.log.String(), "msg=stopping") {
			return fmt.Errorf("the log says %s", p.log)
		}
		return nil
	})
	if r := p.client("").do("GET", "/healthz", ""); r.status != http.StatusOK {
		t.Errorf("while it drains: %s, expected 200", r)
	}
	signal()
	select {
	case <-program.Exited():
	case <-time.After(10 * time.Second):
		t.Fatal("still there 10 s after the second signal")
	}
	if exit := program.Exit(); !strings.Contains(exit, "terminated") {
		t.Errorf("ended with %q, expected by the signal", exit)
	}
}

func TestServiceOutlivesPostgres(t *testing.T) {
	t.Parallel()
	postgres, redis := testdb.NewServer(t), testredis.New(t)
	w := &world{t: t, db: &postgres.Database, redis: redis}
	w.pool = w.open(w.db.URL)
	w.store = store.New(w.pool, testLinkBase)
	p := w.serve()
	c := p.client(*w.organization(catalog.Growth).ServerKey)
	c.created(`{"path":"/a"}`)

	if err := postgres.Pause(); err != nil {
		t.Fatal(err)
	}
	r := c.do("GET", "/links", "")
	if r.status != http.StatusServiceUnavailable {
		t.Errorf("with Postgres frozen: %s, expected 503 after %v", r, requestTimeout)
	}
	checkEnvelope(t, "with Postgres frozen", r, "/links")
	if status, body := p.ready(); status != http.StatusServiceUnavailable {
		t.Errorf("readiness with Postgres frozen: %d %s, expected 503", status, body)
	}
	if err := postgres.Resume(); err != nil {
		t.Fatal(err)
	}
	p.awaitReady()

	if err := postgres.StopImmediate(); err != nil {
		t.Fatal(err)
	}
	if r := c.do("POST", "/links", `{"path":"/b"}`); r.status != http.StatusServiceUnavailable {
		t.Errorf("with Postgres down: %s, expected 503", r)
	}
	if r := c.do("GET", "/healthz", ""); r.status != http.StatusOK {
		t.Errorf("liveness with Postgres down: %s, expected 200", r)
	}
	if err := postgres.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.awaitReady()
	c.created(`{"path":"/c"}`)
}

func TestServiceGoesOnWithoutRedis(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.serve()
	c := p.client(*w.organization(catalog.Growth).ServerKey)
	if err := w.redis.Kill(); err != nil {
		t.Fatal(err)
	}
	link := c.created(`{"path":"/a"}`)
	if r := c.do("DELETE", "/links/"+link.ID, ""); r.status != http.StatusOK || r.header.Get(relay.Header) != "complete" {
		t.Errorf("DELETE without Redis: %s, expected 200, complete: there is no edge", r)
	}
	if status, body := p.ready(); status != http.StatusOK {
		t.Errorf("readiness without Redis: %d %s, expected 200", status, body)
	}
	if !strings.Contains(p.metrics(), "deeplink_control_hints_lost_total 2") {
		t.Errorf("the metrics do not count the lost hints")
	}
}

func TestReadinessWantsAMigratedDatabase(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.exec(`create database empty`)
	t.Cleanup(func() { w.exec(`drop database empty with (force)`) })
	address, err := url.Parse(w.db.URL)
	if err != nil {
		t.Fatal(err)
	}
	address.Path = "/empty"
	p := start(t, address.String(), w.redis.URL())
	await(t, "readiness to be refused", func() error {
		if status, body := p.ready(); status != http.StatusServiceUnavailable {
			return fmt.Errorf("%d %s", status, body)
		}
		return nil
	})
	if got := run(t.Context(), []string{"migrate", "--database-url=" + address.String()}, io.Discard, io.Discard); got != 0 {
		t.Fatalf("migrate: exit code %d", got)
	}
	p.awaitReady()
	database, err := pgx.Connect(t.Context(), address.String())
	if err != nil {
		t.Fatal(err)
	}
	defer database.Close(t.Context())
	if _, err := database.Exec(t.Context(), `delete from goose_db_version where version_id = (select max(version_id) from goose_db_version)`); err != nil {
		t.Fatal(err)
	}
	if status, body := p.ready(); status != http.StatusServiceUnavailable || !strings.Contains(body, "lacks the migrations") {
		t.Errorf("without the latest migration: %d %s, expected 503", status, body)
	}
}

func TestMetricsCountRequestsByPatternAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	organization := w.organization(catalog.Growth)
	var text string
	await(t, "a control that Redis answers in time", func() error {
		p := w.serve()
		c := p.client(*organization.ServerKey)
		link := c.created(`{"path":"/a"}`)
		c.do("GET", "/links/"+link.ID, "")
		c.do("GET", "/links/canary", "")
		c.do("BREW", "/canary", "")
		p.client(apikey.New(apikey.Server)).do("GET", "/links?canary=1", "")
		if n := p.counted(t, "rate_limit_fallbacks_total"); n > 0 {
			return fmt.Errorf("%d fallbacks", n)
		}
		text = p.metrics()
		return nil
	})
	for _, expected := range []string{
		`deeplink_control_requests_total{method="POST",route="/links",status="201"} 1`,
		`deeplink_control_requests_total{method="GET",route="/links/{id}",status="200"} 1`,
		`deeplink_control_requests_total{method="GET",route="/links/{id}",status="400"} 1`,
		`deeplink_control_requests_total{method="GET",route="/links",status="401"} 1`,
		`deeplink_control_requests_total{method="other",route="none",status="404"} 1`,
		`deeplink_control_request_duration_seconds_count{method="POST",route="/links"} 1`,
		`deeplink_control_rate_limit_fallbacks_total 0`,
		`deeplink_control_edges 0`,
		`go_goroutines`,
	} {
		if !strings.Contains(text, expected) {
			t.Errorf("the metrics lack %s:\n%s", expected, text)
		}
	}
	if strings.Contains(text, "canary") {
		t.Errorf("the metrics hold input:\n%s", text)
	}
}
