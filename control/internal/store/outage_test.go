package store_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"deeplink/control/internal/store"
	"deeplink/shared/catalog"
	"deeplink/shared/feed"
	"deeplink/shared/testkit"
)

func TestRestartOfPostgresReturnsErrUnavailableAndLosesNothing(t *testing.T) {
	t.Parallel()
	server := testkit.NewPostgres(t)
	f := fixture{T: t, database: &server.Database, store: store.New(open(t, server.Database.ControlURL), linkBase)}
	org := f.organization(catalog.Growth)

	// Writers continue during the crash: a create succeeded, was rejected as unavailable, or has an unknown outcome, which is also reported
	// as unavailable.
	var created, failed atomic.Int64
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var g errgroup.Group
	for range 4 {
		g.Go(func() error {
			for ctx.Err() == nil {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				_, _, err := f.store.CreateLink(ctx, testActor, org.ID, store.Unconditional, catalog.Link{Path: "x"})
				cancel()
				switch {
				case err == nil:
					created.Add(1)
				case errors.Is(err, store.ErrUnavailable):
					failed.Add(1)
				default:
					return err
				}
			}
			return nil
		})
	}
	await(t, "creates before the crash", func() bool { return created.Load() > 20 })
	if err := server.StopImmediate(); err != nil {
		t.Fatal(err)
	}
	await(t, "creates fail while Postgres is down", func() bool { return failed.Load() > 4 })
	calls := map[string]func() error{
		"Link": func() error { _, err := f.store.Link(t.Context(), org.ID, org.ID); return err },
		"Links": func() error {
			_, _, err := f.store.Links(t.Context(), org.ID, store.LinkFilter{Page: 1, Limit: 1})
			return err
		},
		"Deleted":      func() error { _, err := f.store.Deleted(t.Context(), org.ID, org.ID); return err },
		"Authenticate": func() error { _, err := f.store.Authenticate(t.Context(), [32]byte{}); return err },
		"DeleteLink": func() error {
			_, err := f.store.DeleteLink(t.Context(), testActor, org.ID, store.Unconditional, org.ID)
			return err
		},
		"AppConfig": func() error { _, err := f.store.AppConfig(t.Context(), org.ID); return err },
		"PurgeChanges": func() error {
			_, err := f.store.PurgeChanges(t.Context(), new(store.Sweep), feed.Point{})
			return err
		},
	}
	for name, call := range calls {
		expect(t, name+" while Postgres is down", call(), store.ErrUnavailable)
	}
	before := created.Load()
	if err := server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	await(t, "creates after the restart", func() bool { return created.Load() > before+20 })
	stop()
	if err := g.Wait(); err != nil {
		t.Error(err)
	}

	f.admin = open(t, server.Database.URL)
	f.usageIsExact()
	if n := one[int64](f, `select count(*) from links`); n < created.Load() || n > created.Load()+failed.Load() {
		t.Errorf("%d links, but %d creates succeeded and %d have an unknown outcome", n, created.Load(), failed.Load())
	}
}

func await(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !condition(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}

func TestDeadlineReturnsErrUnavailableAndFailedStatementDoesNot(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	org := f.organization(catalog.Growth)
	l := f.create(org, `{"path": "x"}`)
	tx, err := f.admin.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), `select from links for update`); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err = f.store.DeleteLink(ctx, testActor, org.ID, store.Unconditional, l.ID)
	expect(t, "delete of a locked link", err, store.ErrUnavailable)
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := f.store.Link(t.Context(), org.ID, l.ID); err != nil {
		t.Errorf("read after a timeout: %v", err)
	}

	f.exec(`alter table links add constraint links_broken check (path <> 'broken')`)
	_, _, err = f.store.UpdateLink(t.Context(), testActor, org.ID, store.Unconditional, l.ID, readPatch(t, `{"path": "broken"}`))
	if err == nil || errors.Is(err, store.ErrUnavailable) {
		t.Errorf("a statement that fails: got %v, expected an error which is not ErrUnavailable", err)
	}
}

func TestMigrationDoesNotDisturbARunningStore(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	org := f.organization(catalog.Growth)
	l := f.create(org, `{"path": "x"}`)
	reads := func() {
		t.Helper()
		// Repeated, so that every connection of the pool has the statement prepared.
		for range 20 {
			if _, err := f.store.Link(t.Context(), org.ID, l.ID); err != nil {
				t.Fatal(err)
			}
			if _, _, err := f.store.UpdateLink(t.Context(), testActor, org.ID, store.Unconditional, l.ID, readPatch(t, `{"title": "x"}`)); err != nil {
				t.Fatal(err)
			}
		}
	}
	reads()
	f.exec(`alter table links alter column path type varchar(5000)`)
	reads()
}

