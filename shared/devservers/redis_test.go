package devservers

import (
	"bufio"
	"context"
	"errors"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

func startRedis(t *testing.T, options RedisOptions) *Redis {
	t.Helper()
	server, err := StartRedis(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Kill(); err != nil {
			t.Error(err)
		}
	})
	return server
}

// conversation is a connection to Redis in its inline form.
type conversation struct {
	t    *testing.T
	conn net.Conn
	in   *bufio.Reader
}

func converse(t *testing.T, server *Redis) conversation {
	t.Helper()
	conn, err := net.Dial("tcp", server.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conversation{t: t, conn: conn, in: bufio.NewReader(conn)}
}

// ask returns the first line of the reply.
func (c conversation) ask(command string, limit time.Duration) (string, error) {
	if err := c.conn.SetDeadline(time.Now().Add(limit)); err != nil {
		c.t.Fatal(err)
	}
	if _, err := c.conn.Write([]byte(command + "\r\n")); err != nil {
		return "", err
	}
	line, err := c.in.ReadString('\n')
	return strings.TrimSpace(line), err
}

func (c conversation) expect(command, expected string) {
	c.t.Helper()
	if got, err := c.ask(command, patient); err != nil || got != expected {
		c.t.Errorf("%s: got %q, %v, expected %q", command, got, err, expected)
	}
}

func TestRedisRestartsEmptyOnItsPort(t *testing.T) {
	t.Parallel()
	server := startRedis(t, RedisOptions{Dir: t.TempDir() + "/made"})
	if expected := "redis://" + server.Addr(); server.URL() != expected {
		t.Errorf("URL %s, expected %s", server.URL(), expected)
	}
	for name, end := range map[string]func() error{
		"killed":  server.Kill,
		"stopped": func() error { return server.Stop(context.Background()) },
		"killed when paused": func() error {
			return errors.Join(server.Pause(), server.Kill())
		},
		"stopped when paused": func() error {
			return errors.Join(server.Pause(), server.Stop(context.Background()))
		},
	} {
		converse(t, server).expect("SET k v", "+OK")
		address, exited := server.Addr(), server.Exited()
		began := time.Now()
		if err := end(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if took := time.Since(began); took > stopTimeout/2 {
			t.Errorf("%s: took %s", name, took)
		}
		select {
		case <-exited:
		default:
			t.Errorf("%s: Exited is not closed", name)
		}
		if conn, err := net.Dial("tcp", address); err == nil {
			conn.Close()
			t.Errorf("%s: a process still listens on %s", name, address)
		}
		if err := server.Start(t.Context()); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if server.Addr() != address {
			t.Errorf("%s: restarted on %s, not %s", name, server.Addr(), address)
		}
		converse(t, server).expect("GET k", "$-1")
	}
}

func TestPausedRedisKeepsConnectionsAndRespondsAfterResume(t *testing.T) {
	t.Parallel()
	server := startRedis(t, RedisOptions{Dir: t.TempDir()})
	talk := converse(t, server)
	talk.expect("SET k v", "+OK")
	if err := server.Pause(); err != nil {
		t.Fatal(err)
	}
	if answer, err := talk.ask("GET k", 200*time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("reply while paused: %q, %v", answer, err)
	}
	if err := server.Resume(); err != nil {
		t.Fatal(err)
	}
	talk.expect("PING", "$1") // the reply to the GET
}

func TestActionsOnAStoppedRedis(t *testing.T) {
	t.Parallel()
	server := startRedis(t, RedisOptions{Dir: t.TempDir()})
	if err := server.Start(t.Context()); err != nil {
		t.Errorf("start of a running server: %v", err)
	}
	if err := errors.Join(server.Kill(), server.Kill(), server.Stop(t.Context())); err != nil {
		t.Errorf("end of a stopped server: %v", err)
	}
	for name, action := range map[string]func() error{"pause": server.Pause, "resume": server.Resume} {
		if err := action(); !errors.Is(err, errNotRunning) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestRedisKilledByAnotherProcessIsDetected(t *testing.T) {
	t.Parallel()
	server := startRedis(t, RedisOptions{Dir: t.TempDir()})
	if err := syscall.Kill(server.child.process.Pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	select {
	case <-server.Exited():
	case <-time.After(patient):
		t.Fatal("Exited is not closed")
	}
	if err := server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	converse(t, server).expect("PING", "+PONG")
}

func TestRedisOnATakenPortReturnsAnError(t *testing.T) {
	t.Parallel()
	first := startRedis(t, RedisOptions{Dir: t.TempDir()})
	second, err := StartRedis(t.Context(), RedisOptions{Dir: t.TempDir(), Port: first.port})
	if err == nil {
		second.Kill()
		t.Fatal("the first server responds for the second")
	}
	if !strings.Contains(err.Error(), "in use") {
		t.Errorf("the error does not have the log: %v", err)
	}
	converse(t, first).expect("PING", "+PONG")
}
