package api

import (
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"deeplink/control/internal/testenv"
	"deeplink/shared/apikey"
	"deeplink/shared/catalog"
	"deeplink/shared/ratelimit"
	"deeplink/shared/testkit"
)

// burst sends n requests concurrently and counts the responses by status.
func burst(n int, send func(i int) reply) (counts map[int]int, replies []reply) {
	replies = make([]reply, n)
	var group sync.WaitGroup
	for i := range n {
		group.Go(func() { replies[i] = send(i) })
	}
	group.Wait()
	counts = make(map[int]int)
	for _, r := range replies {
		counts[r.Status]++
	}
	return counts, replies
}

// patience is how often an experiment may take too long.
const patience = 40

// within repeats an experiment until it was fast enough.
func within(t *testing.T, window time.Duration, processes []*process, experiment func()) {
	t.Helper()
	for range patience {
		time.Sleep(window + 100*time.Millisecond) // earlier requests are outside the window now
		if timely(t, window, processes, experiment) {
			return
		}
	}
	t.Fatalf("this machine never finished the experiment within %v", window)
}

// timely runs an experiment and reports whether it took less than the window: on a slow machine control correctly admits more than the
// limit of one window. No process may count without Redis, however busy the machine is.
func timely(t *testing.T, window time.Duration, processes []*process, experiment func()) bool {
	t.Helper()
	began := time.Now()
	counted(t, processes, experiment)
	return time.Since(began) < window
}

// counted runs an experiment whose requests Redis must count.
func counted(t *testing.T, processes []*process, experiment func()) {
	t.Helper()
	before := fallbacks(t, processes)
	experiment()
	if n := fallbacks(t, processes) - before; n != 0 {
		t.Errorf("%d requests were counted in a process, expected none while Redis runs", n)
	}
}

// fallbacks returns how many requests the processes counted without Redis.
func fallbacks(t *testing.T, processes []*process) (total int) {
	t.Helper()
	for _, p := range processes {
		total += p.Counted(t, "rate_limit_fallbacks_total")
	}
	return total
}

var retryMessage = regexp.MustCompile(`^Rate limit exceeded\. Retry after ([0-9]+) second\(s\)\.$`)

// checkRefusal expects a 429 with the error envelope and returns its delay.
func checkRefusal(t *testing.T, r reply) time.Duration {
	t.Helper()
	match := retryMessage.FindStringSubmatch(r.Message())
	if r.Status != http.StatusTooManyRequests || match == nil || !strings.Contains(string(r.Body), `"error":"Too Many Requests"`) || r.Code() != "" {
		t.Fatalf("%s, expected the 429 of the interface", r)
	}
	for name := range r.Header {
		if name == "Retry-After" || strings.Contains(strings.ToLower(name), "ratelimit") || strings.Contains(strings.ToLower(name), "rate-limit") {
			t.Fatalf("%s, expected no rate-limit header", r)
		}
	}
	seconds, err := strconv.Atoi(match[1])
	if err != nil || seconds < 1 {
		t.Fatalf("%s, expected a whole number of seconds", r)
	}
	return time.Duration(seconds) * time.Second
}

// Not parallel: all requests must be sent within a second.
func TestWriteLimitHoldsExactlyOverTwoControls(t *testing.T) {
	w := newTestEnv(t)
	organization := w.Organization(catalog.Scale)
	// Separate processes, as in production: both controls and 400 clients in one process take longer than a second.
	path := testenv.Build(t)
	one := w.launch(path)
	other := w.launch(path)
	controls := []*client{one.client(*organization.ServerKey), other.client(*organization.ServerKey)}
	warm(t, controls, 200)

	var replies []reply
	var counts map[int]int
	var refusedAt time.Time
	within(t, time.Second, []*process{one, other}, func() {
		counts, replies = burst(400, func(i int) reply {
			return controls[i%2].Do("POST", "/links", `{"path":"/burst"}`)
		})
		refusedAt = time.Now()
	})
	if counts[http.StatusCreated] != 100 || counts[http.StatusTooManyRequests] != 300 {
		t.Fatalf("400 concurrent creates: %v, expected exactly 100 × 201 and 300 × 429", counts)
	}
	var wait time.Duration
	for _, r := range replies {
		if r.Status == http.StatusTooManyRequests {
			wait = max(wait, checkRefusal(t, r))
		}
	}
	if r := controls[0].Do("GET", "/links", ""); r.Status != http.StatusOK {
		t.Errorf("a read while writes are limited: %s, expected 200", r)
	}
	time.Sleep(time.Until(refusedAt.Add(wait)))
	if r := controls[1].Do("POST", "/links", `{"path":"/later"}`); r.Status != http.StatusCreated {
		t.Errorf("the retry after %v: %s, expected 201", wait, r)
	}
}

