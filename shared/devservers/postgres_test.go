package devservers

import (
	"context"
	"errors"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

func startPostgres(t *testing.T, options PostgresOptions) *Postgres {
	t.Helper()
	server, err := StartPostgres(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.StopImmediate(); err != nil {
			t.Error(err)
		}
	})
	return server
}

func open(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(context.Background()) })
	return conn
}

func execute(t *testing.T, server *Postgres, statement string) {
	t.Helper()
	if _, err := open(t, server.URL()).Exec(t.Context(), statement); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

func expect(t *testing.T, server *Postgres, query, expected string) {
	t.Helper()
	var got string
	if err := open(t, server.URL()).QueryRow(t.Context(), query).Scan(&got); err != nil || got != expected {
		t.Errorf("%s: got %q, %v, expected %q", query, got, err, expected)
	}
}

func TestPostgresIsPrivate(t *testing.T) {
	t.Parallel()
	server := startPostgres(t, PostgresOptions{Dir: folder(t)})
	for setting, expected := range map[string]string{
		"listen_addresses": "127.0.0.1", "unix_socket_directories": "", "max_connections": "300",
		"fsync": "off", "synchronous_commit": "on", "server_encoding": "UTF8",
	} {
		expect(t, server, "show "+setting, expected)
	}
	expect(t, server, "select lower('ÄÖ')", "äö")
	expect(t, server, "select current_user || ' ' || current_database()", "postgres postgres")

	wrong, err := url.Parse(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	wrong.User = url.UserPassword("postgres", "wrong")
	_, err = pgx.Connect(t.Context(), wrong.String())
	if refused := new(pgconn.PgError); !errors.As(err, &refused) || refused.Code != "28P01" {
		t.Errorf("with a wrong password: %v", err)
	}
	for _, file := range []string{"password", "postgres.log"} {
		info, err := os.Stat(filepath.Join(server.Dir, file))
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v; expected mode 600", file, info, err)
		}
	}
}

func TestDurablePostgresWritesThrough(t *testing.T) {
	t.Parallel()
	server := startPostgres(t, PostgresOptions{Dir: folder(t), Durable: true})
	expect(t, server, "show fsync", "on")
	expect(t, server, "show full_page_writes", "on")
}

func TestPostgresKeepsPortAndDataHoweverItEnds(t *testing.T) {
	t.Parallel()
	server := startPostgres(t, PostgresOptions{Dir: folder(t)})
	address := server.URL()
	execute(t, server, "create table kept (id int)")
	ends := map[string]func() error{
		"restarted": func() error { return server.Restart(t.Context()) },
		"stopped":   func() error { return server.Stop(t.Context()) },
		"at once":   server.StopImmediate,
		"stopped when paused": func() error {
			return errors.Join(server.Pause(), server.Stop(t.Context()))
		},
		"at once when paused": func() error {
			return errors.Join(server.Pause(), server.StopImmediate())
		},
		"killed": func() error {
			exited := server.Exited()
			err := syscall.Kill(server.child.process.Pid, syscall.SIGKILL)
			<-exited
			return err
		},
	}
	rows := 0
	for name, end := range ends {
		execute(t, server, "insert into kept values (1)")
		rows++
		// A client that stays connected must not delay the stop.
		open(t, server.URL())
		began := time.Now()
		if err := end(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if took := time.Since(began); took > stopTimeout/2 {
			t.Errorf("%s: took %s", name, took)
		}
		if err := server.Start(t.Context()); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if server.URL() != address {
			t.Errorf("%s: restarted as %s, not %s", name, server.URL(), address)
		}
		expect(t, server, "select count(*)::text from kept", strconv.Itoa(rows))
	}
}

func TestFolderIsReused(t *testing.T) {
	t.Parallel()
	// Longer than the maximum path of a socket.
	folder := filepath.Join(folder(t), strings.Repeat("long", 20), strings.Repeat("long", 20))
	first := startPostgres(t, PostgresOptions{Dir: folder})
	execute(t, first, "create table kept (id int)")
	if err := first.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	second := startPostgres(t, PostgresOptions{Dir: folder})
	expect(t, second, "select count(*)::text from kept", "0")
	if second.Dir != folder {
		t.Errorf("data in %s, expected %s", second.Dir, folder)
	}
}

func TestIncompleteDataIsInitializedAgain(t *testing.T) {
	t.Parallel()
	folder := folder(t)
	if err := os.MkdirAll(filepath.Join(folder, "data.new", "base"), 0o755); err != nil {
		t.Fatal(err)
	}
	expect(t, startPostgres(t, PostgresOptions{Dir: folder}), "select 'ok'", "ok")
}

func TestPausedPostgresKeepsConnectionsAndRespondsAfterResume(t *testing.T) {
	t.Parallel()
	server := startPostgres(t, PostgresOptions{Dir: folder(t)})
	conn := open(t, server.URL())
	if err := server.Pause(); err != nil {
		t.Fatal(err)
	}
	answers := make(chan error, 2)
	go func() {
		_, err := conn.Exec(t.Context(), "select 1")
		answers <- err
	}()
	go func() { answers <- server.answers(t.Context()) }()
	select {
	case err := <-answers:
		t.Errorf("response while paused: %v", err)
	case <-time.After(300 * time.Millisecond):
	}
	if err := server.Resume(); err != nil {
		t.Fatal(err)
	}
	for range cap(answers) {
		select {
		case err := <-answers:
			if err != nil {
				t.Errorf("after the pause: %v", err)
			}
		case <-time.After(patient):
			t.Fatal("no response after the pause")
		}
	}
}

func TestActionsOnAStoppedPostgres(t *testing.T) {
	t.Parallel()
	server := startPostgres(t, PostgresOptions{Dir: folder(t)})
	if err := server.Start(t.Context()); err != nil {
		t.Errorf("start of a running server: %v", err)
	}
	if err := errors.Join(server.StopImmediate(), server.StopImmediate(), server.Stop(t.Context())); err != nil {
		t.Errorf("end of a stopped server: %v", err)
	}
	for name, action := range map[string]func() error{"pause": server.Pause, "resume": server.Resume} {
		if err := action(); !errors.Is(err, errNotRunning) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestOrphanedPostmasterIsEnded(t *testing.T) {
	t.Parallel()
	for name, frozen := range map[string]bool{"running": false, "frozen": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			folder := folder(t)
			server := startPostgres(t, PostgresOptions{Dir: folder})
			execute(t, server, "create table kept (id int)")
			if err := server.Stop(t.Context()); err != nil {
				t.Fatal(err)
			}
			// As if another process had started it.
			left := server.cluster.command("postgres", server.arguments()...)
			if err := left.Start(); err != nil {
				t.Fatal(err)
			}
			ended := make(chan error, 1)
			go func() { ended <- left.Wait() }()
			defer left.Process.Kill()
			within(t, func() bool { return server.answers(t.Context()) == nil }, "it answers")
			if frozen {
				children, err := childrenOf(left.Process.Pid)
				for _, pid := range append(children, left.Process.Pid) {
					err = errors.Join(err, signalIfAlive(pid, syscall.SIGSTOP))
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			next := startPostgres(t, PostgresOptions{Dir: folder})
			select {
			case <-ended:
			case <-time.After(patient):
				t.Fatal("the orphaned server still runs")
			}
			expect(t, next, "select count(*)::text from kept", "0")
		})
	}
}

func TestForeignProcessWithTheOldPIDIsLeftAlone(t *testing.T) {
	t.Parallel()
	folder := folder(t)
	server := startPostgres(t, PostgresOptions{Dir: folder})
	lock := filepath.Join(server.cluster.data(), "postmaster.pid")
	old, err := os.ReadFile(lock)
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	stranger := exec.Command("sleep", "600")
	stranger.SysProcAttr = &syscall.SysProcAttr{Credential: server.cluster.owner}
	if err := stranger.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := stranger.Process.Signal(syscall.Signal(0)); err != nil {
			t.Errorf("the unrelated process was ended: %v", err)
		}
		stranger.Process.Kill()
		stranger.Wait()
	}()
	_, rest, _ := strings.Cut(string(old), "\n")
	if err := os.WriteFile(lock, []byte(strconv.Itoa(stranger.Process.Pid)+"\n"+rest), 0o644); err != nil {
		t.Fatal(err)
	}
	expect(t, startPostgres(t, PostgresOptions{Dir: folder}), "select 'ok'", "ok")
}

func TestFolderThatPostgresCannotReachIsReplaced(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root must run PostgreSQL as another user")
	}
	closed := folder(t)
	if err := os.Chmod(closed, 0o700); err != nil {
		t.Fatal(err)
	}
	asked := filepath.Join(closed, "postgres")
	first := startPostgres(t, PostgresOptions{Dir: asked})
	t.Cleanup(func() { os.RemoveAll(first.Dir) })
	if !strings.HasPrefix(first.Dir, "/var/lib/deeplink-") {
		t.Fatalf("data in %s", first.Dir)
	}
	execute(t, first, "create table kept (id int)")
	if err := first.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	second := startPostgres(t, PostgresOptions{Dir: asked})
	if second.Dir != first.Dir {
		t.Errorf("data in %s, then in %s", first.Dir, second.Dir)
	}
	expect(t, second, "select count(*)::text from kept", "0")
}

func TestFailedStartLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	folder := folder(t)
	server := startPostgres(t, PostgresOptions{Dir: folder})
	if err := server.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(server.cluster.data(), "postgresql.conf"), []byte("nonsense = 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := StartPostgres(t.Context(), PostgresOptions{Dir: folder}); err == nil || !strings.Contains(err.Error(), "nonsense") {
		t.Errorf("with a broken configuration: %v, expected its log", err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := StartPostgres(gone, PostgresOptions{Dir: folder + "/other"}); !errors.Is(err, context.Canceled) {
		t.Errorf("after the caller canceled: %v", err)
	}
	if left, err := server.cluster.left(); err != nil || len(left) != 0 {
		t.Errorf("remaining processes: %v, %v", left, err)
	}
}
