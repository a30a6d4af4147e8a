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
	"deeplink/control/internal/testenv"
	"deeplink/shared/apikey"
	"deeplink/shared/catalog"
	"deeplink/shared/testkit"
)

// TestServeLeavesNoGoroutineBehind is not parallel: it looks at all goroutines.
func TestServeLeavesNoGoroutineBehind(t *testing.T) {
	w := newTestEnv(t)
	c, provider := &testenv.Client{}, w.provider()
	before := goleak.IgnoreCurrent()
	p := start(t, w.DB.ControlURL, w.Redis.URL(), "--portal-jwks-url="+provider.URL, "--portal-issuer="+testenv.Issuer)
	p.AwaitReady()
	transport := &http.Transport{}
	c.T, c.Base, c.Key, c.HTTP = t, p.Base, *w.Organization(catalog.Growth).ServerKey, &http.Client{Transport: transport}
	c.CreateLink(`{"path":"/a"}`)
	c.Do("GET", "/links", "")
	c.Do("GET", "/portal/organization", "", "Authorization", "", "Authorization", "Bearer "+provider.Token("org_1", "owner"))
	if code := p.Stop(); code != 0 {
		t.Errorf("exit code %d, expected 0", code)
	}
	transport.CloseIdleConnections()
	http.DefaultClient.CloseIdleConnections()
	// The pool of the test itself opened connections too.
	w.Pool.Reset()
	goleak.VerifyNone(t, before)
}

func TestStopAnswersWhatIsUnderWay(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	p := w.serve("--control-drain=300ms")
	c := p.client(*w.Organization(catalog.Growth).ServerKey)
	link := c.CreateLink(`{"path":"/a"}`)
	w.DeafEdge(1500*time.Millisecond, time.Hour)

	deleted := make(chan reply, 1)
	go func() { deleted <- c.Do("DELETE", "/links/"+link.ID, "") }()
	await(t, "the delete to be committed", func() error {
		var links int
		if err := w.Pool.QueryRow(context.Background(), `select count(*) from links`).Scan(&links); err != nil || links > 0 {
			return fmt.Errorf("%d links, %v", links, err)
		}
		return nil
	})
	stopped := make(chan int, 1)
	go func() { stopped <- p.Stop() }()
	await(t, "readiness to be given up", func() error {
		if status, body := p.Ready(); status != http.StatusServiceUnavailable || !strings.Contains(body, "stopping") {
			return fmt.Errorf("%d %s", status, body)
		}
		return nil
	})
	if r := <-deleted; r.Status != http.StatusOK || r.Header.Get(relay.Header) != "pending" {
		t.Errorf("the delete under way: %s, expected its answer, as it would have been", r)
	}
	if code := <-stopped; code != 0 {
		t.Errorf("exit code %d, expected 0", code)
	}
	if _, err := c.Try("GET", "/healthz", ""); err == nil {
		t.Error("the API still answers")
	}
}

