package store_test

import (
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"deeplink/control/internal/store"
	"deeplink/shared/catalog"
)

// After a migration every connection of a busy pool may have cached statements that fail once. A call can get one such connection after the
// other.
func TestCallSucceedsOnceAlthoughAMigrationChangedTheStatementsOfEveryConnection(t *testing.T) {
	t.Parallel()
	const stale = 6
	f := newFixture(t)
	config, err := pgxpool.ParseConfig(f.database.ControlURL)
	if err != nil {
		t.Fatal(err)
	}
	config.MaxConns = stale + 1
	var isHeld atomic.Bool
	held := make(chan chan struct{}, 1) // the query for which the released connections wait
	config.AfterRelease = func(*pgx.Conn) bool {
		if isHeld.Load() {
			gate := <-held
			held <- gate
			<-gate
		}
		return true
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	// hold makes each call use another connection until release.
	hold := func() (release func()) {
		gate := make(chan struct{})
		held <- gate
		isHeld.Store(true)
		return func() {
			isHeld.Store(false)
			<-held
			close(gate)
			await(t, "all connections are idle", func() bool { return pool.Stat().AcquiredConns() == 0 })
		}
	}
	f.store = store.New(pool, linkBase)
	org := f.organization(catalog.Scale)
	await(t, "the connection is idle", func() bool { return pool.Stat().AcquiredConns() == 0 })

	release := hold()
	for range stale {
		f.create(org, `{"path": "/a"}`)
	}
	release()
	// Of a create, the last statements change: those in the batch that commits.
	f.exec(`alter table changes alter column tags type varchar[]`)

	release = hold()
	defer release()
	created, _, err := f.store.CreateLink(t.Context(), store.OperatorActor("ann"), org.ID, store.Unconditional, read(t, `{"path": "/b", "shortCode": "once"}`))
	if err != nil {
		t.Fatalf("create over connections whose statements changed: %v", err)
	}
	if n := pool.Stat().AcquiredConns(); n != stale+1 {
		t.Errorf("the create used %d connections, expected %d with changed statements and one without", n, stale)
	}
	if links, entries := one[int](f, `select count(*)::int from links where path = '/b'`), one[int](f, `select count(*)::int from audit_log where target_id = $1`, created.ID); links != 1 || entries != 1 {
		t.Errorf("%d links and %d entries of the trail, expected one each", links, entries)
	}
}
