package main

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"testing"
	"time"

	"deeplink/shared/devservers"
	"deeplink/shared/testkit"
)

// program is the edge as a separate process.
type program struct {
	binary   string
	database *testkit.Database
	redis    string
	prefix   []string // the command that starts the binary; usually none
}

// newProgram builds the edge and starts the servers that it needs.
func newProgram(t *testing.T) *program {
	t.Helper()
	binary, err := devservers.Build(t.Context(), "deeplink/edge")
	if err != nil {
		t.Fatal(err)
	}
	return &program{binary: binary, database: testkit.NewDatabase(t), redis: testkit.NewRedis(t).URL()}
}

func TestProgram(t *testing.T) {
	t.Parallel()
	p := newProgram(t)
	t.Run("exit codes", p.testExitCodes)
	t.Run("drain", p.testDrain)
	t.Run("fresh memory", p.testFreshMemory)
}

// start starts a process with these settings in addition to the required ones.
func (p *program) start(t *testing.T, settings ...string) (*exec.Cmd, *testEdge) {
	t.Helper()
	e := &testEdge{addr: freeAddr(t), admin: freeAddr(t), owner: testkit.Connect(t, p.database.URL)}
	command := append(slices.Clone(p.prefix), p.binary)
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Env = append([]string{
		"PATH=" + os.Getenv("PATH"), "DATABASE_URL=" + p.database.EdgeURL, "REDIS_URL=" + p.redis, "LINK_BASE_URL=" + base,
		"EDGE_ADDR=" + e.addr, "EDGE_ADMIN_ADDR=" + e.admin, "EDGE_SLOT=" + e.addr,
	}, settings...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	return cmd, e
}

func send(t *testing.T, cmd *exec.Cmd, signal syscall.Signal) {
	t.Helper()
	if err := cmd.Process.Signal(signal); err != nil {
		t.Fatal(err)
	}
}

// ending waits for a process to end and returns its status.
func ending(t *testing.T, cmd *exec.Cmd) syscall.WaitStatus {
	t.Helper()
	late := time.AfterFunc(bound, func() { _ = cmd.Process.Kill() })
	defer late.Stop()
	var exit *exec.ExitError
	if err := cmd.Wait(); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return cmd.ProcessState.Sys().(syscall.WaitStatus)
}

func (p *program) testExitCodes(t *testing.T) {
	cmd, e := p.start(t, "EDGE_DRAIN=0s")
	until(t, "it is ready", func() bool { return e.readyz(t) == http.StatusOK })
	send(t, cmd, syscall.SIGTERM)
	if end := ending(t, cmd); !end.Exited() || end.ExitStatus() != 0 {
		t.Errorf("stopped: %v, expected exit code 0", cmd.ProcessState)
	}
	for setting, code := range map[string]int{"EDGE_LEASE=1ms": exitSettings, "EDGE_ADDR=203.0.113.1:80": exitFailed} {
		cmd, _ := p.start(t, setting)
		if end := ending(t, cmd); end.ExitStatus() != code {
			t.Errorf("%s: %v, expected exit code %d", setting, cmd.ProcessState, code)
		}
	}
}

// testDrain requires that a draining edge still responds. The drain takes far longer than the test; the second signal kills the edge.
func (p *program) testDrain(t *testing.T) {
	cmd, e := p.start(t, "EDGE_DRAIN="+maxDrain.String())
	until(t, "it is ready", func() bool { return e.readyz(t) == http.StatusOK })
	r := rows{t, e.owner}
	r.link(r.organization("abcd"), "x", map[string]any{"fallback_url": "https://shop.example.com/"})
	keptAlive, err := net.Dial("tcp", e.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer keptAlive.Close()
	if a, err := askHead(keptAlive, "/abcd/x"); err != nil || a.status != 302 || a.last {
		t.Fatalf("before the stop: status %d, last %v, %v", a.status, a.last, err)
	}

	send(t, cmd, syscall.SIGINT)
	until(t, "/readyz fails", func() bool { return e.readyz(t) == http.StatusServiceUnavailable })
	// Load balancers still send requests, and control still waits for this edge.
	if a, err := askHead(keptAlive, "/abcd/x"); err != nil || a.status != 302 || !a.last {
		t.Errorf("while it drains: status %d, last %v, %v; expected 302 and the last", a.status, a.last, err)
	}
	if n := e.registered(t); n != 1 {
		t.Errorf("registered %d times while it drains, expected once", n)
	}
	send(t, cmd, syscall.SIGINT)
	if end := ending(t, cmd); !end.Signaled() || end.Signal() != syscall.SIGINT {
		t.Errorf("second signal: %v, expected that it kills", cmd.ProcessState)
	}
}

// askHead sends HEAD on a connection that stays open.
func askHead(c net.Conn, path string) (answer, error) {
	if err := c.SetDeadline(time.Now().Add(bound)); err != nil {
		return answer{}, err
	}
	if _, err := io.WriteString(c, "HEAD "+path+" HTTP/1.1\r\nHost: go.example.com\r\n\r\n"); err != nil {
		return answer{}, err
	}
	return parseAnswer(bufio.NewReader(c), http.MethodHead)
}
