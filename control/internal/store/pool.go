package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"deeplink/shared/postgres"
)

const (
	// connectTimeout and pingTimeout bound what pgx does before it sends a statement. pgx pings a connection that was idle for a second, so
	// that a dead connection costs a ping and not a request. An edge allows less time to connect, because it can serve from its cache; a
	// request to control can only fail.
	connectTimeout = 3 * time.Second
	pingTimeout    = 200 * time.Millisecond
	// abandonedAfter is when Postgres itself ends a statement, or a transaction that waits for this process, so that a control that was
	// stopped does not hold locks. Requests and writes have shorter timeouts of their own.
	abandonedAfter = "15s"
)

// OpenPool returns a pool of at most size connections, without waiting for one. Parameters in url win over those set here.
func OpenPool(url string, size int) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, fmt.Errorf("read the database URL: %w", err)
	}
	config.MaxConns = int32(size)
	config.PingTimeout = pingTimeout
	config.HealthCheckPeriod = 15 * time.Second
	// Connections have a maximum age, so that they move to the new server after a failover or when servers are added.
	config.MaxConnLifetime = 30 * time.Minute
	config.MaxConnLifetimeJitter = 5 * time.Minute
	postgres.BoundConnecting(&config.ConnConfig.Config, connectTimeout)
	config.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		return errors.Join(postgres.Durable(ctx, conn), postgres.BoundLockWaits(ctx, conn, LockTimeout))
	}
	config.ConnConfig.Tracer = statements{}
	for name, value := range map[string]string{
		"application_name":                    "deeplink control",
		"statement_timeout":                   abandonedAfter,
		"idle_in_transaction_session_timeout": abandonedAfter,
		// JIT is off: compilation costs more than it saves on list queries.
		"jit": "off",
		// With less memory, the bitmap of a search becomes lossy, and Postgres rechecks every row of its pages.
		"work_mem": "16MB",
	} {
		if _, set := config.ConnConfig.RuntimeParams[name]; !set {
			config.ConnConfig.RuntimeParams[name] = value
		}
	}
	return pgxpool.NewWithConfig(context.Background(), config)
}
