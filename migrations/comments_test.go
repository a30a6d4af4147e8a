package migrations_test

import (
	"testing"

	"deeplink/shared/testkit"
)

// The objects of the schema that a reader of the database meets, without their partitions, which are copies of their parents, and
// without goose's own table.
const uncommented = `
	select format('%s %s', case c.relkind when 'v' then 'view' else 'table' end, c.relname)
	from pg_class c
	where c.relnamespace = 'public'::regnamespace and c.relkind in ('r', 'p', 'v') and not c.relispartition and c.relname <> 'goose_db_version'
		and obj_description(c.oid, 'pg_class') is null
	union all
	select format('column %s.%s', c.relname, a.attname)
	from pg_class c join pg_attribute a on a.attrelid = c.oid
	where c.relnamespace = 'public'::regnamespace and c.relkind in ('r', 'p', 'v') and not c.relispartition and c.relname <> 'goose_db_version'
		and a.attnum > 0 and not a.attisdropped and col_description(c.oid, a.attnum) is null
	union all
	select format('function %s', p.oid::regprocedure)
	from pg_proc p
	where p.pronamespace = 'public'::regnamespace and obj_description(p.oid, 'pg_proc') is null
		and not exists (select from pg_depend d where d.objid = p.oid and d.deptype = 'e')
	union all
	select format('type %s', t.typname)
	from pg_type t
	where t.typnamespace = 'public'::regnamespace and t.typtype = 'e' and obj_description(t.oid, 'pg_type') is null
	order by 1`

func TestEveryTableColumnFunctionAndTypeHasAComment(t *testing.T) {
	t.Parallel()
	database := testkit.NewDatabase(t)
	for _, object := range values[string](t, testkit.Connect(t, database.URL), uncommented) {
		t.Errorf("%s has no comment", object)
	}
}
