package migrations_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"deeplink/migrations"
	"deeplink/shared/postgres"
	"deeplink/shared/testkit"
)

// TestEachMigrationWaitsOutHeldLocksAndExports runs each migration while one transaction has written to every table and another exports
// links. Until they end the migration may lose its locks, but polls and requests must continue; afterwards it succeeds.
func TestEachMigrationWaitsOutHeldLocksAndExports(t *testing.T) {
	testkit.Prove(t)
	t.Parallel()
	lost := make(map[int64]*atomic.Int64)
	t.Run("versions", func(t *testing.T) {
		for _, step := range history(t) {
			lost[step.version] = new(atomic.Int64)
			t.Run(fmt.Sprint(step.version), func(t *testing.T) {
				t.Parallel()
				address := clone(t, step.before)
				migrateUnderLocks(t, address, step.version, lost[step.version])
				if got := schema(t, testkit.Connect(t, address)); !slices.Equal(got, step.schema) {
					t.Errorf("the schema differs from one that was migrated without locks: %s", difference(step.schema, got))
				}
			})
		}
	})
	// A migration that alters links, one that alters edges, and one that builds indexes concurrently.
	for _, version := range []int64{4, 13, 10} {
		if lost[version].Load() == 0 {
			t.Errorf("migration %d lost no lock: the test holds none that it needs", version)
		}
	}
}

// migrateUnderLocks runs one migration, and releases the locks once it has lost two of them or has ended.
func migrateUnderLocks(t *testing.T, address string, version int64, lost *atomic.Int64) {
	t.Helper()
	conn := testkit.Connect(t, address)
	tables := values[string](t, conn, `select quote_ident(tablename) from pg_tables where schemaname = 'public' and tablename <> 'goose_db_version'`)
	var polls, requests atomic.Int64
	var busy sync.WaitGroup
	background, stop := context.WithCancel(t.Context())
	defer busy.Wait()
	defer stop()
	holder, export := testkit.Connect(t, address), testkit.Connect(t, address)
	defer func() {
		run(t, holder, `rollback`)
		run(t, export, `rollback`)
	}()
	if len(tables) > 0 {
		run(t, holder, `begin; lock table `+strings.Join(tables, ", ")+` in row exclusive mode`)
	}
	if slices.Contains(tables, "links") {
		run(t, export, `begin isolation level repeatable read read only; declare exported cursor for select * from links; fetch 1 from exported`)
		busy.Go(func() {
			repeat(t, background, address, "4s", &requests, `update links set title = 'x' where short_code = 'One'`)
		})
	}
	if slices.Contains(tables, "edges") {
		// An edge cancels a poll after a second, and the default lease is two.
		busy.Go(func() {
			repeat(t, background, address, "1s", &polls, `insert into edges (slot, incarnation, lease_ms, hold_ms) values ('polling', '80000000-0000-4000-8000-000000000001', 2000, 122000)
					on conflict (slot) do update set renewals = edges.renewals + 1, applied = pg_current_snapshot()`,
				`select id, tags from changes where xid >= pg_snapshot_xmin(pg_current_snapshot())`)
		})
	}

	done := make(chan error, 1)
	log := slog.New(countingHandler{slog.DiscardHandler, lost})
	go func() {
		_, err := migrations.Run(t.Context(), address, migrations.Options{Version: version, RetryFor: 3 * time.Minute, Log: log})
		done <- err
	}()
	for lost.Load() < 2 {
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("migration %d: %v", version, err)
			}
			return
		case <-time.After(5 * time.Millisecond):
		}
	}
	// The locks are still held, and the migration is still being retried.
	for name, count := range map[string]*atomic.Int64{"polls": &polls, "requests": &requests} {
		if before := count.Load(); before > 0 {
			for count.Load() < before+10 && !t.Failed() {
				select {
				case err := <-done:
					t.Errorf("migration %d ended under the locks: %v", version, err)
					return
				case <-t.Context().Done():
					t.Fatalf("migration %d: the %s are blocked", version, name)
				case <-time.After(5 * time.Millisecond):
				}
			}
		}
	}
	run(t, holder, `rollback`)
	run(t, export, `rollback`)
	if err := <-done; err != nil {
		t.Errorf("migration %d after the locks were released: %v", version, err)
	}
}

