package store_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"deeplink/control/internal/store"
	"deeplink/shared/catalog"
)

func (f fixture) session(orgID string, d store.Device) store.Session {
	f.Helper()
	session, err := f.store.OpenSession(f.Context(), orgID, d, nil)
	if err != nil {
		f.Fatal(err)
	}
	return session
}

func TestConcurrentFirstCallsOfADeviceCreateOneSession(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	org := f.organization(catalog.Scale)
	sessions := make([]store.Session, 64)
	var group errgroup.Group
	for i := range sessions {
		group.Go(func() (err error) {
			sessions[i], err = f.store.OpenSession(t.Context(), org.ID, store.Device{ID: "phone"}, nil)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	for _, s := range sessions {
		if s.ID != sessions[0].ID || !s.IsFirst || !s.StartedAt.Equal(sessions[0].StartedAt.Time) {
			t.Fatalf("%+v and %+v, expected one first session", s, sessions[0])
		}
	}
	if n := one[int](f, `select count(*) from sessions`); n != 1 {
		t.Errorf("%d sessions, expected 1", n)
	}
}

func TestSessionEndsWhenIdleForHalfAnHour(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	org, other := f.organization(catalog.Scale), f.organization(catalog.Scale)
	device := store.Device{ID: "phone", Platform: ptr("ios"), AppVersion: ptr("1.0")}
	idle := func(d time.Duration) {
		f.exec(`update devices set session_active_at = clock_timestamp() - $1::interval`, d)
	}
	first := f.session(org.ID, device)
	if got := first.ExpiresAt.Sub(first.StartedAt.Time); got < store.SessionIdle || got > store.SessionIdle+time.Minute {
		t.Errorf("the session lasts %v, expected 30 minutes", got)
	}
	if foreign := f.session(other.ID, device); foreign.ID == first.ID || !foreign.IsFirst {
		t.Errorf("another organization's device of the same id: %+v, expected a first session of its own", foreign)
	}
	idle(29 * time.Minute)
	if s := f.session(org.ID, store.Device{ID: "phone"}); s.ID != first.ID || !s.IsFirst || !s.StartedAt.Equal(first.StartedAt.Time) || s.ExpiresAt.Before(first.ExpiresAt.Time) {
		t.Errorf("after 29 idle minutes: %+v, expected %+v to continue", s, first)
	}
	idle(30*time.Minute + time.Second)
	second := f.session(org.ID, store.Device{ID: "phone", AppVersion: ptr("2.0")})
	if second.ID == first.ID || second.IsFirst {
		t.Errorf("after 30 idle minutes: %+v, expected a second session", second)
	}
	if got := one[string](f, `select platform || ' ' || app_version from devices where organization_id = $1`, org.ID); got != "ios 2.0" {
		t.Errorf("the device is %q, expected the last reported values", got)
	}

	// Events of the session keep it alive; those of another session, and repeated ones, do not.
	activity := func() time.Time {
		return one[time.Time](f, `select session_active_at from devices where organization_id = $1`, org.ID)
	}
	for _, test := range []struct {
		name, session, id string
		idle              time.Duration
		alive             bool
	}{
		{"an event of the session", second.ID, eventID(1), 29 * time.Minute, true},
		{"the same again", second.ID, eventID(1), 10 * time.Minute, false},
		{"an event of the first session", first.ID, eventID(2), 10 * time.Minute, false},
		{"an event of a session that has ended", second.ID, eventID(3), 30*time.Minute + time.Second, false},
	} {
		idle(test.idle)
		before := activity()
		if _, err := f.store.InsertEvents(t.Context(), org.ID, store.Batch{DeviceID: "phone", SessionID: &test.session,
			Events: []store.Event{{ID: test.id, Name: "a"}}}); err != nil {
			t.Fatal(err)
		}
		if alive := activity().After(before); alive != test.alive {
			t.Errorf("%s: activity recorded: %t, expected %t", test.name, alive, test.alive)
		}
	}
}

func TestIdentityBelongsToTheOrganization(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	org, other := f.organization(catalog.Scale), f.organization(catalog.Scale)
	identify := func(orgID, device, user, traits string) {
		t.Helper()
		if err := f.store.Identify(t.Context(), orgID, device, user, json.RawMessage(traits)); err != nil {
			t.Fatal(err)
		}
	}
	user := func(orgID string) string {
		if s := f.session(orgID, store.Device{ID: "phone"}); s.UserID != nil {
			return *s.UserID
		}
		return "none"
	}
	identify(org.ID, "phone", "ann", `{"plan":"pro"}`)
	identify(org.ID, "phone", "ann", ``)
	identify(other.ID, "phone", "bob", ``)
	if a, b := user(org.ID), user(other.ID); a != "ann" || b != "bob" {
		t.Errorf("users %s and %s, expected ann and bob", a, b)
	}
	if s := f.session(org.ID, store.Device{ID: "phone"}); !s.IsFirst {
		t.Errorf("%+v, expected the first session: an identity starts none", s)
	}
	if got := one[string](f, `select traits::text from identities where user_id = 'ann'`); got != `{"plan":"pro"}` {
		t.Errorf("traits %s, expected the sent ones", got)
	}
	for range 2 {
		if err := f.store.ClearIdentity(t.Context(), org.ID, "phone"); err != nil {
			t.Fatal(err)
		}
	}
	if a, b := user(org.ID), user(other.ID); a != "none" || b != "bob" {
		t.Errorf("after a clear: users %s and %s, expected none and bob", a, b)
	}
	if err := f.store.ClearIdentity(t.Context(), org.ID, "unknown"); err != nil {
		t.Error(err)
	}
	if n := one[int](f, `select count(*) from devices where id = 'unknown'`); n != 0 {
		t.Error("clearing an unknown device created it")
	}
}

func eventID(n int) string { return fmt.Sprintf("70000000-0000-4000-8000-%012d", n) }
