package slow

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"

	"deeplink/bench/prove/drills/slow/attack"
)

// attackers is the running program of that name. It runs at idle priority (SCHED_IDLE): real attackers have their own machines, so only the
// work that the edge does for them may take CPU from the edge.
type attackers struct {
	command *exec.Cmd
	lines   *json.Decoder
}

// startAttackers builds the program into dir and starts it. The caller stops it.
func startAttackers(ctx context.Context, dir string, a attack.Attack) (*attackers, error) {
	program := filepath.Join(dir, "attackers")
	if out, err := exec.CommandContext(ctx, "go", "build", "-o", program, "deeplink/bench/prove/drills/slow/attackers").CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build attackers: %w\n%s", err, out)
	}
	command := exec.CommandContext(ctx, "chrt", "--idle", "0", program, a.Edge, a.Link, "--slow", strconv.Itoa(a.Slow), "--arrival", a.Arrival.String(),
		"--rate", strconv.FormatFloat(a.Rate, 'f', -1, 64), "--span", a.Span.String())
	command.Stderr = os.Stderr
	out, err := command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := command.Start(); err != nil {
		return nil, fmt.Errorf("start attackers: %w", err)
	}
	return &attackers{command, json.NewDecoder(out)}, nil
}

// read returns the next line.
func read[Line attack.Arrived | attack.Left](from *attackers) (line Line, err error) {
	if err = from.lines.Decode(&line); err != nil {
		err = fmt.Errorf("read the progress of attackers: %w", err)
	}
	return line, err
}

// stop ends the program, if it still runs, and waits for it.
func (a *attackers) stop() error {
	_ = a.command.Process.Signal(syscall.SIGTERM) // an error means that it has already ended
	return a.command.Wait()
}
