package origin

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"deeplink/shared/postgres"
)

// pingTimeout bounds how long a connection that was idle is waited for before another one is taken.
const pingTimeout = 200 * time.Millisecond

// openPool returns a pool of at most conns connections to the primary at databaseURL. connectTimeout bounds how long a dead Postgres
// is waited for, all of its hosts together; prepare, which may be nil, is called on each new connection.
func openPool(ctx context.Context, databaseURL string, conns int32, connectTimeout time.Duration, prepare func(context.Context, *pgx.Conn) error) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(databaseURL)
	if err != nil {
		return nil, fmt.Errorf("DATABASE_URL: %w", err)
	}
	config.MaxConns = conns
	config.PingTimeout = pingTimeout
	postgres.BoundConnecting(&config.ConnConfig.Config, connectTimeout)
	// A standby would answer from the past, and takes no redemption.
	config.ConnConfig.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsPrimary
	config.AfterConnect = prepare
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("open the database: %w", err)
	}
	return pool, nil
}

// again asks, and once more when a migration has changed what a prepared statement returns: the first run after that fails, once on
// each connection.
func again(ask func() error) error {
	err := ask()
	if postgres.Code(err) == postgres.PlanChanged {
		err = ask()
	}
	return err
}
