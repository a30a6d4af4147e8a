package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"deeplink/control/internal/store"
	"deeplink/shared/apikey"
	"deeplink/shared/catalog"
	"deeplink/shared/clientip"
	"deeplink/shared/daemon"
	"deeplink/shared/testdb"
	"deeplink/shared/testredis"
)

func TestMain(m *testing.M) { testdb.Main(m) }

const testLinkBase = "https://go.example.com"

// world is a database, a Redis and what a test puts into them. Its SQL runs as the superuser.
type world struct {
	t     testing.TB
	db    *testdb.Database
	redis *daemon.Redis
	pool  *pgxpool.Pool
	store *store.Store
}

func newWorld(t testing.TB) *world {
	t.Helper()
	w := &world{t: t, db: testdb.New(t), redis: testredis.New(t)}
	w.pool = w.open(w.db.URL)
	w.store = store.New(w.pool, testLinkBase)
	return w
}

func (w *world) open(url string) *pgxpool.Pool {
	w.t.Helper()
	pool, err := pgxpool.New(context.Background(), url)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(pool.Close)
	return pool
}

func (w *world) exec(sql string, arguments ...any) {
	w.t.Helper()
	if _, err := w.pool.Exec(context.Background(), sql, arguments...); err != nil {
		w.t.Fatalf("%s: %v", sql, err)
	}
}

// organization makes one with the demo app config. Its keys are nil unless the plan has them.
func (w *world) organization(plan catalog.Plan) store.CreatedOrganization {
	w.t.Helper()
	config, err := readAppConfig(demo)
	if err != nil {
		w.t.Fatal(err)
	}
	created, _, err := w.store.CreateOrganization(context.Background(),
		store.NewOrganization{Name: "Test", Plan: &plan, AppConfig: &config})
	if err != nil {
		w.t.Fatal(err)
	}
	return created
}

func (w *world) key(organizationID string, tier apikey.Tier) string {
	w.t.Helper()
	key, err := w.store.ReplaceKey(context.Background(), organizationID, tier, time.Hour)
	if err != nil {
		w.t.Fatal(err)
	}
	return key.RawKey
}

// process is a control that serves, with the command line it would be started with.
type process struct {
	t           testing.TB
	base, admin string
	log         *lockedBuffer
	stop        func() int
}

// serve starts a control as an operator would, but in this process, and waits until it is ready. It ends with the test.
func (w *world) serve(flags ...string) *process {
	w.t.Helper()
	p := start(w.t, w.db.ControlURL, w.redis.URL(), flags...)
	p.awaitReady()
	return p
}

func start(t testing.TB, databaseURL, redisURL string, flags ...string) *process {
	t.Helper()
	api, admin := freeAddress(t), freeAddress(t)
	p := &process{t: t, base: "http://" + api, admin: "http://" + admin, log: new(lockedBuffer)}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan int, 1)
	arguments := append([]string{
		"--database-url=" + databaseURL, "--redis-url=" + redisURL, "--link-base-url=" + testLinkBase,
		"--control-addr=" + api, "--control-admin-addr=" + admin, "--control-drain=0s", "--control-canary=0s", "--log-format=json",
	}, flags...)
	go func() { ended <- run(ctx, arguments, io.Discard, p.log) }()
	p.stop = sync.OnceValue(func() int {
		cancel()
		return <-ended
	})
	t.Cleanup(func() {
		if code := p.stop(); code != 0 {
			t.Errorf("control ended with %d, expected 0", code)
		}
		p.explain()
	})
	return p
}

// explain shows what a control of a failed test logged, but for its requests.
func (p *process) explain() {
	if !p.t.Failed() {
		return
	}
	for line := range strings.Lines(p.log.String()) {
		if !strings.Contains(line, "msg=request ") && !strings.Contains(line, `"msg":"request"`) {
			p.t.Log(strings.TrimSpace(line))
		}
	}
}

func freeAddress(t testing.TB) string {
	t.Helper()
	addr, err := daemon.FreeAddr()
	if err != nil {
		t.Fatal(err)
	}
	return addr
}

func (p *process) awaitReady() {
	p.t.Helper()
	await(p.t, "readiness", func() error {
		if status, body := p.ready(); status != http.StatusOK {
			return fmt.Errorf("%d %s", status, body)
		}
		return nil
	})
}

