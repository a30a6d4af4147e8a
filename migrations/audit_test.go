package migrations_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"golang.org/x/sync/errgroup"

	"deeplink/migrations"
	"deeplink/shared/testkit"
)

const (
	auditPartitionsSQL = `select c.relname::text from pg_inherits i join pg_class c on c.oid = i.inhrelid where i.inhparent = 'audit_log'::regclass order by 1`
	// insertEntrySQL is what programs of every version send.
	insertEntrySQL = `insert into audit_log (id, organization_id, actor_type, actor_id, actor_display_key, ip, request_id, action, target_type, target_id, detail)
		values (gen_random_uuid(), '10000000-0000-4000-8000-000000000001', 'key', 'a', 'b', '::1', 'c', 'link.create', 'link', gen_random_uuid(), '{}')`
	// oldEntriesSQL adds entries, in the order of their times, from more than 400 days ago until now.
	oldEntriesSQL = `insert into audit_log (id, organization_id, at, actor_type, action, target_type, target_id, detail)
		select gen_random_uuid(), '10000000-0000-4000-8000-000000000001', now() - i * interval '1 hour', 'user', 'link.create', 'link', gen_random_uuid(), '{}'
		from generate_series(%d, 0, -1) i`
)

// TestAuditTrailBecomesPartitionedUnderWritesWithoutLosingRows upgrades a trail that has rows, while the program of the previous version
// keeps writing to it with prepared statements.
func TestAuditTrailBecomesPartitionedUnderWritesWithoutLosingRows(t *testing.T) {
	t.Parallel()
	address := empty(t)
	if _, err := migrations.To(t.Context(), address, 14); err != nil {
		t.Fatal(err)
	}
	conn := testkit.Connect(t, address)
	run(t, conn, fmt.Sprintf(oldEntriesSQL, 12_000))
	sum := `select count(*)::text || ' ' || sum(hashtextextended(r::text, 0)::numeric) from audit_log r where action = 'link.create' and actor_type = 'user'`
	before := values[string](t, conn, sum)[0]

	var written atomic.Int64
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var writers errgroup.Group
	for range 3 {
		writer := testkit.Connect(t, address)
		run(t, writer, `set role deeplink_control`)
		writers.Go(func() error {
			for ctx.Err() == nil {
				if _, err := writer.Exec(t.Context(), insertEntrySQL); err != nil {
					return err
				}
				written.Add(1)
			}
			return nil
		})
	}
	awaitWritten := func(more int64) {
		t.Helper()
		for n := written.Load(); written.Load() < n+more; time.Sleep(time.Millisecond) {
			if t.Context().Err() != nil {
				t.Fatal("no entry is written")
			}
		}
	}
	awaitWritten(10)
	if _, err := migrations.To(t.Context(), address, 15); err != nil {
		t.Fatal(err)
	}
	awaitWritten(10)
	stop()
	if err := writers.Wait(); err != nil {
		t.Fatalf("a write failed during the migration: %v", err)
	}
	if after := values[string](t, conn, sum)[0]; after != before {
		t.Errorf("the earlier entries are %s, expected %s", after, before)
	}
	if n := values[int64](t, conn, `select count(*) from audit_log where actor_type = 'key'`)[0]; n != written.Load() {
		t.Errorf("%d entries were written meanwhile, and %d exist", written.Load(), n)
	}
	all := values[string](t, conn, auditPartitionsSQL)
	month := func(months int) string {
		return values[string](t, conn, `select to_char(date_trunc('month', now() at time zone 'UTC') + $1 * interval '1 month', 'YYYYMM')`, months)[0]
	}
	expected := []string{"audit_log_" + month(2), "audit_log_" + month(3), "audit_log_" + month(4), "audit_log_" + month(5), "audit_log_" + month(6), "audit_log_before_" + month(2)}
	if !slices.Equal(all, expected) {
		t.Errorf("partitions %q, expected %q", all, expected)
	}
	// Entries of later months go to their own partitions, up to their last millisecond.
	run(t, conn, fmt.Sprintf(`insert into audit_log (id, organization_id, at, actor_type, action, target_type, target_id, detail)
		select gen_random_uuid(), gen_random_uuid(), date_trunc('month', now(), 'UTC') + %s, 'operator', 'later.entry', 'link', gen_random_uuid(), '{}'
		from generate_series(1, 1)`, `interval '3 months' - interval '1 millisecond'`))
	if in := values[string](t, conn, `select tableoid::regclass::text from audit_log where action = 'later.entry'`); !slices.Equal(in, []string{"audit_log_" + month(2)}) {
		t.Errorf("an entry of the end of %s is in %q", month(2), in)
	}
	// Control has no rights on partitions beyond those through the trail.
	control := testkit.Connect(t, address)
	run(t, control, `set role deeplink_control`)
	for _, refused := range []string{`select from %s`, `insert into %s (id) values (gen_random_uuid())`, `delete from %s`} {
		_, err := control.Exec(t.Context(), fmt.Sprintf(refused, "audit_log_before_"+month(2)))
		if failed := new(pgconn.PgError); !errors.As(err, &failed) || failed.Code != insufficientPrivilege {
			t.Errorf(refused+": %v, expected insufficient privilege", "the first partition", err)
		}
	}
}

