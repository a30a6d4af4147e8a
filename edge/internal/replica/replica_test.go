package replica

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"deeplink/edge/internal/origin"
	"deeplink/shared/bus"
	"deeplink/shared/feed"
	"deeplink/shared/testdb"
	"deeplink/shared/testredis"
)

func TestMain(m *testing.M) { testdb.Main(m) }

// bound is how long a test waits for what must happen.
const bound = 20 * time.Second

// fixture is a replica over a real Postgres and Redis, with its loads in the hands of the test.
type fixture struct {
	*Replica
	database *testdb.Database
	owner    *pgx.Conn
	redis    *redis.Client
	load     atomic.Pointer[Load]
	ended    chan error
	stop     context.CancelFunc
}

func newFixture(t *testing.T, change func(*Options)) *fixture {
	t.Helper()
	f := &fixture{database: testdb.New(t), ended: make(chan error, 1)}
	f.start(t, f.database.URL, f.database.EdgeURL, testredis.New(t).URL(), change)
	return f
}

func (f *fixture) start(t *testing.T, ownerURL, edgeURL, redisURL string, change func(*Options)) {
	t.Helper()
	var err error
	if f.owner, err = pgx.Connect(t.Context(), ownerURL); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.owner.Close(context.Background()) })
	if f.redis, err = bus.Open(redisURL); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.redis.Close() })
	config, err := pgx.ParseConfig(edgeURL)
	if err != nil {
		t.Fatal(err)
	}
	from, err := origin.Open(t.Context(), edgeURL, 4)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(from.Close)
	f.loadFrom(func(ctx context.Context, domain, code string) (Answer, error) {
		found, err := from.Link(ctx, domain, code)
		if err != nil || found.Link == nil {
			return Answer{OrgKey: found.OrgKey}, err
		}
		return Answer{OrgKey: found.OrgKey, Value: []byte(found.Link.Path)}, nil
	})
	o := Options{
		Database: config, Redis: f.redis, Slot: "slot", Lease: 2 * time.Second, StaleIfError: 2 * time.Minute, CacheBytes: 16 << 20,
		Load: func(ctx context.Context, domain, code string) (Answer, error) {
			return (*f.load.Load())(ctx, domain, code)
		},
		Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
	}
	if change != nil {
		change(&o)
	}
	if f.Replica, err = New(o); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	f.stop = cancel
	go func() { f.ended <- f.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		select {
		case <-f.ended:
		case <-time.After(bound):
			t.Error("Run did not end")
		}
		f.known.Close()
		f.unknown.Close()
	})
}

func (f *fixture) loadFrom(load Load) { f.load.Store(&load) }

// until waits until it is so.
func until(t *testing.T, what string, so func() bool) {
	t.Helper()
	for end := time.Now().Add(bound); !so(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", bound, what)
		}
	}
}

func (f *fixture) untilReady(t *testing.T) {
	t.Helper()
	until(t, "a lease", func() bool { return f.Ready() == nil })
}

