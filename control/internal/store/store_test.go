package store_test

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"deeplink/control/internal/store"
	"deeplink/shared/catalog"
	"deeplink/shared/testdb"
)

const linkBase = "https://links.example"

func TestMain(m *testing.M) {
	testdb.Main(m)
}

// fixture is a store that works with control's rights, and a connection of the superuser to look behind it.
type fixture struct {
	*testing.T
	store    *store.Store
	database *testdb.Database
	admin    *pgxpool.Pool
}

func newFixture(t *testing.T) fixture {
	t.Helper()
	database := testdb.New(t)
	return fixture{T: t, store: store.New(open(t, database.ControlURL), linkBase), database: database, admin: open(t, database.URL)}
}

func open(t *testing.T, url string) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	config.MaxConns = 8
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// organization makes one with the plan and a registered app config.
func (f fixture) organization(plan catalog.Plan) catalog.Organization {
	f.Helper()
	created, _, err := f.store.CreateOrganization(f.Context(), store.NewOrganization{
		Name: "Acme", Plan: &plan, AppConfig: &catalog.AppConfig{FallbackURL: ptr("https://acme.example/")},
	})
	if err != nil {
		f.Fatal(err)
	}
	return created.Organization
}

// create makes a link of a JSON body.
func (f fixture) create(org catalog.Organization, body string) catalog.Link {
	f.Helper()
	l, _, err := f.store.CreateLink(f.Context(), org, read(f.T, body))
	if err != nil {
		f.Fatalf("create %s: %v", body, err)
	}
	return l
}

// one asks the database for a single value, as the superuser.
func one[V any](f fixture, sql string, arguments ...any) V {
	f.Helper()
	rows, _ := f.admin.Query(f.Context(), sql, arguments...)
	v, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[V])
	if err != nil {
		f.Fatalf("%s: %v", sql, err)
	}
	return v
}

func (f fixture) exec(sql string, arguments ...any) {
	f.Helper()
	if _, err := f.admin.Exec(f.Context(), sql, arguments...); err != nil {
		f.Fatalf("%s: %v", sql, err)
	}
}

func read(t testing.TB, body string) catalog.Link {
	t.Helper()
	l, err := catalog.ReadLink([]byte(body))
	if err != nil {
		t.Fatalf("read %s: %v", body, err)
	}
	return l
}

func readPatch(t testing.TB, body string) catalog.Patch {
	t.Helper()
	p, err := catalog.ReadPatch([]byte(body))
	if err != nil {
		t.Fatalf("read patch %s: %v", body, err)
	}
	return p
}

func expect(t testing.TB, what string, err, expected error) {
	t.Helper()
	if !errors.Is(err, expected) {
		t.Errorf("%s: got %v, expected %v", what, err, expected)
	}
}

func toJSON(t testing.TB, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func ptr[V any](v V) *V { return &v }