func TestMigrationDoesNotDisturbARunningWrite(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.store = store.New(openPool(t, f.database.ControlURL, 1), linkBase)
	org := f.organization(catalog.Growth)
	l := f.create(org, `{"path": "x"}`)
	update := func(title string) {
		t.Helper()
		_, _, err := f.store.UpdateLink(t.Context(), testActor, org.ID, store.Unconditional, l.ID, readPatch(t, `{"title": "`+title+`"}`))
		if err != nil {
			t.Fatal(err)
		}
	}
	update("y")
	// Two statements of an update return the column: both are prepared anew within one call.
	f.exec(`alter table links alter column title type varchar(5000)`)
	update("z")
}

func TestPurgeDeletesChangesOlderThanTheSnapshot(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	org := f.organization(catalog.Growth)
	old, kept := f.create(org, `{"path": "x"}`), f.create(org, `{"path": "x"}`)
	f.exec(`insert into match_redemptions (nonce, link_id, matched_at) values
		('\x0000000000000001', gen_random_uuid(), now() - interval '24 hours 59 minutes'),
		('\x0000000000000002', gen_random_uuid(), now() - interval '25 hours 1 minute')`)
	deletion, err := f.store.DeleteLink(t.Context(), testActor, org.ID, store.Unconditional, old.ID)
	if err != nil {
		t.Fatal(err)
	}
	var point feed.Point
	// Transactions in the databases of other tests delay it.
	await(t, "a snapshot after the deletion", func() bool {
		if point, err = f.store.Point(t.Context()); err != nil {
			t.Fatal(err)
		}
		return point.Snapshot.Xmin() > deletion.XID
	})
	if _, err := f.store.DeleteLink(t.Context(), testActor, org.ID, store.Unconditional, kept.ID); err != nil {
		t.Fatal(err)
	}
	before := one[int64](f, `select count(*) from changes`)
	purgeBefore := func(point feed.Point) {
		t.Helper()
		var changes, links store.Sweep
		f.purge(1<<20, func(ctx context.Context) (store.Purged, error) { return f.store.PurgeChanges(ctx, &changes, point) })
		f.purge(1<<20, func(ctx context.Context) (store.Purged, error) { return f.store.PurgeDeletedLinks(ctx, &links, point) })
		if _, err := f.store.PurgeRedemptions(t.Context(), new(store.Cursor)); err != nil {
			t.Fatal(err)
		}
	}
	purgeBefore(feed.Point{History: "of a database before a restore", Snapshot: point.Snapshot})
	if n := one[int64](f, `select count(*) from changes`); n != before {
		t.Errorf("a point of another history deleted %d of %d changes", before-n, before)
	}
	purgeBefore(point)
	if n := one[int64](f, `select count(*) from changes where xid < (select xid from deleted_links where id = $1)`, kept.ID); n != 0 {
		t.Errorf("%d old changes left", n)
	}
	left := [3]int64{one[int64](f, `select count(*) from changes`), one[int64](f, `select count(*) from deleted_links`), one[int64](f, `select count(*) from match_redemptions`)}
	if left != [3]int64{1, 1, 1} {
		t.Errorf("changes, deletions and redemptions left: %v, expected the later one of each", left)
	}
	change, err := f.store.Deleted(t.Context(), org.ID, kept.ID)
	if err != nil || change.XID == 0 {
		t.Errorf("the later deletion: %+v, %v", change, err)
	}
}

func TestCommitWithoutResponseReturnsErrUnavailable(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	org := f.organization(catalog.Growth)
	f.exec(`
		create function slow() returns trigger language plpgsql as $$ begin perform pg_sleep(60); return null; end $$;
		create constraint trigger slow after insert on links deferrable initially deferred for each row execute function slow()`)
	// The caller's timeout alone would not be ErrUnavailable.
	ctx, giveUp := context.WithCancel(t.Context())
	var g errgroup.Group
	g.Go(func() error {
		_, _, err := f.store.CreateLink(ctx, testActor, org.ID, store.Unconditional, catalog.Link{Path: "x"})
		return err
	})
	f.eventually("the commit is in progress", `select count(*) > 0 from pg_stat_activity where datname = current_database() and query = 'commit' and wait_event = 'PgSleep'`)
	giveUp()
	expect(t, "a commit without a response", g.Wait(), store.ErrUnavailable)
}
