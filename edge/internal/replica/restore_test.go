package replica

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"deeplink/shared/testkit"
)

// A restored volume starts as the same server on the same timeline, and reuses transaction ids that this edge has already seen.
func TestRestoredDatabaseVoidsAllEntries(t *testing.T) {
	testkit.Prove(t)
	t.Parallel()
	server := testkit.NewPostgres(t)
	f := &fixture{ended: make(chan error, 1)}
	f.start(t, server.Database.URL, server.Database.EdgeURL, testkit.NewRedis(t).URL(), nil)
	f.seed(t, sharedDomainID)
	f.untilReady(t)
	backup := filepath.Join(server.Dir, "backup")
	if err := server.Backup(t.Context(), backup, ""); err != nil {
		t.Fatal(err)
	}
	f.exec(t, `update links set path = 'v2'`)
	f.nextLease(t)
	f.mustGet(t, "abcd", "code", "v2")
	f.untilCached(t, "abcd", "code")
	if err := server.StopImmediate(); err != nil {
		t.Fatal(err)
	}
	if err := server.SetBack(backup); err != nil {
		t.Fatal(err)
	}
	if err := server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.nextLease(t)
	f.mustGet(t, "abcd", "code", "v1")
}

// After a crash, ids of transactions that were not flushed to disk are reused; and the data may have been restored to an earlier state
// while the server was down.
func TestEveryStartAndCrashOfPostgresStartsANewHistory(t *testing.T) {
	testkit.Prove(t)
	t.Parallel()
	server := testkit.NewPostgres(t)
	seen := make(map[string]string)
	look := func(after string) {
		t.Helper()
		conn := testkit.Connect(t, server.Database.EdgeURL)
		p := poller{replica: &Replica{}, conn: conn}
		for range 2 {
			now, _, _, err := p.read(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if before, ok := seen[now.History]; ok && before != after {
				t.Errorf("after %s the history is the same as after %s: %s", after, before, now.History)
			}
			seen[now.History] = after
		}
		if len(seen) > 3 {
			t.Errorf("the history changes without a restart: %v", seen)
		}
	}
	look("the start")
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	look("a restart")
	crashBackend(t, server)
	look("the crash of a backend")
}

// crashBackend makes the postmaster, which keeps running, restart all of its children.
func crashBackend(t *testing.T, server *testkit.Postgres) {
	t.Helper()
	connect := func() (*pgx.Conn, error) { return pgx.Connect(t.Context(), server.Database.URL) }
	victim, err := connect()
	if err != nil {
		t.Fatal(err)
	}
	// The postmaster ends this connection when it detects the crash. Until then it accepts new ones, which it also ends.
	witness, err := connect()
	if err != nil {
		t.Fatal(err)
	}
	if err := server.CrashBackend(victim.PgConn().PID()); err != nil {
		t.Fatal(err)
	}
	until(t, "the postmaster notices the crash", func() bool { return witness.Ping(t.Context()) != nil })
	until(t, "the server back after a crash", func() bool {
		conn, err := connect()
		if err == nil {
			conn.Close(t.Context())
		}
		return err == nil
	})
}

// The snapshot in applied must come from the same server as the row of edges.
func TestFirstPollOnANewConnectionReportsNothingAsApplied(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	f.untilReady(t)
	f.exec(t, `create table registered (applied pg_snapshot, backend int);
		create function note() returns trigger language plpgsql security definer set search_path = public as $$
		begin insert into registered values (new.applied, pg_backend_pid()); return null; end $$;
		create trigger note after insert or update on edges for each row execute function note()`)
	f.exec(t, `select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()`)
	now := time.Now()
	var rows, nulls int
	until(t, "two polls on a new connection", func() bool {
		err := f.owner.QueryRow(t.Context(), `select count(*), count(*) filter (where applied is null) from registered
			where backend = (select backend from registered order by ctid desc limit 1)`).Scan(&rows, &nulls)
		if err != nil {
			t.Fatal(err)
		}
		return rows >= 2 && f.lease.Load().start.After(now)
	})
	if nulls != 1 {
		t.Errorf("of %d rows on the new connection %d had nothing applied, expected only the first", rows, nulls)
	}
}
