package devservers

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// RedisOptions configure a Redis server.
type RedisOptions struct {
	Dir  string // holds the log; created if missing
	Port int    // 0: a free port
	// Arguments follow those that every server gets, and the configuration file, if there is one.
	Arguments []string
	// Config is the initial content of the configuration file, which Sentinels rewrite. Every start writes it again.
	Config string
}

// Redis is a private Redis server without persistence: it is empty after every start. Its methods are safe for concurrent use.
type Redis struct {
	binary    string
	log       string
	port      int
	arguments []string
	config    string

	mu    sync.Mutex
	child *child
}

// StartRedis starts a server and returns when it responds.
func StartRedis(ctx context.Context, options RedisOptions) (*Redis, error) {
	binary, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, fmt.Errorf("find Redis: %w", err)
	}
	if err := os.MkdirAll(options.Dir, 0o755); err != nil {
		return nil, fmt.Errorf("create Redis's folder: %w", err)
	}
	r := &Redis{
		binary: binary, log: filepath.Join(options.Dir, "redis.log"), port: options.Port, arguments: options.Arguments, config: options.Config,
	}
	if err := truncate(r.log); err != nil {
		return nil, err
	}
	return r, withPort(&r.port, func() error { return r.Start(ctx) })
}

// URL returns the URL in the form that Redis clients parse.
func (r *Redis) URL() string {
	return "redis://" + r.Addr()
}

// Addr returns host and port. They stay the same across restarts.
func (r *Redis) Addr() string {
	return loopback(r.port)
}

// Exited returns a channel that is closed when the current process has ended.
func (r *Redis) Exited() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.child.exited
}

// Start starts a stopped server, empty, on its former port. It does nothing if the server runs.
func (r *Redis) Start(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.child.running() {
		return nil
	}
	log, err := os.OpenFile(r.log, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("open Redis's log: %w", err)
	}
	defer log.Close()
	arguments, err := r.commandLine()
	if err != nil {
		return err
	}
	cmd := exec.Command(r.binary, arguments...)
	cmd.Stdout, cmd.Stderr = log, log
	c, err := spawn(cmd, syscall.SIGKILL)
	if err != nil {
		return fmt.Errorf("start Redis: %w", err)
	}
	if err := await(ctx, c, func(ctx context.Context) error { return r.answers(ctx, c) }); err != nil {
		_ = c.signal(syscall.SIGKILL)
		<-c.exited
		return fmt.Errorf("start Redis: %w\n%s", err, tail(r.log))
	}
	r.child = c
	return nil
}

func (r *Redis) commandLine() ([]string, error) {
	var arguments []string
	if r.config != "" {
		file := filepath.Join(filepath.Dir(r.log), "redis.conf")
		if err := os.WriteFile(file, []byte(r.config), 0o600); err != nil {
			return nil, fmt.Errorf("write Redis's configuration: %w", err)
		}
		arguments = append(arguments, file)
	}
	arguments = append(arguments, "--port", strconv.Itoa(r.port), "--bind", "127.0.0.1", "--protected-mode", "yes",
		"--save", "", "--appendonly", "no", "--dir", filepath.Dir(r.log), "--daemonize", "no", "--logfile", "")
	return append(arguments, r.arguments...), nil
}

// Tell sends a command of words without spaces and returns the reply: its first line, or the whole text of a bulk string.
func (r *Redis) Tell(ctx context.Context, command string) (string, error) {
	conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", r.Addr())
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		return "", err
	}
	if _, err := conn.Write([]byte(command + "\r\n")); err != nil {
		return "", err
	}
	in := bufio.NewReader(conn)
	line, err := in.ReadString('\n')
	if err != nil {
		return "", err
	}
	line = strings.TrimSpace(line)
	switch {
	case strings.HasPrefix(line, "-"):
		return "", fmt.Errorf("%s: %s", command, line)
	case strings.HasPrefix(line, "$"):
		size, err := strconv.Atoi(line[1:])
		if err != nil || size < 0 {
			return "", fmt.Errorf("%s: %s", command, line)
		}
		text := make([]byte, size)
		_, err = io.ReadFull(in, text)
		return string(text), err
	default:
		return strings.TrimLeft(line, "+:"), nil
	}
}

// Stop ends the server in order; after 30 s or the end of ctx it is killed.
func (r *Redis) Stop(ctx context.Context) error {
	return r.end(ctx, syscall.SIGTERM, stopTimeout)
}

// Kill ends the server at once, as a crash would.
func (r *Redis) Kill() error {
	return r.end(context.Background(), syscall.SIGKILL, killTimeout)
}

// Pause freezes the server: connections stay open, but there is no response.
func (r *Redis) Pause() error {
	return r.signal(syscall.SIGSTOP)
}

// Resume ends a Pause.
func (r *Redis) Resume() error {
	return r.signal(syscall.SIGCONT)
}

func (r *Redis) end(ctx context.Context, signal syscall.Signal, limit time.Duration) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.child.running() {
		return nil
	}
	if err := r.child.signal(signal); err != nil {
		return err
	}
	// A paused process does not handle other signals.
	if err := r.child.signal(syscall.SIGCONT); err != nil {
		return err
	}
	return r.child.wait(ctx, limit)
}

func (r *Redis) signal(signal syscall.Signal) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.child.running() {
		return errNotRunning
	}
	return r.child.signal(signal)
}

// answers sends a PING without a client library, whose pool would log every failed attempt. It checks that c responds, and not another
// server that took the port.
func (r *Redis) answers(ctx context.Context, c *child) error {
	conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", r.Addr())
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(time.Second)); err != nil {
		return err
	}
	if _, err := conn.Write([]byte("INFO server\r\n")); err != nil {
		return err
	}
	process := fmt.Sprintf("process_id:%d", c.process.Pid)
	lines := bufio.NewScanner(conn)
	for lines.Scan() {
		if lines.Text() == process {
			return nil
		}
	}
	return errors.New("another server responds on its port")
}
