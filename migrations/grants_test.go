package migrations_test

import (
	"errors"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"deeplink/shared/testkit"
)

const insufficientPrivilege = "42501"

// The statements of each program, and statements that must fail even if an intruder controls it.
var grants = map[string]struct{ allowed, refused []string }{
	"edge": {
		allowed: []string{
			`select id, org_key, suspended from organizations`,
			`select id, organization_id, host, status from domains`,
			`select organization_id, ios_bundle_id, ios_team_id, ios_app_store_id, ios_scheme, android_package_name,
			        android_sha256_cert_fingerprints, android_scheme, fallback_url, html_error_pages from app_configs`,
			`select id, organization_id, domain_id, short_code, path, channel, utm_source, utm_medium, utm_campaign, utm_term, utm_content,
			        fallback_url, og_title, og_description, og_image_url, expiry, params, is_active from links`,
			`select id, xid, tags from changes`,
			`select pg_current_snapshot()`,
			`select timeline_id from pg_control_checkpoint()`,
			`select system_identifier from pg_control_system()`,
			`insert into edges (slot, incarnation, lease_ms, hold_ms, address) values ('a', gen_random_uuid(), 1, 1, 'a:1')
			 on conflict (slot) do update set incarnation = excluded.incarnation, renewals = edges.renewals + 1, applied = pg_current_snapshot(), address = excluded.address`,
			`delete from edges`,
			`insert into match_redemptions (nonce, link_id, device_id) values ('\x0000000000000001', gen_random_uuid(), 'd') on conflict (nonce) do nothing`,
			`select nonce, device_id, matched_at from match_redemptions`,
			`insert into click_logs (log, slot, state, durable, through, published_at) values ('80000000-0000-4000-8000-000000000009', 'a', 'open', true, now(), now())`,
			`select click_floor()`, `select click_salt((now() at time zone 'UTC')::date + 1)`, `select log, slot, state, durable, through, published_at, ended_at from click_logs`,
			`insert into click_batches (slot, log, sequence, first_at, through, clicks) values ('a', '80000000-0000-4000-8000-000000000009', 1, now(), now(), 2) on conflict do nothing`,
			`select log, sequence from click_batches`,
			`insert into click_agents (agent) values ('a'), ('b') on conflict do nothing`, `select id, agent from click_agents`,
			`insert into clicks (log, sequence, ordinal, at, org_key, outcome, class, reason, ruleset, evidence)
			 values ('80000000-0000-4000-8000-000000000009', 1, 1, now(), 'acme', 'redirect', 'human', 'browser', 1, 0)`,
			`insert into click_counts (log, sequence, org_key, outcome, class, quarter, clicks)
			 values ('80000000-0000-4000-8000-000000000009', 1, 'acme', 'unknown', 'human', '2030-01-01Z', 1)`,
			`update click_logs set through = now(), published_at = now(), state = 'closed', ended_at = now() where log = '80000000-0000-4000-8000-000000000009'`,
		},
		refused: []string{
			`select * from click_logs`, `select created_at from click_logs`, `update click_logs set created_at = now()`, `insert into clicks (late) values (true)`,
			`select id from console_sessions`, `select secrets from console_sign_ins`, `select id from console_links`,
			`select id from api_keys`, `select hash from api_keys`, `select name from organizations`, `select external_id from organizations`,
			`select plan from organizations`, `select title from links`, `select tags from links`, `select template_id from links`,
			`select * from links`, `select verification_token from domains`, `select links from link_usage`, `select id from deleted_links`,
			`insert into links (id) values (gen_random_uuid())`, `update links set is_active = true`, `delete from links`, `truncate links`,
			`update organizations set suspended = false`, `update domains set status = 'verified'`, `update app_configs set fallback_url = 'x'`,
			`insert into changes (tags) values ('{*}')`, `delete from changes`, `update changes set tags = '{}'`,
			`select record_change('{*}', '{}')`, `delete from match_redemptions`, `update match_redemptions set device_id = null`,
			`select id from audit_log`, `insert into audit_log (id) values (gen_random_uuid())`, `select purge_audit_log()`, `select make_audit_partitions(1)`, `select purge_audit_entries('(0,0)', '(1,0)')`,
			`select anonymize_events(gen_random_uuid(), '{d}', 'u', now(), gen_random_uuid(), now(), gen_random_uuid())`,
			`select open_transactions('1 hour')`, `select hidden_sessions()`,
			`select id from devices`, `select user_id from identities`, `select id from sessions`, `select id from events`, `select id from event_ids`,
			`select domain_id from domain_transfers`, `select lost_at from domains`, `select external_id from links`, `select body from idempotency_keys`, `select key from signing_keys`,
			`insert into events (id) values (gen_random_uuid())`, `select make_event_partitions(1)`, `select drop_event_partitions('400 days')`,
			`insert into api_keys (id) values (gen_random_uuid())`, `select version_id from goose_db_version`, `create table x (y int)`,
			`alter table links disable trigger all`, `set session_replication_role = replica`, `set role deeplink_control`,
			`select at from clicks`, `update clicks set class = 'bot'`, `delete from clicks`, `truncate clicks`, `select at from clicks_other`,
			`insert into clicks_other (log) values (gen_random_uuid())`, `select clicks from click_counts`, `delete from click_counts`,
			`select first_at from click_batches`, `update click_batches set late = false`, `delete from click_batches`, `delete from click_logs`,
			`select facts from click_agents`, `update click_agents set agent = 'x'`, `insert into click_agents (facts) values (1)`, `delete from click_agents`,
			`select entries from click_agent_days`, `select salt from click_salts`, `select day from click_salts`, `select as_of from click_as_of`,
			`select advance_click_as_of()`, `select make_click_partitions(1)`, `select drop_click_partitions('1 day')`,
			`select clicks from click_quarters`, `select clicks from click_days`, `select clicks from click_org_quarters`, `select clicks from click_org_days`,
			`select clicks from click_dimensions`, `select clicks from click_org_dimensions`, `select visitor from click_visitors`,
			`select visitors from click_visitor_days`, `select human from click_links`, `select org_key from click_organizations`,
			`select facts from click_agent_rulesets`, `insert into click_days (org_key) values ('acme')`, `delete from click_links`,
			`select make_click_figure_partitions(1)`, `select drop_click_figure_partitions('30 days')`,
		},
	},
	"control": {
		allowed: []string{
			`select id from console_sessions`, `update console_sessions set role = 'owner'`, `delete from console_sessions`, `delete from console_sign_ins`,
			`update console_links set spent_at = now()`,
			`select id, xid, tags from changes`, `delete from changes where xid < '1'`, `select id, xid from deleted_links`, `delete from deleted_links`,
			`select slot, incarnation, renewals, lease_ms, hold_ms, applied, address, release from edges`, `delete from edges`,
			`select nonce from match_redemptions`, `delete from match_redemptions where matched_at < now()`,
			`insert into audit_log (id, organization_id, actor_type, actor_id, actor_display_key, ip, request_id, action, target_type, target_id, detail)
			 values (gen_random_uuid(), gen_random_uuid(), 'key', 'a', 'b', '::1', 'c', 'link.create', 'link', gen_random_uuid(), '{}'),
			        (gen_random_uuid(), gen_random_uuid(), 'service', 'a job', null, null, null, 'domainTransfer.start', 'domain', gen_random_uuid(), '{}')`,
			`select at, action from audit_log`, `select purge_audit_log()`, `select make_audit_partitions(1)`, `select purge_audit_entries('(0,0)', '(1,0)')`,
			`select anonymize_events(gen_random_uuid(), '{d}', 'u', now(), gen_random_uuid(), now(), gen_random_uuid())`,
			`select open_transactions('1 hour')`, `select hidden_sessions()`, `delete from devices where id = 'none'`, `delete from identities where user_id = 'none'`,
			`insert into devices (organization_id, id) values ('10000000-0000-4000-8000-000000000001', 'd') on conflict (organization_id, id) do update set user_id = 'u'`,
			`insert into identities (organization_id, user_id) values ('10000000-0000-4000-8000-000000000001', 'u')`, `update identities set traits = '{}'`,
			`insert into sessions (organization_id, id, device_id, is_first, started_at, active_at) values (gen_random_uuid(), gen_random_uuid(), 'd', true, now(), now())`,
			`update sessions set active_at = now()`, `delete from sessions where started_at < now()`,
			`insert into event_ids (organization_id, id, received_at) values (gen_random_uuid(), gen_random_uuid(), now()) on conflict do nothing returning id`,
			`delete from event_ids where received_at < now()`,
			`insert into events (organization_id, id, device_id, name, occurred_at, received_at) values (gen_random_uuid(), gen_random_uuid(), 'd', 'n', now(), now())`,
			`select id from events`, `select make_event_partitions(8)`, `select drop_event_partitions('1 day')`,
			`select version_id, is_applied from goose_db_version`,
			`insert into domain_transfers (domain_id, owner_id, host, started_at, completes_at, check_at)
			 values ('20000000-0000-4000-8000-000000000004', '20000000-0000-4000-8000-000000000003', 'go.acme.example', now(), now(), now())`,
			`update domain_transfers set check_at = now()`, `select host from domain_transfers`, `delete from domain_transfers`,
			`insert into idempotency_keys (organization_id, scope, fingerprint, status, body, xid, is_create, is_bulk)
			 values ('10000000-0000-4000-8000-000000000001', sha256('a'), sha256('b'), 201, '{}', pg_current_xact_id(), true, false)
			 on conflict (organization_id, scope) do update set body = excluded.body`,
			`select body from idempotency_keys`, `delete from idempotency_keys`, `insert into signing_keys (name, key) values ('cursor', sha256('c'))`,
			`select key from signing_keys`, `update links set external_id = 'x' where id = '40000000-0000-4000-8000-000000000001'`,
			`update links set title = 'x'`, `update organizations set suspended = true`, `delete from app_configs`, `select plan from organizations`,
			`select log, state, through from click_logs`, `update click_logs set state = 'forgotten', ended_at = now() where state = 'open'`, `delete from click_logs`,
			`select first_at, late from click_batches`, `update click_batches set rolled_at = now()`, `delete from click_batches`,
			`select at, visitor from clicks`, `update clicks set class = 'bot', reason = 'list', ruleset = 1`, `delete from clicks`, `delete from clicks_other`,
			`select clicks from click_counts`, `delete from click_counts`, `select agent from click_agents`,
			`update click_agents set facts = 1, listed = false, ruleset = 1, seen_on = now()`, `delete from click_agents where seen_on < '2001-01-01'`,
			`select day from click_salts`, `delete from click_salts where day < '2001-01-01'`, `select advance_click_as_of()`, `select as_of from click_as_of`,
			`select make_click_partitions(8)`, `select drop_click_partitions('1 day')`, `update clicks set late = true`,
			`insert into click_quarters (org_key, quarter, class, outcome, clicks) values ('acme', now(), 'human', 'redirect', 1)`, `update click_quarters set clicks = 1`,
			`insert into click_days (org_key, day, class, outcome, clicks) values ('acme', now(), 'human', 'redirect', 1)`, `update click_days set clicks = 1`,
			`insert into click_org_quarters (org_key, quarter, class, outcome, clicks) values ('acme', now(), 'human', 'redirect', 1)`,
			`insert into click_org_days (org_key, day, class, outcome, clicks) values ('acme', now(), 'human', 'redirect', 1)`,
			`insert into click_dimensions (org_key, day, class, dimension, clicks) values ('acme', now(), 'human', 'os', 1)`,
			`insert into click_org_dimensions (org_key, day, class, dimension, clicks) values ('acme', now(), 'human', 'os', 1)`,
			`insert into click_visitors (org_key, link_id, day, visitor) values ('acme', gen_random_uuid(), now(), 1)`, `delete from click_visitors`,
			`insert into click_visitor_days (org_key, link_id, day) values ('acme', gen_random_uuid(), now())`, `update click_visitor_days set visitors = 1`,
			`insert into click_links (org_key, link_id) values ('acme', gen_random_uuid())`, `update click_links set human = 1`,
			`insert into click_organizations (org_key, reclassified_at) values ('acme', now())`, `insert into click_agent_rulesets (agent_id, ruleset, facts) values (0, 1, 1)`,
			`delete from click_quarters_other`, `delete from click_org_quarters_other`, `delete from click_visitors_other`,
			`select make_click_figure_partitions(8)`, `select drop_click_figure_partitions('30 days')`,
		},
		refused: []string{
			`insert into changes (tags) values ('{}')`, `update changes set tags = '{}'`, `truncate changes`, `select record_change('{*}', '{}')`,
			`update edges set renewals = 1`, `update edges set address = 'a:1'`, `insert into edges (slot, incarnation, lease_ms, hold_ms) values ('a', gen_random_uuid(), 1, 1)`,
			`insert into deleted_links (id) values (gen_random_uuid())`, `insert into match_redemptions (nonce) values ('\x0000000000000001')`,
			`truncate domain_transfers`, `update audit_log set detail = '{}'`, `delete from audit_log`, `truncate audit_log`,
			`insert into audit_log (id, organization_id, at, actor_type, action, target_type, target_id, detail)
			 values (gen_random_uuid(), gen_random_uuid(), '2020-01-01', 'user', 'link.create', 'link', gen_random_uuid(), '{}')`,
			`delete from goose_db_version`, `insert into goose_db_version (version_id, is_applied) values (1, true)`,
			`delete from organizations`, `truncate links`, `create table x (y int)`, `alter table links disable trigger all`,
			`set session_replication_role = replica`, `set role deeplink_edge`, `delete from link_usage`,
			`update events set name = 'x'`, `delete from events`, `truncate events`, `drop table events`, `truncate devices`, `truncate identities`, `update event_ids set id = id`,
			`update events set device_id = ''`, `update signing_keys set key = sha256('d')`, `delete from signing_keys`, `truncate idempotency_keys`,
			`select salt from click_salts`, `select click_salt(now()::date)`, `select click_floor()`, `update clicks set at = now()`, `update click_batches set late = false`,
			`insert into clicks (log) values (gen_random_uuid())`, `insert into click_batches (log) values (gen_random_uuid())`, `truncate clicks`,
			`update click_as_of set as_of = now()`, `drop table clicks_other`, `delete from click_days`, `delete from click_org_days`, `delete from click_dimensions`,
			`truncate click_quarters`, `delete from click_organizations`, `drop table click_days_other`,
		},
	},
}

func TestRolesHaveOnlyTheRightsTheyNeed(t *testing.T) {
	t.Parallel()
	database := testkit.NewDatabase(t)
	run(t, testkit.Connect(t, database.URL), twoOrganizations)
	for role, grant := range grants {
		conn := testkit.Connect(t, map[string]string{"edge": database.EdgeURL, "control": database.ControlURL}[role])
		for _, statement := range grant.allowed {
			if _, err := conn.Exec(t.Context(), statement); err != nil {
				t.Errorf("%s: %s: %v, expected success", role, statement, err)
			}
		}
		for _, statement := range grant.refused {
			_, err := conn.Exec(t.Context(), statement)
			if failed := new(pgconn.PgError); !errors.As(err, &failed) || failed.Code != insufficientPrivilege {
				t.Errorf("%s: %s: %v, expected insufficient privilege", role, statement, err)
			}
		}
	}
}
