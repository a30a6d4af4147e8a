package main

import (
	"bytes"
	"context"
	"os/exec"
	"testing"
	"time"
)

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
