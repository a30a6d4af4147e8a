package devservers

import (
	"context"
	"fmt"
	"io"
	"os/exec"
	"syscall"
	"time"
)

// Program is a Deeplink program as a child process: in its own process group, killed when this process ends.
type Program struct {
	child *child
}

// StartProgram starts the executable at path with exactly that environment. Its output goes to output, which must be safe for concurrent
// use; if output is not a file, Exited waits for all of it.
func StartProgram(path string, arguments, environment []string, output io.Writer) (*Program, error) {
	cmd := exec.Command(path, arguments...)
	cmd.Env = environment
	cmd.Stdout, cmd.Stderr = output, output
	c, err := spawn(cmd, syscall.SIGKILL)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", path, err)
	}
	return &Program{child: c}, nil
}

// PID is the id of the process. After its end, another process may get the id.
func (p *Program) PID() int { return p.child.process.Pid }

// Exited returns a channel that is closed when the process has ended.
func (p *Program) Exited() <-chan struct{} { return p.child.exited }

// Exit describes how the process ended; "" while it runs.
func (p *Program) Exit() string {
	if p.child.running() {
		return ""
	}
	return p.child.exit
}

// Signal sends a signal. It does nothing if the process has ended.
func (p *Program) Signal(signal syscall.Signal) error { return p.child.signal(signal) }

// Stop sends SIGTERM, and kills the process when ctx ends or limit has passed.
func (p *Program) Stop(ctx context.Context, limit time.Duration) error {
	if err := p.child.signal(syscall.SIGTERM); err != nil {
		return err
	}
	return p.child.wait(ctx, limit)
}

// Kill ends the process with SIGKILL and waits for its end.
func (p *Program) Kill() error {
	if err := p.child.signal(syscall.SIGKILL); err != nil {
		return err
	}
	<-p.child.exited
	return nil
}
