package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"deeplink/shared/postgres"
	"deeplink/shared/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

func TestUnreachableIsTrueOnlyWithoutAResponseInTime(t *testing.T) {
	t.Parallel()
	url := testkit.NewDatabase(t).URL
	ask := func(statement string) func(*testing.T) error {
		return func(t *testing.T) error {
			_, err := testkit.Connect(t, url).Exec(t.Context(), statement)
			return err
		}
	}
	tests := []struct {
		name string
		make func(*testing.T) error
		want bool
	}{
		{"a statement that failed", ask(`select 1/0`), false},
		{"a violated constraint", ask(`insert into edges (slot) values (null)`), false},
		{"no such table", ask(`select from nowhere`), false},
		{"statement time-out", ask(`set statement_timeout = 1; select pg_sleep(1)`), true},
		{"read only", ask(`begin read only; create table t ()`), true},
		{"terminated", ask(`select pg_terminate_backend(pg_backend_pid())`), true},
		{"no server listens", func(t *testing.T) error {
			_, err := pgx.Connect(t.Context(), "postgres://127.0.0.1:1/x?connect_timeout=1")
			return err
		}, true},
		{"no such database", func(t *testing.T) error {
			config, err := pgx.ParseConfig(url)
			if err != nil {
				t.Fatal(err)
			}
			config.Database = "nowhere"
			_, err = pgx.ConnectConfig(t.Context(), config)
			return err
		}, true},
		{"no answer in time", func(t *testing.T) error {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
			defer cancel()
			_, err := testkit.Connect(t, url).Exec(ctx, `select pg_sleep(5)`)
			return err
		}, true},
		{"a closed connection", func(t *testing.T) error {
			conn := testkit.Connect(t, url)
			conn.Close(t.Context())
			_, err := conn.Exec(t.Context(), `select 1`)
			return err
		}, true},
		{"anything else", func(*testing.T) error { return errors.New("bug") }, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			err := test.make(t)
			if err == nil {
				t.Fatal("no error")
			}
			if got := postgres.Unreachable(fmt.Errorf("wrapped: %w", err)); got != test.want {
				t.Errorf("postgres.Unreachable(%v) = %v, want %v", err, got, test.want)
			}
		})
	}
}

func TestDurableOnlyEverRaisesTheServersSetting(t *testing.T) {
	t.Parallel()
	url := testkit.NewDatabase(t).URL
	for _, test := range []struct{ setting, want string }{
		{"off", "on"}, {"local", "on"}, {"on", "on"}, {"remote_write", "remote_write"}, {"remote_apply", "remote_apply"},
	} {
		conn := testkit.Connect(t, url)
		if _, err := conn.Exec(t.Context(), `set synchronous_commit = `+test.setting); err != nil {
			t.Fatal(err)
		}
		if err := postgres.Durable(t.Context(), conn); err != nil {
			t.Fatal(err)
		}
		var got string
		if err := conn.QueryRow(t.Context(), `show synchronous_commit`).Scan(&got); err != nil || got != test.want {
			t.Errorf("synchronous_commit %s became %s, %v; want %s", test.setting, got, err, test.want)
		}
	}
}

func TestConnectingIsBoundedForAllHostsTogether(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]time.Duration{
		"postgres://a/d":                             6 * time.Second,
		"postgres://a,b/d?sslmode=prefer":            3 * time.Second,
		"postgres://a:1,a:2,b/d?connect_timeout=100": 2 * time.Second,
		"postgres://a:1,b:1,a:1/d?sslmode=disable":   3 * time.Second,
	} {
		config, err := pgx.ParseConfig(url)
		if err != nil {
			t.Fatal(err)
		}
		postgres.BoundConnecting(&config.Config, 6*time.Second)
		if config.ConnectTimeout != want {
			t.Errorf("%s: %v for each host, expected %v", url, config.ConnectTimeout, want)
		}
	}
}
