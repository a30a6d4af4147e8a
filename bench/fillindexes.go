package main

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// An entry of a search index goes into some sixty places of a tree: all of them at once, in order, is five times as fast.
const searchIndexesSQL = `
	select indexname, indexdef from pg_indexes where schemaname = 'public' and tablename = 'links' and indexdef like '% USING gin %'`

// withoutSearchIndexes does the work while links has no search indexes, and makes them again. Meanwhile a search looks at every link.
func withoutSearchIndexes(ctx context.Context, owner *pgx.Conn, work func() error) error {
	type index struct{ Name, Definition string }
	rows, _ := owner.Query(ctx, searchIndexesSQL)
	indexes, err := pgx.CollectRows(rows, pgx.RowToStructByPos[index])
	if err != nil {
		return fmt.Errorf("look for the search indexes: %w", err)
	}
	for _, i := range indexes {
		if _, err := owner.Exec(ctx, `drop index `+pgx.Identifier{i.Name}.Sanitize()); err != nil {
			return fmt.Errorf("drop a search index: %w", err)
		}
	}
	failed := work()
	for _, i := range indexes {
		if _, err := owner.Exec(context.WithoutCancel(ctx), i.Definition); err != nil {
			return fmt.Errorf("make the search index again (%s): %w", i.Definition, err)
		}
	}
	return failed
}