func (f *fixture) exec(t *testing.T, statement string, values ...any) {
	t.Helper()
	if _, err := f.owner.Exec(context.Background(), statement, values...); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

const (
	organizationID = "00000000-0000-0000-0000-000000000001"
	sharedDomainID = "00000000-0000-0000-0000-000000000002"
	customDomainID = "00000000-0000-0000-0000-000000000003"
	linkID         = "00000000-0000-0000-0000-000000000004"
)

// seed makes the organization abcd with the domain go.example.com, and a link "code" with path v1 on the given domain.
func (f *fixture) seed(t *testing.T, domainID string) {
	t.Helper()
	f.exec(t, `insert into organizations (id, org_key, name) values ($1, 'abcd', 'test')`, organizationID)
	f.exec(t, `insert into domains (id, organization_id, host, status) values ($1, $2, null, 'verified')`, sharedDomainID, organizationID)
	f.exec(t, `insert into domains (id, organization_id, host, status) values ($1, $2, 'go.example.com', 'verified')`, customDomainID, organizationID)
	f.exec(t, `insert into links (id, organization_id, domain_id, short_code, path) values ($1, $2, $3, 'Code', 'v1')`, linkID, organizationID, domainID)
}

func (f *fixture) get(domain, code string) (string, error) {
	value, err := f.Get(time.Now(), []byte(domain+"/"+code), len(domain))
	return string(value), err
}

func (f *fixture) mustGet(t *testing.T, domain, code, want string) {
	t.Helper()
	got, err := f.get(domain, code)
	if err != nil || got != want {
		t.Fatalf("Get(%s/%s) = %q, %v; want %q", domain, code, got, err, want)
	}
}

// untilCached waits until a key is answered without Postgres.
func (f *fixture) untilCached(t *testing.T, domain, code string) {
	t.Helper()
	until(t, domain+"/"+code+" in the cache", func() bool {
		before := f.counts.loads.Load()
		if _, err := f.get(domain, code); err != nil {
			t.Fatalf("Get(%s/%s): %v", domain, code, err)
		}
		return f.counts.loads.Load() == before
	})
}

func TestHitAsksNobodyAndAllocatesNothing(t *testing.T) {
	f := newFixture(t, nil)
	f.seed(t, sharedDomainID)
	f.untilReady(t)
	f.untilCached(t, "abcd", "code")
	f.loadFrom(func(context.Context, string, string) (Answer, error) { return Answer{}, errors.New("asked Postgres") })
	key := []byte("abcd/code")
	if allocated := testing.AllocsPerRun(200, func() {
		if value, err := f.Get(time.Now(), key, 4); err != nil || string(value) != "v1" {
			t.Errorf("Get = %q, %v", value, err)
		}
	}); allocated != 0 {
		t.Errorf("a hit allocates %v times", allocated)
	}
}

func TestEveryKindOfChangeIsAppliedByThePoll(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, domain, domainID, statement, want string }{
		{"edit", "abcd", sharedDomainID, `update links set path = 'v2'`, "v2"},
		{"delete", "abcd", sharedDomainID, `delete from links`, ""},
		{"rename", "abcd", sharedDomainID, `update links set short_code = 'other'`, ""},
		{"moved to another domain", "abcd", sharedDomainID, `update links set domain_id = '` + customDomainID + `'`, ""},
		{"edit on a custom domain", "go.example.com", customDomainID, `update links set path = 'v2'`, "v2"},
		{"custom domain no longer verified", "go.example.com", customDomainID, `update domains set status = 'pending' where host is not null`, ""},
		{"truncate", "abcd", sharedDomainID, `truncate links`, ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, nil)
			f.seed(t, test.domainID)
			f.untilReady(t)
			f.mustGet(t, test.domain, "code", "v1")
			f.untilCached(t, test.domain, "code")
			f.exec(t, test.statement)
			f.nextLease(t)
			f.mustGet(t, test.domain, "code", test.want)
		})
	}
}

// nextLease waits for a lease that counts from now or later.
func (f *fixture) nextLease(t *testing.T) {
	t.Helper()
	now := time.Now()
	until(t, "a lease from now on", func() bool { l := f.lease.Load(); return l != nil && l.begun.After(now) })
}

func TestOrganizationsChangeReachesLinksOnItsCustomDomain(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	f.seed(t, customDomainID)
	f.untilReady(t)
	f.untilCached(t, "go.example.com", "code")
	before := f.counts.loads.Load()
	f.exec(t, `update organizations set suspended = true`)
	f.nextLease(t)
	f.mustGet(t, "go.example.com", "code", "v1")
	if f.counts.loads.Load() == before {
		t.Error("answered from before the suspension: no load after it")
	}
}

func TestUnknownIsRememberedUntilItIsCreated(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	f.seed(t, sharedDomainID)
	f.untilReady(t)
	f.untilCached(t, "abcd", "new")
	f.mustGet(t, "abcd", "new", "")
	f.exec(t, `insert into links (id, organization_id, domain_id, short_code, path) values (gen_random_uuid(), $1, $2, 'New', 'n')`, organizationID, sharedDomainID)
	f.nextLease(t)
	f.mustGet(t, "abcd", "new", "n")
	f.exec(t, `delete from links where short_code = 'New'`)
	f.nextLease(t)
	f.untilCached(t, "abcd", "new") // also while the entry of the deleted link is still in memory
	f.mustGet(t, "abcd", "new", "")
}

