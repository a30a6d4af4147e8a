// Package replica is an edge's copy of the catalog. Its promise: it never answers from a state that a finished change has
// replaced. "Finished" is what control says after it has waited for this edge; the protocol is shared design, and every rule
// of it that looks like a detail (what is read before what) is one the promise fails without.
//
// The cache is only a memory: it may forget, reorder or drop. What is still true is decided by stamps and by a lease:
//
//   - Postgres tells every poll (250 ms) which transactions are new. What they changed is bumped, then the lease is renewed
//     from the time the poll began.
//   - Redis tells of a change at once. It is bumped, then acknowledged. Redis being lost costs time only.
//   - A request is answered from an entry while the lease holds and none of the entry's stamps has moved. Otherwise it asks
//     Postgres.
//
// It is not a store: it never writes but its own row in edges.
package replica

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dgraph-io/ristretto/v2"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"
)

// Answer is what a load found.
type Answer struct {
	// OrgKey names the organization that owns the domain, empty when the domain is unknown.
	OrgKey string
	// Value is whatever the caller makes of the row; nil when the key leads nowhere. It is kept and must not change.
	Value []byte
}

// Load asks Postgres for one key, given as its two parts. It must read the primary, after it was called.
type Load func(ctx context.Context, domain, code string) (Answer, error)

// Options say how a replica works. All but Address and Release are required.
type Options struct {
	// Database reaches the primary as the edge's role; the replica keeps one connection of its own to it.
	Database *pgx.ConnConfig
	Redis    redis.UniversalClient
	// Slot names this edge among all that run. It must not be taken over while its old process may still answer: from then on
	// control waits for the new one alone. A row that moves is not taken over.
	Slot string
	// Address is host and port at which control reaches this edge itself, past any balancer, so that its canary can ask it. Without a
	// host (":8080") it gets the one from which the database is reached. Empty: control can't.
	Address string
	// Release names what runs here, for whoever looks at the table edges. Empty: not known.
	Release string
	// Lease is L: how long after the begin of a poll the cache may answer.
	Lease time.Duration
	// StaleIfError is S: how much longer it may while Postgres cannot be reached. 0: not at all.
	StaleIfError time.Duration
	// CacheBytes bounds the memory of the cache.
	CacheBytes int64
	Load       Load
	Log        *slog.Logger
}

var (
	// ErrUnavailable: Postgres cannot be reached, and the cache holds nothing that may still be told.
	ErrUnavailable = errors.New("replica: the database cannot be reached")
	// ErrSlotTaken: another process runs on this slot. The replica gave up its lease and must not go on.
	ErrSlotTaken = errors.New("replica: another edge holds this slot")
)

// Replica answers lookups. Its methods are safe for concurrent use.
type Replica struct {
	options     Options
	incarnation string

	seed    maphash.Seed
	hot     hot    // of what leads somewhere, that which is asked for the most
	known   *cache // what leads somewhere
	unknown *cache // what leads nowhere: apart, so that guessing codes evicts no link
	stamps  *stamps
	lease   atomic.Pointer[lease]

	loads         loads
	organizations sync.Map // custom domain → key of its organization, learned from loads; a hint that a load verifies
	postgres      breaker

	heard   heard
	acks    acks
	staying context.Context // ends when Leave is called
	leave   context.CancelFunc
	gone    chan struct{} // closed when the poll has ended: the lease given up, the row deleted

	counts counts
}

// overhead is what the cache keeps per entry beside the entry itself, in bytes: measured, 160 to 222, the less the fuller its maps are.
const overhead = 190

// New returns a replica that knows nothing. It answers from Postgres until Run has polled once.
func New(o Options) (*Replica, error) {
	known, err := newCache(o.CacheBytes - o.CacheBytes/16)
	if err != nil {
		return nil, err
	}
	unknown, err := newCache(o.CacheBytes / 16)
	if err != nil {
		return nil, err
	}
	r := &Replica{
		options: o, incarnation: uuid.NewString(),
		seed: maphash.MakeSeed(), known: known, unknown: unknown, stamps: newStamps(),
		gone: make(chan struct{}), counts: newCounts(),
	}
	r.staying, r.leave = context.WithCancel(context.Background())
	r.loads.init()
	r.acks.init()
	return r, nil
}

