package migrations_test

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"deeplink/shared/feed"
	"deeplink/shared/testkit"
)

// twoOrganizations inserts two organizations, the first with a custom domain, and a few links.
const twoOrganizations = `
	insert into organizations (id, org_key, name, plan) values
		('10000000-0000-4000-8000-000000000001', 'acme', 'Acme', 'scale'),
		('10000000-0000-4000-8000-000000000002', 'beta', 'Beta', null);
	insert into link_usage (organization_id) select id from organizations;
	insert into app_configs (organization_id, fallback_url) values ('10000000-0000-4000-8000-000000000001', 'https://acme.example/');
	insert into domains (id, organization_id, host, status) values
		('20000000-0000-4000-8000-000000000001', '10000000-0000-4000-8000-000000000001', null, 'verified'),
		('20000000-0000-4000-8000-000000000002', '10000000-0000-4000-8000-000000000002', null, 'verified'),
		('20000000-0000-4000-8000-000000000003', '10000000-0000-4000-8000-000000000001', 'go.acme.example', 'verified'),
		('20000000-0000-4000-8000-000000000004', '10000000-0000-4000-8000-000000000001', 'old.acme.example', 'pending');
	insert into links (id, organization_id, domain_id, short_code, path, params) values
		('40000000-0000-4000-8000-000000000001', '10000000-0000-4000-8000-000000000001', '20000000-0000-4000-8000-000000000001', 'One', '/1', '{"a": 1}'),
		('40000000-0000-4000-8000-000000000002', '10000000-0000-4000-8000-000000000001', '20000000-0000-4000-8000-000000000003', 'Two', '/2', null),
		('40000000-0000-4000-8000-000000000003', '10000000-0000-4000-8000-000000000002', '20000000-0000-4000-8000-000000000002', 'one', '/3', null);`

// many inserts 300 links of acme, and as many organizations with a link each.
const many = `
	insert into links (id, organization_id, domain_id, short_code, path)
		select gen_random_uuid(), '10000000-0000-4000-8000-000000000001', '20000000-0000-4000-8000-000000000001', 'many' || i, '/' from generate_series(1, 300) i;
	with o as (insert into organizations (id, org_key, name) select gen_random_uuid(), 'z' || lpad(i::text, 3, '0'), 'Z' from generate_series(1, 300) i returning id)
		insert into domains (id, organization_id, status) select gen_random_uuid(), id, 'verified' from o;
	insert into links (id, organization_id, domain_id, short_code, path)
		select gen_random_uuid(), d.organization_id, d.id, 'lone', '/' from domains d join organizations o on o.id = d.organization_id where o.org_key like 'z%';`

const (
	insertLinks = `insert into links (id, organization_id, domain_id, short_code, path) values
		(gen_random_uuid(), '10000000-0000-4000-8000-000000000001', '20000000-0000-4000-8000-000000000001', 'New', '/'),
		(gen_random_uuid(), '10000000-0000-4000-8000-000000000002', '20000000-0000-4000-8000-000000000002', 'new', '/')`
	insertDomain = `insert into domains (id, organization_id, host, status) values
		(gen_random_uuid(), '10000000-0000-4000-8000-000000000002', 'go.beta.example', 'pending')`
	claimDomain = `insert into domains (id, organization_id, host, status) values
		('20000000-0000-4000-8000-000000000005', '10000000-0000-4000-8000-000000000002', 'go.acme.example', 'pending')`
)