// repeat runs the statements, each of which waits at most timeout for a lock, until ctx ends, and counts the runs.
func repeat(t *testing.T, ctx context.Context, address, timeout string, count *atomic.Int64, statements ...string) {
	conn, err := pgx.Connect(ctx, address+"&lock_timeout="+timeout)
	if err != nil {
		if ctx.Err() == nil {
			t.Error(err)
		}
		return
	}
	defer conn.Close(context.Background())
	for ctx.Err() == nil {
		for _, statement := range statements {
			_, err := conn.Exec(ctx, statement)
			if postgres.Code(err) == postgres.PlanChanged {
				continue
			}
			if err != nil && ctx.Err() == nil {
				t.Errorf("%s: %v", statement, err)
				return
			}
		}
		count.Add(1)
	}
}

// countingHandler counts warnings.
type countingHandler struct {
	slog.Handler
	count *atomic.Int64
}

func (h countingHandler) Enabled(context.Context, slog.Level) bool { return true }

func (h countingHandler) Handle(context.Context, slog.Record) error {
	h.count.Add(1)
	return nil
}

// TestMigrationsOfPolledTablesWaitForATenthOfASecond lists migrations that were classified by hand.
func TestMigrationsOfPolledTablesWaitForATenthOfASecond(t *testing.T) {
	t.Parallel()
	for version := int64(1); version <= 20; version++ {
		expected := postgres.LockTimeout
		if slices.Contains([]int64{4, 5, 6, 13}, version) {
			expected = 100 * time.Millisecond
		}
		if got, err := migrations.LockTimeout(version); err != nil || got != expected {
			t.Errorf("migration %d waits %v, %v; expected %v", version, got, err, expected)
		}
	}
}

func TestMigrationThatGivesUpNamesTheTransactionThatHeldItsLock(t *testing.T) {
	t.Parallel()
	address := empty(t)
	if _, err := migrations.To(t.Context(), address, 12); err != nil {
		t.Fatal(err)
	}
	holder := testkit.Connect(t, address+"&application_name=forgotten")
	run(t, holder, `begin; lock table edges in access share mode; select 'left open'`)
	var log bytes.Buffer
	_, err := migrations.Run(t.Context(), address, migrations.Options{RetryFor: time.Second, Log: slog.New(slog.NewTextHandler(&log, nil))})
	if postgres.Code(err) != postgres.LockNotAvailable {
		t.Fatalf("%v, expected the lost lock", err)
	}
	for _, part := range []string{"version 13", fmt.Sprintf("PID %d ", holder.PgConn().PID()), `"forgotten"`, "idle in transaction", "left open", "pg_terminate_backend"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not contain %q", err, part)
		}
	}
	if !strings.Contains(log.String(), "forgotten") {
		t.Errorf("logged %q, expected the lock's holder", log.String())
	}
	run(t, holder, `rollback`)
	versions, err := migrations.Versions()
	if err != nil {
		t.Fatal(err)
	}
	ran, err := migrations.Up(t.Context(), address)
	if err != nil || !slices.Equal(ran, versions[12:]) {
		t.Errorf("afterwards Up ran %v, %v; expected %v", ran, err, versions[12:])
	}
}

func TestMigrationWaitsForAnotherMigratorAndNamesIt(t *testing.T) {
	t.Parallel()
	address := empty(t)
	other := testkit.Connect(t, address+"&application_name=sibling")
	// The lock of a migrator, as pg_locks shows it.
	run(t, other, fmt.Sprintf(`select pg_advisory_lock(%d)`, migrations.MigratorLock))
	_, err := migrations.Run(t.Context(), address, migrations.Options{RetryFor: time.Millisecond})
	if err == nil || !strings.Contains(err.Error(), `"sibling"`) {
		t.Errorf("%v, expected an error that names the other migrator", err)
	}
	run(t, other, `select pg_advisory_unlock_all()`)
	if _, err := migrations.Up(t.Context(), address); err != nil {
		t.Error(err)
	}
}
