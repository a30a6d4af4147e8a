package store

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
)

// Server holds facts about the Postgres server and the current role.
type Server struct {
	Role, Version string
	VersionNumber int // 150004 is 15.4
	// InRecovery: a standby. ReadOnly: transactions cannot write, for that or another reason.
	InRecovery, ReadOnly bool
	// SynchronousCommit and Fsync are the defaults of a new connection.
	SynchronousCommit string
	Fsync             bool
	// Limit is the maximum number of connections of this role, and Free the number that is available now: the minimum over the limits of the
	// server, the database and the role.
	Limit, Free int
	// Powers are the attributes of the role that control does not need.
	Powers []string
}

const serverSQL = `
	select current_user, current_setting('server_version'), current_setting('server_version_num')::int, pg_is_in_recovery(),
	       current_setting('transaction_read_only')::bool,
	       (select reset_val from pg_settings where name = 'synchronous_commit'), current_setting('fsync')::bool,
	       b.most, b.free,
	       array_remove(array[case when r.rolsuper then 'superuser' end, case when r.rolcreaterole then 'createrole' end,
	                          case when r.rolcreatedb then 'createdb' end, case when r.rolreplication then 'replication' end,
	                          case when r.rolbypassrls then 'bypassrls' end,
	                          case when has_schema_privilege('public', 'create') then 'create in schema public' end,
	                          case when not r.rolsuper and exists (select from pg_class c where c.relnamespace = 'public'::regnamespace and pg_has_role(c.relowner, 'usage'))
	                               then 'owner of tables' end], null)
	from pg_roles r, pg_database d, lateral (
		select least(current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int,
		             case when d.datconnlimit >= 0 then d.datconnlimit end, case when r.rolconnlimit >= 0 then r.rolconnlimit end) as most,
		       least(current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int - count(*),
		             case when d.datconnlimit >= 0 then d.datconnlimit - count(*) filter (where a.datname = d.datname) end,
		             case when r.rolconnlimit >= 0 then r.rolconnlimit - count(*) filter (where a.usename = r.rolname) end)::int as free
		from pg_stat_activity a where a.backend_type = 'client backend') b
	where r.rolname = current_user and d.datname = current_database()`

// Server reads the facts about the server.
func (s *Store) Server(ctx context.Context) (server Server, err error) {
	err = retry("read the facts about the server", func() error {
		return s.pool.QueryRow(ctx, serverSQL).Scan(&server.Role, &server.Version, &server.VersionNumber, &server.InRecovery, &server.ReadOnly,
			&server.SynchronousCommit, &server.Fsync, &server.Limit, &server.Free, &server.Powers)
	})
	return server, err
}

// Clock returns the time of Postgres.
func (s *Store) Clock(ctx context.Context) (now time.Time, err error) {
	err = retry("read the clock", func() error {
		return s.pool.QueryRow(ctx, `select clock_timestamp()`).Scan(&now)
	})
	return now, err
}

// texts returns the rows of a statement with one text column.
func (s *Store) texts(ctx context.Context, what, sql string, arguments ...any) (all []string, err error) {
	err = retry(what, func() error {
		rows, err := s.pool.Query(ctx, sql, arguments...)
		if err != nil {
			return err
		}
		all, err = pgx.CollectRows(rows, pgx.RowTo[string])
		return err
	})
	return all, err
}

const migratedSQL = `
	select version_id from (select distinct on (version_id) version_id, is_applied from goose_db_version order by version_id, id desc) v
	where is_applied and version_id > 0 order by 1`

// Migrated returns the versions of the applied migrations.
func (s *Store) Migrated(ctx context.Context) (versions []int64, err error) {
	err = retry("read the migrations", func() error {
		rows, err := s.pool.Query(ctx, migratedSQL)
		if err != nil {
			return err
		}
		versions, err = pgx.CollectRows(rows, pgx.RowTo[int64])
		return err
	})
	return versions, err
}