// Every statement runs alone on the same rows and is rolled back. Its rows of changes are separated by semicolons.
var changes = map[string]string{
	// Links: every way to change what an edge serves, of one link and of several.
	insertLinks: "k:acme/new k:beta/new",
	`delete from links where short_code = 'One'`:                                                           "k:acme/one",
	`delete from links`:                                                                                    "k:acme/one k:beta/one k:go.acme.example/two",
	`update links set is_active = false`:                                                                   "k:acme/one k:beta/one k:go.acme.example/two",
	`update links set is_active = (path <> '/1')`:                                                          "k:acme/one",
	`update links set path = '/x' where path = '/2'`:                                                       "k:go.acme.example/two",
	`update links set channel = 'sms' where path = '/1'`:                                                   "k:acme/one",
	`update links set utm_source = 'x' where path = '/1'`:                                                  "k:acme/one",
	`update links set utm_medium = 'x' where path = '/1'`:                                                  "k:acme/one",
	`update links set utm_campaign = 'x' where path = '/1'`:                                                "k:acme/one",
	`update links set utm_term = 'x' where path = '/1'`:                                                    "k:acme/one",
	`update links set utm_content = 'x' where path = '/1'`:                                                 "k:acme/one",
	`update links set fallback_url = 'x' where path = '/1'`:                                                "k:acme/one",
	`update links set og_title = 'x' where path = '/1'`:                                                    "k:acme/one",
	`update links set og_description = 'x' where path = '/1'`:                                              "k:acme/one",
	`update links set og_image_url = 'x' where path = '/1'`:                                                "k:acme/one",
	`update links set expiry = now() where path = '/1'`:                                                    "k:acme/one",
	`update links set params = '{"a": 1.0}' where path = '/1'`:                                             "k:acme/one",
	`update links set params = null where path = '/1'`:                                                     "k:acme/one",
	`update links set id = gen_random_uuid() where path = '/1'`:                                            "k:acme/one",
	`update links set short_code = 'Uno' where path = '/1'`:                                                "k:acme/one k:acme/uno",
	`update links set short_code = 'ONE' where path = '/1'`:                                                "k:acme/one",
	`update links set domain_id = '20000000-0000-4000-8000-000000000003' where path = '/1'`:                "k:acme/one k:go.acme.example/one",
	`update links set path = '/1' where path = '/2'; update links set is_active = false where path = '/1'`: "k:go.acme.example/two; k:acme/one k:go.acme.example/two",
	`insert into links (id, organization_id, domain_id, short_code, path) select id, organization_id, domain_id, short_code, path from links on conflict (id) do update set path = '/up'`: "k:acme/one k:beta/one k:go.acme.example/two",
	`insert into links (id, organization_id, domain_id, short_code, path) select id, organization_id, domain_id, short_code, path from links on conflict do nothing`:                      "",
	`truncate links`: "*",
	// Changes that no edge serves.
	`update links set title = 'x', tags = '{x}', template_id = 'x'`:             "",
	`update links set path = path, updated_at = now(), version = 9`:             "",
	`update links set is_active = false where false`:                            "",
	`delete from links where false`:                                             "",
	`update link_usage set links = 7`:                                           "",
	`update organizations set plan = 'free', name = 'x', external_id = org_key`: "",
	`insert into api_keys (id, organization_id, tier, hash, display_key) select gen_random_uuid(), id, 'SERVER', sha256(org_key::bytea), '' from organizations`: "",
	// Organizations, app configs and domains.
	`insert into organizations (id, org_key, name) values (gen_random_uuid(), 'gama', 'Gamma')`: "d:shared o:gama",
	`update organizations set suspended = true`:                                                 "o:acme; o:beta",
	`update organizations set suspended = suspended where org_key = 'beta'`:                     "o:beta",
	`truncate organizations cascade`:                                                            "*; *; *; *",
	`insert into app_configs (organization_id) values ('10000000-0000-4000-8000-000000000002')`: "d:shared o:beta",
	`update app_configs set fallback_url = fallback_url`:                                        "d:shared o:acme",
	`update app_configs set html_error_pages = true`:                                            "d:shared o:acme",
	`update app_configs set organization_id = '10000000-0000-4000-8000-000000000002'`:           "d:shared o:acme o:beta",
	`delete from app_configs`:                                                                   "d:shared o:acme",
	`truncate app_configs`:                                                                      "*",
	insertDomain:                                                                                "",
	strings.Replace(insertDomain, "pending", "verified", 1):                                     "d:go.beta.example",
	claimDomain: "",
	`update domains set lost_at = now() where host = 'old.acme.example'`:                    "",
	`update domains set status = 'pending', lost_at = now() where host = 'go.acme.example'`: "d:go.acme.example",
	claimDomain + `; update domains set status = 'pending' where id = '20000000-0000-4000-8000-000000000003'; update domains set status = 'verified' where id = '20000000-0000-4000-8000-000000000005'`: "d:go.acme.example; d:go.acme.example",
	`update domains set status = 'verified' where host = 'old.acme.example'`:                                "d:old.acme.example",
	`update domains set host = 'new.acme.example' where host = 'go.acme.example'`:                           "d:go.acme.example d:new.acme.example",
	`update domains set status = 'verified' where organization_id = '10000000-0000-4000-8000-000000000002'`: "d:beta",
	`delete from domains where host = 'old.acme.example'`:                                                   "",
	`delete from links where path = '/2'; delete from domains where host = 'go.acme.example'`:               "k:go.acme.example/two; d:go.acme.example",
	`truncate domains cascade`: "*; *",
	// Deleted with all its data, in one statement.
	`with l as (delete from links where organization_id = '10000000-0000-4000-8000-000000000002'),
	      d as (delete from domains where organization_id = '10000000-0000-4000-8000-000000000002')
	 delete from organizations where org_key = 'beta'`: "d:shared o:beta",
}

