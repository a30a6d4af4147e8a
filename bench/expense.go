package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// expense is what storing has taken so far: unlike time, that is much the same on a busy machine.
type expense struct {
	control, postgres time.Duration // of processors
	logged            int64         // bytes of Postgres's log
}

func (e expense) since(before expense) expense {
	return expense{e.control - before.control, e.postgres - before.postgres, e.logged - before.logged}
}

// expenses reads what the controls of a fleet and its Postgres have taken.
func expenses(ctx context.Context, f *fleet, owner *pgxpool.Pool) (e expense, err error) {
	for _, control := range f.controls {
		seconds, err := metric(ctx, control.Admin, "process_cpu_seconds_total")
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

// postgresTime returns the processor time of a server, of its processes that run and of those that have ended.
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
			continue // it ended meanwhile
		}
		pid, parent, own, ended, err := parseStat(stat)
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

// parseStat reads a line of the process table: "pid (name) state parent …", proc(5). own is the process's time, ended that of its
// children which have ended.
func parseStat(stat []byte) (pid, parent string, own, ended time.Duration, err error) {
	const tick = 10 * time.Millisecond // USER_HZ is 100 on every architecture of Linux
	begin, end := bytes.IndexByte(stat, '('), bytes.LastIndexByte(stat, ')')
	fields := strings.Fields(string(stat[end+1:]))
	if begin < 1 || len(fields) < 15 {
		return "", "", 0, 0, fmt.Errorf("read a process: %q", stat)
	}
	var times [4]time.Duration
	for i := range times {
		ticks, err := strconv.ParseInt(fields[11+i], 10, 64)
		if err != nil {
			return "", "", 0, 0, fmt.Errorf("read a process: %q", stat)
		}
		times[i] = time.Duration(ticks) * tick
	}
	return string(bytes.TrimSpace(stat[:begin])), fields[1], times[0] + times[1], times[2] + times[3], nil
}
