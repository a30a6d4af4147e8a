package relay

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"maps"
	"path/filepath"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"deeplink/shared/bus"
	"deeplink/shared/devservers"
	"deeplink/shared/feed"
	"deeplink/shared/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

const (
	bound  = 20 * time.Second
	first  = "00000000-0000-0000-0000-00000000000a"
	second = "00000000-0000-0000-0000-00000000000b"
)

// fixture is a relay over a real Postgres and Redis. The rows of edges are the test's to write.
type fixture struct {
	*Relay
	owner  *pgxpool.Pool
	redis  redis.UniversalClient
	server *devservers.Redis
	aged   *view // what stoodStill has put in the place of a look
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	database := testkit.NewDatabase(t)
	return newFixtureOn(t, database.URL, database.ControlURL)
}

func newFixtureOn(t *testing.T, ownerURL, controlURL string) *fixture {
	t.Helper()
	f := &fixture{server: testkit.NewRedis(t)}
	var err error
	if f.owner, err = pgxpool.New(t.Context(), ownerURL); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.owner.Close)
	pool, err := pgxpool.New(t.Context(), controlURL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	if f.redis, err = bus.Open(f.server.URL()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.redis.Close() })
	f.Relay = New(pool, f.redis, slog.New(slog.NewTextHandler(io.Discard, nil)))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- f.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		select {
		case <-ended:
		case <-time.After(bound):
			t.Error("Run did not end")
		}
	})
	f.until(t, "a look at edges", func() bool { f.mu.Lock(); defer f.mu.Unlock(); return f.view != nil })
	f.until(t, "a subscriber of acknowledgements", func() bool {
		return f.redis.PubSubNumSub(t.Context(), feed.Acks).Val()[feed.Acks] == 1
	})
	return f
}

func (f *fixture) until(t *testing.T, what string, so func() bool) {
	t.Helper()
	for end := time.Now().Add(bound); !so(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", bound, what)
		}
	}
}

func (f *fixture) exec(t *testing.T, statement string, values ...any) {
	t.Helper()
	if _, err := f.owner.Exec(t.Context(), statement, values...); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

// edge registers an edge that has applied nothing yet.
func (f *fixture) edge(t *testing.T, slot, incarnation string, lease, hold time.Duration) {
	t.Helper()
	f.exec(t, `insert into edges (slot, incarnation, lease_ms, hold_ms) values ($1, $2, $3, $4)`, slot, incarnation, lease.Milliseconds(), hold.Milliseconds())
}

// stoodStill reports whether control has seen the row stand still for its hold, and has that time pass. What it says counts when a look has
// gone on from there: one that had begun before puts back what it knew.
func (f *fixture) stoodStill(p process) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	e := f.view.edges[p]
	passed := f.view.start.Add(-drift(e.hold))
	if e.moved.Before(passed) {
		return f.view != f.aged
	}
	later := *f.view
	later.edges = maps.Clone(later.edges)
	e.moved = passed.Add(-time.Second)
	later.edges[p] = e
	f.view, f.aged = &later, &later
	return false
}

// commit makes a change.
func (f *fixture) commit(t *testing.T) feed.Change {
	t.Helper()
	c := feed.Change{Tags: []string{"k:abcd/code"}}
	if err := f.owner.QueryRow(t.Context(), `insert into changes (tags) values ($1) returning id, xid::text::bigint`, c.Tags).Scan(&c.ID, &c.XID); err != nil {
		t.Fatal(err)
	}
	return c
}

// answered is what Await said, and when.
type answered struct {
	propagation Propagation
	took        time.Duration
}

func (f *fixture) await(t *testing.T, c feed.Change) answered {
	t.Helper()
	began := time.Now()
	return answered{f.Await(t.Context(), c), time.Since(began)}
}

// must checks an answer and that it took at least and at most so long.
func (a answered) must(t *testing.T, want Propagation, least, most time.Duration) {
	t.Helper()
	if a.propagation != want || a.took < least || a.took > most {
		t.Errorf("answered %s after %v; want %s after %v to %v", a.propagation, a.took, want, least, most)
	}
}

func TestCompleteAtOnceWithoutEdges(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	if got := f.Await(t.Context(), feed.Change{}); got != Complete {
		t.Errorf("no change: %s", got)
	}
	f.await(t, f.commit(t)).must(t, Complete, 0, unknownLease)
}

