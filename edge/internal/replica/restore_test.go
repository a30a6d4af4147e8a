package replica

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"deeplink/shared/testdb"
	"deeplink/shared/testredis"
)

// A copied volume starts as the same server on the same timeline, with transaction numbers that this edge has seen before.
func TestRestoredDatabaseIsToldFromTheOneBefore(t *testing.T) {
	t.Parallel()
	server := testdb.NewServer(t)
	f := &fixture{ended: make(chan error, 1)}
	f.start(t, server.Database.URL, server.Database.EdgeURL, testredis.New(t).URL(), nil)
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

// After a restart numbers of transactions come again that never reached the disk; what went on may have been set back too.
func TestEveryStartAndCrashOfTheServerBeginsANewHistory(t *testing.T) {
	t.Parallel()
	server := testdb.NewServer(t)
	seen := make(map[string]string)
	look := func(after string) {
		t.Helper()
		conn := testdb.Connect(t, server.Database.EdgeURL)
		p := poller{replica: &Replica{}, conn: conn}
		for range 2 {
			now, _, _, err := p.read(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if before, ok := seen[now.History]; ok && before != after {
				t.Errorf("after %s the history is still that after %s: %s", after, before, now.History)
			}
			seen[now.History] = after
		}
		if len(seen) > 3 {
			t.Errorf("the history changes by itself: %v", seen)
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

// crashBackend makes the postmaster, which goes on, start all of its children anew.
func crashBackend(t *testing.T, server *testdb.Server) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), server.Database.URL)
	if err != nil {
		t.Fatal(err)
	}
	if err := server.CrashBackend(conn.PgConn().PID()); err != nil {
		t.Fatal(err)
	}
	until(t, "the server back after a crash", func() bool {
		// The old connection ends with the crash; a new one is let in when it is over.
		if conn.Ping(t.Context()) == nil {
			return false
		}
		conn, err := pgx.Connect(t.Context(), server.Database.URL)
		if err == nil {
			conn.Close(t.Context())
		}
		return err == nil
	})
}

// What a row of edges calls applied must have been read from the server that the row is in.
func TestNothingIsCalledAppliedOnANewConnectionBeforeItWasRead(t *testing.T) {
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
		return rows >= 2 && f.lease.Load().begun.After(now)
	})
	if nulls != 1 {
		t.Errorf("of %d rows on the new connection %d had nothing applied, expected the first alone", rows, nulls)
	}
}
