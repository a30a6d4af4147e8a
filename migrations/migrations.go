// Package migrations holds the schema of Deeplink as numbered SQL files and migrates a database to them.
//
// Migrations only go forward, and each is safe while the programs of the previous version run. None waits long for a lock: a migration that
// does not get a lock in time is rolled back and retried (migrator.go).
package migrations

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"time"

	"github.com/pressly/goose/v3"
)

//go:embed *.sql
var files embed.FS

// Latest makes [To] run every migration.
const Latest = 0

// DefaultRetry is how long a migration is retried unless [Options] say otherwise.
const DefaultRetry = 15 * time.Minute

// Options configure [Run]. The zero value runs every migration.
type Options struct {
	// Version is the last migration to run. Latest: all of them.
	Version int64
	// RetryFor bounds how long each migration is retried while other transactions hold the locks that it needs. 0: DefaultRetry.
	RetryFor time.Duration
	// Log gets a warning for each attempt that lost a lock, with the transactions that held the lock. Nil: none.
	Log *slog.Logger
}

// Up runs the missing migrations of the database at databaseURL. See [Run].
func Up(ctx context.Context, databaseURL string) ([]int64, error) {
	return Run(ctx, databaseURL, Options{})
}

// To is Up up to the given version.
func To(ctx context.Context, databaseURL string, version int64) ([]int64, error) {
	return Run(ctx, databaseURL, Options{Version: version})
}

// Run runs the missing migrations of the database at databaseURL, as the role of the URL, which must own the schema and be allowed to
// create roles. Several processes may call it concurrently: a session lock lets one of them do the work, and the others then find nothing
// to do. It returns the versions that it ran, and an error that names the failed migration. That migration changed nothing, or only what
// its next run removes first.
func Run(ctx context.Context, databaseURL string, o Options) (ran []int64, err error) {
	if o.RetryFor == 0 {
		o.RetryFor = DefaultRetry
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	versions, err := Versions()
	if err != nil {
		return nil, err
	}
	m, err := openMigrator(ctx, databaseURL, o)
	if err != nil {
		return nil, fmt.Errorf("migrate: %w", err)
	}
	defer func() { err = errors.Join(err, m.close(context.WithoutCancel(ctx))) }()
	if err := m.lock(ctx); err != nil {
		return nil, fmt.Errorf("migrate: %w", err)
	}
	current, err := m.current(ctx)
	if err != nil {
		return nil, fmt.Errorf("migrate: %w", err)
	}
	for _, version := range versions {
		if version <= current || o.Version != Latest && version > o.Version {
			continue
		}
		applied, err := m.migrate(ctx, version)
		ran = append(ran, applied...)
		if err != nil {
			return ran, fmt.Errorf("migrate to version %d: %w", version, err)
		}
	}
	return ran, nil
}

// Versions returns the versions of all migrations, in order.
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
