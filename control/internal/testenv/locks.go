package testenv

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
)

// Hold runs a statement in a transaction that stays open until unlock is called.
func (w *Env) Hold(sql string, arguments ...any) (unlock func()) {
	w.T.Helper()
	tx, err := w.Pool.Begin(context.Background())
	if err != nil {
		w.T.Fatal(err)
	}
	unlock = sync.OnceFunc(func() { _ = tx.Rollback(context.Background()) })
	w.T.Cleanup(unlock)
	if _, err := tx.Exec(context.Background(), sql, arguments...); err != nil {
		w.T.Fatal(err)
	}
	return unlock
}

// Blocked waits until at least one statement waits for a lock, and returns those that do.
func (w *Env) Blocked() (statements []string) {
	w.T.Helper()
	Await(w.T, "a statement to wait for a lock", func() error {
		if statements = w.LockWaits(); len(statements) == 0 {
			return errors.New("none does")
		}
		return nil
	})
	return statements
}

// StillBlocked fails the test unless one of the statements still waits: no response came because a wait had ended.
func (w *Env) StillBlocked(t *testing.T, statements []string) {
	t.Helper()
	now := w.LockWaits()
	if !slices.ContainsFunc(statements, func(s string) bool { return slices.Contains(now, s) }) {
		t.Errorf("what waited for the lock has ended before the others were answered: %v, and now %v", statements, now)
	}
}

// LockWaits returns the statements that wait for a lock.
func (w *Env) LockWaits() []string {
	w.T.Helper()
	const sql = `select pid || ' since ' || query_start from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`
	rows, err := w.Pool.Query(context.Background(), sql)
	if err != nil {
		w.T.Fatal(err)
	}
	statements, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		w.T.Fatal(err)
	}
	return statements
}
