package stack

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"deeplink/shared/devservers"
)

// TestFailedOpenReturnsItsCause: the cleanup once panicked and hid the cause.
func TestFailedOpenReturnsItsCause(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if s, err := Open(ctx, Options{Dir: reachable(t)}); !errors.Is(err, context.Canceled) || s != nil {
		t.Errorf("%v, %v, expected nil and context.Canceled", s, err)
	}
}

// TestFailedOpenLeavesNoServer: without the program control, the migration fails while the servers run.
func TestFailedOpenLeavesNoServer(t *testing.T) {
	t.Parallel()
	dir := reachable(t)
	if s, err := Open(t.Context(), Options{Dir: dir, Bin: filepath.Join(dir, "none")}); !errors.Is(err, os.ErrNotExist) || s != nil {
		t.Errorf("%v, %v, expected nil and a missing program", s, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "postgres", "data", "PG_VERSION")); err != nil {
		t.Fatalf("Postgres was not created: %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "postgres", "data", "postmaster.pid")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Postgres still runs: %v", err)
	}
}

func TestPostgresIsElsewhereOnlyOutsideTheFolder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, c := range []struct{ data, expected string }{
		{filepath.Join(dir, "postgres"), ""},
		{"/var/lib/deeplink-0123456789ab", "/var/lib/deeplink-0123456789ab"},
	} {
		s := &Stack{Postgres: &devservers.Postgres{Dir: c.data}, options: Options{Dir: dir}}
		if got := s.PostgresElsewhere(); got != c.expected {
			t.Errorf("data in %s: %q, expected %q", c.data, got, c.expected)
		}
	}
}

// reachable returns a folder that PostgreSQL's user can reach; it cannot reach t.TempDir when the tests run as root.
func reachable(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "deeplink-stack-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}
