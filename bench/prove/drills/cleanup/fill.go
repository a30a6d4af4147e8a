package cleanup

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"deeplink/bench/progress"

	"github.com/jackc/pgx/v5"
)

// chunk is how many rows one statement inserts.
const chunk = 250_000

// insertEntrySQL is what programs of every version send.
const insertEntrySQL = `
	insert into audit_log (id, organization_id, actor_type, actor_id, actor_display_key, ip, request_id, action, target_type, target_id, detail)
	values (gen_random_uuid(), gen_random_uuid(), 'key', 'a', 'b', '::1', 'c', 'link.create', 'link', gen_random_uuid(), '{}')`

// Entries are inserted in the order of their times, for a thousand organizations in turn.
const fillAuditSQL = `
	insert into audit_log (id, organization_id, at, actor_type, actor_id, actor_display_key, ip, request_id, action, target_type, target_id, detail)
	select gen_random_uuid(), ('10000000-0000-4000-8000-' || lpad(to_hex(i % 1000), 12, '0'))::uuid, now() - interval '800 days' * (1 - i / $3::float8),
	       'key', '30000000-0000-4000-8000-000000000001', 'svc_api_…abcd', '192.0.2.7', 'c4ca4238-a0b9-4382-8dcc-509a6f75849b', 'link.create', 'link', gen_random_uuid(),
	       '{"shortCode": "abcdefgh"}'
	from generate_series($1::bigint, $2::bigint) i`

// job is one purge: the text that identifies its statements in the log, the number of rows to delete, and the table that keeps its dead
// rows.
type job struct {
	name, statement, table string
	old                    string // counts the rows to delete at the time $1; "" if another job counts them
	fill                   string // inserts rows $1 to $2, half of them old if a retention decides
}

var jobs = []job{
	{
		name: "changes", statement: "delete from changes t ", table: "changes",
		// Only the changes of the last fill statement are left; edges and tests make none here.
		old:  `select count(*) from changes`,
		fill: `insert into changes (tags) select array['k:acme/' || i] from generate_series($1::bigint, $2::bigint) i`,
	},
	{
		name: "deleted links", statement: "delete from deleted_links t ", table: "deleted_links",
		old:  `select count(*) from deleted_links`,
		fill: `insert into deleted_links (id, organization_id) select gen_random_uuid(), gen_random_uuid() from generate_series($1::bigint, $2::bigint) i`,
	},
	{
		name: "redemptions", statement: "match_redemptions", table: "match_redemptions",
		old: `select count(*) from match_redemptions where matched_at < $1::timestamptz - interval '25 hours'`,
		fill: `insert into match_redemptions (nonce, link_id, device_id, matched_at)
			select decode(lpad(to_hex(i), 16, '0'), 'hex'), gen_random_uuid(), 'phone-' || i, now() - interval '48 hours' * (1 - (i - $1) / ($2 - $1 + 1)::float8)
			from generate_series($1::bigint, $2::bigint) i`,
	},
	{name: "audit trail, months", statement: "purge_audit_log()"},
	{
		name: "audit trail, entries", statement: "purge_audit_entries(", table: "audit_log",
		old: `select count(*) from audit_log where at < $1::timestamptz - interval '400 days'`,
	},
	{
		name: "events, days", statement: "drop_event_partitions(",
		old: `select count(*) from pg_inherits where inhparent = 'events'::regclass and inhrelid::regclass::text < 'events_' || to_char(($1::timestamptz - interval '9600 hours') at time zone 'UTC', 'YYYYMMDD')`,
	},
	{
		name: "sessions", statement: "from sessions where", table: "sessions",
		old: `select count(*) from sessions where started_at < $1::timestamptz - interval '9600 hours'`,
		fill: `insert into sessions (organization_id, id, device_id, is_first, started_at, active_at)
			select gen_random_uuid(), gen_random_uuid(), 'phone-' || i, true, at, at from generate_series($1::bigint, $2::bigint) i,
				lateral (select now() - interval '800 days' * (1 - (i - $1) / ($2 - $1 + 1)::float8)) a (at)`,
	},
	{
		name: "ids of events", statement: "from event_ids where", table: "event_ids",
		old: `select count(*) from event_ids where received_at < $1::timestamptz - interval '31 days'`,
		fill: `insert into event_ids (organization_id, id, received_at)
			select gen_random_uuid(), gen_random_uuid(), now() - interval '62 days' * (1 - (i - $1) / ($2 - $1 + 1)::float8) from generate_series($1::bigint, $2::bigint) i`,
	},
	{
		name: "devices", statement: "delete from devices t ", table: "devices",
		old: `select count(*) from devices where created_at < $1::timestamptz - interval '9600 hours'`,
		fill: `insert into devices (organization_id, id, user_id, platform, model, created_at)
			select ('10000000-0000-4000-8000-' || lpad(to_hex(i % 1000), 12, '0'))::uuid, 'phone-' || i, 'user-' || i, 'ios', 'iPhone17,1', now() - interval '800 days' * (i % 2)
			from generate_series($1::bigint, $2::bigint) i`,
	},
	{
		name: "identities", statement: "delete from identities t ", table: "identities",
		old: `select count(*) from identities where updated_at < $1::timestamptz - interval '9600 hours'`,
		fill: `insert into identities (organization_id, user_id, traits, updated_at)
			select ('10000000-0000-4000-8000-' || lpad(to_hex(i % 1000), 12, '0'))::uuid, 'user-' || i, '{"name": "Anna"}', now() - interval '800 days' * (i % 2)
			from generate_series($1::bigint, $2::bigint) i`,
	},
}

