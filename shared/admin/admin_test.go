package admin_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"deeplink/shared/admin"
	"deeplink/shared/envelope"
	"deeplink/shared/requestid"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

// listener is a running one and what ends it.
type listener struct {
	url   string
	ready atomic.Pointer[func() error]
	stop  context.CancelFunc
	ended chan error
}

func start(t *testing.T, metrics *prometheus.Registry) *listener {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	l := &listener{url: "http://" + ln.Addr().String(), stop: stop, ended: make(chan error, 1)}
	l.isReady(func() error { return nil })
	go func() { l.ended <- admin.Serve(ctx, ln, func() error { return (*l.ready.Load())() }, metrics) }()
	t.Cleanup(func() {
		stop()
		http.DefaultClient.CloseIdleConnections()
	})
	return l
}

// isReady changes the answer of /readyz.
func (l *listener) isReady(ready func() error) {
	l.ready.Store(&ready)
}

func (l *listener) ask(t *testing.T, method, path, id string) (*http.Response, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, l.url+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if id != "" {
		request.Header.Set(requestid.Header, id)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response, string(body)
}

func TestRoutesRespond(t *testing.T) {
	t.Parallel()
	metrics := admin.Metrics("test")
	requests := prometheus.NewCounter(prometheus.CounterOpts{Name: "deeplink_test_total", Help: "For this test."})
	metrics.MustRegister(requests)
	requests.Add(3)
	l := start(t, metrics)
	for path, expected := range map[string][]string{
		"/healthz":                        {`{"status":"ok"}`},
		"/readyz":                         {`{"status":"ready"}`},
		"/metrics":                        {"deeplink_test_total 3", "go_goroutines ", "process_resident_memory_bytes ", `deeplink_build_info{goversion="go`},
		"/debug/pprof/goroutine?debug=1":  {"goroutine profile: total"},
		"/debug/pprof/heap?debug=1":       {"heap profile:"},
		"/debug/pprof/":                   {"full goroutine stack dump"},
		"/debug/pprof/trace?seconds=0.01": {"go 1."},
		"/debug/pprof/symbol":             {"num_symbols: 1"},
	} {
		response, body := l.ask(t, "GET", path, "")
		if response.StatusCode != http.StatusOK {
			t.Errorf("%s: %s: %s", path, response.Status, body)
		}
		for _, part := range expected {
			if !strings.Contains(body, part) {
				t.Errorf("%s: no %q in %.300s", path, part, body)
			}
		}
		if head, _ := l.ask(t, "HEAD", path, ""); head.StatusCode != http.StatusOK {
			t.Errorf("HEAD %s: %s", path, head.Status)
		}
	}
}

func TestReadyzReportsTheError(t *testing.T) {
	t.Parallel()
	l := start(t, admin.Metrics("test"))
	reason := errors.New("no lease since 4 s")
	l.isReady(func() error { return reason })
	checkError(t, l, "GET", "/readyz", http.StatusServiceUnavailable, reason.Error())
	if response, body := l.ask(t, "GET", "/healthz", ""); response.StatusCode != http.StatusOK {
		t.Errorf("health of a process that is not ready: %s: %s", response.Status, body)
	}
	l.isReady(func() error { return nil })
	if response, body := l.ask(t, "GET", "/readyz", ""); response.StatusCode != http.StatusOK {
		t.Errorf("ready again: %s: %s", response.Status, body)
	}
}

func TestErrorsAreEnvelopes(t *testing.T) {
	t.Parallel()
	l := start(t, admin.Metrics("test"))
	for _, path := range []string{"/", "/nope", "/metrics/x", "/healthz/"} {
		checkError(t, l, "GET", path, http.StatusNotFound, "Route not found")
	}
	for _, path := range []string{"/healthz", "/readyz", "/metrics", "/debug/pprof/heap"} {
		checkError(t, l, "POST", path, http.StatusMethodNotAllowed, "Method not allowed")
	}
	if response, _ := l.ask(t, "DELETE", "/metrics", ""); response.Header.Get("Allow") != "GET, HEAD" {
		t.Errorf("405 allows %q", response.Header.Get("Allow"))
	}
}

func checkError(t *testing.T, l *listener, method, path string, status int, message string) {
	t.Helper()
	for sent, echoed := range map[string]string{"": "", "my-id": "my-id", `a "b" <c>`: `a "b" <c>`, "not\tvalid": "", strings.Repeat("x", 256): ""} {
		response, body := l.ask(t, method, path, sent)
		var got envelope.Envelope
		if err := json.Unmarshal([]byte(body), &got); err != nil {
			t.Fatalf("%s %s: %v in %s", method, path, err, body)
		}
		if _, err := time.Parse(time.RFC3339, got.Timestamp); err != nil {
			t.Errorf("%s %s: %v", method, path, err)
		}
		expected := envelope.Envelope{
			StatusCode: status, Error: http.StatusText(status), Message: message, Timestamp: got.Timestamp, Path: path, RequestID: echoed,
		}
		if string(expected.JSON()) != body || response.StatusCode != status {
			t.Errorf("%s %s: got %s %s, expected %s", method, path, response.Status, body, expected.JSON())
		}
		if kind := response.Header.Get("Content-Type"); kind != envelope.ContentType {
			t.Errorf("%s %s: content type %q", method, path, kind)
		}
		if version := response.Header.Values("Deeplink-Version"); !slices.Equal(version, []string{"1"}) {
			t.Errorf("%s %s: Deeplink-Version %q, expected 1", method, path, version)
		}
		id := response.Header.Get(requestid.Header)
		if !requestid.Valid(id) || (echoed != "" && id != echoed) || id == sent && echoed == "" {
			t.Errorf("%s %s with id %q: answered with id %q", method, path, sent, id)
		}
	}
}

func TestServeEndsWithItsContext(t *testing.T) {
	t.Parallel()
	l := start(t, admin.Metrics("test"))
	l.ask(t, "GET", "/healthz", "")
	// An answer that takes forever must not hold the process.
	asked, release := make(chan struct{}), make(chan struct{})
	l.isReady(func() error {
		close(asked)
		<-release
		return nil
	})
	defer close(release)
	conn, err := net.Dial("tcp", strings.TrimPrefix(l.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write([]byte("GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	<-asked
	l.stop()
	select {
	case err := <-l.ended:
		if err != nil {
			t.Errorf("ended with %v", err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("it does not end")
	}
	if response, err := http.Get(l.url + "/healthz"); err == nil {
		response.Body.Close()
		t.Errorf("it still answers: %s", response.Status)
	}
}

func TestServeReturnsTheErrorOfAClosedListener(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ln.Close()
	err = admin.Serve(t.Context(), ln, func() error { return nil }, admin.Metrics("test"))
	if !errors.Is(err, net.ErrClosed) {
		t.Errorf("got %v, expected that the listener is closed", err)
	}
}

func TestPulseIsUpAgainAMinuteAfterAFailureWithoutFurtherRequests(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var p admin.Pulse
		p.Record(errors.New("no answer"))
		time.Sleep(time.Second)
		if p.Up() {
			t.Error("up a second after a failure")
		}
		p.Record(nil)
		if !p.Up() {
			t.Error("down after a success")
		}
		p.Record(errors.New("no answer"))
		time.Sleep(2 * time.Minute)
		if !p.Up() {
			t.Error("down two minutes after a failure that nothing followed")
		}
	})
}
