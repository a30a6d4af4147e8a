package migrations_test

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"deeplink/migrations"
	"deeplink/shared/devservers"
	"deeplink/shared/testkit"
)

// migrateURL makes this test binary a process that migrates the database of that URL.
const migrateURL = "MIGRATIONS_TEST_URL"

func TestMain(m *testing.M) {
	if databaseURL := os.Getenv(migrateURL); databaseURL != "" {
		if _, err := migrations.Up(context.Background(), databaseURL); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	testkit.Main(m)
}

func TestConcurrentMigrationsOfOneDatabaseSucceed(t *testing.T) {
	t.Parallel()
	// A separate cluster: the roles do not exist yet, and concurrent migrations race to create them.
	folder, err := os.MkdirTemp(testkit.Scratch(), "migrations-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(folder) })
	server, err := devservers.StartPostgres(t.Context(), devservers.PostgresOptions{Dir: filepath.Join(folder, "postgres")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.StopImmediate() })

	var g errgroup.Group
	ran := make([][]int64, 12)
	for i := range ran {
		if i < 3 {
			run(t, testkit.Connect(t, server.URL()), fmt.Sprintf("create database empty_%d", i))
		}
	}
	for i := range ran {
		address := named(t, server.URL(), fmt.Sprintf("empty_%d", i%3))
		g.Go(func() (err error) {
			ran[i], err = migrations.Up(t.Context(), address)
			return err
		})
		if i%3 == 0 {
			g.Go(func() error { return migrateInAnotherProcess(t.Context(), address) })
		}
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		conn := testkit.Connect(t, named(t, server.URL(), fmt.Sprintf("empty_%d", i)))
		applied := values[int64](t, conn, `select version_id from goose_db_version where version_id > 0 order by id`)
		if !slices.IsSorted(applied) || len(slices.Compact(slices.Clone(applied))) != len(applied) || len(applied) < 4 {
			t.Errorf("database %d: applied %v, expected each version once, in order", i, applied)
		}
		again, err := migrations.Up(t.Context(), named(t, server.URL(), fmt.Sprintf("empty_%d", i)))
		if err != nil || len(again) != 0 {
			t.Errorf("database %d: a second Up ran %v, %v; expected nothing", i, again, err)
		}
	}
}

func migrateInAnotherProcess(ctx context.Context, databaseURL string) error {
	command := exec.CommandContext(ctx, os.Args[0])
	command.Env = append(os.Environ(), migrateURL+"="+databaseURL)
	if output, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, output)
	}
	return nil
}

