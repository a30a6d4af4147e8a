// Package postgres is what both programs need to know of Postgres beside SQL: whether an error means that it could not be
// asked, and that what it acknowledged will survive.
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

// Code returns the SQLSTATE of a statement that failed (PostgreSQL, appendix A), "" for every other error.
func Code(err error) string {
	var failed *pgconn.PgError
	if errors.As(err, &failed) {
		return failed.Code
	}
	return ""
}

// PlanChanged is the code with which a prepared statement fails, once on each connection, after a migration changed what it
// answers.
const PlanChanged = "0A000"

// Unreachable reports whether err means that Postgres could not be asked or did not answer in time: no connection, a lost
// one, a server that is going down, coming up or no longer the primary. A statement that failed is an answer, and false.
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

// History is an SQL expression that tells histories of transaction numbers apart (feed.Point). It changes when another server
// answers, one on a new timeline, and with every restart and crash: a copy of an earlier state looks like nothing else, and
// numbers of transactions that never reached the disk come again. After the crash of one backend the postmaster goes on; that
// statistics were lost then gives it away.
const History = `concat_ws('/', (select system_identifier from pg_control_system()), (select timeline_id from pg_control_checkpoint()),
	left(pg_walfile_name(pg_current_wal_lsn()), 8), extract(epoch from pg_postmaster_start_time()),
	(select extract(epoch from stats_reset) from pg_stat_wal))`

// BoundConnecting makes a connection attempt take no longer than most in all, however many hosts it has to try: each gets its part, so
// that one which is silent leaves time for the others. A name with several addresses counts as one.
func BoundConnecting(config *pgconn.Config, most time.Duration) {
	type host struct {
		name string
		port uint16
	}
	hosts := map[host]struct{}{{config.Host, config.Port}: {}}
	// There may be two entries for a host, with TLS and without.
	for _, fallback := range config.Fallbacks {
		hosts[host{fallback.Host, fallback.Port}] = struct{}{}
	}
	config.ConnectTimeout = most / time.Duration(len(hosts))
}

// Durable makes the commits of a connection wait until they are on disk, where the server's default is not to. What was
// acknowledged, and the row in edges on which an edge's right to answer rests, must survive a crash of the server.
func Durable(ctx context.Context, conn *pgx.Conn) error {
	const set = `select set_config('synchronous_commit', 'on', false) where current_setting('synchronous_commit') in ('off', 'local')`
	if _, err := conn.Exec(ctx, set); err != nil {
		return fmt.Errorf("make commits durable: %w", err)
	}
	return nil
}
