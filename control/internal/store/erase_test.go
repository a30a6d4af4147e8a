package store_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"deeplink/control/internal/store"
	"deeplink/shared/catalog"
)

// Ids that occur nowhere else, and values that an app sends with them.
const (
	erasedDevice = "phone-4711"
	erasedUser   = "anna@example.com"
	erasedTrait  = "Anna Erasmus"
)

// people fills two organizations with the same devices and users: anna has two devices, and used bob's device before him.
func (f fixture) people(orgs ...catalog.Organization) {
	f.Helper()
	for _, org := range orgs {
		identify := func(device, user string) {
			if err := f.store.Identify(f.Context(), org.ID, device, user, json.RawMessage(`{"name": "`+erasedTrait+`"}`)); err != nil {
				f.Fatal(err)
			}
		}
		report := func(device string, session *string, n int) {
			var events []store.Event
			for range n {
				events = append(events, store.Event{ID: one[string](f, `select gen_random_uuid()::text`), Name: "bought", Revenue: ptr("1.5"), Currency: ptr("EUR"),
					LinkID: ptr(eventID(1)), Properties: json.RawMessage(`{"to": "` + erasedTrait + `"}`)})
			}
			if _, err := f.store.InsertEvents(f.Context(), org.ID, store.Batch{DeviceID: device, SessionID: session, Events: events}); err != nil {
				f.Fatal(err)
			}
		}
		for _, device := range []string{erasedDevice, "tablet", "bobs"} {
			session := f.session(org.ID, store.Device{ID: device, Model: ptr("X")}).ID
			report(device, &session, 2) // before the app identifies its user
			identify(device, erasedUser)
			report(device, &session, 3)
		}
		identify("bobs", "bob")
		report("bobs", nil, 4)
		report("unknown", nil, 1)
	}
}

// mentions returns the tables with the text in any row, except rows of one organization.
func (f fixture) mentions(text string, but catalog.Organization) (tables []string) {
	f.Helper()
	for _, table := range []string{"devices", "identities", "sessions", "events", "event_ids", "audit_log", "organizations"} {
		key := "organization_id"
		if table == "organizations" {
			key = "id"
		}
		if n := one[int](f, `select count(*) from `+table+` t where `+key+` <> $2 and t::text like '%' || $1 || '%'`, text, but.ID); n > 0 {
			tables = append(tables, fmt.Sprintf("%s %d", table, n))
		}
	}
	return tables
}

func TestDeleteUserErasesTheUserEverywhere(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	org, other := f.organization(catalog.Scale), f.organization(catalog.Scale)
	f.people(org, other)
	sums := `select count(*)::text || ' ' || sum(revenue) || ' ' || count(distinct id) || ' ' || count(distinct link_id) || ' ' || count(claimed_at) from events`
	before := one[string](f, sums)
	theirs := `select (select count(*) from devices where organization_id = $1)::text || (select count(*) from identities where organization_id = $1)
		|| (select count(*) from sessions where organization_id = $1) || (select count(*) from events where organization_id = $1 and device_id <> '')`
	untouched := one[string](f, theirs, other.ID)

	got, err := f.store.DeleteUser(t.Context(), store.OperatorActor("root"), org.ID, erasedUser)
	if err != nil {
		t.Fatal(err)
	}
	entry := got.AuditID
	got.AuditID = nil
	// Her two devices with five events each, and three events on the device that is bob's now.
	if diff := cmp.Diff(store.Erased{Devices: 2, Identities: 1, Sessions: 2, Events: 2*5 + 3}, got); diff != "" || entry == nil {
		t.Errorf("erased rows (-expected +got):\n%s\nentry %v", diff, entry)
	}
	for _, text := range []string{erasedUser, erasedDevice, "tablet"} {
		if tables := f.mentions(text, other); len(tables) > 0 {
			t.Errorf("%s is still in %q", text, tables)
		}
	}
	// bob has an identity, four events, and two events without a user on his device.
	if n := one[int](f, `select count(*) from events where organization_id = $1 and properties is not null`, org.ID); n != 4+2+1 {
		t.Errorf("%d events have properties, expected those of others", n)
	}
	if after := one[string](f, sums); after != before {
		t.Errorf("sums were %s and are %s", before, after)
	}
	if after := one[string](f, theirs, other.ID); after != untouched {
		t.Errorf("the other organization had %s and has %s", untouched, after)
	}
	trail := one[string](f, `select string_agg(concat_ws(' ', id, actor_id, action, target_type, target_id, detail), '; ') from audit_log where organization_id = $1`, org.ID)
	if expected := fmt.Sprintf(`%s root device.delete organization %s {"by": "user"}`, *entry, org.ID); trail != expected {
		t.Errorf("the trail has %q, expected %q", trail, expected)
	}
	again, err := f.store.DeleteUser(t.Context(), store.OperatorActor("root"), org.ID, erasedUser)
	if err != nil || again != (store.Erased{}) {
		t.Errorf("second deletion: %+v, %v; expected nothing to erase", again, err)
	}
}

