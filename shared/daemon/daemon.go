// Package daemon runs private PostgreSQL and Redis servers as child processes, for tests, benchmarks and a developer's
// machine; never for production. A server listens on 127.0.0.1 alone, does not get the terminal's Ctrl-C, and never
// outlives the process that started it, not even when that is killed. Linux only.
package daemon

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
	// startTimeout bounds the way from a new process to its first answer; recovery after a crash is part of it.
	startTimeout = 60 * time.Second
	// startPoll is how often a starting server is asked.
	startPoll = 10 * time.Millisecond
	// killTimeout is how long a server may take for what should be at once, before it is killed.
	killTimeout = 5 * time.Second
	// stopTimeout bounds an orderly stop.
	stopTimeout = 30 * time.Second
	// portAttempts is how often another port is tried when somebody was faster.
	portAttempts = 5
)

// errNotRunning is what every action on a stopped server returns.
var errNotRunning = errors.New("the server is not running")

// Ports below the kernel's ephemeral range: a port that a stopped server comes back to must not be taken by somebody's
// outgoing connection meanwhile.
const (
	lowestPort  = 10000
	highestPort = 32767
)

// handedOut are the ports that freePort has returned, each with what tells other processes.
var handedOut struct {
	sync.Mutex
	claims map[int]net.Listener
}

// FreeAddr returns an address of 127.0.0.1 on whose TCP port nobody listened a moment ago, and which it has returned to no process
// that still runs. Whoever does not ask it may still be faster.
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

// claim keeps a port from the other processes that ask [FreeAddr], also while nobody listens on it: an abstract Unix socket has its name
// for as long as it is open, and this process leaves none behind, however it ends.
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

// withPort calls start with *port, or, when that is 0, with free ports until one is not taken by somebody faster.
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

// await asks until the server answers, its process ends or the time is up.
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
			return fmt.Errorf("it ended at once: %s", c.exit)
		case <-ctx.Done():
			return fmt.Errorf("it does not answer: %w", err)
		case <-poll.C:
		}
	}
}

// truncate makes an empty log file, so that logs do not grow from one use of a folder to the next.
func truncate(path string) error {
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		return fmt.Errorf("make a log: %w", err)
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