// The same with very many links: tags of organizations replace tags of many keys, and "*" replaces tags of many organizations.
var bulkChanges = map[string]string{
	`update links set is_active = false where short_code like 'many%'`:                             "o:acme",
	`delete from links where short_code like 'many%' or path = '/3'`:                               "o:acme o:beta",
	`update links set is_active = false where short_code = 'lone'`:                                 "*",
	`delete from links where short_code like 'many%' and right(short_code, 1) between '0' and '4'`: manyTags("0", "4"),
}

// manyTags are the keys of acme's 300 links whose codes end in a digit between first and last.
func manyTags(first, last string) string {
	var tags []string
	for i := range 300 {
		code := "many" + strconv.Itoa(i+1)
		if end := code[len(code)-1:]; end >= first && end <= last {
			tags = append(tags, "k:acme/"+code)
		}
	}
	slices.Sort(tags)
	return strings.Join(tags, " ")
}

func TestEveryChangeNamesExactlyWhatEdgesForget(t *testing.T) {
	t.Parallel()
	for rows, cases := range map[string]map[string]string{twoOrganizations: changes, twoOrganizations + many: bulkChanges} {
		conn := testkit.Connect(t, testkit.NewDatabase(t).URL)
		run(t, conn, rows)
		for statement, expected := range cases {
			for _, role := range []string{"origin", "replica"} {
				checkChange(t, conn, role, statement, expected)
			}
		}
	}
}

// checkChange runs the statement with the triggers of the replication role, and rolls it back.
func checkChange(t *testing.T, conn *pgx.Conn, role, statement, expected string) {
	t.Helper()
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background())
	run(t, conn, "set local session_replication_role = "+role)
	run(t, conn, statement)
	if diff := cmp.Diff(expected, recorded(t, conn)); diff != "" {
		t.Errorf("%s\nas %s: (-expected +got):\n%s", statement, role, diff)
	}
	if !strings.Contains(statement, "link_usage") {
		usageIsExact(t, conn)
	}
}

// recorded returns the tags of this transaction's rows of changes.
func recorded(t *testing.T, conn *pgx.Conn) string {
	t.Helper()
	rows := values[[]string](t, conn, `select tags from changes where xid = pg_current_xact_id() order by id`)
	texts := make([]string, len(rows))
	for i, tags := range rows {
		slices.Sort(tags)
		texts[i] = strings.Join(tags, " ")
	}
	return strings.Join(texts, "; ")
}