func TestDeleteDeviceErasesItsUserWithoutOtherDevices(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	org, other := f.organization(catalog.Scale), f.organization(catalog.Scale)
	f.people(org, other)
	for _, test := range []struct {
		device   string
		expected store.Erased
		users    string
	}{
		{erasedDevice, store.Erased{Devices: 1, Sessions: 1, Events: 5}, erasedUser + " bob"}, // anna still has her tablet
		{"tablet", store.Erased{Devices: 1, Identities: 1, Sessions: 1, Events: 5}, "bob"},
		{"unknown", store.Erased{Events: 1}, "bob"}, // it only sent events
		{"never-seen", store.Erased{}, "bob"},
	} {
		got, err := f.store.DeleteDevice(t.Context(), store.OperatorActor("root"), org.ID, test.device)
		recorded := got.AuditID != nil
		got.AuditID = nil
		if err != nil || got != test.expected || recorded != (test.expected != store.Erased{}) {
			t.Errorf("%s: %+v, recorded %v, %v; expected %+v", test.device, got, recorded, err, test.expected)
		}
		if tables := f.mentions(test.device, other); len(tables) > 0 {
			t.Errorf("%s is still in %q", test.device, tables)
		}
		if users := one[string](f, `select string_agg(user_id, ' ' order by user_id) from identities where organization_id = $1`, org.ID); users != test.users {
			t.Errorf("users after %s: %s, expected %s", test.device, users, test.users)
		}
	}
	if n := one[int](f, `select count(*) from audit_log where action = 'device.delete' and detail = '{"by": "device"}'`); n != 3 {
		t.Errorf("%d entries, expected one for each existing device", n)
	}
}

// TestDeletionReadsEventsAndSessionsInPages has more events and sessions than one statement reads, over several days.
func TestDeletionReadsEventsAndSessionsInPages(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	org := f.organization(catalog.Scale)
	f.exec(`insert into events (organization_id, id, device_id, user_id, name, occurred_at, received_at)
		select $1, gen_random_uuid(), case i % 3 when 0 then 'mine' else 'another' end, case i % 5 when 0 then 'me' end, 'n', now(), now() + i % 4 * interval '1 day'
		from generate_series(1, $2) i`, org.ID, 2*store.ErasedRows+100)
	f.exec(`insert into sessions (organization_id, id, device_id, is_first, started_at, active_at)
		select $1, gen_random_uuid(), case i % 3 when 0 then 'mine' else 'another' end, true, now(), now() from generate_series(1, $2) i`, org.ID, store.ErasedRows+100)
	if err := f.store.Identify(t.Context(), org.ID, "mine", "me", nil); err != nil {
		t.Fatal(err)
	}
	all := one[int64](f, `select count(*) from events`)
	expected := store.Erased{
		Devices: 1, Identities: 1, Sessions: one[int64](f, `select count(*) from sessions where device_id = 'mine'`),
		Events: one[int64](f, `select count(*) from events where device_id = 'mine' or user_id = 'me'`),
	}
	got, err := f.store.DeleteUser(t.Context(), store.OperatorActor("root"), org.ID, "me")
	if got.AuditID = nil; err != nil || got != expected {
		t.Errorf("%+v, %v; expected %+v", got, err, expected)
	}
	if n := one[int64](f, `select count(*) from events where device_id = 'another' and user_id is null`); n != all-expected.Events {
		t.Errorf("%d events of others are left, expected %d", n, all-expected.Events)
	}
	if n := one[int](f, `select count(*) from audit_log where action = 'device.delete'`); n != 1 {
		t.Errorf("%d entries, expected one for all pages", n)
	}
}

func TestInterruptedDeletionIsContinuedByTheNext(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	org, other := f.organization(catalog.Scale), f.organization(catalog.Scale)
	f.people(org)
	f.exec(`create function fail() returns trigger language plpgsql as $$ begin raise exception 'broken off'; end $$`)
	f.exec(`create trigger fail before delete on devices for each row execute function fail()`)
	_, err := f.store.DeleteUser(t.Context(), store.OperatorActor("root"), org.ID, erasedUser)
	if err == nil || !strings.Contains(err.Error(), "broken off") {
		t.Fatalf("%v, expected the failure", err)
	}
	if n := one[int](f, `select count(*) from audit_log where action = 'device.delete'`); n != 1 {
		t.Errorf("%d entries, expected the one for the erased rows", n)
	}
	// Meanwhile the app has sent more events.
	if _, err := f.store.InsertEvents(t.Context(), org.ID, store.Batch{DeviceID: erasedDevice, Events: []store.Event{{ID: eventID(77), Name: "more"}}}); err != nil {
		t.Fatal(err)
	}
	f.exec(`drop trigger fail on devices`)
	got, err := f.store.DeleteUser(t.Context(), store.OperatorActor("root"), org.ID, erasedUser)
	if got.AuditID = nil; err != nil || got != (store.Erased{Devices: 2, Identities: 1, Events: 1}) {
		t.Errorf("%+v, %v; expected the devices, the identity and the added event", got, err)
	}
	for _, text := range []string{erasedUser, erasedDevice} {
		if tables := f.mentions(text, other); len(tables) > 0 {
			t.Errorf("%s is still in %q", text, tables)
		}
	}
}

// The new device appears while sessions are deleted.
func TestDeleteUserWhoMovesToAnotherDeviceMeanwhile(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	org, other := f.organization(catalog.Scale), f.organization(catalog.Scale)
	f.people(org)
	f.session(org.ID, store.Device{ID: "watch"})
	if _, err := f.store.InsertEvents(t.Context(), org.ID, store.Batch{DeviceID: "watch", Events: []store.Event{{ID: eventID(77), Name: "earlier"}}}); err != nil {
		t.Fatal(err)
	}
	f.exec(`create function come() returns trigger language plpgsql security definer as $$
		begin update devices set user_id = '` + erasedUser + `' where id = 'watch'; return null; end $$`)
	f.exec(`create trigger come after delete on sessions for each row execute function come()`)
	got, err := f.store.DeleteUser(t.Context(), store.OperatorActor("root"), org.ID, erasedUser)
	if got.AuditID = nil; err != nil || got != (store.Erased{Devices: 3, Identities: 1, Sessions: 3, Events: 2*5 + 3 + 1}) {
		t.Errorf("%+v, %v; expected the added device, too", got, err)
	}
	if tables := f.mentions("watch", other); len(tables) > 0 {
		t.Errorf("the new device is still in %q", tables)
	}
}