// fillAudit inserts the entries of the audit trail.
func fillAudit(ctx context.Context, owner *pgx.Conn, n int) error {
	return inChunks(ctx, owner, "entries", fillAuditSQL, n, n)
}

// fill inserts the old rows of all other tables.
func (c Command) fill(ctx context.Context, owner *pgx.Conn) error {
	organizations := `
		insert into organizations (id, org_key, name) select ('10000000-0000-4000-8000-' || lpad(to_hex(i), 12, '0'))::uuid, lpad(to_hex(i), 4, '0'), 'Acme' from generate_series(0, 999) i`
	days := `
		do $$
		declare day date;
		begin
			for i in 500 .. 540 loop
				day := (now() at time zone 'UTC')::date - i;
				execute format('create table %I partition of events for values from (%L) to (%L)', 'events_' || to_char(day, 'YYYYMMDD'),
					to_char(day, 'YYYY-MM-DD "00:00:00+00"'), to_char(day + 1, 'YYYY-MM-DD "00:00:00+00"'));
				insert into events (organization_id, id, device_id, name, occurred_at, received_at)
					select gen_random_uuid(), gen_random_uuid(), 'phone', 'opened', now(), day::timestamp at time zone 'UTC' + interval '1 hour' from generate_series(1, 10000);
			end loop;
		end $$`
	for _, statement := range []string{organizations, days} {
		if _, err := owner.Exec(ctx, statement); err != nil {
			return fmt.Errorf("fill: %w", err)
		}
	}
	for _, job := range jobs {
		n := c.Others
		if job.name == "changes" {
			n = c.Changes
		}
		if job.fill == "" || n == 0 {
			continue
		}
		if err := inChunks(ctx, owner, job.name, job.fill, n); err != nil {
			return err
		}
	}
	if _, err := owner.Exec(ctx, `vacuum (analyze)`); err != nil {
		return fmt.Errorf("vacuum: %w", err)
	}
	return nil
}

// inChunks inserts n rows in chunks.
func inChunks(ctx context.Context, owner *pgx.Conn, what, sql string, n int, more ...any) error {
	bar := progress.Bar(n, what, os.Stderr)
	for from := 1; from <= n; from += chunk {
		to := min(n, from+chunk-1)
		if _, err := owner.Exec(ctx, sql, append([]any{from, to}, more...)...); err != nil {
			return fmt.Errorf("make %s: %w", what, err)
		}
		_ = bar.Add(to - from + 1)
	}
	return nil
}

// oldRows counts the rows to purge at that time, by job. The time is fixed because more rows become old while control purges.
func oldRows(ctx context.Context, owner *pgx.Conn, at time.Time) (map[string]int, error) {
	rows := make(map[string]int)
	for _, job := range jobs {
		if job.old == "" {
			continue
		}
		var n int
		var arguments []any
		if strings.Contains(job.old, "$1") {
			arguments = append(arguments, at)
		}
		if err := owner.QueryRow(ctx, job.old, arguments...).Scan(&n); err != nil {
			return nil, fmt.Errorf("count %s: %w", job.name, err)
		}
		rows[job.name] = n
	}
	return rows, nil
}

// deadRows returns the number of dead rows of each table, as the statistics of Postgres report it.
func deadRows(ctx context.Context, owner *pgx.Conn) (map[string]int, error) {
	rows, err := owner.Query(ctx, `
		select coalesce((select p.inhparent::regclass::text from pg_inherits p where p.inhrelid = s.relid), s.relname), sum(s.n_dead_tup)::bigint
		from pg_stat_user_tables s group by 1`)
	if err != nil {
		return nil, err
	}
	dead := make(map[string]int)
	var table string
	var n int
	_, err = pgx.ForEachRow(rows, []any{&table, &n}, func() error { dead[table] = n; return nil })
	return dead, err
}
