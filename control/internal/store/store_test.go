package store_test

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"deeplink/control/internal/store"
	"deeplink/shared/catalog"
	"deeplink/shared/testkit"
)

// testActor makes changes that the audit trail omits.
var testActor = store.SystemActor("test")

const linkBase = "https://links.example"

func TestMain(m *testing.M) {
	testkit.Main(m)
}

// fixture is a store with control's rights, and a superuser's connection to inspect its effects.
type fixture struct {
	*testing.T
	store    *store.Store
	database *testkit.Database
	admin    *pgxpool.Pool
}

func newFixture(t *testing.T) fixture {
	t.Helper()
	database := testkit.NewDatabase(t)
	return fixture{T: t, store: store.New(open(t, database.ControlURL), linkBase), database: database, admin: open(t, database.URL)}
}

func open(t *testing.T, url string) *pgxpool.Pool {
	t.Helper()
	return openPool(t, url, 8)
}

func openPool(t *testing.T, url string, connections int32) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	config.MaxConns = connections
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// organization creates an organization with the plan and a registered app config.
func (f fixture) organization(plan catalog.Plan) catalog.Organization {
	f.Helper()
	created, _, err := f.store.CreateOrganization(f.Context(), testActor, store.NewOrganization{
		Name: "Acme", Plan: &plan, AppConfig: &catalog.AppConfig{FallbackURL: ptr("https://acme.example/")},
	})
	if err != nil {
		f.Fatal(err)
	}
	return created.Organization
}

// create creates a link from a JSON body.
func (f fixture) create(org catalog.Organization, body string) catalog.Link {
	f.Helper()
	l, _, err := f.store.CreateLink(f.Context(), testActor, org.ID, store.Unconditional, read(f.T, body))
	if err != nil {
		f.Fatalf("create %s: %v", body, err)
	}
	return l
}

// one queries a single value as the superuser.
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

// The plans of Postgres may stem from a nearly empty table. Even then, the cost of reading a write's own changes must not grow with the
// table.
func TestWritesReadOnlyTheirOwnChanges(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	org := f.organization(catalog.Enterprise)
	exec := func(sql string) {
		t.Helper()
		if _, err := f.admin.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	exec(`vacuum analyze changes`)
	write := func() {
		t.Helper()
		l := f.create(org, `{"path": "x"}`)
		for _, patch := range []string{`{"path": "y"}`, `{"path": "y"}`} {
			if _, _, err := f.store.UpdateLink(t.Context(), testActor, org.ID, store.Unconditional, l.ID, readPatch(t, patch)); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := f.store.DeleteLink(t.Context(), testActor, org.ID, store.Unconditional, l.ID); err != nil {
			t.Fatal(err)
		}
		if _, err := f.store.Barrier(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	write() // its statements are planned now
	exec(`insert into changes (tags) select '{o:none}' from generate_series(1, 5000)`)
	// Postgres adds up what a connection read when that becomes idle, at most once a second.
	const readOneByOne = `select seq_tup_read from pg_stat_user_tables where relname = 'changes'`
	untilCounted := func(scans int64) {
		t.Helper()
		for deadline := time.Now().Add(20 * time.Second); one[int64](f, `select idx_scan from pg_stat_user_tables where relname = 'changes'`) < scans; {
			if time.Now().After(deadline) {
				t.Fatalf("the index of changes was not scanned %d times", scans)
			}
			time.Sleep(100 * time.Millisecond)
			write()
		}
	}
	untilCounted(1)
	before := one[int64](f, readOneByOne)
	untilCounted(100)
	if rows := one[int64](f, readOneByOne) - before; rows > 0 {
		t.Errorf("%d rows of changes were read by sequential scans, expected none", rows)
	}
}

func TestPanicInATransactionReleasesItsConnection(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	pool, err := pgxpool.New(t.Context(), f.database.ControlURL)
	if err != nil {
		t.Fatal(err)
	}
	s := store.New(pool, linkBase)
	func() {
		defer func() { recover() }()
		_ = s.InSnapshot(t.Context(), func() { panic("in the middle") })
	}()
	org := f.organization(catalog.Growth)
	func() {
		defer func() { recover() }()
		_, _, _ = s.CreateLink(t.Context(), testActor, org.ID, func(catalog.Organization) error { panic("under the lock") }, catalog.Link{Path: "x"})
	}()
	f.create(org, `{"path": "x"}`) // which waits for the lock
	if n := pool.Stat().AcquiredConns(); n != 0 {
		t.Fatalf("%d connections are in use after the panic, expected none", n)
	}
	pool.Close() // Close waits for connections in use
}

func TestUnknownKeyKeepsPreparedStatements(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	org := f.organization(catalog.Growth)
	pool := openPool(t, f.database.ControlURL, 1)
	s := store.New(pool, linkBase)
	prepared := func() (since string) {
		t.Helper()
		const sql = `select coalesce(string_agg(prepare_time::text, ',' order by prepare_time), '') from pg_prepared_statements where statement like '%api_keys%'`
		if err := pool.QueryRow(t.Context(), sql, pgx.QueryExecModeSimpleProtocol).Scan(&since); err != nil {
			t.Fatal(err)
		}
		return since
	}
	ask := func() {
		t.Helper()
		if _, _, err := s.AuthenticateWithLink(t.Context(), [32]byte{}, store.LinkRef{ID: org.ID}); !errors.Is(err, store.ErrNotFound) {
			t.Fatalf("an unknown key: %v, expected ErrNotFound", err)
		}
	}
	ask()
	first := prepared()
	ask()
	if second := prepared(); first == "" || second != first {
		t.Errorf("statements about keys were prepared at %q, and after an unknown key at %q", first, second)
	}
}
