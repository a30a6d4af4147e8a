package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"deeplink/shared/daemon"
)

// build makes the program as an operator has it, without the race detector, and returns its path.
func build(t testing.TB) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "control")
	if output, err := exec.Command("go", "build", "-o", path, ".").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, output)
	}
	return path
}

// environment is that of a process with these settings and nothing else of ours.
func environment(settings ...string) []string {
	return append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME")}, settings...)
}

// settings are the environment variables that every command takes.
func (w *world) settings() []string {
	return environment("DATABASE_URL="+w.db.ControlURL, "REDIS_URL="+w.redis.URL(), "LINK_BASE_URL="+testLinkBase)
}

// launch starts the program and waits until it is ready. It ends with the test.
func (w *world) launch(path string, settings ...string) (*process, *daemon.Program) {
	w.t.Helper()
	api, admin := freeAddress(w.t), freeAddress(w.t)
	p := &process{t: w.t, base: "http://" + api, admin: "http://" + admin, log: new(lockedBuffer)}
	settings = append(append(w.settings(),
		"CONTROL_ADDR="+api, "CONTROL_ADMIN_ADDR="+admin, "CONTROL_DRAIN=0s", "CONTROL_CANARY=0s"), settings...)
	program, err := daemon.StartProgram(path, nil, settings, p.log)
	if err != nil {
		w.t.Fatal(err)
	}
	p.stop = sync.OnceValue(func() int {
		if err := program.Stop(context.Background(), 20*time.Second); err != nil {
			w.t.Error(err)
		}
		return 0
	})
	w.t.Cleanup(func() {
		p.stop()
		p.explain()
	})
	p.awaitReady()
	return p, program
}

// outcome is how a command ended.
type outcome struct {
	code           int
	stdout, stderr string
}

// runProgram runs the program to its end.
func runProgram(t testing.TB, path string, environment []string, arguments ...string) outcome {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, arguments...)
	var stdout, stderr bytes.Buffer
	cmd.Env, cmd.Stdout, cmd.Stderr = environment, &stdout, &stderr
	err := cmd.Run()
	if cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return outcome{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}
