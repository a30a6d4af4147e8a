package devservers

import (
	"context"
	"fmt"
	"io"
	"os/exec"
	"syscall"
	"time"
)

// Program is one of our own programs as a child process: in a process group of its own, killed when this process ends.
type Program struct {
	child *child
}

// StartProgram starts the executable at path with exactly the environment given. What it writes goes to output, which must
// be safe for use by another goroutine; when output is no file, Exited waits for all of it.
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

// PID is the number of the process. Once it has ended, another one may have the number.
func (p *Program) PID() int { return p.child.process.Pid }

// Exited is closed when the process has ended.
func (p *Program) Exited() <-chan struct{} { return p.child.exited }

// Exit says how the process ended, "" while it runs.
func (p *Program) Exit() string {
	if p.child.running() {
		return ""
	}
	return p.child.exit
}

// Signal sends a signal; to a process that has ended it does nothing.
func (p *Program) Signal(signal syscall.Signal) error { return p.child.signal(signal) }

// Stop asks the process to end (SIGTERM) and kills it when ctx ends or limit has passed.
func (p *Program) Stop(ctx context.Context, limit time.Duration) error {
	if err := p.child.signal(syscall.SIGTERM); err != nil {
		return err
	}
	return p.child.wait(ctx, limit)
}

// Kill ends the process with SIGKILL and waits until it is gone.
func (p *Program) Kill() error {
	if err := p.child.signal(syscall.SIGKILL); err != nil {
		return err
	}
	<-p.child.exited
	return nil
}