// neededPrivileges are the privileges that control needs; migrations grant them to deeplink_control.
var neededPrivileges = map[string][]string{
	"organizations": {"SELECT", "INSERT", "UPDATE"}, "app_configs": {"SELECT", "INSERT", "UPDATE", "DELETE"},
	"domains": {"SELECT", "INSERT", "UPDATE", "DELETE"}, "api_keys": {"SELECT", "INSERT", "UPDATE", "DELETE"},
	"domain_transfers": {"SELECT", "INSERT", "UPDATE", "DELETE"},
	"console_sessions": {"SELECT", "INSERT", "UPDATE", "DELETE"}, "console_sign_ins": {"SELECT", "INSERT", "UPDATE", "DELETE"},
	"console_links": {"SELECT", "INSERT", "UPDATE", "DELETE"},
	"links":         {"SELECT", "INSERT", "UPDATE", "DELETE"}, "link_usage": {"SELECT", "INSERT", "UPDATE"},
	"changes": {"SELECT", "DELETE"}, "deleted_links": {"SELECT", "DELETE"}, "edges": {"SELECT", "DELETE"}, "match_redemptions": {"SELECT", "DELETE"},
	"audit_log": {"SELECT"}, "devices": {"SELECT", "INSERT", "UPDATE", "DELETE"}, "identities": {"SELECT", "INSERT", "UPDATE", "DELETE"},
	"sessions": {"SELECT", "INSERT", "UPDATE", "DELETE"}, "events": {"SELECT", "INSERT"}, "event_ids": {"SELECT", "INSERT", "DELETE"},
	"idempotency_keys": {"SELECT", "INSERT", "UPDATE", "DELETE"}, "signing_keys": {"SELECT", "INSERT"},
	"click_logs": {"SELECT", "UPDATE", "DELETE"}, "click_batches": {"SELECT", "DELETE"}, "click_counts": {"SELECT", "DELETE"},
	"clicks": {"SELECT", "DELETE"}, "clicks_other": {"SELECT", "DELETE"}, "click_agents": {"SELECT", "DELETE"}, "click_salts": {"DELETE"},
	"click_quarters": {"SELECT", "INSERT", "UPDATE", "DELETE"}, "click_org_quarters": {"SELECT", "INSERT", "UPDATE", "DELETE"},
	"click_quarters_other": {"SELECT", "DELETE"}, "click_org_quarters_other": {"SELECT", "DELETE"}, "click_visitors_other": {"SELECT", "DELETE"},
	"click_visitors": {"SELECT", "INSERT", "UPDATE", "DELETE"}, "click_visitor_days": {"SELECT", "INSERT", "UPDATE", "DELETE"},
	"click_links": {"SELECT", "INSERT", "UPDATE", "DELETE"}, "click_days": {"SELECT", "INSERT", "UPDATE"}, "click_org_days": {"SELECT", "INSERT", "UPDATE"},
	"click_dimensions": {"SELECT", "INSERT", "UPDATE"}, "click_org_dimensions": {"SELECT", "INSERT", "UPDATE"},
	"click_organizations": {"SELECT", "INSERT", "UPDATE"}, "click_agent_rulesets": {"SELECT", "INSERT"},
	"click_as_of":      {"SELECT"},
	"goose_db_version": {"SELECT"},
}

// neededFunctions are the functions that control calls.
var neededFunctions = []string{
	"make_event_partitions(integer)", "drop_event_partitions(interval)", "make_audit_partitions(integer)", "purge_audit_log()", "purge_audit_entries(tid, tid)", "tend_search_indexes()",
	"anonymize_events(uuid, text[], text, timestamptz, uuid, timestamptz, uuid)", "open_transactions(interval)", "hidden_sessions()",
	"advance_click_as_of()", "make_click_partitions(integer)", "drop_click_partitions(interval)",
	"make_click_figure_partitions(integer)", "drop_click_figure_partitions(interval)",
}

const privilegesSQL = `
	select p.privilege || ' on ' || c.relname
	from pg_class c, unnest(array['SELECT', 'INSERT', 'UPDATE', 'DELETE', 'TRUNCATE', 'TRIGGER']) as p (privilege)
	where c.relnamespace = 'public'::regnamespace and c.relkind in ('r', 'p', 'v', 'm') and has_table_privilege(c.oid, p.privilege)
	union all
	select 'INSERT into audit_log' where has_column_privilege(to_regclass('audit_log')::oid, 'detail', 'INSERT')
	union all
	select 'EXECUTE of ' || f from unnest($1::text[]) f where has_function_privilege(to_regprocedure(f)::oid, 'EXECUTE')
	order by 1`

// Privileges compares the role's privileges with those that control needs. It describes the missing and the superfluous ones.
func (s *Store) Privileges(ctx context.Context) (missing, excess []string, err error) {
	held, err := s.texts(ctx, "read the privileges", privilegesSQL, neededFunctions)
	if err != nil {
		return nil, nil, err
	}
	needed := []string{"INSERT into audit_log"}
	for table, privileges := range neededPrivileges {
		for _, privilege := range privileges {
			needed = append(needed, privilege+" on "+table)
		}
	}
	for _, function := range neededFunctions {
		needed = append(needed, "EXECUTE of "+function)
	}
	slices.Sort(needed)
	without := func(all, others []string) []string {
		return slices.DeleteFunc(slices.Clone(all), func(p string) bool { return slices.Contains(others, p) })
	}
	return without(needed, held), without(held, needed), nil
}

const searchIndexesSQL = `
	select wanted from unnest($1::text[]) wanted
	where not exists (select from pg_index i where i.indexrelid = to_regclass(wanted) and i.indisvalid and i.indisready)
	union
	select c.relname from pg_index i join pg_class c on c.oid = i.indexrelid
	where c.relnamespace = 'public'::regnamespace and not (i.indisvalid and i.indisready)
	order by 1`

