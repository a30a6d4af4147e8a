package clicks

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/valyala/fasthttp"

	"deeplink/edge/internal/header"
	"deeplink/shared/click"
	"deeplink/shared/clientip"
	"deeplink/shared/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

const (
	bound  = 20 * time.Second
	chrome = "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0 Safari/537.36"
)

// request is a browser's request, with more header lines.
func request(method, agent string, more ...string) string {
	text := method + " /abcd/x HTTP/1.1\r\nHost: go.example.com\r\nUser-Agent: " + agent +
		"\r\nAccept: text/html,*/*;q=0.8\r\nAccept-Encoding: gzip\r\nAccept-Language: en-GB,en;q=0.9\r\n"
	for _, line := range more {
		text += line + "\r\n"
	}
	return text + "\r\n"
}

// within runs f in a fasthttp handler, on a request that fasthttp has read: only fasthttp can set the time of a request.
func within(t testing.TB, raw string, f func(*fasthttp.RequestCtx)) {
	t.Helper()
	called := false
	server := &fasthttp.Server{NoDefaultServerHeader: true, Handler: func(ctx *fasthttp.RequestCtx) { called = true; f(ctx) }}
	if err := server.ServeConn(&wire{in: bytes.NewReader([]byte(raw))}); err != nil || !called {
		t.Fatalf("serve %.60q: %v, handler called: %v", raw, err, called)
	}
}

type wire struct {
	net.Conn
	in *bytes.Reader
}

func (c *wire) Read(b []byte) (int, error)       { return c.in.Read(b) }
func (c *wire) Write(b []byte) (int, error)      { return io.Discard.Write(b) }
func (c *wire) Close() error                     { return nil }
func (c *wire) LocalAddr() net.Addr              { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)} }
func (c *wire) RemoteAddr() net.Addr             { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)} }
func (c *wire) SetReadDeadline(time.Time) error  { return nil }
func (c *wire) SetWriteDeadline(time.Time) error { return nil }

// visit is a redirect of link n of organization acme.
func visit(n byte) *Visit {
	return &Visit{Outcome: click.Redirect, OrgKey: [4]byte([]byte("acme")), Link: [16]byte{15: n, 6: 0x70},
		Client: [16]byte{10: 0xff, 11: 0xff, 12: 198, 13: 51, 14: 100, 15: n}}
}

// answer records a click as the edge's handler does.
func answer(r *Recorder, ctx *fasthttp.RequestCtx, v *Visit) {
	var fields header.Fields
	fields.Read(&ctx.Request.Header)
	var fresh Value
	visit := *v
	visit.Agent = r.Agent(fields.UserAgent, &fresh)
	r.Record(ctx, &fields, &visit)
}

func options(t testing.TB, database *testkit.Database, dir string) Options {
	t.Helper()
	config, err := pgx.ParseConfig(database.EdgeURL)
	if err != nil {
		t.Fatal(err)
	}
	return Options{On: true, Dir: dir, Bytes: 16 << 20, Sync: 100 * time.Millisecond, Database: config, Slot: "a", Incarnation: uuid.New(), Log: slog.New(slog.NewTextHandler(t.Output(), nil))}
}

