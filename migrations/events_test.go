package migrations_test

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"golang.org/x/sync/errgroup"

	"deeplink/migrations"
	"deeplink/shared/testkit"
)

const partitionsSQL = `
	select c.relname::text from pg_inherits i join pg_class c on c.oid = i.inhrelid where i.inhparent = 'events'::regclass order by 1`

// zones are the time zones of callers. At any time, the date differs from UTC in one of them.
var zones = []string{"&timezone=Pacific%2FKiritimati", "&timezone=Etc%2FGMT%2B12"}

func TestConcurrentCallsCreateEventPartitionsAhead(t *testing.T) {
	t.Parallel()
	database := testkit.NewDatabase(t)
	conn := testkit.Connect(t, database.ControlURL)
	before := values[string](t, conn, partitionsSQL)
	if len(before) < 7 || len(before) > 8 { // seven if the day has changed since
		t.Fatalf("the migration made %q, expected today and seven days ahead", before)
	}
	today := values[time.Time](t, conn, `select date_trunc('day', now(), 'UTC')`)[0].UTC()
	var group errgroup.Group
	for i := range 8 {
		caller := testkit.Connect(t, database.ControlURL+zones[i%2])
		group.Go(func() error {
			_, err := caller.Exec(t.Context(), `select make_event_partitions(20)`)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	day := func(days int) string { return "events_" + today.AddDate(0, 0, days).Format("20060102") }
	all := values[string](t, conn, partitionsSQL)
	for days := range 21 {
		if !slices.Contains(all, day(days)) {
			t.Errorf("%s is not among %q", day(days), all)
		}
	}
	later := values[string](t, conn, `select to_char(now() at time zone 'UTC' + interval '20 days', '"events_"YYYYMMDD')`)[0]
	if all[0] < before[0] || all[len(all)-1] > later {
		t.Errorf("%q, expected only today and 20 days ahead", all)
	}
	// A partition holds days in UTC, whatever the time zone of the session that created it, up to the last millisecond.
	run(t, conn, `insert into events (organization_id, id, device_id, name, occurred_at, received_at)
		select gen_random_uuid(), gen_random_uuid(), 'd', 'n', now(), at from unnest(array['`+
		today.AddDate(0, 0, 15).Format(time.RFC3339)+`', '`+today.AddDate(0, 0, 16).Add(-time.Millisecond).Format(time.RFC3339Nano)+`']::timestamptz[]) at`)
	for _, table := range values[string](t, conn, `select tableoid::regclass::text from events`) {
		if table != day(15) {
			t.Errorf("an event of the day of %s is in %s", day(15), table)
		}
	}
	if made := values[int](t, conn, `select make_event_partitions(5)`)[0]; made != 0 {
		t.Errorf("%d partitions were created again", made)
	}
}

func TestOldEventPartitionsAreDropped(t *testing.T) {
	t.Parallel()
	database := testkit.NewDatabase(t)
	run(t, testkit.Connect(t, database.URL), `
		create table events_20200101 partition of events for values from ('2020-01-01 00:00:00+00') to ('2020-01-02 00:00:00+00');
		create table events_20200102 partition of events for values from ('2020-01-02 00:00:00+00') to ('2020-01-03 00:00:00+00')`)
	conn := testkit.Connect(t, database.ControlURL+zones[0])
	drop := func(retention string) int {
		return values[int](t, conn, `select drop_event_partitions($1)`, retention)[0]
	}
	// now() - kept is in the middle of January 2, 2020.
	age := values[string](t, conn, `select (extract(epoch from now() - '2020-01-02 12:00:00+00')::bigint || ' seconds')`)[0]
	if n := drop("30000 days"); n != 0 {
		t.Errorf("%d partitions were dropped before the end of their retention", n)
	}
	if n := drop(age); n != 1 {
		t.Errorf("%d partitions were dropped, expected only the one whose last event exceeds the retention", n)
	}
	if all := values[string](t, conn, partitionsSQL); slices.Contains(all, "events_20200101") || !slices.Contains(all, "events_20200102") {
		t.Errorf("left: %q", all)
	}
	if n := drop("1 day"); n != 1 {
		t.Errorf("%d partitions were dropped, expected the other old one, and not today's", n)
	}
	for _, refused := range []string{`select drop_event_partitions('1 hour')`, `select make_event_partitions(61)`, `select make_event_partitions(-1)`} {
		if _, err := conn.Exec(t.Context(), refused); err == nil {
			t.Errorf("%s succeeded", refused)
		}
	}
}

// TestDropOfPartitionGivesUpWhileItIsRead: a reader, such as an export, makes the drop wait, and the waiting drop blocks every insert.
func TestDropOfPartitionGivesUpWhileItIsRead(t *testing.T) {
	t.Parallel()
	database := testkit.NewDatabase(t)
	reader := testkit.Connect(t, database.URL)
	run(t, reader, `create table events_20200101 partition of events for values from ('2020-01-01 00:00:00+00') to ('2020-01-02 00:00:00+00')`)
	run(t, reader, `begin; lock table events_20200101 in access share mode`)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	_, err := testkit.Connect(t, database.ControlURL).Exec(ctx, `select drop_event_partitions('1 day')`)
	var failed *pgconn.PgError
	if !errors.As(err, &failed) || failed.Code != lockNotAvailable {
		t.Errorf("%v, expected a lock timeout (%s)", err, lockNotAvailable)
	}
}

const lockNotAvailable = "55P03"

// TestLastMigrationCanBeRolledBack is for development: migrations only go forward in production.
func TestLastMigrationCanBeRolledBack(t *testing.T) {
	t.Parallel()
	address := empty(t)
	if _, err := migrations.To(t.Context(), address, 8); err != nil {
		t.Fatal(err)
	}
	conn := testkit.Connect(t, address)
	before := schema(t, conn)
	db, err := sql.Open("pgx", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	provider, err := goose.NewProvider(goose.DialectPostgres, db, os.DirFS("."))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := provider.UpTo(t.Context(), 9); err != nil {
			t.Fatal(err)
		}
		run(t, conn, seeds[2]+seeds[9]+`delete from identities; delete from devices; delete from api_keys; delete from domains; delete from app_configs; delete from organizations`)
		if _, err := provider.DownTo(t.Context(), 8); err != nil {
			t.Fatal(err)
		}
		if got := schema(t, conn); !slices.Equal(got, before) {
			t.Errorf("schema after up and down differs from before:\n%q\n%q", got, before)
		}
	}
}
