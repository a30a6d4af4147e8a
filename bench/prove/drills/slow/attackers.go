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

// attackers is a running program of that name. It runs at idle priority (SCHED_IDLE): real attackers use
// machines of his own, and takes from the edge's only what the edge does for him.
type attackers struct {
	command *exec.Cmd
	lines   *json.Decoder
}

// startAttackers builds them into dir and starts them. The caller stops them.
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
		err = fmt.Errorf("attackers did not say how far they are: %w", err)
	}
	return line, err
}

// stop has them leave, if they have not, and waits for it.
func (a *attackers) stop() error {
	_ = a.command.Process.Signal(syscall.SIGTERM) // an error means that it has ended
	return a.command.Wait()
}
