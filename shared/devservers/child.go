package devservers

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// child is a running process that dies with this process.
type child struct {
	process *os.Process
	exited  chan struct{} // closed when the process has been reaped
	exit    string        // how it ended; read it only after exited is closed
}

// spawn starts cmd in its own process group, so that the terminal's Ctrl-C does not reach it. The kernel sends it the signal orphaned when
// this process ends, for any reason.
func spawn(cmd *exec.Cmd, orphaned syscall.Signal) (*child, error) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid = true
	cmd.SysProcAttr.Pdeathsig = orphaned
	c := &child{exited: make(chan struct{})}
	started := make(chan error)
	go func() {
		// The signal is sent when the thread that forked ends, so that thread must wait for the child.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		c.process = cmd.Process
		started <- err
		if err != nil {
			return
		}
		// ProcessState has the result, whatever Wait returns.
		_ = cmd.Wait()
		c.exit = cmd.ProcessState.String()
		close(c.exited)
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return c, nil
}

// wait waits for a process that was told to stop, and kills it when ctx ends or limit has passed.
func (c *child) wait(ctx context.Context, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	select {
	case <-c.exited:
		return nil
	case <-ctx.Done():
	}
	if err := c.signal(syscall.SIGKILL); err != nil {
		return err
	}
	<-c.exited
	return nil
}

// signal does nothing if the process has ended.
func (c *child) signal(signal syscall.Signal) error {
	if err := c.process.Signal(signal); !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return nil
}

// running reports whether c is a process that has not ended.
func (c *child) running() bool {
	if c == nil {
		return false
	}
	select {
	case <-c.exited:
		return false
	default:
		return true
	}
}
