package testenv

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"deeplink/shared/devservers"
)

// Control is a control that serves.
type Control struct {
	T testing.TB
	// Base is the URL of the API, and Admin that of readiness and metrics.
	Base, Admin string
	Log         *LogBuffer
	// Stop ends it and returns the exit code.
	Stop func() int
	// Scrape returns the metrics of a control that runs in the test's process, without an admin address.
	Scrape func() string
}

// AwaitReady waits until /readyz returns 200.
func (p *Control) AwaitReady() {
	p.T.Helper()
	Await(p.T, "readiness", func() error {
		if status, body := p.Ready(); status != http.StatusOK {
			return fmt.Errorf("%d %s", status, body)
		}
		return nil
	})
}

// Ready returns the response of /readyz. The status is 0 while the admin address refuses connections.
func (p *Control) Ready() (status int, body string) {
	response, err := http.Get(p.Admin + "/readyz")
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

// Explain prints the log of a failed test without the lines about requests.
func (p *Control) Explain() {
	if !p.T.Failed() {
		return
	}
	for line := range strings.Lines(p.Log.String()) {
		if !strings.Contains(line, "msg=request ") && !strings.Contains(line, `"msg":"request"`) {
			p.T.Log(strings.TrimSpace(line))
		}
	}
}

// FreeAddress returns an address of this machine on which nothing listens.
func FreeAddress(t testing.TB) string {
	t.Helper()
	addr, err := devservers.FreeAddr()
	if err != nil {
		t.Fatal(err)
	}
	return addr
}

// Metrics returns the metrics in the text format of Prometheus.
func (p *Control) Metrics() string {
	p.T.Helper()
	if p.Scrape != nil {
		return p.Scrape()
	}
	response, err := http.Get(p.Admin + "/metrics")
	if err != nil {
		p.T.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		p.T.Fatal(err)
	}
	return string(text)
}

// Client returns a client that sends key as its bearer token.
func (p *Control) Client(key string) *Client {
	transport := &http.Transport{MaxIdleConnsPerHost: 512, DisableCompression: true}
	p.T.Cleanup(transport.CloseIdleConnections)
	return &Client{T: p.T, Base: p.Base, Key: key, HTTP: &http.Client{
		Transport:     transport,
		Timeout:       30 * time.Second,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// Pending sends n requests and returns once the control works on all of them. wait returns their replies.
func (p *Control) Pending(n int, send func(i int) Reply) (wait func() []Reply) {
	p.T.Helper()
	replies := make([]Reply, n)
	var senders sync.WaitGroup
	for i := range n {
		senders.Go(func() { replies[i] = send(i) })
	}
	Await(p.T, fmt.Sprintf("%d requests to be under way", n), func() error {
		if under := p.Gauge("deeplink_control_requests_in_flight"); under < n {
			return fmt.Errorf("%d are", under)
		}
		return nil
	})
	return func() []Reply { senders.Wait(); return replies }
}

// In returns the control for a subtest.
func (p *Control) In(t *testing.T) *Control {
	sub := *p
	sub.T = t
	return &sub
}

// Gauge returns the value of a metric. The name includes the labels.
func (p *Control) Gauge(name string) (value int) {
	p.T.Helper()
	for line := range strings.Lines(p.Metrics()) {
		if rest, ok := strings.CutPrefix(line, name+" "); ok {
			if _, err := fmt.Sscan(rest, &value); err != nil {
				p.T.Fatalf("%s: %v", line, err)
			}
			return value
		}
	}
	p.T.Fatalf("no metric %s", name)
	return 0
}

// Counted returns the value of a counter. The name is without the prefix deeplink_control_.
func (p *Control) Counted(t *testing.T, name string) int {
	t.Helper()
	_, after, _ := strings.Cut(p.Metrics(), "\ndeeplink_control_"+name+" ")
	line, _, _ := strings.Cut(after, "\n")
	n, err := strconv.Atoi(line)
	if err != nil {
		t.Fatalf("the metric %s: %v", name, err)
	}
	return n
}

var visitors atomic.Uint32

// Visit returns a client with a session token. Each request has another client address, because the portal allows 30 requests a second
// per address.
func (p *Control) Visit(token string) *Client {
	c := p.Client(token)
	c.From = func() string {
		n := visitors.Add(1)
		return fmt.Sprintf("10.%d.%d.%d", n>>16&255, n>>8&255, n&255)
	}
	return c
}
