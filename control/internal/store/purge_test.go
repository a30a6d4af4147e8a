package store_test

import (
	"fmt"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"deeplink/shared/catalog"
)

func TestWhatIsOldIsPurged(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	org := f.organization(catalog.Scale)
	f.exec(`create table events_20200101 partition of events for values from ('2020-01-01 00:00:00+00') to ('2020-01-02 00:00:00+00')`)
	// More than go at once, of both.
	f.exec(`insert into sessions (organization_id, id, device_id, is_first, started_at, active_at)
		select $1, gen_random_uuid(), 'd', true, now() - case when i = 1 then interval '9 days' else interval '11 days' end, now()
		from generate_series(1, 10100) i`, org.ID)
	f.exec(`insert into event_ids (organization_id, id, received_at)
		select $1, gen_random_uuid(), now() - case when i = 1 then interval '6 days 23 hours' else interval '7 days 1 second' end
		from generate_series(1, 10100) i`, org.ID)
	if err := f.store.PurgeEvents(t.Context(), 10*24*time.Hour); err != nil {
		t.Fatal(err)
	}
	if n := one[int](f, `select count(*) from sessions`); n != 1 {
		t.Errorf("%d sessions are left, expected the one of 9 days", n)
	}
	if n := one[int](f, `select count(*) from event_ids`); n != 1 {
		t.Errorf("%d ids are left, expected the one of less than 7 days", n)
	}
	if there := one[bool](f, `select to_regclass('events_20200101') is not null`); there {
		t.Error("the partition of 2020 is left")
	}
}

func TestAPurgeThatWaitedForAnotherGoesOn(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	org := f.organization(catalog.Scale)
	for table, age := range map[string]string{"sessions": "started_at", "event_ids": "received_at"} {
		f.exec(`insert into sessions (organization_id, id, device_id, is_first, started_at, active_at)
			select $1, gen_random_uuid(), 'd', true, now() - interval '11 days', now() from generate_series(1, 10100) i`, org.ID)
		f.exec(`insert into event_ids (organization_id, id, received_at)
			select $1, gen_random_uuid(), now() - interval '11 days' from generate_series(1, 10100) i`, org.ID)
		other, err := f.admin.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer other.Rollback(t.Context())
		if _, err := other.Exec(t.Context(), fmt.Sprintf(`delete from %s where ctid = any(array(select ctid from %[1]s order by %s limit 10000))`, table, age)); err != nil {
			t.Fatal(err)
		}
		var purge errgroup.Group
		purge.Go(func() error { return f.store.PurgeEvents(t.Context(), 10*24*time.Hour) })
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