// The window must not miss a transaction, in whatever order identities are taken and transactions commit.
func TestPollMissesNoTransaction(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	f.untilReady(t)
	const writers, rounds = 8, 25
	var group sync.WaitGroup
	for w := range writers {
		conn, err := pgx.Connect(t.Context(), f.database.URL)
		if err != nil {
			t.Fatal(err)
		}
		group.Go(func() {
			defer conn.Close(context.Background())
			for i := range rounds {
				tag := fmt.Sprintf("k:abcd/%d-%d", w, i)
				before := f.stamps.tags[f.stamps.stripe(tag)].Load()
				tx, err := conn.Begin(context.Background())
				if err != nil {
					t.Error(err)
					return
				}
				if _, err := tx.Exec(context.Background(), `insert into changes (tags) values ($1)`, []string{tag}); err != nil {
					t.Error(err)
				}
				time.Sleep(rand.N(100 * time.Millisecond)) // transactions overlap, and commit in another order than they began
				if err := tx.Commit(context.Background()); err != nil {
					t.Error(err)
				}
				committed := time.Now()
				for end := committed.Add(bound); !f.lease.Load().begun.After(committed); time.Sleep(time.Millisecond) {
					if time.Now().After(end) {
						t.Error("no lease")
						return
					}
				}
				if f.stamps.tags[f.stamps.stripe(tag)].Load() == before {
					t.Errorf("a lease from after the commit of %s, which was never bumped", tag)
				}
			}
		})
	}
	group.Wait()
}

// However long a poll takes, its lease counts from when it began.
func TestLeaseCountsFromTheBeginOfThePoll(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	f.untilReady(t)
	tx, err := f.owner.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), `lock table changes in access exclusive mode`); err != nil {
		t.Fatal(err)
	}
	until(t, "a poll that waits for its window", func() bool {
		var waiting bool
		err := tx.QueryRow(context.Background(), `select exists (select from pg_locks where relation = 'changes'::regclass and not granted)`).Scan(&waiting)
		return err == nil && waiting
	})
	waiting, before := time.Now(), f.lease.Load()
	time.Sleep(100 * time.Millisecond) // the poll takes this long at least
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	until(t, "the next lease", func() bool { return f.lease.Load() != before })
	if begun := f.lease.Load().begun; begun.After(waiting) {
		t.Errorf("the lease counts from %v after its poll began to wait for an answer", begun.Sub(waiting))
	}
}

