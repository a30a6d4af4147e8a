package main

import (
	"bufio"
	"context"
	"errors"
	"net"
	"net/http"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"deeplink/edge/internal/clicks"
	"deeplink/edge/internal/conn"
	"deeplink/edge/internal/replica"
	"deeplink/shared/requestid"
	"deeplink/shared/settings"
	"deeplink/shared/testkit"
)

// Some goroutines of libraries never end, by design: fasthttp's clock, its cleaner of idle workers (which sleeps for 10 s at a time), and
// those of ristretto, whose Close must not run while the cache is in use.
var forever = []goleak.Option{
	goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.updateServerDate.func1"),
	goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.(*workerPool).Start.func2"),
	goleak.IgnoreAnyFunction("github.com/dgraph-io/ristretto/v2.(*defaultPolicy[...]).processItems"),
	goleak.IgnoreAnyFunction("github.com/dgraph-io/ristretto/v2.(*Cache[...]).processItems"),
}

func TestStoppedEdgeLeavesNoGoroutines(t *testing.T) {
	testkit.NewDatabase(t) // its server stays for the other tests
	defer goleak.VerifyNone(t, append(forever, goleak.IgnoreCurrent())...)
	t.Run("serve and stop", func(t *testing.T) {
		e := startEdge(t, nil)
		r := rows{t, e.owner}
		r.link(r.organization("abcd"), "x", nil)
		e.get(t, "/abcd/x")
		http.DefaultClient.CloseIdleConnections()
	})
}

