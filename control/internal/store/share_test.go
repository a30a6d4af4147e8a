package store_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"deeplink/control/internal/store"
	"deeplink/shared/catalog"
)

// lock holds locks, as an open psql session would, until unlock is called.
func (f fixture) lock(sql string, arguments ...any) (unlock func()) {
	f.Helper()
	tx, err := f.admin.Begin(f.Context())
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	if _, err := tx.Exec(f.Context(), sql, arguments...); err != nil {
		f.Fatal(err)
	}
	return func() {
		f.Helper()
		if err := tx.Rollback(context.Background()); err != nil && !errors.Is(err, pgx.ErrTxClosed) {
			f.Fatal(err)
		}
	}
}

const lockUsage = `select from link_usage where organization_id = $1 for update`

func TestLockTimeoutReturnsErrLocked(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	org := f.organization(catalog.Growth)
	l := f.create(org, `{"path": "x"}`)
	if _, err := f.store.OpenSession(t.Context(), org.ID, store.Device{ID: "phone"}, nil); err != nil {
		t.Fatal(err)
	}
	pool := openPool(t, f.database.ControlURL+"&lock_timeout=20ms", 2)
	s := store.New(pool, linkBase)
	unlock := f.lock(`select from link_usage, organizations, devices for update`)
	for name, call := range map[string]func() error{
		"delete": func() error {
			_, err := s.DeleteLink(t.Context(), testActor, org.ID, store.Unconditional, l.ID)
			return err
		},
		"create": func() error {
			_, _, err := s.CreateLink(t.Context(), testActor, org.ID, store.Unconditional, catalog.Link{Path: "x"})
			return err
		},
		"suspend": func() error {
			_, _, err := s.SetSuspended(t.Context(), testActor, org.OrgKey, true)
			return err
		},
		"session": func() error {
			_, err := s.OpenSession(t.Context(), org.ID, store.Device{ID: "phone"}, nil)
			return err
		},
	} {
		if err := call(); !errors.Is(err, store.ErrLocked) || errors.Is(err, store.ErrUnavailable) {
			t.Errorf("%s with locked rows: %v, expected ErrLocked alone", name, err)
		}
	}
	if n := pool.Stat().NewConnsCount(); n > 2 {
		t.Errorf("%d connections were made, expected 2: a connection that waited for a lock is reused", n)
	}
	unlock()
	if _, err := s.DeleteLink(t.Context(), testActor, org.ID, store.Unconditional, l.ID); err != nil {
		t.Errorf("the delete after the unlock: %v", err)
	}
}

func TestOrganizationWithTooManyWritersGetsErrBusyAndOthersDoNot(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	stuck, other := f.organization(catalog.Growth), f.organization(catalog.Growth)
	l := f.create(stuck, `{"path": "x"}`)
	unlock := f.lock(lockUsage, stuck.ID)
	write := func(ctx context.Context) error {
		_, _, err := f.store.UpdateLink(ctx, testActor, stuck.ID, store.Unconditional, l.ID, readPatch(t, `{"title": "x"}`))
		return err
	}
	var writers errgroup.Group
	for range store.MaxWaitingWrites + 8 { // more than may wait and run
		writers.Go(func() error {
			if err := write(t.Context()); !errors.Is(err, store.ErrBusy) {
				return err
			}
			return nil
		})
	}
	await(t, "as many waiting writers as allowed", func() bool { return f.store.Shares().Writes.Waiting == store.MaxWaitingWrites })
	before := f.store.Shares().Writes
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	expect(t, "one more writer", write(ctx), store.ErrBusy)
	if after := f.store.Shares().Writes; after.Full == before.Full {
		t.Errorf("shares before and after one more writer: %+v, %+v; expected that it does not wait", before, after)
	}
	if after := f.store.Shares().Writes; after.InUse > 2 {
		t.Errorf("the organization has %d connections, expected 2 at most", after.InUse)
	}
	if _, _, err := f.store.CreateLink(ctx, testActor, other.ID, store.Unconditional, catalog.Link{Path: "x"}); err != nil {
		t.Errorf("a create of another organization: %v", err)
	}
	unlock()
	if err := writers.Wait(); err != nil {
		t.Error(err)
	}
	if left := f.store.Shares().Writes; left.InUse != 0 || left.Waiting != 0 {
		t.Errorf("in the end: %+v, expected no organization", left)
	}
}
