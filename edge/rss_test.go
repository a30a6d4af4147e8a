package main

import (
	"bufio"
	"bytes"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
)

// resident returns the resident memory of a process in bytes, now (VmRSS) or at its highest (VmHWM).
func resident(t *testing.T, pid int, field string) int64 {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if value, ok := strings.CutPrefix(line, field+":"); ok {
			kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
			if err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			return kib << 10
		}
	}
	t.Fatalf("no %s in %s", field, status)
	return 0
}

// testFreshMemory requires that an edge with default settings takes little memory, at the start and after some clicks.
func (p *program) testFreshMemory(t *testing.T) {
	const most, links, clicks = 80_000_000, 100, 5000
	cmd, e := p.start(t, "EDGE_DRAIN=0s", "TRUSTED_PROXIES=127.0.0.1")
	until(t, "it is ready", func() bool { return e.readyz(t) == http.StatusOK })
	if fresh := resident(t, cmd.Process.Pid, "VmRSS"); fresh > most {
		t.Errorf("a fresh edge takes %d bytes, expected at most %d", fresh, most)
	}
	r := rows{t, e.owner}
	organization := r.organization("rss1")
	for i := range links {
		r.link(organization, fmt.Sprintf("x%d", i), map[string]any{"fallback_url": "https://shop.example.com/"})
	}
	c := e.dial(t)
	reader := bufio.NewReader(c)
	for range clicks / links {
		var batch bytes.Buffer
		for i := range links {
			fmt.Fprintf(&batch, "GET /rss1/x%d HTTP/1.1\r\nHost: go.example.com\r\nUser-Agent: %s\r\nX-Forwarded-For: 198.51.100.%d\r\n\r\n", i, windowsChrome, i)
		}
		if _, err := c.Write(batch.Bytes()); err != nil {
			t.Fatal(err)
		}
		for range links {
			if a, err := parseAnswer(reader, http.MethodGet); err != nil || a.status != 302 {
				t.Fatalf("status %d, %v; expected 302", a.status, err)
			}
		}
	}
	if used := resident(t, cmd.Process.Pid, "VmHWM"); used > most {
		t.Errorf("after %d clicks an edge takes %d bytes, expected at most %d", clicks, used, most)
	}
}