// TestAuditMigrationContinuesAnInterruptedRun interrupts the migration after each of its steps.
func TestAuditMigrationContinuesAnInterruptedRun(t *testing.T) {
	t.Parallel()
	for name, forget := range map[string]string{
		// A run months ago left this constraint, which the new run replaces.
		"constraint added":   `alter table audit_log add constraint audit_log_before_299901 check (at < '2999-01-01 00:00:00+00') not valid`,
		"constraint checked": `alter table audit_log add constraint audit_log_before_299901 check (at < '2999-01-01 00:00:00+00')`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			address := empty(t)
			if _, err := migrations.To(t.Context(), address, 14); err != nil {
				t.Fatal(err)
			}
			conn := testkit.Connect(t, address)
			run(t, conn, seeds[7]+forget)
			if _, err := migrations.Up(t.Context(), address); err != nil {
				t.Fatal(err)
			}
			if n := values[int64](t, conn, `select count(*) from audit_log`)[0]; n != 1 {
				t.Errorf("%d entries, expected the earlier one", n)
			}
			for _, partition := range values[string](t, conn, auditPartitionsSQL) {
				if strings.Contains(partition, "2999") {
					t.Errorf("%s is left over from the earlier run", partition)
				}
			}
		})
	}
	t.Run("partitioned", func(t *testing.T) {
		t.Parallel()
		address := empty(t)
		if _, err := migrations.To(t.Context(), address, 15); err != nil {
			t.Fatal(err)
		}
		conn := testkit.Connect(t, address)
		before := values[string](t, conn, auditPartitionsSQL)
		run(t, conn, insertEntrySQL+`; delete from goose_db_version where version_id = 15`)
		if _, err := migrations.Up(t.Context(), address); err != nil {
			t.Fatal(err)
		}
		if after := values[string](t, conn, auditPartitionsSQL); !slices.Equal(after, before) {
			t.Errorf("partitions %q, expected %q", after, before)
		}
		if n := values[int64](t, conn, `select count(*) from audit_log`)[0]; n != 1 {
			t.Errorf("%d entries, expected the earlier one", n)
		}
	})
}

