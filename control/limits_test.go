package main

import (
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"deeplink/shared/apikey"
	"deeplink/shared/catalog"
)

// burst sends n requests at once and counts the answers by status.
func burst(n int, send func(i int) reply) (counts map[int]int, replies []reply) {
	replies = make([]reply, n)
	var group sync.WaitGroup
	for i := range n {
		group.Go(func() { replies[i] = send(i) })
	}
	group.Wait()
	counts = make(map[int]int)
	for _, r := range replies {
		counts[r.status]++
	}
	return counts, replies
}

// patience is how often an experiment may fail to be timely.
const patience = 40

// within repeats an experiment until it was timely.
func within(t *testing.T, window time.Duration, processes []*process, experiment func()) {
	t.Helper()
	for range patience {
		time.Sleep(window + 100*time.Millisecond) // what was admitted before is out of the window
		if timely(t, window, processes, experiment) {
			return
		}
	}
	t.Fatalf("this machine never finished the experiment within %v", window)
}

// timely runs an experiment and reports whether it took less than the window it is about, and whether Redis answered every process in
// time: on a busy machine more than one window's worth is rightly admitted, and a process that can't wait for Redis counts by itself.
func timely(t *testing.T, window time.Duration, processes []*process, experiment func()) bool {
	t.Helper()
	before := fallbacks(t, processes)
	began := time.Now()
	experiment()
	return time.Since(began) < window && fallbacks(t, processes) == before
}

// fallbacks is how many requests the processes counted without Redis.
func fallbacks(t *testing.T, processes []*process) (total int) {
	t.Helper()
	for _, p := range processes {
		total += p.counted(t, "rate_limit_fallbacks_total")
	}
	return total
}

// counted returns the value of a counter, by its name without the program's prefix.
func (p *process) counted(t *testing.T, name string) int {
	t.Helper()
	_, after, _ := strings.Cut(p.metrics(), "\ndeeplink_control_"+name+" ")
	line, _, _ := strings.Cut(after, "\n")
	n, err := strconv.Atoi(line)
	if err != nil {
		t.Fatalf("the metric %s: %v", name, err)
	}
	return n
}

var retryMessage = regexp.MustCompile(`^Rate limit exceeded\. Retry after ([0-9]+) second\(s\)\.$`)

// checkRefusal demands the 429 of interface.md 7 and returns how long it tells to wait.
func checkRefusal(t *testing.T, r reply) time.Duration {
	t.Helper()
	match := retryMessage.FindStringSubmatch(r.message())
	if r.status != http.StatusTooManyRequests || match == nil || !strings.Contains(string(r.body), `"error":"Too Many Requests"`) || r.code() != "" {
		t.Fatalf("%s, expected the 429 of the interface", r)
	}
	for name := range r.header {
		if name == "Retry-After" || strings.Contains(strings.ToLower(name), "ratelimit") || strings.Contains(strings.ToLower(name), "rate-limit") {
			t.Fatalf("%s, expected no header about limits", r)
		}
	}
	seconds, err := strconv.Atoi(match[1])
	if err != nil || seconds < 1 {
		t.Fatalf("%s, expected a whole number of seconds", r)
	}
	return time.Duration(seconds) * time.Second
}

// TestWriteLimitHoldsExactlyOverTwoControls is not parallel: what it sends has to be sent within a second.
func TestWriteLimitHoldsExactlyOverTwoControls(t *testing.T) {
	w := newWorld(t)
	organization := w.organization(catalog.Scale)
	// Programs of their own: with both and 400 clients in one process, nobody there gets an answer of Redis in time.
	path := build(t)
	one, _ := w.launch(path)
	other, _ := w.launch(path)
	controls := []*client{one.client(*organization.ServerKey), other.client(*organization.ServerKey)}
	warm(t, controls, 200)

	var replies []reply
	var counts map[int]int
	var refusedAt time.Time
	within(t, time.Second, []*process{one, other}, func() {
		counts, replies = burst(400, func(i int) reply {
			return controls[i%2].do("POST", "/links", `{"path":"/burst"}`)
		})
		refusedAt = time.Now()
	})
	if counts[http.StatusCreated] != 100 || counts[http.StatusTooManyRequests] != 300 {
		t.Fatalf("400 concurrent creates: %v, expected exactly 100 × 201 and 300 × 429", counts)
	}
	var wait time.Duration
	for _, r := range replies {
		if r.status == http.StatusTooManyRequests {
			wait = max(wait, checkRefusal(t, r))
		}
	}
	if r := controls[0].do("GET", "/links", ""); r.status != http.StatusOK {
		t.Errorf("a read while writes are limited: %s, expected 200", r)
	}
	time.Sleep(time.Until(refusedAt.Add(wait)))
	if r := controls[1].do("POST", "/links", `{"path":"/later"}`); r.status != http.StatusCreated {
		t.Errorf("the retry after %v: %s, expected 201", wait, r)
	}
}

