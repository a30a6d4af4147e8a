package testkit_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"deeplink/shared/testkit"
)

func TestMain(m *testing.M) {
	testkit.Main(m)
}

func TestEachTestHasItsOwnMigratedDatabase(t *testing.T) {
	t.Parallel()
	one, other := testkit.NewDatabase(t), testkit.NewDatabase(t)
	if one.URL == other.URL {
		t.Fatalf("two databases at %s", one.URL)
	}
	exec(t, one.URL, "insert into organizations (id, org_key, name) values (gen_random_uuid(), 'abcd', 'One')")
	for url, expected := range map[string]int{one.URL: 1, other.URL: 0} {
		var rows int
		if err := testkit.Connect(t, url).QueryRow(t.Context(), "select count(*) from organizations").Scan(&rows); err != nil {
			t.Fatal(err)
		}
		if rows != expected {
			t.Errorf("%s has %d organizations, expected %d", url, rows, expected)
		}
	}
}

func TestLoginsHaveTheRightsOfTheirGroupAndNoMore(t *testing.T) {
	t.Parallel()
	database := testkit.NewDatabase(t)
	for url, group := range map[string]string{database.ControlURL: "deeplink_control", database.EdgeURL: "deeplink_edge"} {
		conn := testkit.Connect(t, url)
		var member, super bool
		var groups int
		err := conn.QueryRow(t.Context(), `
			select pg_has_role(current_user, $1, 'usage'), rolsuper or rolcreaterole or rolcreatedb,
			       (select count(*) from pg_auth_members where member = r.oid)
			from pg_roles r where rolname = current_user`, group).Scan(&member, &super, &groups)
		if err != nil {
			t.Fatal(err)
		}
		if !member || super || groups != 1 {
			t.Errorf("login of %s: member %v, more rights %v, groups %d; expected true, false, 1", group, member, super, groups)
		}
		_, err = conn.Exec(t.Context(), "create table intruder (id int)")
		if pgErr := new(pgconn.PgError); !errors.As(err, &pgErr) || pgErr.Code != "42501" {
			t.Errorf("create table as a member of %s: %v, expected insufficient privilege", group, err)
		}
	}
}

func TestDatabaseIsDroppedWithOpenConnections(t *testing.T) {
	t.Parallel()
	var dropped string
	ctx := context.Background()
	t.Run("user", func(t *testing.T) {
		dropped = testkit.NewDatabase(t).URL
		conn, err := pgx.Connect(ctx, dropped)
		if err != nil {
			t.Fatal(err)
		}
		// Left open until after the cleanup, like the pool of a failed test.
		_ = conn
	})
	_, err := pgx.Connect(ctx, dropped)
	if err == nil || !strings.Contains(err.Error(), "3D000") {
		t.Errorf("connect to %s after its test: %v, expected a missing database", dropped, err)
	}
}

func TestNewServerIsStoppedAndStartedByItsTest(t *testing.T) {
	t.Parallel()
	server := testkit.NewPostgres(t)
	exec(t, server.Database.URL, "create table kept (id int)")
	if err := server.StopImmediate(); err != nil {
		t.Fatal(err)
	}
	if err := server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	exec(t, server.Database.URL, "insert into kept values (1)")
	testkit.Connect(t, server.Database.EdgeURL)
}

func TestFolderOfTheServerIsDeletedAfterItsTest(t *testing.T) {
	t.Parallel()
	var folder string
	t.Run("user", func(t *testing.T) { folder = testkit.NewPostgres(t).Dir })
	if _, err := os.Stat(folder); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("stat %s: %v, expected that it does not exist", folder, err)
	}
}

func exec(t *testing.T, url, statement string) {
	t.Helper()
	if _, err := testkit.Connect(t, url).Exec(t.Context(), statement); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}
