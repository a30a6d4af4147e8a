package load_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"deeplink/bench/load"
	"deeplink/bench/result"
	"deeplink/shared/devservers"
)

// options are those of a short round against the server at url.
func options(t *testing.T, url string) load.Options {
	t.Helper()
	target, err := load.ParseTarget(url)
	if err != nil {
		t.Fatal(err)
	}
	return load.Options{
		Targets: []load.Target{target}, Connections: 4, Duration: 300 * time.Millisecond, Timeout: 30 * time.Second,
		Source: load.Request{Path: "/x", Header: []string{"User-Agent: test"}}.Source(),
	}
}

func run(t *testing.T, o load.Options) result.Round {
	t.Helper()
	round, err := load.Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	var failures, statuses int64
	for _, n := range round.Failures {
		failures += n
	}
	for _, n := range round.Statuses {
		statuses += n
	}
	if round.Requests != round.Answers+failures || round.Answers != statuses {
		t.Errorf("%d requests, %d responses, statuses %v, failures %v", round.Requests, round.Answers, round.Statuses, round.Failures)
	}
	if n := round.Latencies.Histogram.TotalCount(); n != round.Expected {
		t.Errorf("%d expected responses, but %d latencies", round.Expected, n)
	}
	return round
}

func TestClosedLoopCountsEveryRequestOnce(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if asked.Add(1)%3 == 0 {
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(server.Close)
	round := run(t, options(t, server.URL))
	if round.Answers == 0 || round.Answers != asked.Load() || round.Statuses[404] != asked.Load()/3 || len(round.Failures) > 0 {
		t.Errorf("the server sent %d responses, a third of them 404; counted were %d, %v, %v", asked.Load(), round.Answers, round.Statuses, round.Failures)
	}
}

func TestOpenLoopSendsRequestsOnSchedule(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	t.Cleanup(server.Close)
	o := options(t, server.URL)
	o.Rate, o.Warmup, o.Duration = 400, 250*time.Millisecond, 500*time.Millisecond
	round := run(t, o)
	if round.Answers != 200 || asked.Load() != 300 || round.Wanted != 400 {
		t.Errorf("400 per second for 0.5 s, after a warm-up of 0.25 s: %d responses counted, %d requests sent, %v expected", round.Answers, asked.Load(), round.Wanted)
	}
}

// If latencies counted from the time of sending, a server that stalls for a second would show only one slow request per connection.
func TestStalledServerDelaysAllScheduledRequests(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	var still sync.RWMutex
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		if asked.Add(1) == 100 {
			still.Lock()
			time.Sleep(time.Second)
			still.Unlock()
		}
		still.RLock()
		defer still.RUnlock()
	}))
	t.Cleanup(server.Close)
	o := options(t, server.URL)
	o.Rate, o.Duration = 200, 3*time.Second
	round := run(t, o)
	// 100 were due in the first half of that second, 96 of them while all 4 connections waited.
	if slow := above(round, 500*time.Millisecond); round.Answers != 600 || slow < 95 {
		t.Errorf("%d responses, %d of them after more than 500 ms", round.Answers, slow)
	}
	if round.Latencies.P99 < 500_000 || round.Late < 95 || round.Backlog < 95 {
		t.Errorf("p99 %v µs, %d late, backlog %d", round.Latencies.P99, round.Late, round.Backlog)
	}
}

// above returns how many latencies exceed span.
func above(round result.Round, span time.Duration) (n int64) {
	for _, bar := range round.Latencies.Histogram.Distribution() {
		if bar.From > int64(span) {
			n += bar.Count
		}
	}
	return n
}

func TestRequestsThatCouldNotBeSentAreCounted(t *testing.T) {
	t.Parallel()
	addr := listen(t, func(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) })
	o := options(t, "http://"+addr)
	o.Rate, o.Duration, o.Timeout = 100, 500*time.Millisecond, 2*time.Second
	round := run(t, o)
	if round.Requests != 50 || round.Answers > 0 || round.Failures[load.FailedUnsent] == 0 || round.Failures[load.FailedTimeout] == 0 {
		t.Errorf("50 were due at a server that never responds: %d requests, %v", round.Requests, round.Failures)
	}
}

func TestEachFailureHasItsName(t *testing.T) {
	t.Parallel()
	for failure, answer := range map[string]string{
		load.FailedClosed:    "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n1234",
		load.FailedMalformed: "HTTP/1.1 200 OK\nContent-Length: 0\n\n",
	} {
		t.Run(failure, func(t *testing.T) {
			t.Parallel()
			addr := listen(t, func(conn net.Conn) {
				if _, err := http.ReadRequest(bufio.NewReader(conn)); err == nil {
					_, _ = io.WriteString(conn, answer)
				}
			})
			round := run(t, options(t, "http://"+addr))
			if round.Failures[failure] == 0 || round.Answers > 0 {
				t.Errorf("%q gave %d responses and %v", answer, round.Answers, round.Failures)
			}
		})
	}
	t.Run(load.FailedConnect, func(t *testing.T) {
		t.Parallel()
		// Not just any port: once this listener is closed, the kernel could give its port to another one.
		addr, err := devservers.FreeAddr()
		if err != nil {
			t.Fatal(err)
		}
		listener, err := net.Listen("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer listener.Close()
		go func() {
			for range 4 { // one for each connection of the round
				conn, err := listener.Accept()
				if err != nil {
					return
				}
				defer conn.Close()
			}
			_ = listener.Close()
		}()
		o := options(t, "http://"+addr)
		o.Duration = time.Second
		round := run(t, o)
		if round.Failures[load.FailedConnect] == 0 || round.Answers > 0 {
			t.Errorf("a closed listener gave %d responses and %v", round.Answers, round.Failures)
		}
	})
}

func TestNumberOfRequestsEndsTheRound(t *testing.T) {
	t.Parallel()
	for name, rate := range map[string]float64{"closed": 0, "open": 500} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var received atomic.Int64
			server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { received.Add(1) }))
			t.Cleanup(server.Close)
			o := options(t, server.URL)
			o.Requests, o.Duration, o.Rate = 333, time.Hour, rate
			if round := run(t, o); round.Requests != 333 || received.Load() != 333 || round.Seconds > 60 {
				t.Errorf("%d requests counted and %d received, expected 333 each; %v s", round.Requests, received.Load(), round.Seconds)
			}
		})
	}
}

