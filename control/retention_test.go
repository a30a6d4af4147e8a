package main

import (
	"fmt"
	"io"
	"testing"

	"deeplink/shared/catalog"
)

func TestControlMakesRoomForEventsAndDropsOldOnes(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	organization := w.Organization(catalog.Scale)
	day := func(days int) string {
		var name string
		if err := w.Pool.QueryRow(t.Context(), `select to_char(now() at time zone 'UTC' + $1 * interval '1 day', '"events_"YYYYMMDD')`, days).Scan(&name); err != nil {
			t.Fatal(err)
		}
		return name
	}
	there := func(name string) (found bool) {
		if err := w.Pool.QueryRow(t.Context(), `select to_regclass($1) is not null`, name).Scan(&found); err != nil {
			t.Fatal(err)
		}
		return found
	}
	ahead, old, young := day(6), day(-4), day(-2)
	w.Exec(`drop table ` + ahead)
	for i, name := range []string{old, young} {
		w.Exec(fmt.Sprintf(`create table %s (like events including defaults)`, name))
		w.Exec(fmt.Sprintf(`alter table events attach partition %s for values from (date_trunc('day', now(), 'UTC') - interval '%d days') to (date_trunc('day', now(), 'UTC') - interval '%d days')`,
			name, 4-2*i, 3-2*i))
	}
	w.Exec(`insert into sessions (organization_id, id, device_id, is_first, started_at, active_at)
		select $1, gen_random_uuid(), 'd', true, now() - age, now() from unnest('{71 hours, 73 hours}'::interval[]) age`, organization.ID)
	w.Exec(`insert into devices (organization_id, id, user_id, created_at) values ($1, 'unused', 'gone', now() - interval '80 hours'), ($1, 'used', 'here', now() - interval '70 hours')`, organization.ID)
	w.Exec(`insert into identities (organization_id, user_id, traits, updated_at) select $1, u, '{}', now() - interval '80 hours' from unnest('{gone,here}'::text[]) u`, organization.ID)
	w.serve("--events-retention=72h", "--devices-retention=75h")
	w.serve("--events-retention=72h", "--devices-retention=75h")
	await(t, "the partitions, sessions, devices and identities to be looked after", func() error {
		var sessions int
		var devices, identities string
		err := w.Pool.QueryRow(t.Context(), `select (select count(*) from sessions), (select string_agg(id, ' ') from devices), (select string_agg(user_id, ' ') from identities)`).
			Scan(&sessions, &devices, &identities)
		if err != nil || sessions != 1 || devices != "used" || identities != "here" || !there(ahead) || there(old) {
			return fmt.Errorf("%d sessions, devices %s, identities %s, %v; ahead: %t, old: %t", sessions, devices, identities, err, there(ahead), there(old))
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
		for _, flag := range []string{"--events-retention=", "--devices-retention="} {
			_, _, err := parseCommand([]string{"--database-url=postgres://a@b/c", "--redis-url=redis://a:1", "--link-base-url=https://go.example.com",
				flag + value}, io.Discard, io.Discard, func(int) {})
			if (err == nil) != good {
				t.Errorf("%s%s: %v, expected it taken: %t", flag, value, err, good)
			}
		}
	}
}