func (e *testEdge) registered(t *testing.T) (n int) {
	t.Helper()
	if err := e.owner.QueryRow(context.Background(), `select count(*) from edges where slot = $1`, e.addr).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func (e *testEdge) readyz(t *testing.T) int {
	t.Helper()
	answer, err := http.Get("http://" + e.admin + "/readyz")
	if err != nil {
		return 0
	}
	answer.Body.Close()
	return answer.StatusCode
}

func TestStopWaitsForTheDrain(t *testing.T) {
	t.Parallel()
	const drain = time.Second
	e := startEdge(t, func(c *options) { c.Drain = drain })
	began := time.Now()
	e.stop()
	if err := <-e.ended; err != nil {
		t.Errorf("serve returned %v", err)
	}
	if took := time.Since(began); took < drain {
		t.Errorf("ended after %v, expected at least %v", took, drain)
	}
	if n := e.registered(t); n != 0 {
		t.Errorf("registered %d times at the end", n)
	}
	if _, err := net.Dial("tcp", e.addr); err == nil {
		t.Error("still listening")
	}
}

// waitingSQL counts the sessions of this database that wait for a lock. Other tests have other databases on the same server.
const waitingSQL = `select count(*) from pg_locks l join pg_database d on d.oid = l.database where not granted and d.datname = current_database()`

func TestRunningRequestIsAnsweredBeforeShutdownEnds(t *testing.T) {
	t.Parallel()
	database := testkit.NewDatabase(t)
	e := startEdgeOn(t, *database, nil)
	r := rows{t, e.owner}
	r.link(r.organization("abcd"), "x", map[string]any{"fallback_url": "https://shop.example.com/"})
	blocker := testkit.Connect(t, database.URL)
	lock, err := blocker.Begin(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lock.Exec(context.Background(), `lock table links in access exclusive mode`); err != nil {
		t.Fatal(err)
	}
	answered := make(chan answer, 1)
	go func() {
		a, err := roundTrip(e.addr, request("GET", "/abcd/x"))
		if err != nil {
			t.Error(err)
		}
		answered <- a
	}()
	until(t, "the edge waits for the table", func() bool {
		var waiting int
		if err := e.owner.QueryRow(context.Background(), waitingSQL).Scan(&waiting); err != nil {
			t.Fatal(err)
		}
		return waiting > 0
	})
	e.stop()
	until(t, "the edge has left", func() bool { return e.registered(t) == 0 })
	if err := lock.Rollback(context.Background()); err != nil {
		t.Fatal(err)
	}
	if a := <-answered; a.status != 302 {
		t.Errorf("status %d %s, expected 302", a.status, a.body)
	}
}

func TestEdgeThatCannotListenTakesNoSlot(t *testing.T) {
	t.Parallel()
	e := startEdge(t, nil)
	for _, change := range []func(*options){
		func(c *options) { c.Addr = settings.Address(e.addr) },
		func(c *options) { c.AdminAddr = settings.Address(e.admin) },
	} {
		c := e.another(t)
		change(c)
		if err := serve(context.Background(), c, discard); !errors.Is(err, syscall.EADDRINUSE) {
			t.Errorf("serve returned %v, expected that the address is in use", err)
		}
		var n int
		if err := e.owner.QueryRow(context.Background(), `select count(*) from edges where slot = 'another'`).Scan(&n); err != nil || n != 0 {
			t.Errorf("registered %d times, %v", n, err)
		}
	}
}

func TestSecondEdgeOnASlotEnds(t *testing.T) {
	t.Parallel()
	e := startEdge(t, nil)
	c := e.another(t)
	c.Slot = e.addr
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	defer cancel()
	if err := serve(ctx, c, discard); !errors.Is(err, replica.ErrSlotTaken) {
		t.Errorf("serve returned %v, expected %v", err, replica.ErrSlotTaken)
	}
	until(t, "the first edge is ready", func() bool { return e.readyz(t) == http.StatusOK })
	if e.registered(t) != 1 {
		t.Error("the first edge was affected by the second")
	}
}

// another returns the settings of a second edge on the same servers.
func (e *testEdge) another(t *testing.T) *options {
	t.Helper()
	c := *e.settings
	c.Addr, c.AdminAddr, c.Slot = settings.Address(freeAddr(t)), settings.Address(freeAddr(t)), "another"
	return &c
}

func TestPanicIsAnsweredAndLoggedOnce(t *testing.T) {
	t.Parallel()
	log := new(logBuffer)
	c, err := parse(t)
	if err != nil {
		t.Fatal(err)
	}
	// Without a replica, every lookup panics.
	s := newServer(c, nil, nil, nil, new(clicks.Recorder), c.Logger(log))
	ln, err := conn.Listen("127.0.0.1:0", conn.NewBounds(100, 100, nil))
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- s.http.Serve(ln) }()
	t.Cleanup(func() {
		if err := errors.Join(s.shutdown(context.Background(), ln), <-ended); err != nil {
			t.Error(err)
		}
	})
	for range 2 {
		a, err := roundTrip(ln.Addr().String(), request("GET", "/abcd/x/data?secret", "X-Request-Id: find-me"))
		if err != nil {
			t.Fatal(err)
		}
		if a.status != 500 || a.header.Get(requestid.Header) != "find-me" || a.header.Get("Access-Control-Allow-Origin") != "*" {
			t.Errorf("%d %v %s", a.status, a.header, a.body)
		}
		checkEnvelope(t, a, "/abcd/x/data")
		checkHeaders(t, a)
	}
	if text := log.String(); strings.Count(text, "find-me") != 2 || !strings.Contains(text, "serve.go") || strings.Contains(text, "secret") {
		t.Errorf("logged:\n%s\nexpected each panic once, with its stack", text)
	}
}

func TestMetricsCountAnswersByKindAndStatus(t *testing.T) {
	t.Parallel()
	e := startEdge(t, nil)
	r := rows{t, e.owner}
	r.link(r.organization("abcd"), "x", map[string]any{"fallback_url": "https://shop.example.com/"})
	for _, path := range []string{"/abcd/x", "/abcd/x", "/abcd/x/data", "/abcd/y", "/abc/x", "/nothing", "/healthz", "/robots.txt", "/favicon.ico", "http://x/"} {
		e.get(t, path)
	}
	metrics := e.metrics(t)
	for series, want := range map[string]string{
		`deeplink_edge_requests_total{kind="link",status="302"}`:    "2",
		`deeplink_edge_requests_total{kind="link",status="404"}`:    "1",
		`deeplink_edge_requests_total{kind="link",status="400"}`:    "1",
		`deeplink_edge_requests_total{kind="data",status="200"}`:    "1",
		`deeplink_edge_requests_total{kind="none",status="404"}`:    "1",
		`deeplink_edge_requests_total{kind="none",status="400"}`:    "1",
		`deeplink_edge_requests_total{kind="healthz",status="200"}`: "1",
		`deeplink_edge_requests_total{kind="robots",status="200"}`:  "1",
		`deeplink_edge_requests_total{kind="favicon",status="204"}`: "1",
		`deeplink_edge_requests_total{kind="link",status="200"}`:    "",
		// Each request was on its own connection.
		`deeplink_edge_request_duration_seconds_count{kind="link"}`: "4",
		`deeplink_edge_request_duration_seconds_count{kind="data"}`: "1",
		// None, unless the machine paused.
		`deeplink_edge_poll_errors_total`: strconv.Itoa(strings.Count(e.log.String(), `msg="poll failed"`)),
	} {
		if metrics[series] != want {
			t.Errorf("%s is %q, expected %q", series, metrics[series], want)
		}
	}
	if metrics["go_goroutines"] == "" {
		t.Error("no metrics of the Go runtime")
	}
}

func TestLatencyIsSampledForTheFirstAndEvery64thRequestOfAConnection(t *testing.T) {
	t.Parallel()
	e := startEdge(t, nil)
	keptAlive, err := net.Dial("tcp", e.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer keptAlive.Close()
	for n := 1; n <= 2*sampleEvery+1; n++ {
		if _, err := askHead(keptAlive, "/healthz"); err != nil {
			t.Fatal(err)
		}
		if n%sampleEvery > 1 {
			continue
		}
		expected := strconv.Itoa((n-1)/sampleEvery + 1)
		if got := e.metrics(t)[`deeplink_edge_request_duration_seconds_count{kind="healthz"}`]; got != expected {
			t.Errorf("%s of %d requests were measured, expected %s", got, n, expected)
		}
	}
}

// metrics returns the metrics of the admin address, by series.
func (e *testEdge) metrics(t *testing.T) map[string]string {
	t.Helper()
	answer, err := http.Get("http://" + e.admin + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	series := make(map[string]string)
	lines := bufio.NewScanner(answer.Body)
	for lines.Scan() {
		if name, value, found := strings.Cut(lines.Text(), " "); found {
			series[name] = value
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return series
}

func TestDebugLogHasRequestsWithoutTheirContents(t *testing.T) {
	t.Parallel()
	e := startEdge(t, func(c *options) { c.LogLevel = -4 })
	e.get(t, "/hidden?secret=hidden", `X-Request-Id: find "me" level=error`, "Authorization: Bearer hidden", "User-Agent: hidden", "Host: hidden.example")
	_, _ = roundTrip(e.addr, "GET /hidden\x00 HTTP/1.1\r\nAuthorization: hidden\r\n\r\n")
	_, _ = roundTrip(e.addr, "GET /hidden HTTP/1.1\r\nAuthorization: hidden\x00\r\n\r\n")
	until(t, "the requests are logged", func() bool {
		return strings.Contains(e.log.String(), "kind=link status=404") && strings.Count(e.log.String(), "msg=connection") == 2
	})
	if log := e.log.String(); !strings.Contains(log, `requestId="find \"me\" level=error" network=127.0.0.0/24`) || strings.Contains(log, "hidden") {
		t.Errorf("logged:\n%s", log)
	}
}
