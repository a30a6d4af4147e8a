package migrations_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"deeplink/shared/testkit"
)

// clickRights are all rights of the edges' role on what has to do with clicks, but for the columns of click_logs and clicks.
var clickRights = []string{
	"click_agents agent INSERT", "click_agents agent SELECT", "click_agents id INSERT", "click_agents id SELECT",
	"click_batches log INSERT", "click_batches log SELECT", "click_batches sequence INSERT", "click_batches sequence SELECT",
	"click_batches * INSERT", "click_counts * INSERT",
	"click_floor()", "click_salt(date)",
}

// TestEdgesHaveNoRightOnClicksButThoseOfTheirProtocol asks Postgres for every right on every table, column, sequence and function of clicks.
func TestEdgesHaveNoRightOnClicksButThoseOfTheirProtocol(t *testing.T) {
	t.Parallel()
	conn := testkit.Connect(t, testkit.NewDatabase(t).URL)
	expected := append([]string(nil), clickRights...)
	for _, column := range []string{"log", "slot", "state", "durable", "through", "published_at", "ended_at"} {
		for _, right := range []string{"SELECT", "INSERT", "UPDATE"} {
			expected = append(expected, "click_logs "+column+" "+right)
		}
	}
	for _, column := range []string{"log", "sequence", "ordinal", "at", "org_key", "link_id", "outcome", "class", "reason", "ruleset", "evidence", "agent_id", "country", "language",
		"referrer", "visitor"} {
		expected = append(expected, "clicks "+column+" INSERT")
	}
	for _, column := range []string{"slot", "first_at", "through", "clicks", "late", "shipped_at", "rolled_at"} {
		expected = append(expected, "click_batches "+column+" INSERT")
	}
	for _, column := range []string{"log", "sequence", "org_key", "link_id", "outcome", "class", "quarter", "clicks"} {
		expected = append(expected, "click_counts "+column+" INSERT")
	}
	const rights = `
		with tables as (select c.oid, c.relname, c.relkind from pg_class c where c.relnamespace = 'public'::regnamespace and c.relname ~ '^clicks?(_|$)' and c.relkind in ('r', 'p', 'v', 'm', 'S'))
		select relname || ' * ' || privilege from tables, unnest('{SELECT,INSERT,UPDATE,DELETE,TRUNCATE,REFERENCES,TRIGGER}'::text[]) privilege
		where relkind <> 'S' and has_table_privilege('edge_login', oid, privilege)
		union all
		select relname || ' ' || attname || ' ' || privilege from tables join pg_attribute on attrelid = oid and attnum > 0 and not attisdropped,
			unnest('{SELECT,INSERT,UPDATE,REFERENCES}'::text[]) privilege
		where relkind <> 'S' and has_column_privilege('edge_login', oid, attname, privilege)
		union all
		select relname || ' ' || privilege from tables, unnest('{USAGE,SELECT,UPDATE}'::text[]) privilege where relkind = 'S' and has_sequence_privilege('edge_login', oid, privilege)
		union all
		select p.oid::regprocedure::text from pg_proc p where pronamespace = 'public'::regnamespace and proname ~ 'click' and has_function_privilege('edge_login', p.oid, 'EXECUTE')`
	if diff := cmp.Diff(slices.Sorted(slices.Values(expected)), slices.Sorted(slices.Values(values[string](t, conn, rights)))); diff != "" {
		t.Errorf("rights of the edges' role (-expected +got):\n%s", diff)
	}
	if member := values[string](t, conn, `select r.rolname from pg_auth_members m join pg_roles r on r.oid = m.roleid where m.member = 'deeplink_edge'::regrole`); len(member) > 0 {
		t.Errorf("the edges' role is a member of %v", member)
	}
}
