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

// pingTimeout bounds the check of a connection that was idle. After it the pool takes another connection.
const pingTimeout = 200 * time.Millisecond

// openPool returns a pool of at most conns connections to the primary at databaseURL. connectTimeout bounds a connection attempt for all
// hosts of the URL together. The pool calls prepare, which may be nil, for each new connection.
func openPool(ctx context.Context, databaseURL string, conns int32, connectTimeout time.Duration, prepare func(context.Context, *pgx.Conn) error) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(databaseURL)
	if err != nil {
		return nil, fmt.Errorf("DATABASE_URL: %w", err)
	}
	config.MaxConns = conns
	config.PingTimeout = pingTimeout
	postgres.BoundConnecting(&config.ConnConfig.Config, connectTimeout)
	// A standby is behind the primary and cannot store redemptions.
	config.ConnConfig.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsPrimary
	config.AfterConnect = prepare
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("open the database: %w", err)
	}
	return pool, nil
}

// withCurrentPlan calls query, which runs one statement, until it gets a connection on which the prepared statement is current
// ([postgres.PlanChanged]).
func withCurrentPlan(query func() error) (err error) {
	for range postgres.MaxRenewals {
		if err = query(); postgres.Code(err) != postgres.PlanChanged {
			break
		}
	}
	return err
}
