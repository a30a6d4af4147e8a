package store_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"deeplink/control/internal/store"
	"deeplink/shared/catalog"
	"deeplink/shared/postgres"
)

const day = 24 * time.Hour

// purge runs steps until one is done, and returns how many rows each deleted. Each but the first must delete at most most.
func (f fixture) purge(most int64, step func(context.Context) (store.Purged, error)) (steps []int64) {
	f.Helper()
	for {
		purged, err := step(f.Context())
		if err != nil {
			f.Fatal(err)
		}
		if purged.Rows > most {
			f.Errorf("a step deleted %d rows, expected at most %d", purged.Rows, most)
		}
		steps = append(steps, purged.Rows)
		if purged.Done {
			return steps
		}
		if len(steps) > 10_000 {
			f.Fatal("the purge does not end")
		}
	}
}

func sum(steps []int64) (n int64) {
	for _, step := range steps {
		n += step
	}
	return n
}

func TestPurgesByTimeRunInBoundedSteps(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	org := f.organization(catalog.Scale)
	// More than two steps delete, and one row that is not old enough.
	f.exec(`insert into sessions (organization_id, id, device_id, is_first, started_at, active_at)
		select $1, gen_random_uuid(), 'd', true, now() - case when i = 1 then interval '9 days' else interval '11 days' end, now()
		from generate_series(1, 20100) i`, org.ID)
	f.exec(`insert into event_ids (organization_id, id, received_at)
		select $1, gen_random_uuid(), now() - case when i = 1 then interval '30 days 23 hours' else interval '31 days 1 second' end
		from generate_series(1, 20100) i`, org.ID)
	f.exec(`insert into match_redemptions (nonce, link_id, matched_at)
		select decode(lpad(to_hex(i), 16, '0'), 'hex'), gen_random_uuid(), now() - case when i = 1 then interval '24 hours' else interval '25 hours 1 second' end
		from generate_series(1, 20100) i`)
	var sessions, ids, redemptions store.Cursor
	for table, step := range map[string]func(context.Context) (store.Purged, error){
		"sessions":          func(ctx context.Context) (store.Purged, error) { return f.store.PurgeSessions(ctx, &sessions, 10*day) },
		"event_ids":         func(ctx context.Context) (store.Purged, error) { return f.store.PurgeEventIDs(ctx, &ids) },
		"match_redemptions": func(ctx context.Context) (store.Purged, error) { return f.store.PurgeRedemptions(ctx, &redemptions) },
	} {
		if steps := f.purge(store.PurgedRows, step); len(steps) != 3 || sum(steps) != 20099 {
			t.Errorf("%s: steps of %v rows, expected three that delete 20099", table, steps)
		}
		if n := one[int](f, `select count(*) from `+table); n != 1 {
			t.Errorf("%d rows are left in %s, expected the recent one", n, table)
		}
	}
	// A cursor does not return to earlier rows; a new one starts with them.
	f.exec(`insert into event_ids (organization_id, id, received_at) values ($1, gen_random_uuid(), now() - interval '40 days')`, org.ID)
	if purged, err := f.store.PurgeEventIDs(t.Context(), &ids); err != nil || purged.Rows != 0 {
		t.Errorf("the cursor went back: %+v, %v", purged, err)
	}
	if purged, err := f.store.PurgeEventIDs(t.Context(), new(store.Cursor)); err != nil || purged.Rows != 1 {
		t.Errorf("a new cursor: %+v, %v; expected that it finds the older row", purged, err)
	}
}