// warm opens n connections per client, so that a burst is not spent on handshakes.
func warm(t *testing.T, clients []*client, n int) {
	t.Helper()
	for _, c := range clients {
		if counts, _ := burst(n, func(int) reply { return c.do("GET", "/healthz", "") }); counts[http.StatusOK] != n {
			t.Fatalf("warming up: %v", counts)
		}
	}
}

// TestReadLimitIsAThousandASecond is not parallel, for the same reason.
func TestReadLimitIsAThousandASecond(t *testing.T) {
	w := newWorld(t)
	p, _ := w.launch(build(t))
	c := p.client(*w.organization(catalog.Scale).ServerKey)
	warm(t, []*client{c}, 20)
	var passed, refused atomic.Int64
	within(t, time.Second, []*process{p}, func() {
		passed.Store(0)
		refused.Store(0)
		burst(20, func(int) (last reply) {
			for range 60 {
				// A malformed id is refused after the limit was counted, and costs the least.
				if last = c.do("GET", "/links/42", ""); last.status == http.StatusTooManyRequests {
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
		t.Errorf("1,200 reads within a second: %d passed and %d were refused, expected 1,000 and 200", passed.Load(), refused.Load())
	}
}

func TestLimitsGoOnPerProcessWithRedisStopped(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	organization := w.organization(catalog.Scale)
	controls := []*client{w.serve().client(*organization.ServerKey), w.serve().client(*organization.ServerKey)}
	warm(t, controls, 100)
	if err := w.redis.Kill(); err != nil {
		t.Fatal(err)
	}
	counts, replies := make([]map[int]int, len(controls)), make([][]reply, len(controls))
	for i, c := range controls {
		within(t, time.Second, nil, func() {
			counts[i], replies[i] = burst(150, func(int) reply { return c.do("PATCH", "/links/42", `{}`) })
		})
	}
	for i := range controls {
		if counts[i][http.StatusBadRequest] != 100 || counts[i][http.StatusTooManyRequests] != 50 {
			t.Errorf("150 writes on control %d without Redis: %v, expected 100 × 400 and 50 × 429", i, counts[i])
		}
		for _, r := range replies[i] {
			if r.status == http.StatusTooManyRequests {
				checkRefusal(t, r)
			}
		}
	}
}

func TestQuotaHoldsExactlyUnderConcurrentCreates(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	organization := w.organization(catalog.Growth)
	keys := []string{*organization.ServerKey, w.key(organization.ID, apikey.Server)}
	w.exec(`
		insert into links (id, organization_id, domain_id, short_code, path)
		select gen_random_uuid(), d.organization_id, d.id, 'n' || n, '/n'
		from domains d, generate_series(1, 49950) n where d.organization_id = $1`, organization.ID)
	controls := []*process{w.serve(), w.serve()}
	var clients []*client
	for i, key := range keys {
		clients = append(clients, controls[i].client(key))
	}
	warm(t, clients, 100)

	counts, replies := burst(200, func(i int) reply { return clients[i%2].do("POST", "/links", `{"path":"/last"}`) })
	if counts[http.StatusCreated] != 50 || counts[http.StatusPaymentRequired] != 150 {
		t.Errorf("200 concurrent creates with room for 50: %v, expected 50 × 201 and 150 × 402", counts)
	}
	for _, r := range replies {
		if r.status == http.StatusPaymentRequired && (r.code() != "QUOTA_EXCEEDED" || !strings.Contains(string(r.body), `"quota":"links"`)) {
			t.Fatalf("%s, expected QUOTA_EXCEEDED of links", r)
		}
	}
	var links, counted int
	if err := w.pool.QueryRow(t.Context(), `select (select count(*) from links), (select links from link_usage where organization_id = $1)`,
		organization.ID).Scan(&links, &counted); err != nil || links != 50_000 || counted != 50_000 {
		t.Errorf("%d links, %d counted, %v; expected 50,000 of both", links, counted, err)
	}

	// A deleted link makes room for one.
	list := into[page](t, clients[0].do("GET", "/links?limit=1", ""))
	time.Sleep(time.Second) // the writes above are out of the window
	clients[0].do("DELETE", "/links/"+list.Data[0].ID, "")
	counts, _ = burst(2, func(i int) reply { return clients[i].do("POST", "/links", `{"path":"/last"}`) })
	if counts[http.StatusCreated] != 1 || counts[http.StatusPaymentRequired] != 1 {
		t.Errorf("2 creates after a delete: %v, expected one to pass", counts)
	}
}