func open(t testing.TB, o Options) *Recorder {
	t.Helper()
	r, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// round ships once.
func round(t testing.TB, r *Recorder) {
	t.Helper()
	if err := r.ship.round(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// crash ends the use of a recorder as a kill of its process does: nothing is shipped, and the lock of the directory is free.
func crash(t testing.TB, r *Recorder) {
	t.Helper()
	r.ship.disconnect()
	if err := r.store.close(); err != nil {
		t.Fatal(err)
	}
}

func value[T any](t testing.TB, conn *pgx.Conn, sql string, values ...any) (v T) {
	t.Helper()
	if err := conn.QueryRow(context.Background(), sql, values...).Scan(&v); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return v
}

func run(t testing.TB, conn *pgx.Conn, sql string, values ...any) {
	t.Helper()
	if _, err := conn.Exec(context.Background(), sql, values...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// counted is the number of clicks in Postgres, of which details are kept or not.
const counted = `select (select count(*) from clicks) + (select coalesce(sum(clicks), 0) from click_counts)`

func TestClickIsStoredWithItsDetails(t *testing.T) {
	database := testkit.NewDatabase(t)
	owner := testkit.Connect(t, database.URL)
	o := options(t, database, t.TempDir())
	o.CountryHeader, o.Proxies = "cf-ipcountry", trusted(t, "127.0.0.1")
	r := open(t, o)
	r.Register(t.Context())
	within(t, request("GET", chrome, "Referer: https://User:pw@News.Example.com:8443/a?secret=1", "CF-IPCountry: de",
		`Sec-CH-UA-Platform: "Windows"`), func(ctx *fasthttp.RequestCtx) { answer(r, ctx, visit(1)) })
	within(t, request("HEAD", "facebookexternalhit/1.1"), func(ctx *fasthttp.RequestCtx) { answer(r, ctx, visit(2)) })
	within(t, request("GET", " "), func(ctx *fasthttp.RequestCtx) { answer(r, ctx, visit(3)) })
	within(t, request("GET", "bad \xff utf8 "+string(bytes.Repeat([]byte("x"), 600))), func(ctx *fasthttp.RequestCtx) { answer(r, ctx, visit(4)) })
	unknown := visit(5)
	unknown.Outcome, unknown.Link = click.Unknown, [16]byte{}
	within(t, request("GET", chrome), func(ctx *fasthttp.RequestCtx) { answer(r, ctx, unknown) })
	within(t, request("GET", chrome), func(ctx *fasthttp.RequestCtx) { answer(r, ctx, &Visit{}) })
	round(t, r)
	rows, _ := owner.Query(t.Context(), `select concat_ws('|', right(link_id::text, 2), outcome, class, reason, coalesce(country, '-'), coalesce(language, '-'),
		coalesce(referrer, '-'), coalesce(left(agent, 30), '-'), length(agent), visitor is not null, ordinal, org_key, evidence)
		from clicks left join click_agents a on a.id = agent_id order by ordinal`)
	got, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		fmt.Sprintf("01|redirect|human|browser|DE|en|news.example.com|%.30s|%d|t|1|acme|%d", chrome, len(chrome), 8+16+3<<8),
		"02|redirect|head|head|-|en|-|facebookexternalhit/1.1|23|t|2|acme|29",
		"03|redirect|bot|no-agent|-|en|-|-|t|3|acme|88",
	}
	for i, line := range want {
		if i >= len(got) || got[i] != line {
			t.Errorf("row %d\n%v\nexpected\n%s", i, got, line)
		}
	}
	if len(got) != 4 {
		t.Errorf("%d rows, expected 4: %v", len(got), got)
	}
	if n := value[int64](t, owner, `select sum(clicks) from click_counts where outcome = 'unknown' and link_id is null and class = 'human'`); n != 1 {
		t.Errorf("%d unknown, expected 1", n)
	}
	if n := value[int64](t, owner, `select count(*) from click_batches where late`); n != 0 {
		t.Errorf("%d batches are late", n)
	}
	// The same visitor has the same number; another organization's does not.
	if through, at := value[time.Time](t, owner, `select through from click_logs`), value[time.Time](t, owner, `select max(at) from clicks`); through.Before(at) {
		t.Errorf("through is %v, before the last click at %v", through, at)
	}
}

func TestClickSurvivesACrashAndIsCountedOnce(t *testing.T) {
	database := testkit.NewDatabase(t)
	owner := testkit.Connect(t, database.URL)
	dir := t.TempDir()
	total := int64(0)
	record := func(r *Recorder, n int) {
		within(t, request("GET", chrome), func(ctx *fasthttp.RequestCtx) {
			for range n {
				answer(r, ctx, visit(1))
			}
		})
		total += int64(n)
	}
	for i := range 4 {
		r := open(t, options(t, database, dir))
		r.Register(t.Context())
		record(r, 10)
		if i%2 == 0 {
			round(t, r)
			record(r, 7)
		}
		if i == 2 {
			// The batch is in the journal, and is never sent by this process.
			if err := r.ship.cut(r.active, r.ship.boundary(), r.clock.raise(r.clock.at(time.Now()))); err != nil {
				t.Fatal(err)
			}
		}
		crash(t, r)
		run(t, owner, `update click_logs set published_at = published_at - interval '11 seconds'`)
	}
	r := open(t, options(t, database, dir))
	r.Register(t.Context())
	round(t, r)
	if got := value[int64](t, owner, counted); got != total {
		t.Errorf("%d clicks, expected %d", got, total)
	}
	if n := value[int64](t, owner, `select count(*) from click_logs where state = 'closed'`); n != 4 {
		t.Errorf("%d logs are closed, expected 4", n)
	}
	if n := value[int64](t, owner, `select count(*) from click_batches where late`); n != 0 {
		t.Errorf("%d batches are late", n)
	}
	folders, _ := os.ReadDir(dir)
	logs := 0
	for _, f := range folders {
		if f.IsDir() {
			logs++
		}
	}
	if logs != 1 {
		t.Errorf("%d folders of logs, expected 1", logs)
	}
	record(r, 3)
	if err := r.Finish(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := value[int64](t, owner, counted); got != total {
		t.Errorf("%d clicks after the end, expected %d", got, total)
	}
	if n := value[int64](t, owner, `select count(*) from click_logs where state <> 'closed'`); n != 0 {
		t.Errorf("%d logs are not closed", n)
	}
}

func TestLogOfALivingProcessIsLeftAlone(t *testing.T) {
	database := testkit.NewDatabase(t)
	owner := testkit.Connect(t, database.URL)
	dir := t.TempDir()
	r := open(t, options(t, database, dir))
	r.Register(t.Context())
	within(t, request("GET", chrome), func(ctx *fasthttp.RequestCtx) { answer(r, ctx, visit(1)) })
	other := open(t, options(t, database, dir))
	if other.durable.Load() {
		t.Error("two recorders use one directory")
	}
	crash(t, r)
	next := open(t, options(t, database, dir))
	next.Register(t.Context())
	round(t, next)
	if n := value[int64](t, owner, counted); n != 0 {
		t.Errorf("%d clicks of a process that published a moment ago were shipped", n)
	}
}

func TestFullLogCountsEveryClick(t *testing.T) {
	database := testkit.NewDatabase(t)
	owner := testkit.Connect(t, database.URL)
	dir := t.TempDir()
	r := open(t, options(t, database, dir))
	r.Register(t.Context())
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); r.keepReady(ctx) }()
	const n = 400_000 // 14 MiB hold about 229,000
	within(t, request("GET", chrome), func(ctx *fasthttp.RequestCtx) {
		for i := range n {
			answer(r, ctx, visit(byte(i)))
			if i%10_000 == 0 {
				time.Sleep(2 * time.Millisecond) // segments are prepared in the background
			}
		}
	})
	stop()
	<-ended
	detail := r.counts.unrecorded.Load()
	if detail == 0 || !r.full.Load() || r.counts.lost.Load() != 0 {
		t.Fatalf("%d clicks without detail, full: %v, lost: %d", detail, r.full.Load(), r.counts.lost.Load())
	}
	round(t, r)
	if got := value[int64](t, owner, counted); got != n {
		t.Errorf("%d clicks, expected %d", got, n)
	}
	if got := value[int64](t, owner, `select sum(clicks) from click_counts where outcome = 'redirect' and link_id is not null and class = 'human'`); got != detail {
		t.Errorf("%d clicks are only counted, expected %d", got, detail)
	}
	if got := value[int64](t, owner, `select sum(clicks) from click_batches`); got != n {
		t.Errorf("batches have %d clicks, expected %d", got, n)
	}
	if err := r.sync(0, false); err != nil {
		t.Fatal(err)
	}
	// The space is recycled, and a crash with counts in the counters loses none.
	within(t, request("GET", chrome), func(ctx *fasthttp.RequestCtx) {
		if err := r.prepare(); err != nil || r.spare == nil {
			t.Errorf("no segment after shipping: %v", err)
		}
		r.mu.Lock()
		r.openSpare()
		r.mu.Unlock()
		answer(r, ctx, visit(1))
		var c record
		c.outcome, c.reason, c.orgKey = click.Expired, click.Browser, [4]byte([]byte("acme"))
		for range 5 {
			r.count(&c, r.clock.at(ctx.Time()))
		}
	})
	crash(t, r)
	run(t, owner, `update click_logs set published_at = published_at - interval '11 seconds'`)
	next := open(t, options(t, database, dir))
	next.Register(t.Context())
	round(t, next)
	if got := value[int64](t, owner, counted); got != n+6 {
		t.Errorf("%d clicks after the crash, expected %d", got, n+6)
	}
	if late := value[int64](t, owner, `select count(*) from click_batches where late`); late != 0 {
		t.Errorf("%d batches are late", late)
	}
}

func TestForgottenEdgeStartsANewLogAndItsClicksAreLate(t *testing.T) {
	database := testkit.NewDatabase(t)
	owner := testkit.Connect(t, database.URL)
	r := open(t, options(t, database, t.TempDir()))
	r.Register(t.Context())
	record := func() {
		within(t, request("GET", chrome), func(ctx *fasthttp.RequestCtx) { answer(r, ctx, visit(1)) })
	}
	record()
	round(t, r)
	run(t, owner, `update click_logs set state = 'forgotten', ended_at = now()`)
	record()
	round(t, r)
	record()
	round(t, r)
	if got := value[string](t, owner, `select string_agg(concat_ws(' ', clicks, late), ', ' order by shipped_at) from click_batches`); got != "1 f, 1 t, 1 f" {
		t.Errorf("batches: %s, expected that the second is late", got)
	}
	if got := value[string](t, owner, `select string_agg(state::text, ' ' order by created_at) from click_logs`); got != "closed open" {
		t.Errorf("logs are %s", got)
	}
}

func TestRestoredPostgresGetsMissingBatchesAgain(t *testing.T) {
	database := testkit.NewDatabase(t)
	owner := testkit.Connect(t, database.URL)
	r := open(t, options(t, database, t.TempDir()))
	r.Register(t.Context())
	for i := range 4 {
		within(t, request("GET", chrome), func(ctx *fasthttp.RequestCtx) {
			for range 10 {
				answer(r, ctx, visit(byte(i)))
			}
		})
		round(t, r)
	}
	// What a restore to an earlier state leaves.
	run(t, owner, `alter table click_logs disable trigger all; delete from click_batches where sequence > 2; delete from clicks where sequence > 2;
		update click_logs set through = (select max(through) from click_batches); alter table click_logs enable trigger all`)
	r.ship.disconnect()
	round(t, r)
	if got := value[int64](t, owner, counted); got != 40 {
		t.Errorf("%d clicks, expected 40", got)
	}
	if got := value[string](t, owner, `select string_agg(concat_ws(' ', sequence, clicks, late), ', ' order by sequence) from click_batches`); got != "1 10 f, 2 10 f, 3 10 f, 4 10 f" {
		t.Errorf("batches: %s", got)
	}
	if n := value[int64](t, owner, `select count(*) from click_logs where state = 'lost'`); n != 0 {
		t.Errorf("%d intervals are reported as lost", n)
	}
}

func TestClicksBeforeRegistrationAreLateAndOthersAreNot(t *testing.T) {
	database := testkit.NewDatabase(t)
	owner := testkit.Connect(t, database.URL)
	o := options(t, database, t.TempDir())
	o.Database.Port = 1 // refused
	r := open(t, o)
	r.Register(t.Context())
	record := func() {
		within(t, request("GET", chrome), func(ctx *fasthttp.RequestCtx) { answer(r, ctx, visit(1)) })
	}
	record()
	time.Sleep(5 * time.Millisecond)
	r.options.Database = options(t, database, "").Database
	round(t, r)
	record()
	round(t, r)
	if got := value[string](t, owner, `select string_agg(concat_ws(' ', clicks, late), ', ' order by sequence) from click_batches`); got != "1 t, 1 f" {
		t.Errorf("batches: %s, expected that the first is late", got)
	}
}

func TestRecordDoesNotAllocate(t *testing.T) {
	database := testkit.NewDatabase(t)
	r := open(t, options(t, database, t.TempDir()))
	r.Register(t.Context())
	within(t, request("GET", chrome, "Referer: https://news.example.com/", `Sec-CH-UA-Platform: "Windows"`), func(ctx *fasthttp.RequestCtx) {
		v := visit(1)
		for range 1000 {
			answer(r, ctx, v)
		}
		if n := testing.AllocsPerRun(100, func() { answer(r, ctx, v) }); n != 0 {
			t.Errorf("%v allocations for a cached agent, expected none", n)
		}
	})
}

func BenchmarkRecord(b *testing.B) {
	o := Options{On: true, Bytes: 8 << 30, Sync: time.Second, Slot: "a", Incarnation: uuid.New(), Log: slog.New(slog.DiscardHandler)}
	r := open(b, o)
	r.salts[uint64(dayOf(r.clock.at(time.Now())))%4].Store(newSalt(dayOf(r.clock.at(time.Now())), make([]byte, 16)))
	ctx, stop := context.WithCancel(b.Context())
	defer stop()
	go r.keepReady(ctx)
	within(b, request("GET", chrome, "Referer: https://news.example.com/", `Sec-CH-UA-Platform: "Windows"`, `Sec-Ch-Ua: "Chromium";v="140"`,
		"Sec-Ch-Ua-Mobile: ?0", "Sec-Fetch-Dest: document", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Site: cross-site", "Upgrade-Insecure-Requests: 1"),
		func(ctx *fasthttp.RequestCtx) {
			v := visit(1)
			var fields header.Fields
			fields.Read(&ctx.Request.Header)
			for range 1000 { // until the agent is in the cache
				v.Agent = r.Agent(fields.UserAgent, new(Value))
			}
			b.ReportAllocs()
			for b.Loop() {
				r.Record(ctx, &fields, v)
				if r.full.Load() {
					b.StopTimer()
					r.mu.Lock()
					r.active.acknowledged.Store(r.current.Load().base)
					for _, s := range r.active.segments {
						s.synced.Store(int64(s.slots))
					}
					r.mu.Unlock()
					time.Sleep(100 * time.Millisecond)
					b.StartTimer()
				}
			}
		})
}

func trusted(t testing.TB, list string) clientip.Proxies {
	t.Helper()
	proxies, err := clientip.ParseProxies(list)
	if err != nil {
		t.Fatal(err)
	}
	return proxies
}

// TestNoClickIsFromBeforeTheSeal has a clock that is behind the seal, as after Postgres's clock was set back.
func TestNoClickIsFromBeforeTheSeal(t *testing.T) {
	r := open(t, Options{On: true, Bytes: 16 << 20, Slot: "a", Incarnation: uuid.New(), Log: slog.New(slog.DiscardHandler)})
	seal := r.clock.raise(time.Now().Add(time.Hour).UnixMilli())
	within(t, request("GET", chrome), func(ctx *fasthttp.RequestCtx) {
		answer(r, ctx, visit(1))
		r.count(&record{outcome: click.Redirect, reason: click.Browser}, r.clock.at(ctx.Time()))
	})
	var c record
	records := 0
	for i := range r.current.Load().reserved() {
		if kind, _ := r.current.Load().kindAt(i); kind == kindClick {
			c.read(r.current.Load().slot(i))
			records++
		}
	}
	if records != 1 || c.at != seal {
		t.Errorf("%d records, the last at %d; expected one at the seal, %d", records, c.at, seal)
	}
	if first := *r.counting.Load().first(); first != seal {
		t.Errorf("the counters start at %d, expected the seal, %d", first, seal)
	}
}
