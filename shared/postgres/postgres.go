// Package postgres holds what both programs need in addition to SQL: classification of errors (Postgres unreachable, lost locks, changed
// plans), durable commits, and bounds on connecting and on waits for locks.
package postgres

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Code returns the SQLSTATE of a failed statement (PostgreSQL, appendix A), or "" for any other error.
func Code(err error) string {
	var failed *pgconn.PgError
	if errors.As(err, &failed) {
		return failed.Code
	}
	return ""
}

// PlanChanged is the code with which a prepared statement fails, once on each connection, after a migration changed the columns of its
// result. Neither the statement nor the rest of its transaction was run.
const PlanChanged = "0A000"

// MaxRenewals is the maximum number of attempts of a call whose statements fail with PlanChanged. Each failure renews the prepared
// statements of one connection, and on a busy pool a call can get many connections with outdated statements in a row.
const MaxRenewals = 64

// Unreachable reports whether err means that Postgres could not be reached or did not respond in time: no connection, a lost connection,
// or a server that is shutting down, starting up or no longer the primary. It is false for a failed statement, which is a response.
func Unreachable(err error) bool {
	var connecting *pgconn.ConnectError
	if errors.As(err, &connecting) {
		return true
	}
	switch code := Code(err); code {
	case "57P01", "57P02", "57P03", // shutting down, crashed, starting
		"53300", // too many connections
		"57014", // statement time-out
		"25006", // the former primary, now read only
		"25P03": // idle in transaction for too long
		return true
	case "":
		var network net.Error
		return errors.As(err, &network) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, io.EOF) ||
			errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) || pgconn.SafeToRetry(err)
	default:
		return code[:2] == "08"
	}
}

// History is an SQL expression that identifies a history of transaction numbers (feed.Point). It differs for another server and for a new
// timeline, and changes with every restart and crash: a restored copy is otherwise indistinguishable, and after a crash Postgres reuses
// the numbers of transactions that never reached the disk. When one backend crashes the postmaster keeps running, but the statistics
// are reset, so their reset time is part of the expression.
const History = `concat_ws('/', (select system_identifier from pg_control_system()), (select timeline_id from pg_control_checkpoint()),
	left(pg_walfile_name(pg_current_wal_lsn()), 8), extract(epoch from pg_postmaster_start_time()),
	(select extract(epoch from stats_reset) from pg_stat_wal))`

// BoundConnecting bounds a connection attempt to most in total. Each host of the configuration gets an equal part, so that a silent host
// leaves time for the others. A host name with several addresses counts as one host.
func BoundConnecting(config *pgconn.Config, most time.Duration) {
	type host struct {
		name string
		port uint16
	}
	hosts := map[host]struct{}{{config.Host, config.Port}: {}}
	// A host may have two entries, with TLS and without.
	for _, fallback := range config.Fallbacks {
		hosts[host{fallback.Host, fallback.Port}] = struct{}{}
	}
	config.ConnectTimeout = most / time.Duration(len(hosts))
}

// Durable makes commits of a connection wait until they are on disk, if the server's default does not. Acknowledged changes, and the row in
// edges that an edge's lease depends on, must survive a crash of the server.
func Durable(ctx context.Context, conn *pgx.Conn) error {
	const set = `select set_config('synchronous_commit', 'on', false) where current_setting('synchronous_commit') in ('off', 'local')`
	if _, err := conn.Exec(ctx, set); err != nil {
		return fmt.Errorf("make commits durable: %w", err)
	}
	return nil
}
