package main

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"deeplink/bench/result"
	"deeplink/shared/devservers"
)

// TestMain runs the program itself if a test asks for it, so that exit statuses are those of a process.
func TestMain(m *testing.M) {
	if os.Getenv("RUN_BENCH") != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// bench runs the program and returns its exit status and output.
func bench(t *testing.T, arguments ...string) (status int, stdout, stderr string) {
	t.Helper()
	command := exec.CommandContext(t.Context(), os.Args[0], arguments...)
	command.Env = append(os.Environ(), "RUN_BENCH=1")
	var out, errOut bytes.Buffer
	command.Stdout, command.Stderr = &out, &errOut
	var exit *exec.ExitError
	if err := command.Run(); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return command.ProcessState.ExitCode(), out.String(), errOut.String()
}

// serve starts a server that responds to the n-th request with the status that statusOf returns.
func serve(t *testing.T, statusOf func(n int64) int) (url string) {
	t.Helper()
	var n atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(statusOf(n.Add(1))) }))
	t.Cleanup(server.Close)
	return server.URL
}

func always(status int) func(int64) int { return func(int64) int { return status } }

func every20th(status int) func(int64) int {
	return func(n int64) int {
		if n%20 == 0 {
			return status
		}
		return http.StatusOK
	}
}

func TestExitStatusTellsWhichThresholdWasMissed(t *testing.T) {
	t.Parallel()
	closed, err := devservers.FreeAddr()
	if err != nil {
		t.Fatal(err)
	}
	slow := serve(t, func(int64) int { time.Sleep(20 * time.Millisecond); return http.StatusOK })
	for _, c := range []struct {
		name, base, flags string
		status            int
		reason            string
	}{
		{"all 200", serve(t, always(200)), "--max-p99 30s --max-error-rate 0", 0, ""},
		{"5 % are 500, 1 % acceptable", serve(t, every20th(500)), "--max-error-rate 1%", 2, "10 of 200 requests"},
		{"5 % are 500, 10 % acceptable", serve(t, every20th(500)), "--max-error-rate 0.1", 0, ""},
		{"5 % are 500, no threshold", serve(t, every20th(500)), "", 0, ""},
		{"5 % are 404, 200 expected", serve(t, every20th(404)), "--expect-status 200", 2, "the threshold is 0.00 %"},
		{"5 % are 404, both expected", serve(t, every20th(404)), "--expect-status 200,404", 0, ""},
		{"slow, p99 below a millisecond", slow, "--max-p99 1ms", 2, "p99 is"},
		{"slow, p99 below a minute", slow, "--max-p99 1m", 0, ""},
		{"all 429", serve(t, always(429)), "", 3, "none of 200 requests"},
		{"all 429, expected", serve(t, always(429)), "--expect-status 429", 0, ""},
		{"nothing listening", "http://" + closed, "", 3, "refused"},
		{"no such flag", slow, "--none", 1, "unknown flag"},
		{"no such share", slow, "--max-error-rate 2", 1, "not a share"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			arguments := append([]string{"load", "--base", c.base, "--prefix", "/x", "-n", "200", "-c", "4", "--warmup", "0s", "--timeout", "30s"},
				strings.Fields(c.flags)...)
			status, stdout, stderr := bench(t, arguments...)
			if (status != c.status && !(c.status == 1 && status == 80)) || !strings.Contains(stderr, c.reason) { // 80 is kong's status for wrong flags
				t.Errorf("exit status %d, expected %d with %q\n%s%s", status, c.status, c.reason, stdout, stderr)
			}
		})
	}
}

// control serves the API to bench: it creates and deletes links, and counts what it creates.
func control(t *testing.T, orgKey string, created *atomic.Int64) (url string) {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /links", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Has("tag") {
			fmt.Fprint(w, `{"data":[]}`)
			return
		}
		fmt.Fprintf(w, `{"data":[{"id":"a","url":"https://go.example.com/%s/a"}]}`, orgKey)
	})
	mux.HandleFunc("POST /links", func(w http.ResponseWriter, _ *http.Request) {
		created.Add(1)
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, `{"id":"b","url":"https://go.example.com/%s/b"}`, orgKey)
	})
	mux.HandleFunc("DELETE /links/b", func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Deeplink-Propagation", "complete") })
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return server.URL
}

func TestStaleResponseHasAnExitStatusOfItsOwn(t *testing.T) {
	t.Parallel()
	var created atomic.Int64
	status, stdout, stderr := bench(t, "load", "delete", "-d", "300ms", "--warmup", "0s", "--timeout", "10s", "--server-key", "svc_api_x",
		"--api", control(t, "demo", &created), "--base", serve(t, always(302))) // an edge that serves deleted links
	if status != 4 || created.Load() == 0 || !strings.Contains(stderr, "stale") {
		t.Errorf("exit status %d after %d links, expected 4\n%s%s", status, created.Load(), stdout, stderr)
	}
}

func TestNothingIsWrittenIntoAnotherOrganizationUnconfirmed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		orgKey, flag string
		written      bool
	}{{"ab12", "", false}, {"ab12", "--yes", true}, {"demo", "", true}} {
		var created atomic.Int64
		arguments := []string{"load", "--links", "1", "-n", "10", "-c", "1", "--warmup", "0s", "--server-key", "svc_api_x",
			"--api", control(t, c.orgKey, &created), "--base", serve(t, always(302))}
		if c.flag != "" {
			arguments = append(arguments, c.flag)
		}
		status, _, stderr := bench(t, arguments...)
		if (status == 0) != c.written || (created.Load() > 0) != c.written || !c.written && (status != 1 || !strings.Contains(stderr, "--yes")) {
			t.Errorf("organization %s %s: exit status %d, %d links created, expected any: %v\n%s", c.orgKey, c.flag, status, created.Load(), c.written, stderr)
		}
	}
}

func TestStandardOutputHoldsNothingButResults(t *testing.T) {
	t.Parallel()
	run := func(format string) string {
		status, stdout, stderr := bench(t, "load", "--base", serve(t, every20th(429)), "--prefix", "/x", "--stages", "400ms:100,200ms:200", "--warmup", "0s",
			"--timeout", "30s", "-o", format)
		if status != 0 || !strings.Contains(stderr, "rate limit") {
			t.Fatalf("exit status %d: %s", status, stderr)
		}
		return stdout
	}
	var file result.File
	if err := json.Unmarshal([]byte(run("json")), &file); err != nil || len(file.Series) != 2 || file.Series[1].Scenario != "redirect at 200/s" {
		t.Errorf("%+v, %v", file.Series, err)
	}
	for _, s := range file.Series {
		if r := s.Rounds[0]; r.Requests != 40 || r.Expected != 38 || r.Refused == nil {
			t.Errorf("%s: %d requests, %d expected responses, refused %v", s.Scenario, r.Requests, r.Expected, r.Refused)
		}
	}
	rows, err := csv.NewReader(strings.NewReader(run("csv"))).ReadAll()
	if err != nil || len(rows) != 3 || rows[1][1] != "redirect at 100/s" || rows[2][5] != "40" || rows[2][19] != "200: 38; 429: 2" {
		t.Errorf("%q, %v", rows, err)
	}
	if table := run("table"); strings.Count(table, "\n") != 5 || strings.Count(table, "other statuses") != 2 {
		t.Errorf("a header and two lines for each stage expected:\n%s", table)
	}
}