func TestSecondSignalKills(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	p, program := w.launch(testenv.Build(t), "CONTROL_DRAIN=1m")
	signal := func() {
		t.Helper()
		if err := program.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
	}
	signal()
	await(t, "the first signal to be heard", func() error {
		if !strings.Contains(p.Log.String(), "msg=stopping") {
			return fmt.Errorf("the log says %s", p.Log)
		}
		return nil
	})
	if r := p.client("").Do("GET", "/healthz", ""); r.Status != http.StatusOK {
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
	postgres, redis := testkit.NewPostgres(t), testkit.NewRedis(t)
	w := &testEnv{&testenv.Env{T: t, DB: &postgres.Database, Redis: redis}}
	w.Pool = w.Open(w.DB.URL)
	w.Store = store.New(w.Pool, testLinkBase)
	p := w.serve()
	c := p.client(*w.Organization(catalog.Growth).ServerKey)
	c.CreateLink(`{"path":"/a"}`)

	if err := postgres.Pause(); err != nil {
		t.Fatal(err)
	}
	r := c.Do("GET", "/links", "")
	if r.Status != http.StatusServiceUnavailable {
		t.Errorf("with Postgres frozen: %s, expected 503", r)
	}
	testenv.CheckEnvelope(t, "with Postgres frozen", r, "/links")
	if status, body := p.Ready(); status != http.StatusServiceUnavailable {
		t.Errorf("readiness with Postgres frozen: %d %s, expected 503", status, body)
	}
	if err := postgres.Resume(); err != nil {
		t.Fatal(err)
	}
	p.AwaitReady()

	if err := postgres.StopImmediate(); err != nil {
		t.Fatal(err)
	}
	if r := c.Do("POST", "/links", `{"path":"/b"}`); r.Status != http.StatusServiceUnavailable {
		t.Errorf("with Postgres down: %s, expected 503", r)
	}
	if r := c.Do("GET", "/healthz", ""); r.Status != http.StatusOK {
		t.Errorf("liveness with Postgres down: %s, expected 200", r)
	}
	if err := postgres.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.AwaitReady()
	c.CreateLink(`{"path":"/c"}`)
}

func TestServiceGoesOnWithoutRedis(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	p := w.serve()
	c := p.client(*w.Organization(catalog.Growth).ServerKey)
	if err := w.Redis.Kill(); err != nil {
		t.Fatal(err)
	}
	link := c.CreateLink(`{"path":"/a"}`)
	if r := c.Do("DELETE", "/links/"+link.ID, ""); r.Status != http.StatusOK || r.Header.Get(relay.Header) != "complete" {
		t.Errorf("DELETE without Redis: %s, expected 200, complete: there is no edge", r)
	}
	if status, body := p.Ready(); status != http.StatusOK {
		t.Errorf("readiness without Redis: %d %s, expected 200", status, body)
	}
	if !strings.Contains(p.Metrics(), "deeplink_control_hints_lost_total 2") {
		t.Errorf("the metrics do not count the lost hints")
	}
}

func TestReadinessWantsAMigratedDatabase(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	w.Exec(`create database empty`)
	t.Cleanup(func() { w.Exec(`drop database empty with (force)`) })
	address, err := url.Parse(w.DB.URL)
	if err != nil {
		t.Fatal(err)
	}
	address.Path = "/empty"
	p := start(t, address.String(), w.Redis.URL())
	await(t, "readiness to be refused", func() error {
		if status, body := p.Ready(); status != http.StatusServiceUnavailable {
			return fmt.Errorf("%d %s", status, body)
		}
		return nil
	})
	if got := run(t.Context(), []string{"migrate", "--database-url=" + address.String()}, io.Discard, io.Discard); got != 0 {
		t.Fatalf("migrate: exit code %d", got)
	}
	p.AwaitReady()
	database, err := pgx.Connect(t.Context(), address.String())
	if err != nil {
		t.Fatal(err)
	}
	defer database.Close(t.Context())
	if _, err := database.Exec(t.Context(), `delete from goose_db_version where version_id = (select max(version_id) from goose_db_version)`); err != nil {
		t.Fatal(err)
	}
	if status, body := p.Ready(); status != http.StatusServiceUnavailable || !strings.Contains(body, "lacks the migrations") {
		t.Errorf("without the latest migration: %d %s, expected 503", status, body)
	}
}

func TestMetricsCountRequestsByPatternAlone(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	organization := w.Organization(catalog.Growth)
	var text string
	await(t, "a control that Redis answers in time", func() error {
		p := w.serve()
		c := p.client(*organization.ServerKey)
		link := c.CreateLink(`{"path":"/a"}`)
		c.Do("GET", "/links/"+link.ID, "")
		c.Do("GET", "/links/canary", "")
		c.Do("BREW", "/canary", "")
		p.client(apikey.New(apikey.Server)).Do("GET", "/links?canary=1", "")
		if n := p.Counted(t, "rate_limit_fallbacks_total"); n > 0 {
			return fmt.Errorf("%d fallbacks", n)
		}
		text = p.Metrics()
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
func TestStopWaitsForAWriteWhoseClientIsGone(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	organization := w.Organization(catalog.Scale)
	p := w.serve()
	unlock := w.Hold(`select from link_usage where organization_id = $1 for update`, organization.ID)
	cut := p.client(*organization.ServerKey).SendAndHangUp("POST", "/links", `{"path":"/a"}`)
	w.Blocked()
	cut()
	p.AwaitHungUp(1)
	stopped := make(chan int, 1)
	go func() { stopped <- p.Stop() }()
	await(t, "readiness to be given up", func() error {
		if status, body := p.Ready(); status != http.StatusServiceUnavailable || !strings.Contains(body, "stopping") {
			return fmt.Errorf("%d %s", status, body)
		}
		return nil
	})
	unlock()
	if code := <-stopped; code != 0 {
		t.Errorf("exit code %d, expected 0", code)
	}
	var links int
	if err := w.Pool.QueryRow(context.Background(), `select count(*) from links`).Scan(&links); err != nil || links != 1 {
		t.Errorf("%d links after the stop, %v; expected the one whose client was gone", links, err)
	}
}