func TestHintIsBumpedAndThenAcknowledged(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	f.untilReady(t)
	acks := f.redis.Subscribe(t.Context(), feed.Acks)
	defer acks.Close()
	if _, err := acks.Receive(t.Context()); err != nil {
		t.Fatal(err)
	}
	until(t, "a subscriber of hints", func() bool { return f.redis.PubSubNumSub(t.Context(), feed.Hints).Val()[feed.Hints] == 1 })
	change := feed.Change{ID: 7, XID: 99, Tags: []string{"k:abcd/code"}}
	before := f.stamps.tags[f.stamps.stripe("k:abcd/code")].Load()
	if err := f.redis.Publish(t.Context(), feed.Hints, change.Encode()).Err(); err != nil {
		t.Fatal(err)
	}
	message, err := acks.ReceiveMessage(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if f.stamps.tags[f.stamps.stripe("k:abcd/code")].Load() == before {
		t.Error("acknowledged before it was bumped")
	}
	ack, err := feed.ParseAck(message.Payload)
	if want := (feed.Ack{ID: 7, Slot: "slot", Incarnation: f.incarnation}); err != nil || ack != want {
		t.Errorf("acknowledged %+v, %v; want %+v", ack, err, want)
	}
}

// A change that comes between the reading of the stamps and the end of the load voids the entry.
func TestFillNeverServesAfterChange(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	f.untilReady(t)
	f.loadFrom(func(context.Context, string, string) (Answer, error) {
		f.forget([]string{"k:abcd/code"}) // the change is heard of while its row was already read
		return Answer{OrgKey: "abcd", Value: []byte("old")}, nil
	})
	f.mustGet(t, "abcd", "code", "old")
	f.loadFrom(func(context.Context, string, string) (Answer, error) {
		return Answer{OrgKey: "abcd", Value: []byte("new")}, nil
	})
	f.mustGet(t, "abcd", "code", "new")
}

// Who arrives while a load runs may use it only if nothing was bumped since it began: its row may have been read before the
// change that the new request comes after.
func TestLateRequestDoesNotUseALoadThatAChangeOvertook(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	f.untilReady(t)
	asked, read := make(chan struct{}, 1), make(chan struct{})
	f.loadFrom(func(context.Context, string, string) (Answer, error) {
		asked <- struct{}{}
		<-read
		return Answer{OrgKey: "abcd", Value: []byte("old")}, nil
	})
	early, late := make(chan string, 1), make(chan string, 1)
	go func() { value, _ := f.get("abcd", "code"); early <- value }()
	<-asked
	f.loadFrom(func(context.Context, string, string) (Answer, error) {
		return Answer{OrgKey: "abcd", Value: []byte("new")}, nil
	})
	f.forget([]string{"k:abcd/code"})
	joined := make(chan struct{})
	go func() { close(joined); value, _ := f.get("abcd", "code"); late <- value }()
	<-joined
	time.Sleep(20 * time.Millisecond) // the late one joins the running load; if it came later still it would pass all the same
	close(read)
	if got := <-early; got != "old" {
		t.Errorf("the early request got %q, want its own load's %q", got, "old")
	}
	if got := <-late; got != "new" {
		t.Errorf("the late request got %q, want %q", got, "new")
	}
}

// Until the cache has taken its entry a load that ended is told as the cache would tell it: by who comes later too, but not after a
// change.
func TestLoadThatEndedIsToldUntilAChange(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	f.untilReady(t)
	var asked atomic.Int64
	f.loadFrom(func(context.Context, string, string) (Answer, error) {
		asked.Add(1)
		return Answer{OrgKey: "abcd", Value: []byte("new")}, nil
	})
	const key = "abcd/code"
	ended := &load{done: make(chan struct{}), ended: true, value: []byte("old")}
	ended.entry = newEntry(f.stamps.read("abcd", "abcd", key), key, ended.value)
	close(ended.done)
	f.loads.mu.Lock()
	f.loads.running[key] = ended
	f.loads.mu.Unlock()
	f.mustGet(t, "abcd", "code", "old")
	if n := asked.Load(); n != 0 {
		t.Errorf("asked %d times for what was just loaded", n)
	}
	f.forget([]string{"k:" + key})
	f.mustGet(t, "abcd", "code", "new")
}

func TestManyRequestsForOneKeyAreOneLoad(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	f.untilReady(t)
	var asked atomic.Int64
	f.loadFrom(func(context.Context, string, string) (Answer, error) {
		asked.Add(1)
		time.Sleep(50 * time.Millisecond)
		return Answer{OrgKey: "abcd", Value: []byte("v")}, nil
	})
	var group sync.WaitGroup
	for range 200 {
		group.Go(func() {
			if value, err := f.get("abcd", "code"); err != nil || value != "v" {
				t.Errorf("Get = %q, %v", value, err)
			}
		})
	}
	group.Wait()
	if n := asked.Load(); n > 3 {
		t.Errorf("200 requests at once made %d loads", n)
	}
}

// A process that was stopped finds that the time of its loads has run out, and nobody is to blame.
func TestLoadThatRanOutOfTimeIsTriedAgain(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	f.untilReady(t)
	var asked atomic.Int64
	f.loadFrom(func(ctx context.Context, _, _ string) (Answer, error) {
		if asked.Add(1) == 1 {
			time.Sleep(loadTimeout + 200*time.Millisecond)
			return Answer{}, ctx.Err()
		}
		return Answer{OrgKey: "abcd", Value: []byte("v")}, nil
	})
	f.mustGet(t, "abcd", "code", "v")
	f.mustGet(t, "abcd", "other", "v") // and Postgres does not count as down
}

func TestPanicInALoadIsItsError(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	f.loadFrom(func(context.Context, string, string) (Answer, error) { panic("bug") })
	if _, err := f.get("abcd", "code"); err == nil {
		t.Error("no error")
	}
}

func TestStaleIfError(t *testing.T) {
	t.Parallel()
	const lease, stale = 600 * time.Millisecond, 4 * time.Second
	start := func(t *testing.T, stale time.Duration) (*fixture, *testdb.Server) {
		server := testdb.NewServer(t)
		f := &fixture{ended: make(chan error, 1)}
		f.start(t, server.Database.URL, server.Database.EdgeURL, testredis.New(t).URL(), func(o *Options) { o.Lease, o.StaleIfError = lease, stale })
		f.seed(t, sharedDomainID)
		f.untilReady(t)
		f.untilCached(t, "abcd", "code")
		if err := server.StopImmediate(); err != nil {
			t.Fatal(err)
		}
		return f, server
	}
	t.Run("serves what it holds for the time allowed, then nothing, then goes on", func(t *testing.T) {
		t.Parallel()
		f, server := start(t, stale)
		begun := f.lease.Load().begun
		until(t, "the end of the lease", func() bool { return f.Ready() != nil })
		f.mustGet(t, "abcd", "code", "v1")
		until(t, "the end of the time allowed", func() bool {
			value, err := f.get("abcd", "code")
			if err == nil && value == "v1" && time.Since(begun) > lease+stale+100*time.Millisecond {
				t.Fatalf("still served %v after the last poll", time.Since(begun))
			}
			return errors.Is(err, ErrUnavailable)
		})
		if err := server.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		f.untilReady(t)
		f.mustGet(t, "abcd", "code", "v1")
	})
	t.Run("a hint still ends it", func(t *testing.T) {
		t.Parallel()
		f, _ := start(t, stale)
		until(t, "the end of the lease", func() bool { return f.Ready() != nil })
		f.apply(string(feed.Change{ID: 1, XID: 1, Tags: []string{"k:abcd/code"}}.Encode()))
		if value, err := f.get("abcd", "code"); !errors.Is(err, ErrUnavailable) {
			t.Errorf("Get = %q, %v; want ErrUnavailable", value, err)
		}
	})
	t.Run("zero means not at all", func(t *testing.T) {
		t.Parallel()
		f, _ := start(t, 0)
		until(t, "the end of the lease", func() bool { return f.Ready() != nil })
		if value, err := f.get("abcd", "code"); !errors.Is(err, ErrUnavailable) {
			t.Errorf("Get = %q, %v; want ErrUnavailable", value, err)
		}
	})
}

func TestFailedStatementIsNotAnUnreachableDatabase(t *testing.T) {
	t.Parallel()
	f := newFixture(t, func(o *Options) { o.Lease = 500 * time.Millisecond })
	f.seed(t, sharedDomainID)
	f.untilReady(t)
	f.untilCached(t, "abcd", "code")
	f.exec(t, `revoke select on links from deeplink_edge`)
	f.exec(t, `update links set path = 'v2'`)
	f.nextLease(t)
	if value, err := f.get("abcd", "code"); err == nil || errors.Is(err, ErrUnavailable) {
		t.Errorf("Get = %q, %v; want the statement's error", value, err)
	}
	f.exec(t, `grant select on links to deeplink_edge`)
	f.mustGet(t, "abcd", "code", "v2")
}

func TestLeaveGivesUpTheLeaseAndThenTheRow(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	f.seed(t, sharedDomainID)
	f.untilReady(t)
	f.untilCached(t, "abcd", "code")
	if err := f.Leave(t.Context()); err != nil {
		t.Fatal(err)
	}
	var rows int
	if err := f.owner.QueryRow(t.Context(), `select count(*) from edges`).Scan(&rows); err != nil || rows != 0 {
		t.Errorf("%d rows in edges after Leave, %v", rows, err)
	}
	if f.lease.Load() != nil {
		t.Error("a lease after Leave")
	}
	f.exec(t, `update links set path = 'v2'`)
	f.mustGet(t, "abcd", "code", "v2")
}

func TestSlotBelongsToOneProcess(t *testing.T) {
	t.Parallel()
	first := newFixture(t, nil)
	first.untilReady(t)
	second := &fixture{ended: make(chan error, 2)}
	second.start(t, first.database.URL, first.database.EdgeURL, testredis.New(t).URL(), nil)
	select {
	case err := <-second.ended:
		second.ended <- err
		if !errors.Is(err, ErrSlotTaken) {
			t.Errorf("the second process ended with %v, want ErrSlotTaken", err)
		}
	case <-time.After(bound):
		t.Fatal("two processes run on one slot")
	}
	if err := first.Ready(); err != nil {
		t.Errorf("the first process lost its lease: %v", err)
	}
}

func TestCrashedProcessIsReplacedOnItsSlot(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	f.untilReady(t)
	f.exec(t, `update edges set incarnation = gen_random_uuid()`) // another process took over: this one must end
	select {
	case err := <-f.ended:
		f.ended <- err
		if !errors.Is(err, ErrSlotTaken) {
			t.Errorf("ended with %v, want ErrSlotTaken", err)
		}
	case <-time.After(bound):
		t.Fatal("goes on though its slot was taken")
	}
	if f.lease.Load() != nil {
		t.Error("still holds a lease")
	}
	// What is left in the table now is the row of a process that does not move.
	next := &fixture{ended: make(chan error, 1)}
	next.start(t, f.database.URL, f.database.EdgeURL, testredis.New(t).URL(), nil)
	next.untilReady(t)
	var incarnation string
	if err := next.owner.QueryRow(t.Context(), `select incarnation::text from edges`).Scan(&incarnation); err != nil || incarnation != next.incarnation {
		t.Errorf("the slot holds %s, %v; want the new process %s", incarnation, err, next.incarnation)
	}
}

func TestRowThatWasDeletedIsMadeAnew(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	f.untilReady(t)
	f.exec(t, `delete from edges`)
	until(t, "a new row", func() bool {
		var rows int
		if err := f.owner.QueryRow(context.Background(), `select count(*) from edges where incarnation = $1`, f.incarnation).Scan(&rows); err != nil {
			t.Fatal(err)
		}
		return rows == 1
	})
}

func TestSubscriptionComesBackAfterRedisRestarts(t *testing.T) {
	t.Parallel()
	server := testredis.New(t)
	database := testdb.New(t)
	f := &fixture{ended: make(chan error, 1)}
	f.start(t, database.URL, database.EdgeURL, server.URL(), nil)
	f.untilReady(t)
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	until(t, "a hint after the restart", func() bool {
		f.redis.Publish(context.Background(), feed.Hints, feed.Change{ID: 1, XID: 1, Tags: []string{"o:abcd"}}.Encode())
		return f.counts.hints.Load() > 0
	})
}

func TestEverythingIsForgottenWhenTheWindowCannotBeTrusted(t *testing.T) {
	t.Parallel()
	snapshot, err := feed.ParseSnapshot("5:7:6")
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	good := window{snapshot: snapshot, begun: now, timeline: "1"}
	tests := []struct {
		name string
		old  window
		want bool
	}{
		{"the poll before", good, true},
		{"no poll before", window{}, false},
		{"another server or timeline", window{snapshot: snapshot, begun: now, timeline: "2"}, false},
		{"older than half of what control keeps", window{snapshot: snapshot, begun: now.Add(-windowAge), timeline: "1"}, false},
	}
	for _, test := range tests {
		if got := test.old.trusts(good); got != test.want {
			t.Errorf("%s: trusts = %v, want %v", test.name, got, test.want)
		}
	}
}

func TestLeaseEndsByEitherClock(t *testing.T) {
	t.Parallel()
	now := time.Now()
	tests := []struct {
		name string
		l    *lease
		want bool
	}{
		{"none", nil, false},
		{"just begun", &lease{begun: now}, true},
		{"over by both", &lease{begun: now.Add(-time.Second)}, false},
		{"over by the wall alone, after a machine slept", &lease{begun: now.Add(-time.Second).Round(0)}, false},
	}
	for _, test := range tests {
		if got := test.l.covers(now, time.Second); got != test.want {
			t.Errorf("%s: covers = %v, want %v", test.name, got, test.want)
		}
	}
}

func TestNothingIsLeftRunning(t *testing.T) {
	testdb.New(t) // the server of all tests here outlives this one
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	t.Run("run and stop", func(t *testing.T) {
		f := newFixture(t, nil)
		f.untilReady(t)
	})
}