func TestVersionAndMarkerAreSetByTriggerOnly(t *testing.T) {
	t.Parallel()
	conn := testkit.Connect(t, testkit.NewDatabase(t).URL)
	run(t, conn, twoOrganizations)
	type state struct {
		Version int64
		XID     uint64
		Updated bool
	}
	get := func() state {
		t.Helper()
		rows, _ := conn.Query(t.Context(), `select version, changed_xid, updated_at > created_at from links where path like '/1%'`)
		s, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[state])
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	first := get()
	run(t, conn, `update links set title = 'x', version = 77, changed_xid = '3', updated_at = '2001-01-01Z' where path = '/1'`)
	if got := get(); got != (state{2, first.XID, true}) {
		t.Errorf("after a title: %+v, expected version 2, the xid %d and a new time", got, first.XID)
	}
	run(t, conn, `update links set path = '/1b', version = 77, changed_xid = '3' where path = '/1'`)
	last := values[uint64](t, conn, `select xid from changes order by id desc limit 1`)[0]
	if got := get(); got != (state{3, last, true}) {
		t.Errorf("after a path: %+v, expected version 3 and the xid %d", got, last)
	}
	for _, refused := range []string{
		`update links set organization_id = '10000000-0000-4000-8000-000000000002', domain_id = '20000000-0000-4000-8000-000000000002'`,
		`update organizations set org_key = 'gama' where org_key = 'acme'`,
		`insert into links (id, organization_id, domain_id, short_code, path) values
			(gen_random_uuid(), '10000000-0000-4000-8000-000000000001', '20000000-0000-4000-8000-000000000002', 'theirs', '/')`,
		`insert into organizations (id, org_key, name) values (gen_random_uuid(), 'data', 'x')`,
		`insert into domains (id, organization_id, status) values (gen_random_uuid(), '10000000-0000-4000-8000-000000000001', 'verified')`,
	} {
		if _, err := conn.Exec(t.Context(), refused); err == nil {
			t.Errorf("not rejected: %s", refused)
		}
	}
}

func TestDeletedLinksStoresTheTransaction(t *testing.T) {
	t.Parallel()
	conn := testkit.Connect(t, testkit.NewDatabase(t).URL)
	run(t, conn, twoOrganizations)
	run(t, conn, `delete from links where path <> '/3'`)
	const query = `
		select d.id::text from deleted_links d join changes c on c.xid = d.xid
		where c.tags @> '{k:acme/one}' and d.organization_id = '10000000-0000-4000-8000-000000000001' order by 1`
	expected := []string{"40000000-0000-4000-8000-000000000001", "40000000-0000-4000-8000-000000000002"}
	if diff := cmp.Diff(expected, values[string](t, conn, query)); diff != "" {
		t.Errorf("(-expected +got):\n%s", diff)
	}
	// Restored by hand and deleted again: the later delete counts.
	run(t, conn, `insert into links (id, organization_id, domain_id, short_code, path) values
		('40000000-0000-4000-8000-000000000001', '10000000-0000-4000-8000-000000000001', '20000000-0000-4000-8000-000000000001', 'One', '/1')`)
	run(t, conn, `delete from links where path = '/1'`)
	if diff := cmp.Diff(expected[:1], values[string](t, conn, query+` limit 1`)); diff != "" {
		t.Errorf("after the second deletion (-expected +got):\n%s", diff)
	}
	if late := values[bool](t, conn, `select xid = (select max(xid::text::bigint)::text::xid8 from changes) from deleted_links order by id`); !late[0] || late[1] {
		t.Errorf("transactions of the deletions are the last one: %v, expected only that of the second", late)
	}
}

// The deletion cascades; the trigger can then no longer find the organization.
func TestAppConfigIsDeletedWithItsOrganization(t *testing.T) {
	t.Parallel()
	conn := testkit.Connect(t, testkit.NewDatabase(t).URL)
	run(t, conn, twoOrganizations)
	run(t, conn, `delete from links; delete from domains; truncate changes; delete from organizations where org_key = 'acme'`)
	tags := values[string](t, conn, `select distinct unnest(tags) from changes order by 1`)
	if diff := cmp.Diff([]string{feed.DomainTag(feed.SharedDomain), feed.OrganizationTag("acme")}, tags); diff != "" {
		t.Errorf("(-expected +got):\n%s", diff)
	}
	if n := values[int64](t, conn, `select count(*) from app_configs`)[0]; n != 0 {
		t.Errorf("%d app configs are left", n)
	}
}
