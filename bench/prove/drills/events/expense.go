package events

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"deeplink/bench/prove/fleet"
)

// expense is the cost of storing so far. Unlike elapsed time, it is nearly the same on a busy machine.
type expense struct {
	control, postgres time.Duration // of CPU
	logged            int64         // bytes of WAL
}

func (e expense) since(before expense) expense {
	return expense{e.control - before.control, e.postgres - before.postgres, e.logged - before.logged}
}

// expenses reads the cost of the controls of a fleet and of its Postgres.
func expenses(ctx context.Context, f *fleet.Fleet, owner *pgxpool.Pool) (e expense, err error) {
	for _, control := range f.Controls {
		seconds, err := fleet.Metric(ctx, control.Admin, "process_cpu_seconds_total")
		if err != nil {
			return e, err
		}
		e.control += time.Duration(seconds * float64(time.Second))
	}
	if e.postgres, err = postgresTime(f.Postgres.Dir); err != nil {
		return e, err
	}
	err = owner.QueryRow(ctx, `select pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::bigint`).Scan(&e.logged)
	return e, err
}

// postgresTime returns the CPU time of a server: of its running processes and of those that have ended.
func postgresTime(dir string) (total time.Duration, err error) {
	text, err := os.ReadFile(filepath.Join(dir, "data", "postmaster.pid"))
	if err != nil {
		return 0, err
	}
	first, _, _ := strings.Cut(string(text), "\n")
	paths, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return 0, err
	}
	for _, path := range paths {
		stat, err := os.ReadFile(path)
		if err != nil {
			continue // the process ended in the meantime
		}
		pid, parent, own, ended, err := fleet.ParseStat(stat)
		if err != nil {
			return 0, err
		}
		switch first {
		case pid:
			total += own + ended
		case parent:
			total += own
		}
	}
	return total, nil
}