func TestWaitsForEveryEdgeToAcknowledge(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.edge(t, "a", first, 5*time.Second, 10*time.Second)
	f.edge(t, "b", second, 5*time.Second, 10*time.Second)
	hints := f.redis.Subscribe(t.Context(), feed.Hints)
	defer hints.Close()
	if _, err := hints.Receive(t.Context()); err != nil {
		t.Fatal(err)
	}
	c := f.commit(t)
	done := make(chan answered, 1)
	go func() { done <- f.await(t, c) }()
	message, err := hints.ReceiveMessage(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got, err := feed.ParseChange(message.Payload); err != nil || got.ID != c.ID || got.XID != c.XID {
		t.Errorf("published %+v, %v; want %+v", got, err, c)
	}
	for _, ack := range []feed.Ack{
		{ID: c.ID, Slot: "a", Incarnation: first},
		{ID: c.ID, Slot: "b", Incarnation: first},      // of a process that is no longer there
		{ID: c.ID + 1, Slot: "b", Incarnation: second}, // of another change
	} {
		f.redis.Publish(t.Context(), feed.Acks, ack.Encode())
	}
	select {
	case a := <-done:
		t.Fatalf("answered %s after %v though edge b has not acknowledged", a.propagation, a.took)
	case <-time.After(300 * time.Millisecond):
	}
	f.redis.Publish(t.Context(), feed.Acks, feed.Ack{ID: c.ID, Slot: "b", Incarnation: second}.Encode())
	(<-done).must(t, Complete, 300*time.Millisecond, 4*time.Second)
}

func TestAppliedSnapshotCompletesWithoutRedis(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.edge(t, "a", first, 5*time.Second, 10*time.Second)
	if err := f.server.Kill(); err != nil {
		t.Fatal(err)
	}
	f.exec(t, `update edges set applied = pg_current_snapshot(), renewals = renewals + 1`) // from before the change
	c := f.commit(t)
	done := make(chan answered, 1)
	go func() { done <- f.await(t, c) }()
	select {
	case a := <-done:
		t.Fatalf("answered %s after %v though the edge has applied only what came before", a.propagation, a.took)
	case <-time.After(300 * time.Millisecond):
	}
	f.exec(t, `update edges set applied = pg_current_snapshot(), renewals = renewals + 1`)
	(<-done).must(t, Complete, 300*time.Millisecond, 4*time.Second)
}

// An edge that registers while a call begins may have read the state before the change.
func TestEdgeThatRegisteredAfterTheLastRefreshIsWaitedFor(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for range 20 {
		f.exec(t, `delete from edges`)
		f.until(t, "a look without edges", func() bool { f.mu.Lock(); defer f.mu.Unlock(); return len(f.view.edges) == 0 })
		f.edge(t, "a", first, 100*time.Millisecond, 10*time.Second)
		f.await(t, f.commit(t)).must(t, Pending, 100*time.Millisecond, 5*time.Second)
	}
}

func TestPendingWhenLeasesExpiredButNotTheHold(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.edge(t, "a", first, time.Second, time.Minute)
	f.await(t, f.commit(t)).must(t, Pending, drift(time.Second), 3*time.Second)
}

func TestCompleteWhenLeasesExpiredAndNoEdgeServesStale(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	c := f.commit(t)
	f.edge(t, "a", first, time.Second, time.Second) // late, that its row is not seen to stand still before the wait begins
	f.await(t, c).must(t, Complete, drift(time.Second), 3*time.Second)
}

func TestEdgeWhoseRowDidNotMoveForItsHoldIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	const hold = time.Minute
	f.edge(t, "a", first, time.Second, hold)
	f.await(t, f.commit(t)).must(t, Pending, drift(time.Second), 3*time.Second)
	f.until(t, "the end of the hold", func() bool { return f.stoodStill(process{"a", first}) })
	f.await(t, f.commit(t)).must(t, Complete, 0, hold/2)
	f.exec(t, `update edges set renewals = renewals + 1`) // it was only paused
	f.await(t, f.commit(t)).must(t, Pending, drift(time.Second), 3*time.Second)
}

func TestCreateWaitsForOnePollAtMost(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.edge(t, "a", first, 5*time.Second, 10*time.Second)
	began := time.Now()
	got := answered{f.AwaitCreate(t.Context(), f.commit(t)), time.Since(began)}
	got.must(t, Pending, pollEvery, 3*time.Second)
}

func TestRepeatedCallWaitsForTheFirstWithoutAHint(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.edge(t, "a", first, 100*time.Millisecond, 10*time.Second)
	c := f.commit(t)
	repeat := feed.Change{XID: c.XID}
	f.await(t, repeat).must(t, Pending, drift(100*time.Millisecond), 3*time.Second)
	f.exec(t, `update edges set applied = pg_current_snapshot(), renewals = renewals + 1`)
	f.await(t, repeat).must(t, Complete, 0, 3*time.Second)
}