// seeds insert rows into every table that a version created. They never change: databases of that version hold such rows.
var seeds = map[int64]string{
	2: `
		insert into organizations (id, org_key, name, external_id, plan, suspended) values
			('10000000-0000-4000-8000-000000000001', 'acme', 'Acme', 'org_1', 'scale', true);
		insert into app_configs (organization_id, ios_scheme, android_sha256_cert_fingerprints) values
			('10000000-0000-4000-8000-000000000001', 'acme', '{AA}');
		insert into domains (id, organization_id, host, status, verification_token) values
			('20000000-0000-4000-8000-000000000001', '10000000-0000-4000-8000-000000000001', null, 'verified', null),
			('20000000-0000-4000-8000-000000000002', '10000000-0000-4000-8000-000000000001', 'go.acme.example', 'pending', 'x');
		insert into api_keys (id, organization_id, tier, hash, display_key) values
			('30000000-0000-4000-8000-000000000001', '10000000-0000-4000-8000-000000000001', 'SERVER', sha256('x'), 'svc_api_…abcd');`,
	3: `
		insert into links (id, organization_id, domain_id, short_code, path, title, tags, params, expiry) values
			('40000000-0000-4000-8000-000000000001', '10000000-0000-4000-8000-000000000001', '20000000-0000-4000-8000-000000000001', 'One', '/1', 't', '{a}', '{"b": 1.0}', now()),
			('40000000-0000-4000-8000-000000000002', '10000000-0000-4000-8000-000000000001', '20000000-0000-4000-8000-000000000002', 'two', '/2', null, null, null, null);`,
	4: `
		update links set path = '/2b' where short_code = 'two';
		insert into edges (slot, incarnation, lease_ms, hold_ms, applied) values ('a', gen_random_uuid(), 2000, 122000, pg_current_snapshot());
		insert into match_redemptions (nonce, link_id) values ('\x0000000000000001', '40000000-0000-4000-8000-000000000001');`,
	5: `
		insert into edges (slot, incarnation, lease_ms, hold_ms, address) values ('b', gen_random_uuid(), 2000, 122000, '10.0.0.1:8080');`,
	7: `
		insert into audit_log (id, organization_id, actor_type, action, target_type, target_id, detail) values
			('50000000-0000-4000-8000-000000000001', '10000000-0000-4000-8000-000000000001', 'operator', 'plan.update', 'organization', '10000000-0000-4000-8000-000000000001', '{}');`,
	8: `
		insert into organizations (id, org_key, name) values ('10000000-0000-4000-8000-000000000009', 'nine', 'Nine');
		insert into domains (id, organization_id, host, status, verification_token) values
			('20000000-0000-4000-8000-000000000009', '10000000-0000-4000-8000-000000000009', 'go.acme.example', 'verified', 'y');`,
	9: `
		insert into devices (organization_id, id, user_id, session_id, session_first, session_started_at, session_active_at) values
			('10000000-0000-4000-8000-000000000001', 'phone', 'user', '60000000-0000-4000-8000-000000000001', true, now(), now());
		insert into identities (organization_id, user_id, traits) values ('10000000-0000-4000-8000-000000000001', 'user', '{"a": 1.0}');
		insert into sessions (organization_id, id, device_id, is_first, started_at, active_at) values
			('10000000-0000-4000-8000-000000000001', '60000000-0000-4000-8000-000000000001', 'phone', true, now(), now());
		insert into event_ids (organization_id, id, received_at) values
			('10000000-0000-4000-8000-000000000001', '70000000-0000-4000-8000-000000000001', now());
		insert into events (organization_id, id, device_id, name, occurred_at, received_at) values
			('10000000-0000-4000-8000-000000000001', '70000000-0000-4000-8000-000000000001', 'phone', 'opened', now(), now());`,
	14: `
		insert into domain_transfers (domain_id, owner_id, host, started_at, completes_at, check_at) values
			('20000000-0000-4000-8000-000000000002', '20000000-0000-4000-8000-000000000009', 'go.acme.example', now(), now() + interval '7 days', now());`,
	20: `
		update links set external_id = 'sku-1' where short_code = 'One';
		insert into signing_keys (name, key) values ('cursor', sha256('x'));
		insert into idempotency_keys (organization_id, scope, fingerprint, status, body, xid, is_create, is_bulk) values
			('10000000-0000-4000-8000-000000000001', sha256('a'), sha256('b'), 201, '{}', pg_current_xact_id(), true, false);`,
	31: `
		insert into click_logs (log, slot, durable) values ('80000000-0000-4000-8000-000000000001', 'a', true);
		insert into click_batches (slot, log, sequence, first_at, through, clicks) values ('a', '80000000-0000-4000-8000-000000000001', 1, now(), now(), 3);
		insert into click_agents (agent) values ('Mozilla/5.0');
		insert into clicks (log, sequence, ordinal, at, org_key, link_id, outcome, class, reason, ruleset, evidence, agent_id, country, language, referrer, visitor) values
			('80000000-0000-4000-8000-000000000001', 1, 1, now(), 'acme', '40000000-0000-4000-8000-000000000001', 'redirect', 'human', 'browser', 1, 24, 1, 'DE', 'de', 'example.com', 1),
			('80000000-0000-4000-8000-000000000001', 1, 2, '2001-01-01Z', 'acme', '40000000-0000-4000-8000-000000000001', 'expired', 'bot', 'no-agent', 1, 64, null, null, null, null, null);
		insert into click_counts (log, sequence, org_key, link_id, outcome, class, quarter, clicks) values
			('80000000-0000-4000-8000-000000000001', 1, 'acme', null, 'unknown', 'bot', '2030-01-01 00:15Z', 1);
		select click_salt((now() at time zone 'UTC')::date);`,
	40: `
		insert into click_quarters (org_key, link_id, quarter, class, outcome, clicks) values
			('acme', '40000000-0000-4000-8000-000000000001', date_trunc('hour', now()), 'human', 'redirect', 1), ('acme', null, '2001-01-01Z', 'bot', 'unknown', 2);
		insert into click_days (org_key, link_id, day, class, outcome, clicks) values ('acme', '40000000-0000-4000-8000-000000000001', now(), 'human', 'redirect', 1);
		insert into click_org_quarters (org_key, quarter, class, outcome, clicks) values ('acme', date_trunc('hour', now()), 'human', 'redirect', 1);
		insert into click_org_days (org_key, day, class, outcome, clicks) values ('acme', now(), 'human', 'redirect', 1);
		insert into click_dimensions (org_key, link_id, day, class, dimension, value, clicks) values
			('acme', '40000000-0000-4000-8000-000000000001', now(), 'human', 'country', 'DE', 1), ('acme', null, now(), 'human', 'country', null, 1);
		insert into click_org_dimensions (org_key, day, class, dimension, value, clicks) values ('acme', now(), 'human', 'country', 'DE', 1);
		insert into click_visitors (org_key, link_id, day, visitor) values ('acme', '40000000-0000-4000-8000-000000000001', now(), 1);
		insert into click_visitor_days (org_key, link_id, day, visitors) values ('acme', '40000000-0000-4000-8000-000000000001', now(), 1);
		insert into click_links (org_key, link_id, human, last_human_at) values ('acme', '40000000-0000-4000-8000-000000000001', 1, now());
		insert into click_organizations (org_key, reclassified_at) values ('acme', now());
		insert into click_agent_rulesets (agent_id, ruleset, facts) values (1, 1, 1);`,
}