func TestPurgesByPageRunInBoundedSteps(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	org := f.organization(catalog.Scale)
	point, err := f.store.Point(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	// Four rows fill a page; there are more pages than two steps read.
	const rows = 2*store.SweptPages*4 + 100
	f.exec(`truncate changes, deleted_links`)
	f.exec(`alter table changes alter tags set storage plain`)
	f.exec(`insert into changes (xid, tags) select '1', array[repeat('x', 1800)] from generate_series(1, $1)`, rows)
	f.exec(`insert into changes (tags) values ('{young}')`)
	f.exec(`insert into deleted_links (id, organization_id, xid) select gen_random_uuid(), $1, '1' from generate_series(1, 1000)`, org.ID)
	f.exec(`insert into deleted_links (id, organization_id) values (gen_random_uuid(), $1)`, org.ID)
	var changes, links store.Sweep
	step := func(ctx context.Context) (store.Purged, error) { return f.store.PurgeChanges(ctx, &changes, point) }
	if steps := f.purge(store.SweptPages*4, step); len(steps) != 3 || sum(steps) != rows {
		t.Errorf("steps of %v changes, expected three that delete %d", steps, rows)
	}
	if tags := one[[]string](f, `select array_agg(t) from changes, unnest(tags) t`); len(tags) != 1 || tags[0] != "young" {
		t.Errorf("%q is left, expected the recent change", tags)
	}
	if purged, err := f.store.PurgeDeletedLinks(t.Context(), &links, point); err != nil || purged != (store.Purged{Rows: 1000, Done: true}) {
		t.Errorf("deleted links: %+v, %v; expected 1000 and Done", purged, err)
	}
	if n := one[int](f, `select count(*) from deleted_links`); n != 1 {
		t.Errorf("%d deleted links are left, expected the recent one", n)
	}
	// In another history, transaction ids mean something else.
	f.exec(`insert into changes (xid, tags) values ('1', '{old}')`)
	point.History = "another"
	var again store.Sweep
	step = func(ctx context.Context) (store.Purged, error) { return f.store.PurgeChanges(ctx, &again, point) }
	if steps := f.purge(0, step); sum(steps) != 0 {
		t.Errorf("%v changes of another history were deleted", steps)
	}
}

// TestPurgesSkipDeadRows checks the plans: a purge by page reads a fixed number of pages, whatever they contain, and a purge by time starts
// where it last ended.
func TestPurgesSkipDeadRows(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.exec(`insert into event_ids (organization_id, id, received_at) select gen_random_uuid(), gen_random_uuid(), now() - i * interval '1 minute' from generate_series(1, 100000) i`)
	f.exec(`insert into sessions (organization_id, id, device_id, is_first, started_at, active_at)
		select gen_random_uuid(), gen_random_uuid(), 'd', true, now() - i * interval '1 minute', now() from generate_series(1, 100000) i`)
	f.exec(`insert into match_redemptions (nonce, link_id, matched_at)
		select decode(lpad(to_hex(i), 16, '0'), 'hex'), gen_random_uuid(), now() - i * interval '1 minute' from generate_series(1, 100000) i`)
	f.exec(`insert into changes (tags) select '{a}' from generate_series(1, 100000)`)
	f.exec(`insert into deleted_links (id, organization_id) select gen_random_uuid(), gen_random_uuid() from generate_series(1, 100000)`)
	f.exec(`analyze`)
	for table, statement := range store.PurgeStatements {
		arguments, expected := []any{"1 day", time.Now().Add(-31 * day), 1000}, "Index Cond: (("
		switch table {
		case "changes", "deleted_links":
			arguments, expected = []any{"(0,0)", "(500,0)", "1000", "history"}, "Tid Range Scan on "+table
		case "devices", "identities":
			arguments, expected = []any{"(0,0)", "(500,0)", "1 day"}, "Tid Range Scan on "+table
		}
		var plan strings.Builder
		for _, line := range f.explain(statement, arguments...) {
			fmt.Fprintln(&plan, line)
		}
		if !strings.Contains(plan.String(), expected) || strings.Contains(plan.String(), "Seq Scan on "+table) {
			t.Errorf("%s: expected %q in the plan:\n%s", table, expected, plan.String())
		}
	}
}

// explain returns the plan of a statement of a purge.
func (f fixture) explain(statement string, arguments ...any) (lines []string) {
	f.Helper()
	err := pgx.BeginFunc(f.Context(), f.admin, func(tx pgx.Tx) error {
		if _, err := tx.Exec(f.Context(), store.ByIndex); err != nil {
			return err
		}
		rows, err := tx.Query(f.Context(), "explain "+statement, arguments...)
		if err != nil {
			return err
		}
		lines, err = pgx.CollectRows(rows, pgx.RowTo[string])
		return err
	})
	if err != nil {
		f.Fatalf("explain %s: %v", statement, err)
	}
	return lines
}

func TestPurgeStepThatTimesOutIsSmallerNextTime(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	// Each row takes a millisecond, so that deleting all of them exceeds the statement timeout.
	f.exec(`create function wait() returns trigger language plpgsql as $$ begin perform pg_sleep(0.001); return old; end $$`)
	f.exec(`create trigger wait before delete on event_ids for each row execute function wait()`)
	f.exec(`insert into event_ids (organization_id, id, received_at) select gen_random_uuid(), gen_random_uuid(), now() - interval '40 days' from generate_series(1, 2500)`)
	var cursor store.Cursor
	steps := f.purge(store.PurgedRows/8, func(ctx context.Context) (store.Purged, error) { return f.store.PurgeEventIDs(ctx, &cursor) })
	if steps[0] != 0 || sum(steps) != 2500 {
		t.Errorf("steps of %v rows, expected that the first times out and the others delete all", steps)
	}
}

func TestPurgeContinuesAfterWaitingForAnother(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	org := f.organization(catalog.Scale)
	for table, age := range map[string]string{"sessions": "started_at", "event_ids": "received_at"} {
		f.exec(`insert into sessions (organization_id, id, device_id, is_first, started_at, active_at)
			select $1, gen_random_uuid(), 'd', true, now() - interval '40 days', now() from generate_series(1, 10100) i`, org.ID)
		f.exec(`insert into event_ids (organization_id, id, received_at)
			select $1, gen_random_uuid(), now() - interval '40 days' from generate_series(1, 10100) i`, org.ID)
		other, err := f.admin.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer other.Rollback(t.Context())
		if _, err := other.Exec(t.Context(), fmt.Sprintf(`delete from %s where ctid = any(array(select ctid from %[1]s order by %s limit 10000))`, table, age)); err != nil {
			t.Fatal(err)
		}
		var purge errgroup.Group
		purge.Go(func() error {
			var sessions, ids store.Cursor
			for {
				steps := []func() (store.Purged, error){
					func() (store.Purged, error) { return f.store.PurgeSessions(t.Context(), &sessions, 10*day) },
					func() (store.Purged, error) { return f.store.PurgeEventIDs(t.Context(), &ids) },
				}
				done := true
				for _, step := range steps {
					purged, err := step()
					if err != nil && !postgres.LostLock(err) { // the next round, a minute later, retries
						return err
					}
					done = done && err == nil && purged.Done
				}
				if done {
					return nil
				}
			}
		})
		f.eventually("the purge waits", `select count(*) > 0 from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`)
		if err := other.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := purge.Wait(); err != nil {
			t.Fatal(err)
		}
		if n := one[int](f, `select count(*) from `+table); n != 0 {
			t.Errorf("%d rows are left in %s, expected none", n, table)
		}
	}
}

func TestOldDaysOfEventsAreDroppedOneAtATime(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for _, days := range []string{"01", "02", "03"} {
		f.exec(`create table events_202001` + days + ` partition of events for values from ('2020-01-` + days + ` 00:00:00+00') to ('2020-01-` + days + ` 24:00:00+00')`)
	}
	if steps := f.purge(1, func(ctx context.Context) (store.Purged, error) { return f.store.PurgeEvents(ctx, 10*day) }); fmt.Sprint(steps) != "[1 1 1 0]" {
		t.Errorf("steps of %v days, expected three of one", steps)
	}
	if n := one[int](f, `select count(*) from pg_class where relname like 'events\_2020%'`); n != 0 {
		t.Errorf("%d partitions of 2020 are left", n)
	}
}

func TestDropFailsWhileTheDayIsBeingRead(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.exec(`create table events_20200101 partition of events for values from ('2020-01-01 00:00:00+00') to ('2020-01-02 00:00:00+00')`)
	reader, err := f.admin.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Rollback(t.Context())
	if _, err := reader.Exec(t.Context(), `select from events_20200101`); err != nil {
		t.Fatal(err)
	}
	if purged, err := f.store.PurgeEvents(t.Context(), 10*day); !postgres.LostLock(err) || purged.Rows != 0 {
		t.Errorf("%+v, %v; expected a failed attempt", purged, err)
	}
	if err := reader.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if purged, err := f.store.PurgeEvents(t.Context(), 10*day); err != nil || purged.Rows != 1 {
		t.Errorf("%+v, %v; expected the day to be dropped", purged, err)
	}
}

// TestUnusedDevicesAndTheirUsersAreDeleted has a device or user for each reason to keep it.
func TestUnusedDevicesAndTheirUsersAreDeleted(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	org, other := f.organization(catalog.Scale), f.organization(catalog.Scale)
	f.exec(`insert into devices (organization_id, id, user_id, session_id, session_first, session_started_at, session_active_at, identified_at, created_at)
		select $1, id, user_id, case when active is not null then gen_random_uuid() end, case when active is not null then true end, now() - active, now() - active, now() - identified, now() - created
		from (values
			('unused', null, interval '31 days', null::interval, interval '90 days'),
			('without-session', null, null, null, interval '31 days'),
			('without-user', null, interval '31 days', interval '40 days', interval '90 days'),
			('used', 'busy', interval '29 days', interval '90 days', interval '90 days'),
			('new', null, null, null, interval '29 days'),
			('identified', 'named', interval '90 days', interval '29 days', interval '90 days')) d (id, user_id, active, identified, created)`, org.ID)
	f.exec(`insert into identities (organization_id, user_id, traits, updated_at)
		select organization_id::uuid, user_id, '{}', now() - age from (values
			($1, 'gone', interval '31 days'), ($1, 'recent', interval '29 days'), ($1, 'busy', interval '90 days'), ($1, 'named', interval '90 days'),
			($2, 'busy', interval '90 days')) i (organization_id, user_id, age)`, org.ID, other.ID)
	var devices, identities store.Sweep
	if steps := f.purge(3, func(ctx context.Context) (store.Purged, error) { return f.store.PurgeDevices(ctx, &devices, 30*day) }); sum(steps) != 3 {
		t.Errorf("%v devices were deleted, expected 3", steps)
	}
	if left := one[string](f, `select string_agg(id, ' ' order by id) from devices`); left != "identified new used" {
		t.Errorf("devices left: %s, expected those of the last 30 days", left)
	}
	if steps := f.purge(2, func(ctx context.Context) (store.Purged, error) {
		return f.store.PurgeIdentities(ctx, &identities, 30*day)
	}); sum(steps) != 2 {
		t.Errorf("%v identities were deleted, expected 2", steps)
	}
	if left := one[string](f, `select string_agg(user_id, ' ' order by user_id) from identities where organization_id = $1`, org.ID); left != "busy named recent" {
		t.Errorf("identities left: %s, expected those with a device and those identified in the last 30 days", left)
	}
}

func TestIdentifyingAUserKeepsTheDevice(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	org := f.organization(catalog.Scale)
	for device, call := range map[string]func() error{
		"named":   func() error { return f.store.Identify(t.Context(), org.ID, "named", "user", nil) },
		"cleared": func() error { return f.store.ClearIdentity(t.Context(), org.ID, "cleared") },
	} {
		f.exec(`insert into devices (organization_id, id, created_at) values ($1, $2, now() - interval '90 days')`, org.ID, device)
		if err := call(); err != nil {
			t.Fatal(err)
		}
	}
	if purged, err := f.store.PurgeDevices(t.Context(), new(store.Sweep), 30*day); err != nil || purged.Rows != 0 {
		t.Errorf("%+v, %v; expected that no device is deleted", purged, err)
	}
}

// TestOpenTransactionsOfEveryDatabaseAreListed checks the whole server, on which other tests have transactions too.
func TestOpenTransactionsOfEveryDatabaseAreListed(t *testing.T) {
	t.Parallel()
	f, elsewhere := newFixture(t), newFixture(t)
	conn, err := elsewhere.admin.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	if _, err := conn.Exec(t.Context(), `begin`); err != nil {
		t.Fatal(err)
	}
	defer conn.Exec(context.Background(), `rollback`)
	pid := int(conn.Conn().PgConn().PID())
	find := func(atLeast time.Duration) (found *store.OpenTransaction) {
		t.Helper()
		open, err := f.store.OpenTransactions(t.Context(), atLeast)
		if err != nil {
			t.Fatal(err)
		}
		for i, o := range open {
			if o.PID == pid {
				found = &open[i]
			}
		}
		return found
	}
	got := find(0)
	if got == nil || got.Database != one[string](elsewhere, `select current_database()`) || got.State != "idle in transaction" || got.Age <= 0 || got.Role != "postgres" {
		t.Errorf("%+v, expected the transaction of the other database", got)
	}
	if got := find(time.Hour); got != nil {
		t.Errorf("%+v, expected none older than an hour", got)
	}
	if n, err := f.store.HiddenSessions(t.Context()); err != nil || n != 0 {
		t.Errorf("%d sessions are hidden from the superuser's functions, %v", n, err)
	}
	// An owner that sees only its own sessions.
	f.exec(`do $$ begin create role weak_owner; exception when duplicate_object then null; end $$`)
	f.exec(`alter function hidden_sessions() owner to weak_owner`)
	if n, err := f.store.HiddenSessions(t.Context()); err != nil || n == 0 {
		t.Errorf("%d sessions are hidden from a weak owner, %v; expected some", n, err)
	}
	f.exec(`alter function hidden_sessions() owner to postgres; drop owned by weak_owner`)
}

func TestMissingAuditPartitionIsCreatedByTheWrite(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	org := f.organization(catalog.Scale)
	f.exec(`do $$ declare p text; begin
		for p in select inhrelid::regclass from pg_inherits where inhparent = 'audit_log'::regclass loop execute 'drop table ' || p; end loop; end $$`)
	missing, err := f.store.MissingAuditPartitions(t.Context())
	if err != nil || len(missing) != 7 {
		t.Errorf("%q are missing, %v; expected this month and six more", missing, err)
	}
	if _, err := f.store.SetPlan(t.Context(), store.OperatorActor("me"), org.OrgKey, ptr(catalog.Growth)); err != nil {
		t.Fatal(err)
	}
	if n := one[int](f, `select count(*) from audit_log`); n != 1 {
		t.Errorf("%d entries, expected the one of the plan", n)
	}
	if missing, err := f.store.MissingAuditPartitions(t.Context()); err != nil || len(missing) > 0 {
		t.Errorf("%q are missing, %v; expected none", missing, err)
	}
}