// neededIndexes are the indexes without which lists and searches read all links of an organization, and the purge of identities all devices.
var neededIndexes = []string{
	"links_short_code", "links_newest", "links_text", "links_tags", "links_channel_newest", "links_domain_newest", "links_external_id", "devices_user",
}

// BadIndexes returns the indexes that are missing or invalid after an interrupted build.
func (s *Store) BadIndexes(ctx context.Context) ([]string, error) {
	return s.texts(ctx, "read the indexes", searchIndexesSQL, neededIndexes)
}

const triggersSQL = `
	select c.relname || '.' || t.tgname from pg_trigger t join pg_class c on c.oid = t.tgrelid
	where c.relnamespace = 'public'::regnamespace and c.relname in ('links', 'domains', 'organizations', 'app_configs')
	  and not t.tgisinternal and t.tgenabled in ('D', 'R') order by 1`

// DisabledTriggers returns the disabled triggers of the tables that edges serve from.
func (s *Store) DisabledTriggers(ctx context.Context) ([]string, error) {
	return s.texts(ctx, "read the triggers", triggersSQL)
}

// OpenTransaction is a transaction that has not ended.
type OpenTransaction struct {
	PID                                int // 0: a prepared transaction
	Role, Database, Application, State string
	Since                              time.Time
	Age                                time.Duration
}

const openTransactionsSQL = `
	select pid, coalesce(role, ''), coalesce(database, ''), coalesce(application, ''), coalesce(state, ''), since, clock_timestamp() - since
	from open_transactions($1)`

// OpenTransactions returns the transactions of the whole server, of every database, that have been open for at least that long, the oldest
// first. It leaves out those of HiddenSessions.
func (s *Store) OpenTransactions(ctx context.Context, atLeast time.Duration) (all []OpenTransaction, err error) {
	err = retry("read the open transactions", func() error {
		rows, err := s.pool.Query(ctx, openTransactionsSQL, atLeast)
		if err != nil {
			return err
		}
		all, err = pgx.CollectRows(rows, pgx.RowToStructByPos[OpenTransaction])
		return err
	})
	return all, err
}

// HiddenSessions returns the number of sessions whose transactions the owner of the schema may not read.
func (s *Store) HiddenSessions(ctx context.Context) (n int64, err error) {
	err = retry("read the sessions", func() error {
		return s.pool.QueryRow(ctx, `select hidden_sessions()`).Scan(&n)
	})
	return n, err
}

// EdgeRow is a row of edges.
type EdgeRow struct {
	Slot, Incarnation, Address string
	Release                    string // "" if unknown
	Renewals                   int64
	Lease, Hold                time.Duration
}

const edgeRowsSQL = `
	select slot, incarnation::text, coalesce(address, ''), coalesce(release, ''), renewals, lease_ms * interval '1 ms', hold_ms * interval '1 ms' from edges order by slot`

// EdgeRows returns all rows of edges. A row whose renewals have changed since an earlier call belongs to a running edge.
func (s *Store) EdgeRows(ctx context.Context) (all []EdgeRow, err error) {
	err = retry("read edges", func() error {
		rows, err := s.pool.Query(ctx, edgeRowsSQL)
		if err != nil {
			return err
		}
		all, err = pgx.CollectRows(rows, pgx.RowToStructByPos[EdgeRow])
		return err
	})
	return all, err
}

// ConsoleSessionKeys are sessions of the console whose tokens are sealed with the same keys.
type ConsoleSessionKeys struct {
	// SealedWith are the first bytes of the sealed tokens, which name their keys.
	SealedWith [][]byte
	// Renewable: there is a refresh token. It is true for sessions from a link, which need none.
	Renewable bool
	Sessions  int64
}

const consoleSessionKeysSQL = `
	select array_remove(array[substring(refresh_token for 4), substring(id_token for 4)], null), refresh_token is not null or via = 'link', count(*)
	from console_sessions where ends_at > $1 group by 1, 2`

// ConsoleSessionKeys counts the sessions that have not reached their latest end, by the keys of their tokens.
func (s *Store) ConsoleSessionKeys(ctx context.Context, now time.Time) (all []ConsoleSessionKeys, err error) {
	err = retry("count sessions of the console", func() error {
		rows, err := s.pool.Query(ctx, consoleSessionKeysSQL, now)
		if err != nil {
			return err
		}
		all, err = pgx.AppendRows(all[:0], rows, pgx.RowToStructByPos[ConsoleSessionKeys])
		return err
	})
	return all, err
}

const knowsConsoleSignInSQL = `select exists (select from console_sign_ins where state_hash = $1)`

// KnowsConsoleSignIn reports whether a sign-in with the state was started and has not ended.
func (s *Store) KnowsConsoleSignIn(ctx context.Context, state [32]byte) (known bool, err error) {
	err = retry("look for a sign-in", func() error {
		return s.pool.QueryRow(ctx, knowsConsoleSignInSQL, state[:]).Scan(&known)
	})
	return known, err
}