func TestEveryEarlierVersionUpgradesWithItsData(t *testing.T) {
	t.Parallel()
	steps := history(t)
	expected := steps[len(steps)-1].schema
	for i, from := range steps {
		t.Run(fmt.Sprint(from.version), func(t *testing.T) {
			t.Parallel()
			address := clone(t, from.before)
			conn := testkit.Connect(t, address)
			before := rows(t, conn)
			ran, err := migrations.Up(t.Context(), address)
			if err != nil || !slices.EqualFunc(ran, steps[i:], func(version int64, s step) bool { return version == s.version }) {
				t.Fatalf("Up from before %d ran %v, %v", from.version, ran, err)
			}
			after := rows(t, conn)
			for table, n := range before {
				if after[table] != n {
					t.Errorf("%s had %d rows before the upgrade and %d after it", table, n, after[table])
				}
			}
			if got := schema(t, conn); !slices.Equal(got, expected) {
				t.Errorf("the schema after the upgrade differs from a fresh one: %s", difference(expected, got))
			}
			if after["link_usage"] > 0 {
				usageIsExact(t, conn)
			}
		})
	}
}

// step is one migration.
type step struct {
	version int64
	before  string   // the address of a database before the migration, with the data of the seeds; to be cloned only
	schema  []string // after the migration
}

// history runs each migration once, and after each of them its seed.
func history(t *testing.T) (steps []step) {
	t.Helper()
	versions, err := migrations.Up(t.Context(), empty(t))
	if err != nil {
		t.Fatal(err)
	}
	address := empty(t)
	for _, version := range versions {
		s := step{version: version, before: clone(t, address)}
		if ran, err := migrations.To(t.Context(), address, version); err != nil || !slices.Equal(ran, []int64{version}) {
			t.Fatalf("To(%d) ran %v, %v", version, ran, err)
		}
		conn := testkit.Connect(t, address)
		s.schema = schema(t, conn)
		run(t, conn, seeds[version])
		if err := conn.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		steps = append(steps, s)
	}
	return steps
}

// empty returns the URL of a database without a schema.
func empty(t *testing.T) string {
	t.Helper()
	address := testkit.NewDatabase(t).URL
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	return create(t, address, u.Path[1:]+"_empty", "template1")
}

// clone returns the address of a copy of a database that has no connections.
func clone(t *testing.T, address string) string {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	original := u.Path[1:]
	return create(t, named(t, address, "postgres"), fmt.Sprintf("%s_%d", original, clones.Add(1)), original)
}

var clones atomic.Int64 // the number of databases that clone has made

// create creates a database on the server of address, and returns its own address. The database is dropped after the test.
func create(t *testing.T, address, name, template string) string {
	t.Helper()
	conn := testkit.Connect(t, address)
	run(t, conn, "create database "+name+" template "+template)
	t.Cleanup(func() { conn.Exec(context.Background(), "drop database "+name+" with (force)") })
	return named(t, address, name)
}

func named(t *testing.T, address, database string) string {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	u.Path = "/" + database
	return u.String()
}

