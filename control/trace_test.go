package main

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

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
	w, to := newWorld(t), newCollector(t)
	organization := w.organization(catalog.Growth)
	p := w.serve("--otlp-endpoint=" + to.URL)
	c := p.client(*organization.ServerKey)
	const trace = "0123456789abcdef0123456789abcdef"
	link := into[catalog.Link](t, c.do("POST", "/links", `{"path":"/hidden1","title":"hidden2"}`, "traceparent", "00-"+trace+"-0123456789abcdef-01", "X-Request-Id", "find-me"))
	c.do("DELETE", "/links/"+link.ID+"?hidden3", "")
	c.do("GET", "/hidden4", "")
	p.client(*organization.ClientKey).do("POST", "/sdk/session", `{"deviceId":"hidden5"}`)
	p.stop()
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
	if !strings.Contains(p.log.String(), `"traceId":"`+trace+`"`) {
		t.Errorf("the log does not name the trace:\n%s", p.log)
	}
}

func TestWithoutACollectorThereAreNoTraces(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	organization := w.organization(catalog.Growth)
	p := w.serve()
	p.client(*organization.ServerKey).do("GET", "/links", "", "traceparent", "00-0123456789abcdef0123456789abcdef-0123456789abcdef-01")
	p.stop()
	if strings.Contains(p.log.String(), "traceId") {
		t.Errorf("the log names a trace:\n%s", p.log)
	}
}

func TestCollectorThatIsAwayHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	organization := w.organization(catalog.Growth)
	p := w.serve("--otlp-endpoint=http://" + freeAddress(t))
	if r := p.client(*organization.ServerKey).do("POST", "/links", `{"path":"/a"}`); r.status != http.StatusCreated {
		t.Errorf("%s, expected 201", r)
	}
	if code := p.stop(); code != 0 {
		t.Errorf("it ended with %d", code)
	}
}