func TestConcurrentCallsCreateAuditPartitionsAhead(t *testing.T) {
	t.Parallel()
	database := testkit.NewDatabase(t)
	conn := testkit.Connect(t, database.ControlURL)
	before := values[string](t, conn, auditPartitionsSQL)
	var group errgroup.Group
	for i := range 8 {
		caller := testkit.Connect(t, database.ControlURL+zones[i%2]+"&lock_timeout=0")
		group.Go(func() error {
			_, err := caller.Exec(t.Context(), `select make_audit_partitions(20)`)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	all := values[string](t, conn, auditPartitionsSQL)
	for months := range 21 {
		name := values[string](t, conn, `select to_char(date_trunc('month', now() at time zone 'UTC') + $1 * interval '1 month', '"audit_log_"YYYYMM')`, months)[0]
		if !slices.Contains(all, name) {
			t.Errorf("%s is not among %q", name, all)
		}
	}
	if more := len(all) - len(before); more != 14 && more != 15 { // 15 if the month has changed since
		t.Errorf("%d partitions were made, expected 14: %q", more, all)
	}
	if made := values[int](t, conn, `select make_audit_partitions(19)`)[0]; made != 0 {
		t.Errorf("%d partitions were created again", made)
	}
	for _, refused := range []string{`select make_audit_partitions(-1)`, `select make_audit_partitions(25)`} {
		if _, err := conn.Exec(t.Context(), refused); err == nil {
			t.Errorf("%s succeeded", refused)
		}
	}
}

func TestAuditTrailIsPurgedByMonth(t *testing.T) {
	t.Parallel()
	database := testkit.NewDatabase(t)
	owner := testkit.Connect(t, database.URL)
	// A trail that has had partitions for two years.
	run(t, owner, `
		do $$
		declare
			first text := (select relname from pg_class where relname like 'audit\_log\_before\_%' and relkind = 'r');
			month date;
		begin
			execute format('drop table %I', first);
			create table audit_log_before_202001 partition of audit_log for values from (minvalue) to ('2020-01-01 00:00:00+00');
			for i in 1 .. 24 loop
				month := date_trunc('month', now() at time zone 'UTC') - i * interval '1 month';
				execute format('create table %I partition of audit_log for values from (%L) to (%L)', 'audit_log_' || to_char(month, 'YYYYMM'),
					to_char(month, 'YYYY-MM-DD "00:00:00+00"'), to_char(month + interval '1 month', 'YYYY-MM-DD "00:00:00+00"'));
			end loop;
		end $$;
		`+fmt.Sprintf(oldEntriesSQL, 650*24))
	conn := testkit.Connect(t, database.ControlURL+zones[0])
	kept := values[int64](t, owner, `select count(*) from audit_log where at >= date_trunc('month', now() - interval '400 days', 'UTC')`)[0]
	reader := testkit.Connect(t, database.URL)
	run(t, reader, `begin; lock table audit_log_before_202001 in access share mode`)
	var failed *pgconn.PgError
	if _, err := conn.Exec(t.Context(), `select purge_audit_log()`); !errors.As(err, &failed) || failed.Code != lockNotAvailable {
		t.Errorf("while another session reads: %v, expected the error %s", err, lockNotAvailable)
	}
	run(t, reader, `rollback`)
	calls := int64(0)
	for values[int64](t, conn, `select purge_audit_log()`)[0] > 0 {
		calls++
	}
	all := values[string](t, owner, auditPartitionsSQL)
	oldest := values[string](t, owner, `select to_char(now() at time zone 'UTC' - interval '400 days', '"audit_log_"YYYYMM')`)[0]
	if all[0] != oldest {
		t.Errorf("the oldest partition is %s, expected %s, which has the last entry of 400 days", all[0], oldest)
	}
	if n := values[int64](t, owner, `select count(*) from audit_log`)[0]; n != kept {
		t.Errorf("%d entries are left, expected %d", n, kept)
	}
	if calls < 10 || calls > 13 {
		t.Errorf("%d calls dropped a partition, expected one for each month of the second year that is over 400 days old, and the first partition", calls)
	}
}

// TestFirstAuditPartitionIsPurgedInPortions has a trail from before the partitions.
func TestFirstAuditPartitionIsPurgedInPortions(t *testing.T) {
	t.Parallel()
	address := empty(t)
	if _, err := migrations.To(t.Context(), address, 14); err != nil {
		t.Fatal(err)
	}
	conn := testkit.Connect(t, address)
	// Wide rows, four to a page: more than three portions.
	run(t, conn, `alter table audit_log alter detail set storage plain;
		insert into audit_log (id, organization_id, at, actor_type, action, target_type, target_id, detail)
		select gen_random_uuid(), gen_random_uuid(), now() - interval '401 days' + i * interval '10 seconds', 'user', 'link.create', 'link', gen_random_uuid(),
			jsonb_build_object('a', repeat('x', 1800)) from generate_series(1, 13000) i`)
	if _, err := migrations.Up(t.Context(), address); err != nil {
		t.Fatal(err)
	}
	old := func() int64 {
		return values[int64](t, conn, `select count(*) from audit_log where at < now() - interval '400 days'`)[0]
	}
	first, all := old(), values[int64](t, conn, `select count(*) from audit_log`)[0]
	if first == 0 || first == all {
		t.Fatalf("%d of %d entries are old, expected some", first, all)
	}
	n := values[int64](t, conn, `select deleted from purge_audit_entries('(100,0)', '(300,0)')`)[0]
	if n == 0 || n > 200*4 || old() != first-n {
		t.Errorf("%d of %d entries on two hundred pages were deleted and %d are left, expected some", n, first, old())
	}
	pages := `pg_relation_size((select inhrelid from pg_inherits where inhparent = 'audit_log'::regclass and inhrelid::regclass::text like '%before%')::regclass) / 8192`
	if counted, there := values[int64](t, conn, `select pages from purge_audit_entries('(0,0)', '(0,0)')`)[0], values[int64](t, conn, `select `+pages)[0]; counted != there || there < 3000 {
		t.Errorf("%d pages were counted of %d, expected all of more than 3000", counted, there)
	}
	for calls := 0; old() > 0; calls++ {
		n := values[int64](t, conn, `select purge_audit_log()`)[0]
		if n > 1000*4 || calls > 500 {
			t.Fatalf("call %d deleted %d entries; %d of %d are left", calls, n, old(), first)
		}
	}
	if left := values[int64](t, conn, `select count(*) from audit_log`)[0]; left < all-first-400 || left > all-first {
		t.Errorf("%d entries are left of %d, of which %d were old", left, all, first)
	}
}
