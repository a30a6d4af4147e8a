package replica

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"deeplink/edge/internal/origin"
	"deeplink/shared/bus"
	"deeplink/shared/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// bound is the timeout of a test's waits.
const bound = 20 * time.Second

// fixture is a replica over a real Postgres and Redis, whose loads the test controls.
type fixture struct {
	*Replica
	database *testkit.Database
	owner    *pgx.Conn
	redis    redis.UniversalClient
	load     atomic.Pointer[Load]
	ended    chan error
	stop     context.CancelFunc
}

func newFixture(t *testing.T, change func(*Options)) *fixture {
	t.Helper()
	f := &fixture{database: testkit.NewDatabase(t), ended: make(chan error, 1)}
	f.start(t, f.database.URL, f.database.EdgeURL, testkit.NewRedis(t).URL(), change)
	return f
}

func (f *fixture) start(t *testing.T, ownerURL, edgeURL, redisURL string, change func(*Options)) {
	t.Helper()
	var err error
	f.owner = testkit.Connect(t, ownerURL)
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
	f.loadFrom(func(ctx context.Context, domain, code string) (Result, error) {
		found, err := from.Link(ctx, domain, code)
		if err != nil || found.Link == nil {
			return Result{OrgKey: found.OrgKey}, err
		}
		return Result{OrgKey: found.OrgKey, Value: []byte(found.Link.Path)}, nil
	})
	o := Options{
		Database: config, Redis: f.redis, Slot: "slot", Lease: 2 * time.Second, StaleIfError: 2 * time.Minute, CacheBytes: 16 << 20,
		Load: func(ctx context.Context, domain, code string) (Result, error) {
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
		f.Close()
		f.positive.Close()
		f.negative.Close()
	})
}

func (f *fixture) loadFrom(load Load) { f.load.Store(&load) }

// until waits until the condition is true.
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

// seed inserts the organization abcd with the domain go.example.com, and a link "code" with path v1 on the given domain.
func (f *fixture) seed(t *testing.T, domainID string) {
	t.Helper()
	f.exec(t, `insert into organizations (id, org_key, name) values ($1, 'abcd', 'test')`, organizationID)
	f.exec(t, `insert into domains (id, organization_id, host, status) values ($1, $2, null, 'verified')`, sharedDomainID, organizationID)
	f.exec(t, `insert into domains (id, organization_id, host, status) values ($1, $2, 'go.example.com', 'verified')`, customDomainID, organizationID)
	f.exec(t, `insert into links (id, organization_id, domain_id, short_code, path) values ($1, $2, $3, 'Code', 'v1')`, linkID, organizationID, domainID)
}

func (f *fixture) get(domain, code string) (string, error) {
	value, err := f.Get(time.Now(), f.Key([]byte(domain+"/"+code), len(domain)))
	return string(value), err
}

func (f *fixture) mustGet(t *testing.T, domain, code, want string) {
	t.Helper()
	got, err := f.get(domain, code)
	if err != nil || got != want {
		t.Fatalf("Get(%s/%s) = %q, %v; want %q", domain, code, got, err, want)
	}
}

// untilCached waits until a key is served without Postgres.
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

// nextLease waits for a lease that counts from now or later.
func (f *fixture) nextLease(t *testing.T) {
	t.Helper()
	now := time.Now()
	until(t, "a lease from now on", func() bool { l := f.lease.Load(); return l != nil && l.start.After(now) })
}

func TestHitRunsNoQueryAndAllocatesNothing(t *testing.T) {
	f := newFixture(t, nil)
	f.seed(t, sharedDomainID)
	f.nextLease(t) // by then the seeded changes have been applied, and no longer void entries
	f.untilCached(t, "abcd", "code")
	f.loadFrom(func(context.Context, string, string) (Result, error) { return Result{}, errors.New("asked Postgres") })
	key := []byte("abcd/code")
	if allocated := testing.AllocsPerRun(200, func() {
		if value, err := f.Get(time.Now(), f.Key(key, 4)); err != nil || string(value) != "v1" {
			t.Errorf("Get = %q, %v", value, err)
		}
	}); allocated != 0 {
		t.Errorf("a hit allocates %v times", allocated)
	}
}

func TestUnknownKeyIsCachedUntilItIsCreated(t *testing.T) {
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

func TestNoGoroutineOutlivesTheReplica(t *testing.T) {
	testkit.NewDatabase(t) // the server of all tests here outlives this one
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	t.Run("run and stop", func(t *testing.T) {
		f := newFixture(t, nil)
		f.untilReady(t)
	})
}
