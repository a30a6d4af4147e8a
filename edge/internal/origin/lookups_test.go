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

// origin returns one over so many connections.
func (w *testEnv) origin(connections int32) *Origin {
	w.t.Helper()
	o, err := Open(w.t.Context(), w.edgeURL, connections)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(o.Close)
	return o
}

// block keeps every lookup waiting in Postgres until the function is called.
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

// queued waits until so many lookups wait for a line.
func queued(t *testing.T, o *Origin, n int) {
	t.Helper()
	for end := time.Now().Add(bound); ; time.Sleep(time.Millisecond) {
		_, waiting := o.links.Load()
		if waiting == n {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d lookups wait for a line, expected %d", waiting, n)
		}
	}
}

// isSending waits until a lookup is at Postgres.
func isSending(t *testing.T, o *Origin) {
	t.Helper()
	for end := time.Now().Add(bound); o.Stat().AcquiredConns() == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("no lookup is sent")
		}
	}
}

// idle checks that every line was given back.
func idle(t *testing.T, o *Origin) {
	t.Helper()
	if taken, waiting := o.links.Load(); taken != 0 || waiting != 0 {
		t.Errorf("%d senders are busy and %d lookups are queued, expected none", taken, waiting)
	}
}

// TestConcurrentLookupsEachGetTheirOwnResult makes many wait for one line, and counts what they take.
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
	// The first went by itself, the others by maxBatch.
	if trips := o.Stat().AcquireCount() - before; trips != 1+3 {
		t.Errorf("%d lookups took %d round trips, expected 4", n, trips)
	}
	idle(t, o)
}

// TestCanceledLookupDoesNotDelayOthers gives up one that has the line, one that waits, and one that is told that it has the line.
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
				t.Errorf("a lookup that was given up: %v", err)
			}
		})
		return cancel
	}
	sending := start()
	isSending(t, o)
	next := start()
	queued(t, o, 1)
	start()() // it is given up at once
	queued(t, o, 1)
	sending()
	queued(t, o, 0) // next has the line
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

// TestChangedPlanFailsNoLookupOfABatch is what a migration under a running edge does.
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
