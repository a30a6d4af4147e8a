package main

import (
	"fmt"
	"io"
	"log/slog"
	"testing"
	"time"

	"deeplink/control/internal/store"
	"deeplink/shared/catalog"
)

func TestPurgeDropsWhatWasFinishedTenMinutesAgo(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	control := store.New(w.open(w.db.ControlURL), testLinkBase)
	purgers := []*purger{{store: control, log: slog.New(slog.DiscardHandler)}, {store: control, log: slog.New(slog.DiscardHandler)}}
	organization := w.organization(catalog.Growth)
	count := func() (changes, redemptions int) {
		err := w.pool.QueryRow(t.Context(), `select (select count(*) from changes), (select count(*) from match_redemptions)`).Scan(&changes, &redemptions)
		if err != nil {
			t.Fatal(err)
		}
		return changes, redemptions
	}
	w.exec(`insert into match_redemptions (nonce, link_id, matched_at) values ('12345678', gen_random_uuid(), now() - interval '26 hours'),
	                                                                          ('87654321', gen_random_uuid(), now() - interval '1 hour')`)
	old, _ := count()
	if old == 0 {
		t.Fatal("making an organization left no change")
	}

	start := time.Now()
	purge := func(after time.Duration) (left int) {
		t.Helper()
		for _, p := range purgers {
			if err := p.purge(t.Context(), start.Add(after)); err != nil {
				t.Fatal(err)
			}
		}
		left, _ = count()
		return left
	}
	if left := purge(0); left != old {
		t.Errorf("at once %d of %d changes are left, expected all", left, old)
	}
	if _, _, err := w.store.SetSuspended(t.Context(), organization.OrgKey, true); err != nil {
		t.Fatal(err)
	}
	for _, after := range []time.Duration{time.Minute, kept - time.Second} {
		if left := purge(after); left != old+1 {
			t.Errorf("after %v %d of %d changes are left, expected all", after, left, old+1)
		}
	}
	// How many go at once depends on the oldest transaction that ran at the time, in whatever database of this server.
	if left := purge(kept); left < 1 || left > old+1 {
		t.Errorf("after %v %d changes are left, expected the one that is younger, and perhaps more", kept, left)
	}
	later := kept
	await(t, "the last change to go", func() error {
		later += kept
		if left := purge(later); left > 0 {
			return fmt.Errorf("%d changes are left", left)
		}
		return nil
	})
	w.exec(`insert into audit_log (id, organization_id, at, actor_type, action, target_type, target_id, detail)
		select gen_random_uuid(), $1, now() - age, 'user', 'link.create', 'link', gen_random_uuid(), '{}' from unnest('{399 days, 401 days}'::interval[]) age`, organization.ID)
	for _, p := range purgers {
		if err := p.purgeAuditLog(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	var audited int
	if err := w.pool.QueryRow(t.Context(), `select count(*) from audit_log`).Scan(&audited); err != nil || audited != 1 {
		t.Errorf("%d entries are left in the audit trail, %v; expected the one of 399 days", audited, err)
	}
	if _, redemptions := count(); redemptions != 1 {
		t.Errorf("%d redemptions are left, expected the one of the last hour", redemptions)
	}
	for _, p := range purgers {
		if n := len(p.moments); n > 2 {
			t.Errorf("%d snapshots are remembered, expected the newest old one and the last", n)
		}
	}
}

func TestControlMakesRoomForEventsAndDropsOldOnes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	organization := w.organization(catalog.Scale)
	day := func(days int) string {
		var name string
		if err := w.pool.QueryRow(t.Context(), `select to_char(now() at time zone 'UTC' + $1 * interval '1 day', '"events_"YYYYMMDD')`, days).Scan(&name); err != nil {
			t.Fatal(err)
		}
		return name
	}
	there := func(name string) (found bool) {
		if err := w.pool.QueryRow(t.Context(), `select to_regclass($1) is not null`, name).Scan(&found); err != nil {
			t.Fatal(err)
		}
		return found
	}
	ahead, old, young := day(6), day(-4), day(-2)
	w.exec(`drop table ` + ahead)
	for i, name := range []string{old, young} {
		w.exec(fmt.Sprintf(`create table %s (like events including defaults)`, name))
		w.exec(fmt.Sprintf(`alter table events attach partition %s for values from (date_trunc('day', now(), 'UTC') - interval '%d days') to (date_trunc('day', now(), 'UTC') - interval '%d days')`,
			name, 4-2*i, 3-2*i))
	}
	w.exec(`insert into sessions (organization_id, id, device_id, is_first, started_at, active_at)
		select $1, gen_random_uuid(), 'd', true, now() - age, now() from unnest('{71 hours, 73 hours}'::interval[]) age`, organization.ID)
	w.serve("--events-retention=72h")
	w.serve("--events-retention=72h")
	await(t, "the partitions and sessions to be looked after", func() error {
		var sessions int
		if err := w.pool.QueryRow(t.Context(), `select count(*) from sessions`).Scan(&sessions); err != nil || sessions != 1 || !there(ahead) || there(old) {
			return fmt.Errorf("%d sessions, %v; ahead: %t, old: %t", sessions, err, there(ahead), there(old))
		}
		return nil
	})
	if !there(young) {
		t.Error("a partition was dropped within its time")
	}
}

func TestRetentionHasBounds(t *testing.T) {
	t.Parallel()
	for value, good := range map[string]bool{"24h": true, "9600h": true, "87600h": true, "23h": false, "0s": false, "-1h": false, "87601h": false, "400 days": false} {
		_, _, err := parseCommand([]string{"--database-url=postgres://a@b/c", "--redis-url=redis://a:1", "--link-base-url=https://go.example.com",
			"--events-retention=" + value}, io.Discard, io.Discard, func(int) {})
		if (err == nil) != good {
			t.Errorf("%s: %v, expected it taken: %t", value, err, good)
		}
	}
}
