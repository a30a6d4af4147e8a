// Package testdb gives every test a migrated PostgreSQL database of its own, on one private server per test binary, and
// those tests that stop or freeze their server one of their own.
package testdb

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"deeplink/shared/daemon"
)

// Database is one migrated database. The URLs name it as three roles.
type Database struct {
	URL        string // the superuser, who owns everything
	ControlURL string // a login with the rights of deeplink_control
	EdgeURL    string // a login with the rights of deeplink_edge
}

// Server is a whole server with one migrated database, for one test.
type Server struct {
	*daemon.Postgres
	Database Database
}

// shared is the server of this test binary, started by the first test that needs it.
var shared struct {
	owned   bool // Main is there to stop it
	start   sync.Once
	server  *server
	err     error
	created atomic.Int64 // databases so far
}

// Main runs the tests of a package and exits with their code. TestMain has to call it in each package that uses New. The
// server ends with the test binary, also when a test panics.
func Main(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	shared.owned = true
	defer func() {
		// From here on nobody can start a server.
		shared.start.Do(func() {})
		if shared.server != nil {
			shared.server.remove()
		}
	}()
	return m.Run()
}

// New makes a database that is dropped when the test ends, with whatever connections are still open.
func New(t testing.TB) *Database {
	t.Helper()
	if !shared.owned {
		t.Fatal("testdb.New needs a TestMain that calls testdb.Main")
	}
	shared.start.Do(func() { shared.server, shared.err = newServer(context.Background()) })
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	s := shared.server
	name := fmt.Sprintf("test_%d", shared.created.Add(1))
	s.mustExec(t, "create database "+name+" template "+template)
	t.Cleanup(func() { s.mustExec(t, "drop database "+name+" with (force)") })
	database := s.database(name)
	return &database
}

// Connect opens a connection, which is closed when the test ends.
func Connect(t testing.TB, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(context.Background()) })
	return conn
}

// NewServer starts a server for a test that stops, restarts or freezes it. It ends with the test.
func NewServer(t testing.TB) *Server {
	t.Helper()
	s, err := newServer(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.remove)
	return &Server{Postgres: s.postgres, Database: s.database(template)}
}

// server is a running PostgreSQL with the migrated template and the two logins.
type server struct {
	postgres *daemon.Postgres
	folder   string
	password string // of both logins
}

// database returns the addresses of one database of the server.
func (s *server) database(name string) Database {
	return Database{
		URL:        s.address(name, nil),
		ControlURL: s.address(name, url.UserPassword(controlLogin, s.password)),
		EdgeURL:    s.address(name, url.UserPassword(edgeLogin, s.password)),
	}
}

// address returns the URL of a database, of the superuser when user is nil.
func (s *server) address(database string, user *url.Userinfo) string {
	u, err := url.Parse(s.postgres.URL())
	if err != nil {
		panic(err) // it was built from a url.URL
	}
	u.Path = "/" + database
	if user != nil {
		u.User = user
	}
	return u.String()
}

// mustExec runs a statement that no transaction may hold, such as create database.
func (s *server) mustExec(t testing.TB, statement string) {
	t.Helper()
	// Not the test's context: that has ended when the database is dropped.
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := s.exec(ctx, "postgres", statement); err != nil {
		t.Fatal(err)
	}
}

func (s *server) exec(ctx context.Context, database, statement string) error {
	conn, err := pgx.Connect(ctx, s.address(database, nil))
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, statement); err != nil {
		return fmt.Errorf("%s: %w", statement, err)
	}
	return nil
}

// remove ends the server and deletes its data. A failure is not the test's: the kernel ends the server with the binary,
// and the next run deletes what is left.
func (s *server) remove() {
	_ = s.postgres.StopImmediate()
	_ = os.RemoveAll(s.folder)
}
