// Package testkit is for tests only. It gives each test its own migrated PostgreSQL database, on one private server per test binary, and
// private servers to tests that stop, freeze or kill PostgreSQL or Redis. Package chrome drives Chromium, and package rawhttp sends
// requests byte for byte.
package testkit

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

	"deeplink/shared/devservers"
)

// Database is one migrated database, with a URL for each of three roles.
type Database struct {
	URL        string // the superuser, which owns everything
	ControlURL string // a login with the rights of deeplink_control
	EdgeURL    string // a login with the rights of deeplink_edge
}

// Postgres is a whole server with one migrated database, for one test.
type Postgres struct {
	*devservers.Postgres
	Database Database
}

// shared is the server of this test binary, started by the first test that needs it.
var shared struct {
	owned   bool // Main runs, and will stop the server
	start   sync.Once
	server  *server
	err     error
	created atomic.Int64 // number of databases so far
}

// Main runs the tests of a package and exits with their code. TestMain must call it in each package that uses NewDatabase.
// The server ends with the test binary, also when a test panics.
func Main(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	shared.owned = true
	defer func() {
		// From here on no test can start the server.
		shared.start.Do(func() {})
		if shared.server != nil {
			shared.server.remove()
		}
	}()
	return m.Run()
}

// NewDatabase creates a database. It is dropped when the test ends, even if connections are open.
func NewDatabase(t testing.TB) *Database {
	t.Helper()
	if !shared.owned {
		t.Fatal("testkit.NewDatabase needs a TestMain that calls testkit.Main")
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

// NewPostgres starts a server for a test that stops, restarts or freezes it. It ends with the test.
func NewPostgres(t testing.TB) *Postgres {
	t.Helper()
	s, err := newServer(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.remove)
	return &Postgres{Postgres: s.postgres, Database: s.database(template)}
}

// server is a running PostgreSQL with the migrated template and the two logins.
type server struct {
	postgres *devservers.Postgres
	folder   string
	password string // of both logins
}

// database returns the URLs of one database of the server.
func (s *server) database(name string) Database {
	return Database{
		URL:        s.address(name, nil),
		ControlURL: s.address(name, url.UserPassword(controlLogin, s.password)),
		EdgeURL:    s.address(name, url.UserPassword(edgeLogin, s.password)),
	}
}

// address returns the URL of a database. If user is nil, it is the superuser's.
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

// mustExec runs a statement that is not allowed in a transaction, such as create database.
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

// remove ends the server and deletes its data. Errors are ignored: the kernel ends the server with the test binary, and the next run
// deletes the rest.
func (s *server) remove() {
	_ = s.postgres.StopImmediate()
	_ = os.RemoveAll(s.folder)
}