// rows counts the rows of every table.
func rows(t *testing.T, conn *pgx.Conn) map[string]int64 {
	t.Helper()
	counts := make(map[string]int64)
	for _, table := range values[string](t, conn, `select tablename::text from pg_tables where schemaname = 'public' and tablename <> 'goose_db_version'`) {
		counts[table] = values[int64](t, conn, `select count(*) from `+pgx.Identifier{table}.Sanitize())[0]
	}
	return counts
}

// schema lists columns, triggers, grants, indexes, constraints, functions with their bodies and settings, and comments. It omits
// partitions, which depend on the date.
func schema(t *testing.T, conn *pgx.Conn) []string {
	t.Helper()
	return values[string](t, conn, `
		with tables as (select oid, relname, reloptions, relkind from pg_class where relnamespace = 'public'::regnamespace and relkind in ('r', 'p') and not relispartition),
		     functions as (select p.* from pg_proc p where p.pronamespace = 'public'::regnamespace
		                   and not exists (select from pg_depend d where d.objid = p.oid and d.deptype = 'e'))
		select concat_ws(' ', 'table', relname, relkind, reloptions) from tables
		union all select concat_ws(' ', 'column', c.table_name, c.column_name, c.data_type, c.is_nullable, c.column_default, c.collation_name, c.identity_generation)
			from information_schema.columns c join tables on tables.relname = c.table_name where c.table_schema = 'public'
		union all select 'trigger ' || pg_get_triggerdef(g.oid) || ' ' || tgenabled::text from pg_trigger g join tables on tables.oid = tgrelid where not tgisinternal
		union all select concat_ws(' ', 'index', i.indexrelid::regclass, pg_get_indexdef(i.indexrelid), c.reloptions, i.indisvalid, i.indisready, i.indislive)
			from pg_index i join tables on tables.oid = i.indrelid join pg_class c on c.oid = i.indexrelid
		union all select concat_ws(' ', 'constraint', conrelid::regclass, conname, pg_get_constraintdef(c.oid), convalidated) from pg_constraint c join tables on tables.oid = conrelid
		union all select concat_ws(' ', 'function', pg_get_functiondef(oid), proacl) from functions
		union all select concat_ws(' ', 'column grant', table_name, column_name, grantee, privilege_type) from information_schema.column_privileges
			where grantee like 'deeplink%' and table_name in (select relname from tables)
		union all select concat_ws(' ', 'table grant', table_name, grantee, privilege_type) from information_schema.table_privileges
			where grantee like 'deeplink%' and table_name in (select relname from tables)
		union all select concat_ws(' ', 'comment', tables.relname, a.attname, d.description)
			from pg_description d join tables on tables.oid = d.objoid and d.classoid = 'pg_class'::regclass left join pg_attribute a on a.attrelid = d.objoid and a.attnum = d.objsubid and d.objsubid > 0
		union all select concat_ws(' ', 'comment', functions.proname, d.description) from pg_description d join functions on functions.oid = d.objoid and d.classoid = 'pg_proc'::regclass
		union all select 'extension ' || extname from pg_extension
		order by 1`)
}

// difference lists what only one of two schemas has.
func difference(expected, got []string) string {
	var text strings.Builder
	for _, line := range expected {
		if !slices.Contains(got, line) {
			fmt.Fprintf(&text, "\n- %s", line)
		}
	}
	for _, line := range got {
		if !slices.Contains(expected, line) {
			fmt.Fprintf(&text, "\n+ %s", line)
		}
	}
	return text.String()
}

func usageIsExact(t *testing.T, conn *pgx.Conn) {
	t.Helper()
	wrong := values[string](t, conn, `
		select concat_ws(' ', u.organization_id, u.links, l.n)
		from link_usage u full join (select organization_id, count(*) as n from links group by 1) l using (organization_id)
		where coalesce(u.links, 0) <> coalesce(l.n, 0)`)
	if len(wrong) > 0 {
		t.Errorf("link_usage differs from the links (organization, counted, actual): %q", wrong)
	}
}

// run runs any number of statements.
func run(t *testing.T, conn *pgx.Conn, statements string) {
	t.Helper()
	if _, err := conn.PgConn().Exec(t.Context(), statements).ReadAll(); err != nil {
		t.Fatalf("%s: %v", statements, err)
	}
}

func values[V any](t *testing.T, conn *pgx.Conn, query string, arguments ...any) []V {
	t.Helper()
	rows, _ := conn.Query(t.Context(), query, arguments...)
	list, err := pgx.CollectRows(rows, pgx.RowTo[V])
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return list
}
