// Control is the API that edits deep links. It accepts every write, stores it in Postgres, and responds to an edit only when no edge serves
// the previous version any more. The same program has the operator's commands, such as migrate. It never resolves a click; edges do.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"deeplink/control/internal/store"
	"deeplink/migrations"
	"deeplink/shared/bus"
	"deeplink/shared/settings"
)

// Exit codes.
const (
	exitFailed   = 1
	exitSettings = 2
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// After the first signal the handler is removed, so that a second signal kills the process.
	context.AfterFunc(ctx, stop)
	bus.Silence()
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run runs one command and returns its exit code. Results go to stdout, everything else to stderr.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	c, selected, err := parseCommand(args, stdout, stderr, os.Exit)
	if err != nil {
		fmt.Fprintln(stderr, "control:", err)
		return exitSettings
	}
	t := &env{ctx: ctx, database: c.DatabaseURL, log: c.Logger(stderr), out: stdout, err: stderr}
	err = selected.Run(t)
	if err == nil {
		return 0
	}
	fmt.Fprintln(stderr, "control:", err)
	if errors.Is(err, errArgument) {
		return exitSettings
	}
	return exitFailed
}

// env is what a command runs with.
type env struct {
	ctx      context.Context
	database settings.Database
	log      *slog.Logger
	out, err io.Writer
}

// openPool returns a pool of at most size connections.
func (t *env) openPool(size settings.Connections) (*pgxpool.Pool, error) {
	return store.OpenPool(string(t.database), int(size))
}

// print writes the result of a command as one JSON value.
func (t *env) print(result any) error {
	encoder := json.NewEncoder(t.out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	return encoder.Encode(result)
}

type migrateCommand struct {
	RetryFor time.Duration `default:"15m" help:"How long to try each migration again while other transactions hold the locks that it needs."`
}

// maxMigrationRetry bounds --retry-for.
const maxMigrationRetry = 24 * time.Hour

// Validate implements kong's check of a command.
func (c *migrateCommand) Validate() error {
	if c.RetryFor <= 0 || c.RetryFor > maxMigrationRetry {
		return fmt.Errorf("--retry-for must be more than 0s and at most %v", maxMigrationRetry)
	}
	return nil
}

type migrated struct {
	Applied []int64 `json:"applied"`
}

// Run applies the migrations that the database lacks and prints their versions.
func (c *migrateCommand) Run(t *env) error {
	ran, err := migrations.Run(t.ctx, string(t.database), migrations.Options{RetryFor: c.RetryFor, Log: t.log})
	if err != nil {
		return err
	}
	if ran == nil {
		ran = []int64{}
	}
	return t.print(migrated{Applied: ran})
}
