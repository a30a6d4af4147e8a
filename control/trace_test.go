package main

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"deeplink/control/internal/testenv"
	"deeplink/shared/catalog"
)

// collector keeps what is sent to it over OTLP, as it is on the wire: texts are readable there.
type collector struct {
	*httptest.Server
	mu   sync.Mutex
	sent bytes.Buffer
}

func newCollector(t *testing.T) *collector {
	t.Helper()
	c := new(collector)
	c.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || r.URL.Path != "/v1/traces" {
			t.Errorf("%s: %v", r.URL.Path, err)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.sent.Write(body)
	}))
	t.Cleanup(c.Close)
	return c
}

func (c *collector) has(text string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return bytes.Contains(c.sent.Bytes(), []byte(text))
}

func TestTracesTellWhereTheTimeOfARequestWent(t *testing.T) {
	t.Parallel()
	w, to := newTestEnv(t), newCollector(t)
	organization := w.Organization(catalog.Growth)
	p := w.serve("--otlp-endpoint=" + to.URL)
	c := p.client(*organization.ServerKey)
	const trace = "0123456789abcdef0123456789abcdef"
	link := testenv.DecodeReply[catalog.Link](t, c.Do("POST", "/links", `{"path":"/hidden1","title":"hidden2"}`, "traceparent", "00-"+trace+"-0123456789abcdef-01", "X-Request-Id", "find-me"))
	c.Do("DELETE", "/links/"+link.ID+"?hidden3", "")
	c.Do("GET", "/hidden4", "")
	p.client(*organization.ClientKey).Do("POST", "/sdk/session", `{"deviceId":"hidden5"}`)
	p.Stop()
	for _, text := range []string{
		"deeplink-control", "POST /links", "DELETE /links/{id}", "postgres select", "postgres delete", "postgres insert, set, select", "POST /sdk/session", "postgres with", "wait for the edges", "find-me",
		organization.ID, "\x01\x23\x45\x67\x89\xab\xcd\xef\x01\x23\x45\x67\x89\xab\xcd\xef",
	} {
		if !to.has(text) {
			t.Errorf("no span has %q", text)
		}
	}
	for _, text := range []string{"hidden", *organization.ServerKey, link.ID, "127.0.0.1", "insert into"} {
		if to.has(text) {
			t.Errorf("a span has %q", text)
		}
	}
	if !strings.Contains(p.Log.String(), `"traceId":"`+trace+`"`) {
		t.Errorf("the log does not name the trace:\n%s", p.Log)
	}
}

func TestWithoutACollectorThereAreNoTraces(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	organization := w.Organization(catalog.Growth)
	p := w.serve()
	p.client(*organization.ServerKey).Do("GET", "/links", "", "traceparent", "00-0123456789abcdef0123456789abcdef-0123456789abcdef-01")
	p.Stop()
	if strings.Contains(p.Log.String(), "traceId") {
		t.Errorf("the log names a trace:\n%s", p.Log)
	}
}

func TestCollectorThatIsAwayHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	organization := w.Organization(catalog.Growth)
	p := w.serve("--otlp-endpoint=http://" + testenv.FreeAddress(t))
	if r := p.client(*organization.ServerKey).Do("POST", "/links", `{"path":"/a"}`); r.Status != http.StatusCreated {
		t.Errorf("%s, expected 201", r)
	}
	if code := p.Stop(); code != 0 {
		t.Errorf("it ended with %d", code)
	}
}
