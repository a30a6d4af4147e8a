package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"deeplink/shared/testkit"
)

const (
	oneGiB = 1 << 30
	// gibConnections are held at a time, gibNetworks are counted by the rate limit: all /64s of a /48.
	gibConnections, gibNetworks = 30_000, 1 << 16
	gibPath                     = "/gib1/x"
)

// TestOneGiBHoldsConnectionsAndAddresses runs an edge with default settings in 1 GiB: in its own cgroup if the test may create one,
// otherwise with that GOMEMLIMIT. It must hold 30,000 keep-alive connections, count all networks of a /48, and have room for a full cache
// in addition. If this process may not open that many files, the test adds the memory of the missing connections.
func TestOneGiBHoldsConnectionsAndAddresses(t *testing.T) {
	testkit.Prove(t)
	p := newProgram(t)
	group := newMemoryGroup(t, oneGiB)
	settings := []string{"EDGE_DRAIN=0s", "TRUSTED_PROXIES=127.0.0.1"}
	if group == nil {
		settings = append(settings, fmt.Sprintf("GOMEMLIMIT=%d", oneGiB/10*9))
	} else {
		p.prefix = []string{"/bin/sh", "-c", `echo $$ >"$0" && exec "$1"`, filepath.Join(group.dir, "cgroup.procs")}
	}
	cmd, e := p.start(t, settings...)
	until(t, "it is ready", func() bool { return e.readyz(t) == http.StatusOK })
	r := rows{t, e.owner}
	r.link(r.organization("gib1"), "x", map[string]any{"fallback_url": "https://shop.example.com/"})
	pid := cmd.Process.Pid
	idle := resident(t, pid, "VmRSS")

	most := int(e.metric(t, "deeplink_edge_connections_max"))
	connections := min(gibConnections, most-16) // some are for the clicks of the networks
	if files := openFiles(); connections < gibConnections && files > gibConnections+1000 {
		t.Fatalf("it accepts %d connections, expected at least %d with %d open files", most, gibConnections, files)
	}
	holders := hold(t, e.addr, connections)
	held := resident(t, pid, "VmRSS")
	countNetworks(t, e.addr)
	for _, h := range holders {
		h.wait(t, "again") // one round after all: each connection still answers
	}
	each := (held - idle) / int64(connections)
	used := resident(t, pid, "VmHWM")
	where := "resident"
	if group != nil {
		if peak := group.peak(t); peak > used {
			used, where = peak, "of its cgroup"
		}
	}
	cache := int64(maxDefaultCache)
	expected := used + int64(gibConnections-connections)*each + cache
	t.Logf("fresh %d MiB; %d connections %d MiB, %d bytes each; at most %d MiB %s after %d networks; with %d connections and a full cache %d MiB",
		idle>>20, connections, held>>20, each, used>>20, where, gibNetworks, gibConnections, expected>>20)
	if expected >= oneGiB {
		t.Errorf("an edge with %d connections, %d networks and a full cache takes %d bytes, expected less than %d", gibConnections, gibNetworks, expected, oneGiB)
	}
	if e.readyz(t) != http.StatusOK {
		t.Error("the edge is not ready any more")
	}
}

