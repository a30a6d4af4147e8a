package store_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"deeplink/control/internal/store"
	"deeplink/shared/apikey"
	"deeplink/shared/catalog"
)

func TestQuotaHoldsExactlyUnderConcurrentCreates(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	org := f.organization(catalog.Free)
	created := f.contest(200, store.ErrQuotaExceeded, func(int) error {
		_, _, err := f.store.CreateLink(t.Context(), testActor, org.ID, store.Unconditional, catalog.Link{Path: "x", IsActive: true})
		return err
	})
	if created != 50 {
		t.Errorf("200 creates on a quota of 50: %d created", created)
	}
	f.usageIsExact()
}

// contest calls f n times concurrently and returns how often it succeeded. All other calls must fail with the given error.
func (f fixture) contest(n int, refusal error, do func(i int) error) (done int64) {
	f.Helper()
	var won atomic.Int64
	var g errgroup.Group
	for i := range n {
		g.Go(func() error {
			err := do(i)
			if err == nil {
				won.Add(1)
			} else if !errors.Is(err, refusal) {
				return err
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		f.Error(err)
	}
	return won.Load()
}

// usageIsExact compares link_usage with the links.
func (f fixture) usageIsExact() {
	f.Helper()
	wrong := one[int64](f, `
		select count(*) from link_usage u
		where u.links <> (select count(*) from links l where l.organization_id = u.organization_id)`)
	if wrong != 0 {
		f.Errorf("link_usage of %d organizations differs from their links", wrong)
	}
}

func TestOneOfConcurrentCreatesGetsTheCode(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	org := f.organization(catalog.Growth)
	created := f.contest(40, store.ErrShortCodeTaken, func(i int) error {
		_, _, err := f.store.CreateLink(t.Context(), testActor, org.ID, store.Unconditional, catalog.Link{Path: "x", ShortCode: []string{"same", "Same", "SAME"}[i%3]})
		return err
	})
	if created != 1 {
		t.Errorf("%d links have the same code", created)
	}
}

func TestConcurrentWritesNeitherFailNorMiscount(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	orgs := []catalog.Organization{f.organization(catalog.Growth), f.organization(catalog.Growth)}
	user := store.UserActor("user_1", netip.Addr{}, "")
	codes := []string{"a", "b", "c", "d"}
	expected := []error{store.ErrShortCodeTaken, store.ErrNotFound}
	var mutex sync.Mutex
	ids := make(map[string][]string)

	var g errgroup.Group
	for worker := range 8 {
		g.Go(func() error {
			random := rand.New(rand.NewPCG(1, uint64(worker)))
			for range 150 {
				org := orgs[random.IntN(len(orgs))]
				code := codes[random.IntN(len(codes))]
				mutex.Lock()
				known := ids[org.ID]
				mutex.Unlock()
				id := org.ID // id of no link
				if len(known) > 0 {
					id = known[random.IntN(len(known))]
				}
				err := f.random(random, user, org, id, code, func(id string) {
					mutex.Lock()
					defer mutex.Unlock()
					ids[org.ID] = append(ids[org.ID], id)
				})
				if err != nil && !errors.Is(err, expected[0]) && !errors.Is(err, expected[1]) {
					return err
				}
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		t.Error(err)
	}
	f.usageIsExact()
	left := one[int64](f, `select count(*) filter (where action = 'link.create') - count(*) filter (where action = 'link.delete') from audit_log`)
	if n := one[int64](f, `select count(*) from links`); n != left || n == 0 {
		t.Errorf("%d links, but creates minus deletes in the trail are %d", n, left)
	}
	if n := one[int64](f, `select deadlocks from pg_stat_database where datname = current_database()`); n != 0 {
		t.Errorf("%d deadlocks", n)
	}
}

// random does one random write of a link.
func (f fixture) random(random *rand.Rand, actor store.Actor, org catalog.Organization, id, code string, made func(id string)) error {
	ctx := f.Context()
	switch random.IntN(5) {
	case 0, 1:
		l, _, err := f.store.CreateLink(ctx, actor, org.ID, store.Unconditional, catalog.Link{Path: "x", ShortCode: code, IsActive: true})
		if err == nil {
			made(l.ID)
		}
		return err
	case 2:
		_, _, err := f.store.UpdateLink(ctx, actor, org.ID, store.Unconditional, id, readPatch(f.T, `{"shortCode": "`+code+`"}`))
		return err
	case 3:
		_, _, err := f.store.UpdateLink(ctx, actor, org.ID, store.Unconditional, id, readPatch(f.T, fmt.Sprintf(`{"isActive": %t}`, random.IntN(2) == 0)))
		return err
	}
	_, err := f.store.DeleteLink(ctx, actor, org.ID, store.Unconditional, id)
	return err
}

func TestSwapOfTwoCodesIsAConflictAndNeverADeadlock(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	org := f.organization(catalog.Growth)
	a := f.create(org, `{"path": "x", "shortCode": "a"}`)
	b := f.create(org, `{"path": "x", "shortCode": "b"}`)
	toA, toB := readPatch(t, `{"shortCode": "a"}`), readPatch(t, `{"shortCode": "b"}`)
	start := time.Now()
	for range 50 {
		var g errgroup.Group
		g.Go(func() error {
			_, _, err := f.store.UpdateLink(t.Context(), testActor, org.ID, store.Unconditional, a.ID, toB)
			return err
		})
		g.Go(func() error {
			_, _, err := f.store.UpdateLink(t.Context(), testActor, org.ID, store.Unconditional, b.ID, toA)
			return err
		})
		if err := g.Wait(); !errors.Is(err, store.ErrShortCodeTaken) {
			t.Fatalf("swap: got %v, expected %v", err, store.ErrShortCodeTaken)
		}
	}
	// Postgres looks for a deadlock only after a second.
	if took := time.Since(start); took > 25*time.Second {
		t.Errorf("50 swaps took %v", took)
	}
	if n := one[int64](f, `select deadlocks from pg_stat_database where datname = current_database()`); n != 0 {
		t.Errorf("%d deadlocks", n)
	}
}

func TestAtMostTwoKeysOfATierAreEverValid(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	org := f.organization(catalog.Growth)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var g, watch errgroup.Group
	watch.Go(func() error {
		for ctx.Err() == nil {
			n := one[int64](f, `
				select coalesce(max(n), 0) from (select count(*) as n from api_keys
				where valid_until is null or valid_until > clock_timestamp() group by organization_id, tier) k`)
			if n > 2 {
				return fmt.Errorf("%d keys of a tier valid at once", n)
			}
		}
		return nil
	})
	for i := range 8 {
		g.Go(func() error {
			for range 10 {
				grace := time.Hour * time.Duration(i%2)
				if _, err := f.store.ReplaceKey(t.Context(), testActor, org.ID, store.Unconditional, apikey.Server, grace); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		t.Error(err)
	}
	stop()
	if err := watch.Wait(); err != nil {
		t.Error(err)
	}
	if n := one[int64](f, `select count(*) from api_keys where tier = 'SERVER' and valid_until is null`); n != 1 {
		t.Errorf("%d current keys, expected 1", n)
	}
}

func TestDeadlockWithAHandMadeUpdateIsRetried(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	org := f.organization(catalog.Growth)
	l := f.create(org, `{"path": "x"}`)
	// A manual transaction locks the link first and the counter second: the order that the store never uses.
	ctx := t.Context()
	conn, err := f.admin.Acquire(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	// The store's transaction must become the victim. It checks for a deadlock first, but only once, so not before there is one.
	if _, err := conn.Exec(ctx, `set deadlock_timeout = '1min'`); err != nil {
		t.Fatal(err)
	}
	f.exec(`do $$ begin execute format('alter database %I set deadlock_timeout = ''5s''', current_database()); end $$`)
	f.store = store.New(open(t, f.database.ControlURL), linkBase)
	tx, err := conn.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(ctx, `update links set title = 'by hand' where id = $1`, l.ID); err != nil {
		t.Fatal(err)
	}
	var g errgroup.Group
	g.Go(func() error {
		_, _, err := f.store.UpdateLink(ctx, testActor, org.ID, store.Unconditional, l.ID, readPatch(t, `{"path": "y"}`))
		return err
	})
	f.eventually("the store waits for the link", `select count(*) > 0 from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`)
	if _, err := tx.Exec(ctx, `update link_usage set links = links where organization_id = $1`, org.ID); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	if err := g.Wait(); err != nil {
		t.Errorf("update in a deadlock: %v", err)
	}
	got, err := f.store.Link(ctx, org.ID, l.ID)
	if err != nil {
		t.Fatal(err)
	}
	if got.Path != "y" || got.Title == nil || *got.Title != "by hand" {
		t.Errorf("got path %q and title %v, expected both changes", got.Path, got.Title)
	}
	if n := one[bool](f, `select deadlocks > 0 from pg_stat_database where datname = current_database()`); !n {
		t.Error("there was no deadlock to retry")
	}
}

// eventually waits until the query is true.
func (f fixture) eventually(what, sql string) {
	f.Helper()
	for deadline := time.Now().Add(20 * time.Second); !one[bool](f, sql); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			f.Fatalf("never: %s", what)
		}
	}
}
