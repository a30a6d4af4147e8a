package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"deeplink/deploy/stack"
	"deeplink/shared/testkit"
)

// TestRunRestartsWhatDies kills each server and program of a `make run`: all of them must serve again at the same addresses. At the end of
// the run, ready.json and env must be gone.
func TestRunRestartsWhatDies(t *testing.T) {
	testkit.Prove(t)
	dir, err := os.MkdirTemp("", "deeplink-run-") // PostgreSQL's user cannot enter t.TempDir
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("RUN_DIR", dir)
	t.Setenv("EDGE_ADDR", "127.0.0.1:0")
	t.Setenv("CONTROL_ADDR", "127.0.0.1:0")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var output lockedBuffer
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, &output) }()

	var r ready
	await(t, &output, ended, "ready.json", func() bool {
		text, err := os.ReadFile(filepath.Join(dir, "ready.json"))
		return err == nil && json.Unmarshal(text, &r) == nil
	})
	link := createLink(t, dir)
	redisURL, err := url.Parse(r.RedisURL)
	if err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(&redis.Options{Addr: redisURL.Host, MaxRetries: -1})
	defer client.Close()
	restarts := 0
	for _, test := range []struct {
		name, executable string
		serves           func() bool
	}{
		{"Redis", "redis-server", func() bool { return client.Ping(t.Context()).Err() == nil }},
		{"edge", filepath.Join(dir, "bin", "edge"), func() bool { return get(r.EdgeURLs[0]+link) == 302 && get(r.EdgeURLs[1]+link) == 302 }},
		{"control", filepath.Join(dir, "bin", "control"), func() bool { return get(r.ControlURL+"/healthz") == 200 }},
		{"PostgreSQL", "postgres", func() bool { return createLink(t, dir) != "" }},
	} {
		pids := children(t, test.executable)
		if len(pids) == 0 {
			t.Fatalf("%s: no process", test.name)
		}
		for _, pid := range pids {
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
		}
		restarts += len(pids)
		await(t, &output, ended, test.name+" serves again", func() bool {
			now := children(t, test.executable)
			isOld := func(pid int) bool { return slices.Contains(pids, pid) }
			return len(now) == len(pids) && !slices.ContainsFunc(now, isOld) && test.serves() &&
				strings.Count(output.String(), "runs again") == restarts
		})
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	for _, name := range []string{"ready.json", "env"} {
		if _, err := os.Stat(filepath.Join(dir, name)); !os.IsNotExist(err) {
			t.Errorf("%s after the end: %v, expected none", name, err)
		}
	}
	if log := output.String(); restarts != 5 || strings.Count(log, "ended; restarting it in") != 5 {
		t.Errorf("expected a line for each of 5 ends and restarts:\n%s", log)
	}
}

// createLink runs a shell as the README does, and returns the path of the short URL, "" if control rejects the request.
func createLink(t *testing.T, dir string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "sh", "-c", `. "$0/env" && curl -s "$API/links" -H "$AUTH" --json '{"path":"/a","fallbackUrl":"https://example.com/"}' | field url`, dir).Output()
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(strings.TrimSpace(string(out)))
	if err != nil {
		t.Fatal(err)
	}
	return u.Path
}

// get returns the status of a response, 0 without one.
func get(address string) int {
	client := http.Client{Timeout: 5 * time.Second, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	response, err := client.Get(address)
	if err != nil {
		return 0
	}
	response.Body.Close()
	return response.StatusCode
}

// children returns the child processes of this one that run an executable: a path, or the name of a file.
func children(t *testing.T, executable string) (pids []int) {
	t.Helper()
	folders, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	for _, folder := range folders {
		status, err := os.ReadFile(filepath.Join(folder, "status"))
		if err != nil || !strings.Contains(string(status), fmt.Sprintf("\nPPid:\t%d\n", os.Getpid())) {
			continue // it has ended, or is not a child
		}
		command, _ := os.ReadFile(filepath.Join(folder, "cmdline"))
		name, _, _ := strings.Cut(string(command), "\x00")
		name, _, _ = strings.Cut(name, " ") // Redis appends its address to its process name
		if name != executable && filepath.Base(name) != executable {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(folder))
		if err != nil {
			t.Fatal(err)
		}
		pids = append(pids, pid)
	}
	return pids
}

// await waits up to two minutes for a condition, and fails if the run ends before.
func await(t *testing.T, output *lockedBuffer, ended <-chan error, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !holds(); {
		select {
		case err := <-ended:
			t.Fatalf("waiting for %s: the run ended: %v\n%s", what, err, output)
		case <-time.After(50 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within two minutes\n%s", what, output)
		}
	}
}

// TestReservedAddressesAreHeld plays another program that looks for a free port while control and edge are built.
func TestReservedAddressesAreHeld(t *testing.T) {
	t.Setenv("EDGE_ADDR", "127.0.0.1:0")
	t.Setenv("CONTROL_ADDR", "127.0.0.1:0")
	addrs, err := reserveAddresses()
	if err != nil {
		t.Fatal(err)
	}
	defer addrs.release()
	for _, r := range []reservation{addrs.control, addrs.edges[0], addrs.edges[1]} {
		if ln, err := net.Listen("tcp", r.addr); err == nil {
			ln.Close()
			t.Errorf("another program could listen on %s", r.addr)
		}
	}
	t.Setenv("EDGE_ADDR", addrs.control.addr)
	if taken, err := reserveAddresses(); err == nil {
		taken.release()
		t.Errorf("EDGE_ADDR=%s was accepted, which is in use", addrs.control.addr)
	} else if !strings.Contains(err.Error(), "EDGE_ADDR") || !strings.Contains(err.Error(), addrs.control.addr) {
		t.Errorf("the error does not name the setting and the address: %v", err)
	}
}

// TestTakenPortIsToldFromOtherFailures: run chooses other addresses only if another program has taken the port.
func TestTakenPortIsToldFromOtherFailures(t *testing.T) {
	t.Parallel()
	taken, err := reserveFree()
	if err != nil {
		t.Fatal(err)
	}
	defer taken.release()
	cause := errors.New("ended before it was ready")
	fails := func(context.Context, string) (*stack.Node, error) { return nil, cause }
	if err := new(fleet).start(t.Context(), "edge", &reservation{addr: taken.addr}, fails); !errors.Is(err, errAddressTaken) || !errors.Is(err, cause) {
		t.Errorf("another program has the port: %v", err)
	}
	free, err := reserveFree()
	if err != nil {
		t.Fatal(err)
	}
	if err := new(fleet).start(t.Context(), "edge", &free, fails); errors.Is(err, errAddressTaken) || !errors.Is(err, cause) {
		t.Errorf("nothing else has the port: %v", err)
	}
}
