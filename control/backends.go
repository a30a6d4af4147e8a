package main

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"deeplink/shared/bus"
	"deeplink/shared/postgres"
	"deeplink/shared/ratelimit"
	"deeplink/shared/settings"
)

const (
	// connectTimeout and pingTimeout bound what pgx does before a statement is sent. A connection idle for a second is pinged
	// first, so that one whose other end is gone costs a ping and not a request. A request has nowhere else to go, so a
	// connection gets more time than on an edge: there was no other reason for many a 503 on a machine with too much to do.
	connectTimeout = 3 * time.Second
	pingTimeout    = 200 * time.Millisecond
	// abandonedAfter is when Postgres itself ends a statement, or a transaction that waits for this process: a control that was
	// stopped in the middle must not hold its locks. It is longer than requestTimeout, which is the rule.
	abandonedAfter = "15s"
	// phoneConnections are for what phones send: there may be any amount of it, and much of it may wait for the row of one device.
	phoneConnections = 4
	// relayConnections are for looking at edges; waiting calls hold none.
	relayConnections = 2
	// dutyConnections are for readiness, the purge, the search indexes and the canary, which must not wait for each other.
	dutyConnections = 4
)

// backends are the connections of control serve. They are apart so that phones keep nobody who edits links waiting, and requests which
// wait for Postgres or Redis neither the barrier nor readiness.
type backends struct {
	requests, phones, relay, duties *pgxpool.Pool
	hints, counter                  redis.UniversalClient
}

// openBackends waits for no connection: what is down is no error here.
func openBackends(t *task, c *serveCommand) (_ *backends, err error) {
	b := new(backends)
	defer func() {
		if err != nil {
			b.close()
		}
	}()
	if b.requests, err = openPool(t.database, c.Connections); err != nil {
		return nil, err
	}
	if b.phones, err = openPool(t.database, phoneConnections); err != nil {
		return nil, err
	}
	if b.relay, err = openPool(t.database, relayConnections); err != nil {
		return nil, err
	}
	if b.duties, err = openPool(t.database, dutyConnections); err != nil {
		return nil, err
	}
	if b.hints, err = bus.Open(string(c.RedisURL)); err != nil {
		return nil, err
	}
	// A new connection costs a check its 25 ms on a busy machine, so all are there before they are needed. A check takes a
	// connection for less than 0.1 ms.
	b.counter, err = ratelimit.Open(string(c.RedisURL), ratelimit.Connections)
	return b, err
}

// close ends all connections that were opened, and waits for those in use.
func (b *backends) close() {
	for _, pool := range []*pgxpool.Pool{b.requests, b.phones, b.relay, b.duties} {
		if pool != nil {
			pool.Close()
		}
	}
	for _, client := range []redis.UniversalClient{b.hints, b.counter} {
		if client != nil {
			client.Close()
		}
	}
}

// openPool returns a pool of at most size connections.
func openPool(url settings.Database, size settings.Connections) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(string(url))
	if err != nil {
		return nil, fmt.Errorf("read the database URL: %w", err)
	}
	config.MaxConns = int32(size)
	config.PingTimeout = pingTimeout
	config.HealthCheckPeriod = 15 * time.Second
	// So that after a failover, or when servers are added, no connection stays where it is for ever.
	config.MaxConnLifetime = 30 * time.Minute
	config.MaxConnLifetimeJitter = 5 * time.Minute
	postgres.BoundConnecting(&config.ConnConfig.Config, connectTimeout)
	config.AfterConnect = postgres.Durable
	config.ConnConfig.Tracer = statements{}
	for name, value := range map[string]string{
		"application_name":                    "deeplink control",
		"statement_timeout":                   abandonedAfter,
		"idle_in_transaction_session_timeout": abandonedAfter,
		// Postgres compiles what looks dear, such as a page of a long list, for longer than it then takes.
		"jit": "off",
		// For what a search finds, of which Postgres otherwise remembers only on which pages it is, and looks at all that is on them.
		"work_mem": "16MB",
	} {
		if _, set := config.ConnConfig.RuntimeParams[name]; !set {
			config.ConnConfig.RuntimeParams[name] = value
		}
	}
	return pgxpool.NewWithConfig(context.Background(), config)
}
