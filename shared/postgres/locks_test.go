package postgres_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"deeplink/shared/postgres"
	"deeplink/shared/testkit"
)

func TestRetryLocksTriesUntilTheLockIsFree(t *testing.T) {
	t.Parallel()
	url := testkit.NewDatabase(t).URL
	holder, conn := testkit.Connect(t, url), testkit.Connect(t, url+"&lock_timeout=1")
	hold := func(statement string) {
		t.Helper()
		if _, err := holder.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	hold(`begin; lock table links`)
	tries := 0
	err := postgres.RetryLocks(t.Context(), time.Minute, func() error {
		if tries++; tries == 3 {
			hold(`rollback`)
		}
		_, err := conn.Exec(t.Context(), `alter table links add column extra text`)
		return err
	})
	if err != nil || tries != 3 {
		t.Errorf("%d tries, %v; expected that the third succeeds", tries, err)
	}
}

func TestRetryLocksEnds(t *testing.T) {
	t.Parallel()
	url := testkit.NewDatabase(t).URL
	holder, conn := testkit.Connect(t, url), testkit.Connect(t, url+"&lock_timeout=1")
	if _, err := holder.Exec(t.Context(), `begin; lock table links`); err != nil {
		t.Fatal(err)
	}
	lose := func() error {
		_, err := conn.Exec(t.Context(), `alter table links add column extra text`)
		return err
	}
	if err := postgres.RetryLocks(t.Context(), time.Millisecond, lose); postgres.Code(err) != postgres.LockNotAvailable {
		t.Errorf("after its limit: %v, expected the lost lock", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	if err := postgres.RetryLocks(ctx, time.Minute, func() error { cancel(); return lose() }); !errors.Is(err, context.Canceled) {
		t.Errorf("after its context: %v, expected that it was cancelled", err)
	}
	tries := 0
	failed := postgres.RetryLocks(t.Context(), time.Minute, func() error {
		tries++
		_, err := conn.Exec(t.Context(), `select 1/0`)
		return err
	})
	if postgres.Code(failed) != "22012" || tries != 1 {
		t.Errorf("another error: %v after %d tries, expected it at once", failed, tries)
	}
	if postgres.LostLock(pgx.ErrNoRows) || postgres.LostLock(nil) {
		t.Error("other errors are taken for lost locks")
	}
}

func TestBoundLockWaitsKeepsAnExistingLockTimeout(t *testing.T) {
	t.Parallel()
	url := testkit.NewDatabase(t).URL
	for _, test := range []struct{ name, url, before, want string }{
		{"nothing set", url, ``, "8s"},
		{"set by the role", url, `set lock_timeout = '3s'`, "3s"}, // as it looks to a new session
		{"set in the connection string", url + "&lock_timeout=5s", ``, "5s"},
		{"unbounded in the connection string", url + "&lock_timeout=0", ``, "0"},
	} {
		t.Run(test.name, func(t *testing.T) {
			conn := testkit.Connect(t, test.url)
			if _, err := conn.Exec(t.Context(), test.before); err != nil {
				t.Fatal(err)
			}
			if err := postgres.BoundLockWaits(t.Context(), conn, 8*time.Second); err != nil {
				t.Fatal(err)
			}
			var got string
			if err := conn.QueryRow(t.Context(), `show lock_timeout`).Scan(&got); err != nil || got != test.want {
				t.Errorf("lock_timeout %q, %v; expected %q", got, err, test.want)
			}
		})
	}
}

func TestConnectionIsUsableAfterALockTimeout(t *testing.T) {
	t.Parallel()
	url := testkit.NewDatabase(t).URL
	holder, waiter := testkit.Connect(t, url), testkit.Connect(t, url)
	if _, err := holder.Exec(t.Context(), `begin; lock table edges`); err != nil {
		t.Fatal(err)
	}
	if err := postgres.BoundLockWaits(t.Context(), waiter, 20*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	_, err := waiter.Exec(t.Context(), `select from edges`)
	if postgres.Code(err) != postgres.LockNotAvailable || postgres.Unreachable(err) {
		t.Errorf("a locked table: %v, expected postgres.LockNotAvailable, which is not being unreachable", err)
	}
	if _, err := waiter.Exec(t.Context(), `select 1`); err != nil {
		t.Errorf("the next statement of the connection: %v", err)
	}
}
