package devservers

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// evict ends processes that still run on the data: those of a server that was killed a moment ago, or of a server that another process
// started there.
func (c cluster) evict() error {
	for started := time.Now(); ; time.Sleep(startPoll) {
		left, err := c.left()
		if err != nil {
			return err
		}
		if len(left) == 0 {
			return c.unlock()
		}
		signal := syscall.SIGQUIT
		switch waited := time.Since(started); {
		case waited > 2*killTimeout:
			return fmt.Errorf("processes %v did not end", left)
		case waited > killTimeout:
			// The process may be stopped, or unable to handle other signals.
			signal = syscall.SIGKILL
		}
		for _, pid := range left {
			if err := signalIfAlive(pid, signal); err != nil {
				return err
			}
		}
	}
}

// left returns the processes that run PostgreSQL on these data. Their names and their folders distinguish them from an unrelated process
// with the PID of an old postmaster.pid.
func (c cluster) left() ([]int, error) {
	data, err := filepath.EvalSymlinks(c.data())
	if err != nil {
		return nil, err
	}
	processes, err := processes()
	if err != nil {
		return nil, err
	}
	var left []int
	for _, p := range processes {
		if p.name == "postgres" && (p.runsOn(data) || p.runsOn(c.data())) {
			left = append(left, p.pid)
		}
	}
	return left, nil
}

// unlock removes a postmaster.pid whose PID now belongs to an unrelated process: PostgreSQL would take that for a running server.
// PostgreSQL itself recognizes other stale files.
func (c cluster) unlock() error {
	lock := filepath.Join(c.data(), "postmaster.pid")
	text, err := os.ReadFile(lock)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	first, _, _ := bytes.Cut(text, []byte("\n"))
	pid, err := strconv.Atoi(string(first))
	if err != nil || errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
		return nil
	}
	return os.Remove(lock)
}

// signalIfAlive sends a signal to a process that may have ended.
func signalIfAlive(pid int, signal syscall.Signal) error {
	if err := syscall.Kill(pid, signal); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("signal process %d: %w", pid, err)
	}
	return nil
}
