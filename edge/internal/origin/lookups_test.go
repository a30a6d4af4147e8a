package origin

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"deeplink/shared/testkit"
)

// origin returns an Origin with that many connections.
func (w *testEnv) origin(connections int32) *Origin {
	w.t.Helper()
	o, err := Open(w.t.Context(), w.edgeURL, connections)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(o.Close)
	return o
}

// block makes every lookup wait in Postgres until the returned function is called.
func (w *testEnv) block() (unblock func()) {
	w.t.Helper()
	tx, err := testkit.Connect(w.t, w.ownerURL).Begin(context.Background())
	if err != nil {
		w.t.Fatal(err)
	}
	if _, err := tx.Exec(context.Background(), `lock table domains in access exclusive mode`); err != nil {
		w.t.Fatal(err)
	}
	return func() {
		w.t.Helper()
		if err := tx.Rollback(context.Background()); err != nil {
			w.t.Fatal(err)
		}
	}
}

// queued waits until n lookups are queued.
func queued(t *testing.T, o *Origin, n int) {
	t.Helper()
	for end := time.Now().Add(bound); ; time.Sleep(time.Millisecond) {
		_, waiting := o.links.Load()
		if waiting == n {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d lookups are queued, expected %d", waiting, n)
		}
	}
}

// isSending waits until a lookup is in progress in Postgres.
func isSending(t *testing.T, o *Origin) {
	t.Helper()
	for end := time.Now().Add(bound); o.Stat().AcquiredConns() == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("no lookup in progress")
		}
	}
}

// idle checks that no sender is busy and no lookup is queued.
func idle(t *testing.T, o *Origin) {
	t.Helper()
	if taken, waiting := o.links.Load(); taken != 0 || waiting != 0 {
		t.Errorf("%d senders are busy and %d lookups are queued, expected none", taken, waiting)
	}
}

// TestConcurrentLookupsEachGetTheirOwnResult queues many lookups behind one, and counts the round trips.
func TestConcurrentLookupsEachGetTheirOwnResult(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	o := w.origin(connectionsPerSender)
	if _, err := o.Link(t.Context(), "abcd", "code0"); err != nil {
		t.Fatal(err)
	}
	before := o.Stat().AcquireCount()
	unblock := w.block()
	const n = 3 * maxBatch
	var group sync.WaitGroup
	for i := range n {
		domain, code, expected := "abcd", "code0", sharedLink
		switch i % 3 {
		case 1:
			domain, code, expected = "links.example.com", "code1", verifiedLink
		case 2:
			code, expected = fmt.Sprintf("none%d", i), ""
		}
		group.Go(func() {
			found, err := o.Link(context.Background(), domain, code)
			id := ""
			if found.Link != nil {
				id = found.Link.ID
			}
			if err != nil || found.OrgKey != "abcd" || id != expected {
				t.Errorf("%s/%s: link %q of %q, %v; expected %q of abcd", domain, code, id, found.OrgKey, err, expected)
			}
		})
	}
	queued(t, o, n-1)
	unblock()
	group.Wait()
	// The first lookup was alone, the others in batches of maxBatch.
	if trips := o.Stat().AcquireCount() - before; trips != 1+3 {
		t.Errorf("%d lookups took %d round trips, expected 4", n, trips)
	}
	idle(t, o)
}

// TestCanceledLookupDoesNotDelayOthers cancels a lookup in progress, a queued one, and one that has just become the next sender.
func TestCanceledLookupDoesNotDelayOthers(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	o := w.origin(connectionsPerSender)
	unblock := w.block()
	var group sync.WaitGroup
	start := func() (cancel context.CancelFunc) {
		ctx, cancel := context.WithCancel(context.Background())
		group.Go(func() {
			if _, err := o.Link(ctx, "abcd", "code0"); !errors.Is(err, context.Canceled) {
				t.Errorf("a canceled lookup: %v", err)
			}
		})
		return cancel
	}
	sending := start()
	isSending(t, o)
	next := start()
	queued(t, o, 1)
	start()() // it is canceled immediately
	queued(t, o, 1)
	sending()
	queued(t, o, 0) // next is the sender
	patient := make(chan error, 1)
	go func() {
		_, err := o.Link(context.Background(), "abcd", "code0")
		patient <- err
	}()
	queued(t, o, 1)
	next()
	group.Wait()
	unblock()
	select {
	case err := <-patient:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(bound):
		t.Fatal("a lookup waits for a connection that is not in use")
	}
	idle(t, o)
}

// TestChangedPlanFailsNoLookupOfABatch simulates a migration while an edge runs.
func TestChangedPlanFailsNoLookupOfABatch(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	o := w.origin(connectionsPerSender)
	var group sync.WaitGroup
	ask := func(domain, code string) {
		group.Go(func() {
			if found, err := o.Link(context.Background(), domain, code); err != nil || found.Link == nil {
				t.Errorf("%+v, %v; expected the link", found, err)
			}
		})
	}
	// Each of the two statements has a plan.
	ask("links.example.com", "code1")
	ask("abcd", "code0")
	group.Wait()
	unblock := w.block()
	ask("links.example.com", "code1")
	isSending(t, o)
	for range 5 {
		ask("abcd", "code0")
	}
	queued(t, o, 5)
	w.exec(`alter table links alter column utm_term type varchar`)
	unblock()
	group.Wait()
	idle(t, o)
}