// warm opens n connections per client, so that the burst spends no time on handshakes.
func warm(t *testing.T, clients []*client, n int) {
	t.Helper()
	for _, c := range clients {
		if counts, _ := burst(n, func(int) reply { return c.Do("GET", "/healthz", "") }); counts[http.StatusOK] != n {
			t.Fatalf("warming up: %v", counts)
		}
	}
}

// span is the duration of a request. Control admitted it at some time within.
type span struct{ sent, received time.Time }

// surelyWithin returns the largest number of requests that started and ended within one window: control admitted at least that many in it,
// however slow the machine is.
func surelyWithin(window time.Duration, all []span) (most int) {
	for _, first := range all {
		n := 0
		for _, s := range all {
			if !s.sent.Before(first.sent) && s.received.Before(first.sent.Add(window)) {
				n++
			}
		}
		most = max(most, n)
	}
	return most
}

// Not parallel: its bursts are the most that one machine can send in a second.
func TestReadLimitHoldsOverTwoControlsOnABusyMachine(t *testing.T) {
	testkit.Prove(t)
	const requests = 1300
	const bursts = 20
	w := newTestEnv(t)
	path, key := testenv.Build(t), *w.Organization(catalog.Scale).ServerKey
	one := w.launch(path)
	other := w.launch(path)
	processes := []*process{one, other}
	controls := []*client{one.client(key), other.client(key)}
	for _, c := range controls {
		c.HTTP.Transport.(*http.Transport).MaxIdleConnsPerHost = requests
	}
	warm(t, controls, requests/2)
	var isOver atomic.Bool
	var loops sync.WaitGroup
	for range 2 {
		loops.Go(func() {
			for !isOver.Load() {
			}
		})
	}
	defer loops.Wait()
	defer isOver.Store(true)
	for i := range bursts {
		time.Sleep(ratelimit.LinkReads.Window) // so that each burst starts with an empty window
		var mu sync.Mutex
		var admitted []span
		counted(t, processes, func() {
			burst(requests, func(i int) reply {
				sent := time.Now()
				// A malformed id is the cheapest request: control rejects it after it has counted the request.
				r := controls[i%2].Do("GET", "/links/42", "")
				received := time.Now()
				switch r.Status {
				case http.StatusBadRequest:
					mu.Lock()
					defer mu.Unlock()
					admitted = append(admitted, span{sent, received})
				case http.StatusTooManyRequests:
				default:
					t.Errorf("%s, expected 400 or 429", r)
				}
				return r
			})
		})
		if n := surelyWithin(ratelimit.LinkReads.Window, admitted); n > ratelimit.LinkReads.Limit {
			t.Errorf("burst %d: %d of %d admitted within a second, the limit is %d", i, n, requests, ratelimit.LinkReads.Limit)
		}
	}
}

