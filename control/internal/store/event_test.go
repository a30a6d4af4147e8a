package store_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"

	"deeplink/control/internal/store"
	"deeplink/shared/catalog"
)

func (f fixture) report(orgID string, events ...store.Event) int {
	f.Helper()
	stored, err := f.store.InsertEvents(f.Context(), orgID, store.Batch{DeviceID: "phone", Events: events})
	if err != nil {
		f.Fatal(err)
	}
	return stored
}

// events returns all events, read in pages of that size.
func (f fixture) events(orgID string, size int) (all []store.StoredEvent) {
	f.Helper()
	cursor := store.FirstEvent(time.Now().Add(-time.Hour))
	for {
		page, next, err := f.store.Events(f.Context(), orgID, cursor, time.Now().Add(time.Hour), size)
		if err != nil {
			f.Fatal(err)
		}
		if all = append(all, page...); len(page) < size {
			return all
		}
		cursor = next
	}
}

func TestEventIDIsStoredOncePerOrganization(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	org, other := f.organization(catalog.Scale), f.organization(catalog.Scale)
	// Overlapping batches, in opposite orders.
	var up, down []store.Event
	for i := range 100 {
		up = append(up, store.Event{ID: eventID(i), Name: "up"})
		down = append(down, store.Event{ID: eventID(149 - i), Name: "down"})
	}
	pool := open(t, f.database.ControlURL+"&application_name=burst")
	phones := store.New(pool, linkBase)
	var group errgroup.Group
	stored := make([]int, 32)
	for i := range stored {
		group.Go(func() (err error) {
			stored[i], err = phones.InsertEvents(t.Context(), org.ID, store.Batch{DeviceID: "phone", Events: [][]store.Event{up, down}[i%2]})
			return err
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	total := 0
	for _, n := range stored {
		total += n
	}
	if all := f.events(org.ID, 7); total != 150 || len(all) != 150 || one[int](f, `select count(distinct id) from events`) != 150 {
		t.Errorf("150 ids: %d counted as new, %d stored", total, len(all))
	}
	// A backend reports its statistics when it ends, at the latest.
	pool.Close()
	for deadline := time.Now().Add(20 * time.Second); one[int](f, `select count(*) from pg_stat_activity where application_name = 'burst'`) > 0; {
		if time.Now().After(deadline) {
			t.Fatal("the connections of a closed pool still exist")
		}
		time.Sleep(time.Millisecond)
	}
	if n := one[int64](f, `select deadlocks from pg_stat_database where datname = current_database()`); n != 0 {
		t.Errorf("%d deadlocks: batches that share ids must wait for each other in one order", n)
	}
	if n := f.report(other.ID, up...); n != 100 {
		t.Errorf("%d of 100 ids were new in another organization, expected all", n)
	}
	// Ids are unique across partitions.
	day := one[time.Time](f, `select date_trunc('day', now() - interval '6 days', 'UTC')`).UTC()
	f.exec(fmt.Sprintf(`create table events_%s partition of events for values from ('%s') to ('%s')`,
		day.Format("20060102"), day.Format(time.RFC3339), day.AddDate(0, 0, 1).Format(time.RFC3339)))
	f.exec(`update event_ids set received_at = received_at - interval '6 days'`)
	f.exec(`update events set received_at = $1`, day)
	if n := f.report(org.ID, up...); n != 0 {
		t.Errorf("%d ids were stored again 6 days later", n)
	}
}

func TestEventIsReadBackUnchanged(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	org := f.organization(catalog.Scale)
	if err := f.store.Identify(t.Context(), org.ID, "phone", "ann", nil); err != nil {
		t.Fatal(err)
	}
	at := time.Now().UTC().Add(-48 * time.Hour).Truncate(time.Millisecond)
	f.report(org.ID, store.Event{ID: eventID(1), Name: "purchase", At: &at, LinkID: ptr(eventID(9)), Revenue: ptr("-12.50"), Currency: ptr("EUR"),
		Properties: json.RawMessage(`{"b":1.0,"a":[1e2]}`)}, store.Event{ID: eventID(2), Name: "open"})
	all := f.events(org.ID, 10)
	if len(all) != 2 {
		t.Fatalf("%d events, expected 2", len(all))
	}
	received := all[0].ReceivedAt
	if time.Since(received.Time) > time.Minute {
		t.Errorf("received at %v", received)
	}
	expected := []store.StoredEvent{
		{ID: eventID(1), Name: "purchase", DeviceID: "phone", UserID: ptr("ann"), Timestamp: catalog.Time{Time: at}, LinkID: ptr(eventID(9)),
			Revenue: ptr(json.Number("-12.5")), Currency: ptr("EUR"), Properties: json.RawMessage(`{"b":1.0,"a":[1e2]}`), ReceivedAt: received},
		{ID: eventID(2), Name: "open", DeviceID: "phone", UserID: ptr("ann"), Timestamp: received, ReceivedAt: received},
	}
	if diff := cmp.Diff(toJSON(t, expected), toJSON(t, all)); diff != "" {
		t.Errorf("events (-sent +read):\n%s", diff)
	}
}

func TestEventTimeOutOfRangeIsReplaced(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	org := f.organization(catalog.Scale)
	for i, test := range []struct {
		off, by time.Duration // offset from now as sent, and as stored
		claimed bool
	}{
		{-time.Hour, -time.Hour, false},
		{-29 * 24 * time.Hour, -29 * 24 * time.Hour, false},
		{-31 * 24 * time.Hour, -30 * 24 * time.Hour, true},
		{-50 * 365 * 24 * time.Hour, -30 * 24 * time.Hour, true},
		{4 * time.Minute, 4 * time.Minute, false},
		{10 * time.Minute, 0, true},
		{100 * 365 * 24 * time.Hour, 0, true},
	} {
		sent := time.Now().UTC().Add(test.off).Truncate(time.Millisecond)
		f.report(org.ID, store.Event{ID: eventID(i), Name: "a", At: &sent})
		all := f.events(org.ID, 100)
		e := all[len(all)-1]
		wrong := e.Timestamp.Sub(time.Now().Add(test.by)).Abs() > 30*time.Second || test.claimed == (e.ClaimedTimestamp == nil)
		if wrong || test.claimed && !e.ClaimedTimestamp.Equal(sent) || !test.claimed && !e.Timestamp.Equal(sent) {
			t.Errorf("%v off: %s, expected it %v off, marked: %t", test.off, toJSON(t, e), test.by, test.claimed)
		}
	}
}

func TestEventsAreStoredWithoutAnExistingPartition(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	org := f.organization(catalog.Scale)
	f.exec(`do $$ declare name text; begin
		for name in select inhrelid::regclass from pg_inherits where inhparent = 'events'::regclass loop execute 'drop table ' || name; end loop; end $$`)
	var group errgroup.Group
	for i := range 8 {
		group.Go(func() error {
			n, err := f.store.InsertEvents(t.Context(), org.ID, store.Batch{DeviceID: "phone", Events: []store.Event{{ID: eventID(i), Name: "a"}}})
			if err == nil && n != 1 {
				err = errors.New("a new event counts as a duplicate")
			}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	if n := len(f.events(org.ID, 3)); n != 8 {
		t.Errorf("%d events, expected 8", n)
	}
}

// TestConsecutiveReadsOfEventsHaveNoGap splits the time at moments around an event: exactly one of both reads returns it.
func TestConsecutiveReadsOfEventsHaveNoGap(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	org := f.organization(catalog.Scale)
	f.report(org.ID, store.Event{ID: eventID(1), Name: "a"})
	arrived := one[time.Time](f, `select received_at from events`)
	read := func(from, until time.Time) int {
		page, _, err := f.store.Events(t.Context(), org.ID, store.FirstEvent(from), until, 10)
		if err != nil {
			t.Fatal(err)
		}
		return len(page)
	}
	for _, after := range []time.Duration{-time.Millisecond, -time.Microsecond, -1, 0, 1, 999, time.Microsecond, time.Millisecond} {
		between := arrived.Add(after)
		before, later := read(arrived.Add(-time.Hour), between), read(between, arrived.Add(time.Hour))
		if isBefore := after > 0; before+later != 1 || isBefore != (before == 1) {
			t.Errorf("%v after an event: the read until then returns it %d times, the read from then %d times", after, before, later)
		}
	}
}

func TestSettledIsAMinuteInThePast(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	before := one[time.Time](f, `select clock_timestamp()`)
	settled, err := f.store.Settled(t.Context())
	after := one[time.Time](f, `select clock_timestamp()`)
	if err != nil || settled.Before(before.Add(-time.Minute)) || settled.After(after.Add(-time.Minute)) {
		t.Errorf("settled before %v, %v; expected a minute before %v to %v", settled, err, before, after)
	}
}