func TestPendingWhenPostgresIsUnreachable(t *testing.T) {
	t.Parallel()
	server := testkit.NewPostgres(t)
	f := newFixtureOn(t, server.Database.URL, server.Database.ControlURL)
	c := f.commit(t)
	if err := server.StopImmediate(); err != nil {
		t.Fatal(err)
	}
	f.await(t, c).must(t, Pending, drift(unknownLease), 10*time.Second)
}

func TestRowOfADeadEdgeIsDeletedUnlessItMoved(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.edge(t, "dead", first, time.Second, time.Second)
	f.edge(t, "paused", second, time.Second, time.Second)
	f.exec(t, `update edges set renewals = 2 where slot = 'paused'`)
	longAgo := time.Now().Add(-time.Hour)
	err := f.reap(t.Context(), &view{start: time.Now(), edges: map[process]edge{
		{"dead", first}:    {renewals: 1, hold: time.Second, moved: longAgo},
		{"paused", second}: {renewals: 1, hold: time.Second, moved: longAgo},
	}})
	if err != nil {
		t.Fatal(err)
	}
	var left string
	if err := f.owner.QueryRow(t.Context(), `select string_agg(slot, ',') from edges`).Scan(&left); err != nil || left != "paused" {
		t.Errorf("left in edges: %q, %v; want only the row that moved", left, err)
	}
}

// A restore takes back the rows of edges that came later, and the numbers of transactions.
func TestRestoreVoidsWhatWasKnownOfTheEdges(t *testing.T) {
	t.Parallel()
	server := testkit.NewPostgres(t)
	f := newFixtureOn(t, server.Database.URL, server.Database.ControlURL)
	backup := filepath.Join(server.Dir, "backup")
	if err := server.Backup(t.Context(), backup, ""); err != nil {
		t.Fatal(err)
	}
	const lease, hold = 100 * time.Millisecond, time.Hour
	f.edge(t, "late", first, lease, hold)
	c := f.commit(t)
	f.exec(t, `update edges set applied = pg_current_snapshot(), renewals = renewals + 1`)
	f.await(t, c).must(t, Complete, 0, unknownLease)
	if err := errors.Join(server.StopImmediate(), server.SetBack(backup), server.Start(t.Context())); err != nil {
		t.Fatal(err)
	}
	f.owner.Reset()
	f.until(t, "the edge whose row is lost", func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.view.edges[process{"late", first}].lost
	})
	f.await(t, f.commit(t)).must(t, Pending, drift(lease), 3*time.Second)
	f.await(t, feed.Change{XID: c.XID}).must(t, Pending, drift(lease), 3*time.Second)
	f.edge(t, "late", first, lease, hold) // it has polled
	f.exec(t, `update edges set applied = pg_current_snapshot()`)
	f.until(t, "its row", func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return !f.view.edges[process{"late", first}].lost
	})
	f.exec(t, `delete from edges`) // and left
	f.await(t, f.commit(t)).must(t, Complete, 0, 3*time.Second)
}

func TestRestoredRowCountsAsMoved(t *testing.T) {
	t.Parallel()
	at := func(history string, row edge) *view {
		return &view{Point: feed.Point{History: history}, start: time.Now(), edges: map[process]edge{{"a", first}: row}}
	}
	longAgo := time.Now().Add(-time.Hour)
	last := at("1", edge{renewals: 1, hold: time.Second, moved: longAgo})
	for history, stood := range map[string]bool{"1": true, "2": false} {
		next := at(history, edge{renewals: 1, hold: time.Second})
		next.follow(last, time.Now())
		if got := next.edges[process{"a", first}].moved.Equal(longAgo); got != stood {
			t.Errorf("history %s after 1: a row with the same renewals stood still: %v, expected %v", history, got, stood)
		}
	}
}

func TestEdgeWhoseRowWasLostIsWaitedForUntilItsHoldHasPassed(t *testing.T) {
	t.Parallel()
	now := time.Now()
	last := &view{Point: feed.Point{History: "1"}, edges: map[process]edge{{"a", first}: {renewals: 1, hold: time.Second, moved: now.Add(-time.Hour)}}}
	for _, look := range []struct {
		after time.Duration
		there bool
	}{{0, true}, {time.Second, true}, {drift(time.Second), false}, {time.Hour, false}} {
		next := &view{Point: feed.Point{History: "2"}, start: now.Add(look.after), edges: make(map[process]edge)}
		next.follow(last, now.Add(look.after))
		if _, there := next.edges[process{"a", first}]; there != look.there {
			t.Errorf("%v after its row was lost the edge is waited for: %v, expected %v", look.after, there, look.there)
		}
		last = next
	}
}
