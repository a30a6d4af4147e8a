package migrations

import (
	"context"
	"database/sql"
	"fmt"
	"io/fs"
	"regexp"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"

	"deeplink/shared/postgres"
)

const (
	// migratorLock is the advisory lock of the migrating process. Goose locks each migration separately, which excludes migrators of
	// earlier versions; this lock also excludes others between two migrations.
	migratorLock = 7_301_001
	// lockAgain is the pause between attempts to get that lock. A wait inside Postgres would hold a snapshot open, for which a concurrent
	// index build waits in turn.
	lockAgain = 250 * time.Millisecond
	// polledTimeout is the lock_timeout of migrations of the tables that every edge reads and writes four times a second. A poll queues
	// behind the migration, and the shortest lease of an edge is half a second.
	polledTimeout = 100 * time.Millisecond
)

var (
	// polledTables matches statements on the polled tables in the text of a migration. Some of them, such as grants, take no locks that
	// edges need; the shorter timeout with more retries does no harm to them.
	polledTables = regexp.MustCompile(`(?i)\b(table|on|column|truncate|references)\s+(only\s+|if\s+exists\s+)?(edges|changes)\b`)
	comments     = regexp.MustCompile(`--.*`)
)

// migrator is the state of one call of Run. It is not safe for concurrent use.
type migrator struct {
	config  *pgx.ConnConfig
	options Options
	// guard holds migratorLock, and reads which sessions a migration waits for.
	guard *pgx.Conn
}

func openMigrator(ctx context.Context, databaseURL string, o Options) (*migrator, error) {
	config, err := pgx.ParseConfig(databaseURL)
	if err != nil {
		return nil, fmt.Errorf("read the database URL: %w", err)
	}
	if _, set := config.RuntimeParams["application_name"]; !set {
		config.RuntimeParams["application_name"] = "deeplink migrate"
	}
	guard, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	return &migrator{config: config, options: o, guard: guard}, nil
}

// close releases the lock with the connection.
func (m *migrator) close(ctx context.Context) error { return m.guard.Close(ctx) }

const lockHolderSQL = `
	select a.pid, coalesce(a.usename, ''), coalesce(a.datname, ''), coalesce(a.application_name, ''), coalesce(a.state, ''),
	       coalesce(clock_timestamp() - a.xact_start, '0'), coalesce(left(a.query, 200), '')
	from pg_locks l join pg_stat_activity a on a.pid = l.pid
	where l.locktype = 'advisory' and l.granted and l.classid = 0 and l.objid = $1 and l.objsubid = 1
	  and l.database = (select oid from pg_database where datname = current_database())`

// lock waits for other processes that migrate this database.
func (m *migrator) lock(ctx context.Context) error {
	began := time.Now()
	for {
		var locked bool
		if err := m.guard.QueryRow(ctx, `select pg_try_advisory_lock($1)`, migratorLock).Scan(&locked); err != nil || locked {
			return err
		}
		if time.Since(began) > m.options.RetryFor {
			holders, err := m.sessions(ctx, lockHolderSQL, migratorLock)
			if err != nil {
				return err
			}
			return fmt.Errorf("another process has been migrating this database for more than %v: %s", m.options.RetryFor, holders)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(lockAgain):
		}
	}
}

// current returns the database's last migration, 0 for an empty database.
func (m *migrator) current(ctx context.Context) (version int64, err error) {
	var there bool
	if err := m.guard.QueryRow(ctx, `select to_regclass('goose_db_version') is not null`).Scan(&there); err != nil || !there {
		return 0, err
	}
	err = m.guard.QueryRow(ctx, `select coalesce(max(version_id), 0) from goose_db_version where is_applied`).Scan(&version)
	return version, err
}

// migrate runs one migration, and retries it while it loses locks. A lost lock rolls back a migration that runs in a transaction. A
// migration without a transaction, which builds indexes concurrently, starts by dropping what an earlier attempt left. That drop waits for
// the same transactions as the build, so while they last no index is built a second time.
func (m *migrator) migrate(ctx context.Context, version int64) (applied []int64, err error) {
	timeout, err := lockTimeout(version)
	if err != nil {
		return nil, err
	}
	var blockers sessions
	err = postgres.RetryLocks(ctx, m.options.RetryFor, func() (err error) {
		var held sessions
		applied, held, err = m.try(ctx, version, timeout)
		if len(held) > 0 {
			blockers = held
		}
		if postgres.LostLock(err) {
			m.options.Log.Warn("a migration did not get a lock and will be retried", "version", version, "waited", timeout, "heldBy", held.String(), "error", err)
		}
		return err
	})
	if postgres.LostLock(err) {
		return applied, fmt.Errorf("other transactions have held the locks that it needs for %v. End them (select pg_terminate_backend(PID)) or wait for them, "+
			"then migrate again. Held by %v: %w", m.options.RetryFor, blockers, err)
	}
	return applied, err
}

