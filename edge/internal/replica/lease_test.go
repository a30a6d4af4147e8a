package replica

import (
	"context"
	"testing"
	"time"
)

// However long a poll takes, its lease counts from its start.
func TestLeaseCountsFromStartOfPoll(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	f.untilReady(t)
	until(t, "a slow poll that does not fail", func() bool {
		errors := f.counts.pollErrors.Load()
		waiting := f.slowPoll(t)
		if f.counts.pollErrors.Load() != errors {
			return false // the machine paused, and the lease is the next poll's
		}
		if start := f.lease.Load().start; start.After(waiting) {
			t.Errorf("the lease counts from %v after its poll began to wait for an answer", start.Sub(waiting))
		}
		return true
	})
}

// slowPoll makes a poll wait for a lock, and returns the latest time of its start. On return the replica has the lease of that poll.
func (f *fixture) slowPoll(t *testing.T) (waiting time.Time) {
	t.Helper()
	tx, err := f.owner.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), `lock table changes in access exclusive mode`); err != nil {
		t.Fatal(err)
	}
	until(t, "a poll that waits for its window", func() bool {
		var waiting bool
		err := tx.QueryRow(context.Background(), `select exists (select from pg_locks where relation = 'changes'::regclass and not granted)`).Scan(&waiting)
		return err == nil && waiting
	})
	waiting = time.Now()
	before := f.lease.Load()
	time.Sleep(100 * time.Millisecond) // minimum duration of the poll
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	until(t, "the next lease", func() bool { return f.lease.Load() != before })
	return waiting
}

func TestLeaseEndsByMonotonicOrWallClock(t *testing.T) {
	t.Parallel()
	now := time.Now()
	tests := []struct {
		name string
		l    *lease
		want bool
	}{
		{"none", nil, false},
		{"just begun", &lease{start: now}, true},
		{"expired by both clocks", &lease{start: now.Add(-time.Second)}, false},
		{"expired by the wall clock only, after the machine slept", &lease{start: now.Add(-time.Second).Round(0)}, false},
	}
	for _, test := range tests {
		if got := test.l.covers(now, time.Second); got != test.want {
			t.Errorf("%s: covers = %v, want %v", test.name, got, test.want)
		}
	}
}

func TestLeaveGivesUpLeaseAndDeletesRow(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	f.seed(t, sharedDomainID)
	f.untilReady(t)
	f.untilCached(t, "abcd", "code")
	if err := f.Leave(t.Context()); err != nil {
		t.Fatal(err)
	}
	var rows int
	if err := f.owner.QueryRow(t.Context(), `select count(*) from edges`).Scan(&rows); err != nil || rows != 0 {
		t.Errorf("%d rows in edges after Leave, %v", rows, err)
	}
	if f.lease.Load() != nil {
		t.Error("a lease after Leave")
	}
	f.exec(t, `update links set path = 'v2'`)
	f.mustGet(t, "abcd", "code", "v2")
}