// cache has entries by the hashes of their keys.
type cache = ristretto.Cache[uint64, *byte]

// lookUp returns the entry with this hash, whosever it is; nil when there is none.
func lookUp(in *cache, hash uint64) entry {
	begin, _ := in.Get(hash)
	return entryAt(begin)
}

func newCache(bytes int64) (*cache, error) {
	return ristretto.NewCache(&ristretto.Config[uint64, *byte]{
		// Ten counters for each entry of a usual size, about 600 bytes with all overhead. With four, a cache that has to evict finds two
		// clicks in a hundred less.
		NumCounters:        max(bytes/60, 1_000),
		MaxCost:            bytes,
		BufferItems:        64,
		IgnoreInternalCost: true,
		// The keys are hashes already. Without a second hash the cache compares nothing; entries carry their key.
		KeyToHash: func(hash uint64) (uint64, uint64) { return hash, 0 },
	})
}

// Run polls Postgres and hears Redis until ctx ends or the slot turns out to be taken (ErrSlotTaken). Get goes on after it, from
// Postgres.
func (r *Replica) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return r.keepPolling(ctx) })
	group.Go(func() error { r.hear(ctx); return nil })
	group.Go(func() error { r.acknowledge(ctx); return nil })
	return group.Wait()
}

// Close waits for the loads that run. From then on Get answers from the cache alone, and [ErrUnavailable] when it may not. It is for the
// end, before what Load asks is closed.
func (r *Replica) Close() { r.loads.close() }

// Leave gives up the lease and then deletes the row in edges, in this order, so that control never stops waiting for an edge
// which may still answer from its cache. Get goes on, from Postgres. It returns when that is done or ctx ends; Run must have
// been called and goes on until its own context ends.
func (r *Replica) Leave(ctx context.Context) error {
	r.leave()
	select {
	case <-r.gone:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("leave the registry of edges: %w", ctx.Err())
	}
}

// Ready returns nil once the replica has a lease, and while it keeps one.
func (r *Replica) Ready() error {
	if !r.lease.Load().covers(time.Now(), r.options.Lease) {
		return errors.New("no lease: the database has not been polled lately")
	}
	return nil
}

// Get returns the value of a key, nil when it leads nowhere. key is catalog.Key's form, domain the length of its first part;
// key is not retained. now must have been read after the request was received. The value is shared: it must not be changed.
//
// Errors: [ErrUnavailable], or whatever Load returned for a statement that failed.
func (r *Replica) Get(now time.Time, key []byte, domain int) ([]byte, error) {
	hash := maphash.Bytes(r.seed, key)
	if e := r.remembered(hash, key); e != nil && r.lease.Load().covers(now, r.options.Lease) {
		return e.value(), nil
	}
	return r.miss(hash, string(key), domain)
}

// remembered returns the entry of a key if nothing it depends on was bumped since it was filled; otherwise nil.
func (r *Replica) remembered(hash uint64, key []byte) entry {
	isCaches := isTheCachesTurn()
	if e := r.hot.get(hash); !isCaches && e != nil && e.named(key) && r.stamps.current(e) {
		return e
	}
	if e := lookUp(r.known, hash); e != nil && e.named(key) && r.stamps.current(e) {
		if isCaches {
			r.hot.put(hash, e)
		}
		return e
	}
	if e := lookUp(r.unknown, hash); e != nil && e.named(key) && r.stamps.current(e) {
		return e
	}
	return nil
}

// remember keeps an entry, in place of an older one of its kind. One of the other kind stays: its stamps have moved.
func (r *Replica) remember(hash uint64, e entry) {
	r.cacheOf(e).Set(hash, e.begin(), int64(len(e))+overhead)
}

func (r *Replica) cacheOf(e entry) *cache {
	if e.value() == nil {
		return r.unknown
	}
	return r.known
}
