// Package migrations holds the schema of Deeplink as numbered SQL files and brings a database up to date with them.
//
// Migrations only go forward, and each is safe while the programs before it still run.
package migrations

import (
	"context"
	"database/sql"
	"embed"
	"fmt"
	"io/fs"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver named "pgx"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"
)

//go:embed *.sql
var files embed.FS

// Latest makes [To] run every migration there is.
const Latest = 0

// Up runs the migrations that the database of databaseURL lacks, as the role of the URL, which must own the schema and may
// create roles. Any number of processes may call it at once: a session lock lets one do the work and the others find it done.
// It returns the versions it ran, and an error that names the migration which failed; that one left no trace, or what its next run
// begins by removing.
func Up(ctx context.Context, databaseURL string) ([]int64, error) {
	return To(ctx, databaseURL, Latest)
}

// To is Up as far as the given version.
func To(ctx context.Context, databaseURL string, version int64) (ran []int64, err error) {
	db, err := sql.Open("pgx", databaseURL)
	if err != nil {
		return nil, fmt.Errorf("open the database to migrate: %w", err)
	}
	defer db.Close()

	// The lock's defaults ask every 5 s; a process that only waits for its sibling need not.
	locker, err := lock.NewPostgresSessionLocker(lock.WithLockTimeout(1, 600), lock.WithUnlockTimeout(1, 60))
	if err != nil {
		return nil, err
	}
	provider, err := goose.NewProvider(goose.DialectPostgres, db, files, goose.WithSessionLocker(locker))
	if err != nil {
		return nil, err
	}
	var results []*goose.MigrationResult
	if version == Latest {
		results, err = provider.Up(ctx)
	} else {
		results, err = provider.UpTo(ctx, version)
	}
	for _, r := range results {
		ran = append(ran, r.Source.Version)
	}
	if err != nil {
		return ran, fmt.Errorf("migrate: %w", err)
	}
	return ran, nil
}

// Versions returns the migrations there are, in order.
func Versions() ([]int64, error) {
	names, err := fs.Glob(files, "*.sql")
	if err != nil {
		return nil, err
	}
	versions := make([]int64, len(names))
	for i, name := range names {
		if versions[i], err = goose.NumericComponent(name); err != nil {
			return nil, err
		}
	}
	return versions, nil
}