// countNetworks clicks once from each /64 of a /48, and 100 times from some of them.
func countNetworks(t *testing.T, addr string) {
	t.Helper()
	const batch, busy, clicks, workers = 256, 1000, 100, 4
	click := func(network int) string {
		return fmt.Sprintf("GET %s HTTP/1.1\r\nHost: go.example.com\r\nX-Forwarded-For: 2001:db8:1:%x::1\r\n\r\n", gibPath, network)
	}
	var work errgroup.Group
	for w := range workers {
		work.Go(func() error {
			c, err := net.Dial("tcp", addr)
			if err != nil {
				return err
			}
			defer c.Close()
			reader := bufio.NewReader(c)
			send := func(networks []int) error {
				if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
					return err
				}
				var raw bytes.Buffer
				for _, n := range networks {
					raw.WriteString(click(n))
				}
				go c.Write(raw.Bytes())
				for range networks {
					if a, err := parseAnswer(reader, http.MethodGet); err != nil || a.status != http.StatusFound {
						return fmt.Errorf("status %d: %w", a.status, err)
					}
				}
				return nil
			}
			for first := w * batch; first < gibNetworks; first += workers * batch {
				var networks []int
				for n := first; n < first+batch; n++ {
					networks = append(networks, n)
				}
				if err := send(networks); err != nil {
					return err
				}
			}
			for n := w; n < busy; n += workers {
				networks := make([]int, clicks)
				for i := range networks {
					networks[i] = n
				}
				if err := send(networks); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := work.Wait(); err != nil {
		t.Fatal(err)
	}
}

// metric returns a value of the edge's metrics.
func (e *testEdge) metric(t *testing.T, name string) float64 {
	t.Helper()
	answer, err := http.Get("http://" + e.admin + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	for lines := bufio.NewScanner(answer.Body); lines.Scan(); {
		if text, ok := strings.CutPrefix(lines.Text(), name+" "); ok {
			value, err := strconv.ParseFloat(text, 64)
			if err != nil {
				t.Fatal(err)
			}
			return value
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
}

// memoryGroup is a cgroup with a memory limit.
type memoryGroup struct{ dir, peakFile string }

// newMemoryGroup returns nil if this process may not create a cgroup with a limit.
func newMemoryGroup(t *testing.T, limit int64) *memoryGroup {
	t.Helper()
	own := ""
	if text, err := os.ReadFile("/proc/self/cgroup"); err == nil {
		for line := range strings.Lines(string(text)) {
			if path, ok := strings.CutPrefix(strings.TrimSpace(line), "0::"); ok {
				own = path
			}
		}
	}
	name := fmt.Sprintf("deeplink-test-%d", os.Getpid())
	for _, version := range []struct{ dir, limit, peak string }{
		{filepath.Join("/sys/fs/cgroup/memory", name), "memory.limit_in_bytes", "memory.max_usage_in_bytes"},
		{filepath.Join("/sys/fs/cgroup", own, name), "memory.max", "memory.peak"},
	} {
		if err := os.Mkdir(version.dir, 0o755); err != nil {
			continue
		}
		remove := func() bool {
			err := os.Remove(version.dir)
			return err == nil || errors.Is(err, os.ErrNotExist)
		}
		limited := os.WriteFile(filepath.Join(version.dir, version.limit), []byte(strconv.FormatInt(limit, 10)), 0)
		_, peak := os.Stat(filepath.Join(version.dir, version.peak))
		if limited != nil || peak != nil {
			remove()
			continue
		}
		t.Cleanup(func() { until(t, "the cgroup is removed", remove) })
		return &memoryGroup{version.dir, filepath.Join(version.dir, version.peak)}
	}
	return nil
}

// peak returns the group's peak memory in bytes, including the kernel's part.
func (g *memoryGroup) peak(t *testing.T) int64 {
	t.Helper()
	text, err := os.ReadFile(g.peakFile)
	if err != nil {
		t.Fatal(err)
	}
	peak, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return peak
}

// holder is a process that holds connections.
type holder struct{ lines chan string }

const holderSetting = "DEEPLINK_TEST_HOLD"

// hold starts processes that hold n connections, each at most 15,000 and half of its open files, and waits until all are open.
func hold(t *testing.T, addr string, n int) (holders []*holder) {
	t.Helper()
	per := int(min(15_000, openFiles()/2))
	for first := 0; first < n; first += per {
		ctx, stop := context.WithCancel(context.Background())
		cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestHolder$", "-test.count=1")
		cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %d %d", holderSetting, addr, first, min(per, n-first)))
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		h := &holder{make(chan string)}
		go func() {
			defer close(h.lines)
			for lines := bufio.NewScanner(out); lines.Scan(); {
				select {
				case h.lines <- lines.Text():
				case <-ctx.Done():
					return
				}
			}
		}()
		t.Cleanup(func() {
			stop()
			_ = cmd.Wait() // it was killed
		})
		holders = append(holders, h)
	}
	for _, h := range holders {
		h.wait(t, "held")
	}
	return holders
}

// wait waits until the process reports this.
func (h *holder) wait(t *testing.T, so string) {
	t.Helper()
	late := time.After(5 * time.Minute)
	for {
		select {
		case line, ok := <-h.lines:
			if !ok {
				t.Fatalf("a holder of connections ended before it reported %q", so)
			}
			if line == so {
				return
			}
			if strings.Contains(line, "onegib_test.go") {
				t.Fatalf("a holder of connections reports: %s", line)
			}
		case <-late:
			t.Fatalf("no holder reported %q within five minutes", so)
		}
	}
}

// TestHolder is the process of a holder. It opens connections and then sends a click on each in turn, so that none is idle for too long.
func TestHolder(t *testing.T) {
	setting := os.Getenv(holderSetting)
	if setting == "" {
		t.Skip("it is for TestOneGiBHoldsConnectionsAndAddresses")
	}
	var addr string
	var first, n int
	if _, err := fmt.Sscan(setting, &addr, &first, &n); err != nil {
		t.Fatal(err)
	}
	open := make([]net.Conn, n)
	var opening errgroup.Group
	opening.SetLimit(64)
	var failed atomic.Value
	for i := range open {
		opening.Go(func() error {
			at := first + i
			// Eight connections from each address.
			dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 100+byte(at>>19), byte(at>>11), byte(at>>3))}}
			c, err := dialer.Dial("tcp", addr)
			if err == nil {
				open[i] = c
				err = clickOn(c)
			}
			if err != nil {
				failed.CompareAndSwap(nil, fmt.Sprintf("connection %d: %v", at, err))
			}
			return err
		})
	}
	if err := opening.Wait(); err != nil {
		t.Fatal(failed.Load())
	}
	fmt.Println("held")
	for {
		for i, c := range open {
			if err := clickOn(c); err != nil {
				t.Fatalf("connection %d: %v", first+i, err)
			}
			time.Sleep(500 * time.Microsecond)
		}
		fmt.Println("again")
	}
}

// clickOn sends a click with a header of typical size and reads the response.
func clickOn(c net.Conn) error {
	if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		return err
	}
	if _, err := io.WriteString(c, strings.ReplaceAll(requestOf(windowsChrome, gibPath), "\n", "\r\n")); err != nil {
		return err
	}
	response, err := http.ReadResponse(bufio.NewReaderSize(c, 1024), nil)
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusFound {
		return fmt.Errorf("status %d", response.StatusCode)
	}
	return response.Body.Close()
}