func TestLatenciesOfUnexpectedStatusesAreKeptApart(t *testing.T) {
	t.Parallel()
	var received atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if received.Add(1)%2 == 0 {
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
		time.Sleep(30 * time.Millisecond)
	}))
	t.Cleanup(server.Close)
	o := options(t, server.URL)
	o.Requests, o.Duration = 40, time.Hour
	o.Expected = func(status int) bool { return status == http.StatusOK }
	round := run(t, o)
	if round.Expected != 20 || round.Answers != 40 || round.Latencies.P50 < 30_000 || round.Refused == nil || round.Refused.Histogram.TotalCount() != 20 {
		t.Errorf("%d expected of %d, p50 %v µs, refused %+v", round.Expected, round.Answers, round.Latencies.P50, round.Refused)
	}
}

func newListener(t *testing.T) net.Listener {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	return listener
}

// listen runs serve for each connection, and then closes the connection.
func listen(t *testing.T, serve func(net.Conn)) (addr string) {
	t.Helper()
	listener := newListener(t)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				serve(conn)
			}()
		}
	}()
	return listener.Addr().String()
}

func TestClosedConnectionIsReestablished(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Connection", "close") }))
	t.Cleanup(server.Close)
	o := options(t, server.URL)
	o.Duration = time.Second
	if round := run(t, o); round.Answers < 5 || len(round.Failures) > 0 {
		t.Errorf("%d responses on 4 connections, failures %v", round.Answers, round.Failures)
	}
}

func TestTLS(t *testing.T) {
	t.Parallel()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
	t.Cleanup(server.Close)
	o := options(t, server.URL)
	if _, err := load.Run(t.Context(), o); err == nil {
		t.Error("a self-signed certificate was trusted")
	}
	pool := x509.NewCertPool()
	pool.AddCert(server.Certificate())
	o.TLS = &tls.Config{RootCAs: pool}
	for _, host := range []string{o.Targets[0].Host, "example.com"} { // both names are in the certificate
		o.Targets[0].Host = host
		if round := run(t, o); round.Statuses[204] == 0 || len(round.Failures) > 0 {
			t.Errorf("%s: statuses %v, failures %v", host, round.Statuses, round.Failures)
		}
	}
	o.Targets[0].Host = "go.example.org"
	if _, err := load.Run(t.Context(), o); err == nil {
		t.Error("a certificate for another host was trusted")
	}
}

func TestInterruptedRoundReturnsItsResults(t *testing.T) {
	t.Parallel()
	for name, rate := range map[string]float64{"closed": 0, "open": 1000} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancel(t.Context())
			var asked atomic.Int64
			server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
				if asked.Add(1) == 50 {
					cancel()
				}
			}))
			t.Cleanup(server.Close)
			o := options(t, server.URL)
			o.Duration, o.Rate = time.Hour, rate
			round, err := load.Run(ctx, o)
			if err != nil || round.Answers < 40 || round.Seconds > 3000 {
				t.Errorf("interrupted after 50 requests: %d responses in %v s, %v", round.Answers, round.Seconds, err)
			}
		})
	}
	t.Run("warming up", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithCancel(t.Context())
		server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { cancel() }))
		t.Cleanup(server.Close)
		o := options(t, server.URL)
		o.Warmup = time.Hour
		if _, err := load.Run(ctx, o); err == nil {
			t.Error("no error for a round that counted nothing")
		}
	})
}

func TestUnreachableServerIsAnError(t *testing.T) {
	t.Parallel()
	listener := newListener(t)
	o := options(t, "http://"+listener.Addr().String())
	_ = listener.Close()
	if _, err := load.Run(t.Context(), o); err == nil {
		t.Error("no error although nothing listens")
	}
}

// Not parallel: other tests would allocate at the same time.
func TestRequestDoesNotAllocate(t *testing.T) {
	answer := []byte("HTTP/1.1 302 Found\r\nContent-Length: 0\r\nLocation: https://example.com\r\n\r\n")
	addr := listen(t, func(conn net.Conn) {
		for buffer := make([]byte, 4096); ; {
			if _, err := conn.Read(buffer); err != nil {
				return
			}
			if _, err := conn.Write(answer); err != nil {
				return
			}
		}
	})
	for name, source := range map[string]load.Request{
		"fixed":    {Path: "/x"},
		"changing": {Paths: load.Numbered("/demo/", 1000, 1.1), Clients: 1000},
	} {
		o := options(t, "http://"+addr)
		o.Source = source.Source()
		var before, after runtime.MemStats
		var once sync.Once
		o.Warmup, o.Duration = 200*time.Millisecond, 500*time.Millisecond
		var sent int64
		o.Progress = func(p load.Progress) {
			if !p.Warming {
				once.Do(func() { runtime.ReadMemStats(&before); sent = p.Sent })
				runtime.ReadMemStats(&after)
				sent = max(sent, p.Sent)
			}
		}
		round := run(t, o)
		if allocations := after.Mallocs - before.Mallocs; float64(allocations) > 100+float64(round.Requests)/10 {
			t.Errorf("%s: %d allocations for %d requests", name, allocations, round.Requests)
		}
	}
}