// ready returns what /readyz answers; the status is 0 while nobody does.
func (p *process) ready() (status int, body string) {
	response, err := http.Get(p.admin + "/readyz")
	if err != nil {
		return 0, err.Error()
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, err.Error()
	}
	return response.StatusCode, string(text)
}

// metrics returns what Prometheus would scrape.
func (p *process) metrics() string {
	p.t.Helper()
	response, err := http.Get(p.admin + "/metrics")
	if err != nil {
		p.t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	return string(text)
}

// await waits until check returns nil, for 20 seconds.
func await(t testing.TB, what string, check func() error) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("waited for %s: %v", what, err)
		}
		time.Sleep(time.Millisecond)
	}
}

// lockedBuffer is a log that is read while it is written.
type lockedBuffer struct {
	mu     sync.Mutex
	buffer bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.String()
}

// reset forgets what was written since it was before.
func (b *lockedBuffer) reset(before string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.buffer.Truncate(len(before))
}

// client sends requests to a control with a key.
type client struct {
	t    testing.TB
	base string
	key  string
	http *http.Client
	// from returns where a trusted proxy says that a request comes from. Nil: no proxy.
	from func() string
}

func (p *process) client(key string) *client {
	transport := &http.Transport{MaxIdleConnsPerHost: 512, DisableCompression: true}
	p.t.Cleanup(transport.CloseIdleConnections)
	return &client{t: p.t, base: p.base, key: key, http: &http.Client{
		Transport:     transport,
		Timeout:       30 * time.Second,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// reply is a whole answer.
type reply struct {
	status int
	header http.Header
	body   []byte
}

// message returns the message of an envelope.
func (r reply) message() string {
	var e struct{ Message string }
	_ = json.Unmarshal(r.body, &e)
	return e.Message
}

// code returns the code of an envelope.
func (r reply) code() string {
	var e struct{ Code string }
	_ = json.Unmarshal(r.body, &e)
	return e.Code
}

// fields returns the fields that the details of an envelope name.
func (r reply) fields() string {
	var e struct{ Details []struct{ Field string } }
	_ = json.Unmarshal(r.body, &e)
	var names []string
	for _, detail := range e.Details {
		names = append(names, detail.Field)
	}
	return strings.Join(names, ",")
}

func (r reply) String() string {
	return fmt.Sprintf("%d %v\n%.2000s", r.status, r.header, r.body)
}

// into reads the body as JSON, of which T must know every member.
func into[T any](t testing.TB, r reply) T {
	t.Helper()
	var value T
	decoder := json.NewDecoder(bytes.NewReader(r.body))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&value); err != nil {
		t.Fatalf("%v in %s", err, r)
	}
	return value
}

// do sends a request: JSON when there is a body, with the client's key. headers come in pairs; an empty value removes one.
func (c *client) do(method, path, body string, headers ...string) reply {
	c.t.Helper()
	r, err := c.try(method, path, body, headers...)
	if err != nil {
		c.t.Fatalf("%s %s: %v", method, path, err)
	}
	return r
}

func (c *client) try(method, path, body string, headers ...string) (reply, error) {
	var content io.Reader
	if body != "" {
		content = strings.NewReader(body)
	}
	request, err := http.NewRequest(method, c.base+path, content)
	if err != nil {
		return reply{}, err
	}
	if c.key != "" {
		request.Header.Set("Authorization", "Bearer "+c.key)
	}
	if body != "" {
		request.Header.Set("Content-Type", "application/json")
	}
	if c.from != nil {
		request.Header.Set(clientip.Header, c.from())
	}
	for i := 0; i < len(headers); i += 2 {
		if headers[i+1] == "" {
			request.Header.Del(headers[i])
		} else {
			request.Header.Add(headers[i], headers[i+1])
		}
	}
	response, err := c.http.Do(request)
	if err != nil {
		return reply{}, err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	return reply{response.StatusCode, response.Header, answer}, err
}

// created makes a link and returns it.
func (c *client) created(body string) catalog.Link {
	c.t.Helper()
	r := c.do("POST", "/links", body)
	if r.status != http.StatusCreated {
		c.t.Fatalf("POST /links %s: %s, expected 201", body, r)
	}
	return into[catalog.Link](c.t, r)
}