// lockTimeout returns how long each statement of a migration may wait for a lock.
func lockTimeout(version int64) (time.Duration, error) {
	names, err := fs.Glob(files, fmt.Sprintf("%05d_*.sql", version))
	if err != nil {
		return 0, err
	}
	for _, name := range names {
		text, err := files.ReadFile(name)
		if err != nil {
			return 0, err
		}
		if polledTables.Match(comments.ReplaceAll(text, nil)) {
			return polledTimeout, nil
		}
	}
	return postgres.LockTimeout, nil
}

// try runs the migration once, on a new connection with the lock_timeout. It returns the sessions that held the lock for which the
// migration last waited.
func (m *migrator) try(ctx context.Context, version int64, timeout time.Duration) (applied []int64, held sessions, err error) {
	var pid atomic.Uint32
	db := stdlib.OpenDB(*m.config, stdlib.OptionAfterConnect(func(ctx context.Context, conn *pgx.Conn) error {
		pid.Store(conn.PgConn().PID())
		// Set after connecting, to override the connection string, the role and the database; PgBouncer rejects it as a startup parameter.
		_, err := conn.Exec(ctx, fmt.Sprintf(`set lock_timeout = %d`, timeout.Milliseconds()))
		return err
	}))
	defer db.Close()
	db.SetMaxOpenConns(1)

	watching, stop := context.WithCancel(ctx)
	watched := make(chan sessions, 1)
	go func() { watched <- m.watch(watching, &pid, timeout/4) }()
	applied, err = upTo(ctx, db, version)
	stop()
	return applied, <-watched, err
}

func upTo(ctx context.Context, db *sql.DB, version int64) (applied []int64, err error) {
	locker, err := lock.NewPostgresSessionLocker(lock.WithLockTimeout(1, 600), lock.WithUnlockTimeout(1, 60))
	if err != nil {
		return nil, err
	}
	provider, err := goose.NewProvider(goose.DialectPostgres, db, files, goose.WithSessionLocker(locker))
	if err != nil {
		return nil, err
	}
	results, err := provider.UpTo(ctx, version)
	for _, r := range results {
		applied = append(applied, r.Source.Version)
	}
	return applied, err
}

const blockersSQL = `
	select b.pid, coalesce(a.usename, ''), coalesce(a.datname, ''), coalesce(a.application_name, ''), coalesce(a.state, ''),
	       coalesce(clock_timestamp() - a.xact_start, '0'), coalesce(left(a.query, 200), '')
	from unnest(pg_blocking_pids($1)) b (pid) left join pg_stat_activity a using (pid)`

// watch periodically reads which sessions block the session pid, and returns the last result. After the wait it would be too late: the
// error of Postgres does not name the holder of the lock.
func (m *migrator) watch(ctx context.Context, pid *atomic.Uint32, every time.Duration) (last sessions) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return last
		case <-ticker.C:
		}
		// Not ctx: pgx closes a connection on which a statement was canceled, which would release the lock. Errors are ignored: the
		// migration reports problems on its own connection.
		held, err := m.sessions(context.WithoutCancel(ctx), blockersSQL, int64(pid.Load()))
		if err == nil && len(held) > 0 {
			last = held
		}
	}
}

func (m *migrator) sessions(ctx context.Context, sql string, argument int64) (sessions, error) {
	rows, _ := m.guard.Query(ctx, sql, argument)
	return pgx.CollectRows(rows, pgx.RowToStructByPos[session])
}

// session is a session that holds a lock.
type session struct {
	PID                                int32 // 0: a prepared transaction
	Role, Database, Application, State string
	Open                               time.Duration
	Query                              string // the last one, at most 200 characters
}

type sessions []session

func (all sessions) String() string {
	if len(all) == 0 {
		return "unknown sessions"
	}
	texts := make([]string, len(all))
	for i, s := range all {
		if s.PID == 0 {
			texts[i] = "a prepared transaction (pg_prepared_xacts)"
			continue
		}
		texts[i] = fmt.Sprintf("PID %d (role %s, database %s, application %q, %s, transaction open for %v, last query %q)",
			s.PID, s.Role, s.Database, s.Application, s.State, s.Open.Round(time.Second), strings.Join(strings.Fields(s.Query), " "))
	}
	return strings.Join(texts, "; ")
}