// Not parallel, for the same reason.
func TestReadLimitIsAThousandASecond(t *testing.T) {
	w := newTestEnv(t)
	p := w.launch(testenv.Build(t))
	c := p.client(*w.Organization(catalog.Scale).ServerKey)
	warm(t, []*client{c}, 20)
	var passed, refused atomic.Int64
	within(t, time.Second, []*process{p}, func() {
		passed.Store(0)
		refused.Store(0)
		burst(20, func(int) (last reply) {
			for range 60 {
				// A malformed id is the cheapest request: control rejects it after it has counted the request.
				if last = c.Do("GET", "/links/42", ""); last.Status == http.StatusTooManyRequests {
					checkRefusal(t, last)
					refused.Add(1)
				} else {
					passed.Add(1)
				}
			}
			return last
		})
	})
	if passed.Load() != 1000 || refused.Load() != 200 {
		t.Errorf("1,200 reads within a second: %d were admitted and %d rejected, expected 1,000 and 200", passed.Load(), refused.Load())
	}
}

func TestLimitsGoOnPerProcessWithRedisStopped(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	organization := w.Organization(catalog.Scale)
	controls := []*client{w.serve().client(*organization.ServerKey), w.serve().client(*organization.ServerKey)}
	warm(t, controls, 100)
	if err := w.Redis.Kill(); err != nil {
		t.Fatal(err)
	}
	counts, replies := make([]map[int]int, len(controls)), make([][]reply, len(controls))
	for i, c := range controls {
		within(t, time.Second, nil, func() {
			counts[i], replies[i] = burst(150, func(int) reply { return c.Do("PATCH", "/links/42", `{}`) })
		})
	}
	for i := range controls {
		if counts[i][http.StatusBadRequest] != 100 || counts[i][http.StatusTooManyRequests] != 50 {
			t.Errorf("150 writes on control %d without Redis: %v, expected 100 × 400 and 50 × 429", i, counts[i])
		}
		for _, r := range replies[i] {
			if r.Status == http.StatusTooManyRequests {
				checkRefusal(t, r)
			}
		}
	}
}

func TestQuotaHoldsExactlyUnderConcurrentCreates(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	organization := w.Organization(catalog.Growth)
	keys := []string{*organization.ServerKey, w.APIKey(organization.ID, apikey.Server)}
	w.Exec(`
		insert into links (id, organization_id, domain_id, short_code, path)
		select gen_random_uuid(), d.organization_id, d.id, 'n' || n, '/n'
		from domains d, generate_series(1, 49950) n where d.organization_id = $1`, organization.ID)
	controls := []*process{w.serve(), w.serve()}
	var clients []*client
	for i, key := range keys {
		clients = append(clients, controls[i].client(key))
	}
	warm(t, clients, 100)

	counts, replies := burst(200, func(i int) reply { return clients[i%2].Do("POST", "/links", `{"path":"/last"}`) })
	if counts[http.StatusCreated] != 50 || counts[http.StatusPaymentRequired] != 150 {
		t.Errorf("200 concurrent creates with room for 50: %v, expected 50 × 201 and 150 × 402", counts)
	}
	for _, r := range replies {
		if r.Status == http.StatusPaymentRequired && (r.Code() != "QUOTA_EXCEEDED" || !strings.Contains(string(r.Body), `"quota":"links"`)) {
			t.Fatalf("%s, expected QUOTA_EXCEEDED of links", r)
		}
	}
	var links, counted int
	if err := w.Pool.QueryRow(t.Context(), `select (select count(*) from links), (select links from link_usage where organization_id = $1)`,
		organization.ID).Scan(&links, &counted); err != nil || links != 50_000 || counted != 50_000 {
		t.Errorf("%d links, %d counted, %v; expected 50,000 of both", links, counted, err)
	}

	// A delete makes room for one link.
	list := testenv.DecodeReply[linkPage](t, clients[0].Do("GET", "/links?limit=1", ""))
	time.Sleep(time.Second) // the earlier writes are outside the window now
	clients[0].Do("DELETE", "/links/"+list.Data[0].ID, "")
	counts, _ = burst(2, func(i int) reply { return clients[i].Do("POST", "/links", `{"path":"/last"}`) })
	if counts[http.StatusCreated] != 1 || counts[http.StatusPaymentRequired] != 1 {
		t.Errorf("2 creates after a delete: %v, expected one to pass", counts)
	}
}
