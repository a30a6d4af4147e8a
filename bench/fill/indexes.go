package fill

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"deeplink/shared/postgres"
)

// An entry of a search index goes into about sixty places of a tree; inserting all entries at once, in order, is faster.
const searchIndexesSQL = `
	select c.relname, pg_get_indexdef(c.oid)
	from pg_index i join pg_class c on c.oid = i.indexrelid join pg_am a on a.oid = c.relam
	where i.indrelid = 'links'::regclass and a.amname = 'gin'`

// indexed calls load, with --rebuild while there are no search indexes. It restores them however load ends, unless this process is killed.
func (c Command) indexed(ctx context.Context, owner *pgx.Conn, load func(context.Context) error) (err error) {
	if !c.Rebuild {
		return load(ctx)
	}
	rows, _ := owner.Query(ctx, searchIndexesSQL)
	definitions := make(map[string]string)
	var name, definition string
	if _, err := pgx.ForEachRow(rows, []any{&name, &definition}, func() error { definitions[name] = definition; return nil }); err != nil {
		return fmt.Errorf("find the search indexes: %w", err)
	}
	defer func() { err = errors.Join(err, buildIndexes(context.WithoutCancel(ctx), c.Database, definitions)) }()
	for name := range definitions {
		if err := changeSchema(ctx, owner, `drop index `+pgx.Identifier{name}.Sanitize()); err != nil {
			return fmt.Errorf("drop a search index: %w", err)
		}
	}
	return load(ctx)
}

// buildIndexes uses a new connection: pgx closes a connection on which a statement was canceled.
func buildIndexes(ctx context.Context, database string, definitions map[string]string) error {
	owner, err := pgx.Connect(ctx, database)
	if err != nil {
		return fmt.Errorf("build the search indexes: %w", err)
	}
	defer owner.Close(ctx)
	if _, err := owner.Exec(ctx, `set maintenance_work_mem = '512MB'`); err != nil {
		return fmt.Errorf("build the search indexes: %w", err)
	}
	var errs []error
	for name, definition := range definitions {
		there := strings.Replace(definition, "CREATE INDEX ", "CREATE INDEX IF NOT EXISTS ", 1)
		if err := changeSchema(ctx, owner, there); err != nil {
			errs = append(errs, fmt.Errorf("build %s (%s): %w", name, definition, err))
		}
	}
	return errors.Join(errs...)
}

// lockPatience is how long a schema change is retried while other transactions hold the locks that it needs.
const lockPatience = 10 * time.Minute

// changeSchema runs one schema change. It waits for its locks as briefly as migrations do, so that requests do not queue behind it for
// longer.
func changeSchema(ctx context.Context, owner *pgx.Conn, statement string) error {
	return postgres.RetryLocks(ctx, lockPatience, func() error {
		return pgx.BeginFunc(ctx, owner, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, fmt.Sprintf(`set local lock_timeout = %d`, postgres.LockTimeout.Milliseconds())); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, statement)
			return err
		})
	})
}
