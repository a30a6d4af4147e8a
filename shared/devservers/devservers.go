// Package devservers runs private PostgreSQL and Redis servers as child processes, for `make run`, tests and benchmarks; never for
// production. A server listens on 127.0.0.1 only, ignores the terminal's Ctrl-C, and ends with the process that started it, even if that
// process is killed. Linux only.
package devservers

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"sync"
	"time"
)

const (
	// startTimeout bounds the time from the start of a process to its first response, including recovery after a crash.
	startTimeout = 60 * time.Second
	// startPoll is how often a starting server is checked.
	startPoll = 10 * time.Millisecond
	// killTimeout bounds an immediate stop; after it the server is killed.
	killTimeout = 5 * time.Second
	// stopTimeout bounds an orderly stop.
	stopTimeout = 30 * time.Second
	// portAttempts bounds the attempts when another process takes the chosen port first.
	portAttempts = 5
)

// errNotRunning is the error of every action on a stopped server.
var errNotRunning = errors.New("the server is not running")

// Ports below the kernel's ephemeral range, so that no outgoing connection takes the port of a stopped server.
const (
	lowestPort  = 10000
	highestPort = 32767
)

// handedOut holds the ports that freePort has returned, each with the listener that claims it across processes.
var handedOut struct {
	sync.Mutex
	claims map[int]net.Listener
}

// FreeAddr returns an address of 127.0.0.1 with a free TCP port that no running process has got from FreeAddr. A process that does not use
// FreeAddr may still take the port.
func FreeAddr() (string, error) {
	port, err := freePort()
	return loopback(port), err
}

func freePort() (int, error) {
	handedOut.Lock()
	defer handedOut.Unlock()
	if handedOut.claims == nil {
		handedOut.claims = make(map[int]net.Listener)
	}
	for range highestPort - lowestPort {
		port := lowestPort + rand.IntN(highestPort-lowestPort+1)
		if handedOut.claims[port] != nil || !isFree(port) {
			continue
		}
		if taken, err := claim(port); err == nil {
			handedOut.claims[port] = taken
			return port, nil
		}
	}
	return 0, errors.New("no free port on 127.0.0.1")
}

// claim reserves a port against other processes that call [FreeAddr], also while no server listens on it. The reservation is an abstract
// Unix socket, which disappears with this process.
func claim(port int) (net.Listener, error) {
	return net.Listen("unix", fmt.Sprintf("@deeplink-port-%d", port))
}

func isFree(port int) bool {
	ln, err := net.Listen("tcp", loopback(port))
	if err != nil {
		return false
	}
	ln.Close()
	return true
}

// withPort calls start with *port. If *port is 0, it tries free ports until start succeeds on one.
func withPort(port *int, start func() error) error {
	if *port != 0 {
		return start()
	}
	for attempt := 1; ; attempt++ {
		var err error
		if *port, err = freePort(); err != nil {
			return err
		}
		if err = start(); err == nil || attempt == portAttempts || isFree(*port) {
			return err
		}
	}
}

func loopback(port int) string {
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
}

// await waits until the server responds, its process ends or the time is up.
func await(ctx context.Context, c *child, answers func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	poll := time.NewTicker(startPoll)
	defer poll.Stop()
	for {
		err := answers(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-c.exited:
			return fmt.Errorf("it exited at startup: %s", c.exit)
		case <-ctx.Done():
			return fmt.Errorf("it does not respond: %w", err)
		case <-poll.C:
		}
	}
}

// truncate makes an empty log file, so that logs do not grow from one use of a folder to the next.
func truncate(path string) error {
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		return fmt.Errorf("create a log: %w", err)
	}
	return nil
}

// tail returns the end of a log file for an error message.
func tail(path string) string {
	const most = 2000
	text, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return string(text[max(0, len(text)-most):])
}
