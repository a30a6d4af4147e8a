// Package replica is an edge's cached copy of the catalog. Its promise: Get never returns a state that a complete change has replaced.
// A change is complete when control's response says so, after control has waited for this edge. The protocol, and the reason for each
// of its rules, is in shared/feed/README.md.
//
// The cache may lose, reorder or drop entries. Stamps and a lease decide whether an entry may be served:
//
//   - Every poll (250 ms) reads the new changes from Postgres, bumps the stamps of their tags, and then renews the lease, counted from
//     the start of the poll.
//   - A hint from Redis bumps the stamps of a change at once; then the edge acknowledges it. Losing Redis costs time only.
//   - Get serves an entry while the lease is valid and none of the entry's stamps has moved. Otherwise it reads Postgres.
//
// The replica does not write to Postgres, except for its own row in edges.
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

// Result is the outcome of a Load.
type Result struct {
	// OrgKey is the key of the organization that owns the domain, empty if the domain is unknown.
	OrgKey string
	// Value is the caller's encoding of the row, or nil if the key does not resolve. The replica keeps it; it must not change.
	Value []byte
	// Missing says that the key does not resolve although Value is not nil: Value then holds what is known of the domain.
	Missing bool
}

// Load reads one key, given as its two parts, from Postgres. It must read the primary, and start to read only after it was called.
type Load func(ctx context.Context, domain, code string) (Result, error)

// Options configure a replica. All but Address, Release and IsFile are required.
type Options struct {
	// Database connects to the primary as the edge's role. The replica keeps one connection of its own.
	Database *pgx.ConnConfig
	Redis    redis.UniversalClient
	// Slot names this edge among all running edges. A new process must not take the slot over while the old process may still serve
	// from its cache, because control then waits for the new process only. So a row that moves is not taken over.
	Slot string
	// Address is the host and port at which control's canary can reach this edge directly, not through a load balancer. An address
	// without a host (":8080") gets the local host of the database connection. Empty: the canary cannot check this edge.
	Address string
	// Release is the version of this program, for operators who read the table edges. Empty: unknown.
	Release string
	// Lease is L: how long after the start of a poll the edge may serve from its cache.
	Lease time.Duration
	// StaleIfError is S: how much longer the edge may serve from its cache while Postgres cannot be reached. 0: not at all.
	StaleIfError time.Duration
	// CacheBytes bounds the memory of the cache.
	CacheBytes int64
	Load       Load
	// IsFile reports whether a code names an association file instead of a link. Load runs another query for it, which can time out
	// while that for links works, so loads of files and of links have separate circuit breakers. nil: all codes are of links.
	IsFile func(code string) bool
	Log    *slog.Logger
}

var (
	// ErrUnavailable: Postgres cannot be reached, and the cache has no entry that may be served.
	ErrUnavailable = errors.New("replica: the database cannot be reached")
	// ErrSlotTaken: another process runs on this slot. The replica has given up its lease, and the process must end.
	ErrSlotTaken = errors.New("replica: another edge holds this slot")
)

// Replica resolves keys. Its methods are safe for concurrent use.
type Replica struct {
	options     Options
	incarnation string

	seed     maphash.Seed
	front    *front // an index over positive
	positive *cache // keys that resolve
	negative *cache // keys that do not resolve: separate, so that requests for random codes do not evict links
	// learns says that positive is nearly full and will evict entries.
	learns atomic.Bool
	stamps *stamps
	lease  atomic.Pointer[lease]

	loads         loads
	organizations sync.Map // custom domain → key of its organization, learned from loads; every load verifies it
	links, files  breaker  // for loads of links and of association files

	received receivedHints
	acks     acks
	active   context.Context // ends when Leave is called
	leave    context.CancelFunc
	left     chan struct{} // closed when polling has ended: the lease is given up and the row deleted

	counts counts
}

// Incarnation identifies this process: its row in the table edges has it.
func (r *Replica) Incarnation() string { return r.incarnation }

// overhead is the memory in bytes that ristretto needs per entry in addition to the entry. Measured: 160 to 222, depending on how full
// its maps are.
const overhead = 190

// New returns a replica with an empty cache. Get reads Postgres until Run has completed a poll.
func New(o Options) (*Replica, error) {
	seed := maphash.MakeSeed()
	r := &Replica{
		options: o, incarnation: uuid.NewString(),
		seed: seed, front: newFront(o.CacheBytes), stamps: newStamps(seed),
		left: make(chan struct{}), counts: newCounts(),
	}
	var err error
	if r.positive, err = newCache(o.CacheBytes-o.CacheBytes/16-o.CacheBytes/frontShare, r.forget); err != nil {
		return nil, err
	}
	if r.negative, err = newCache(o.CacheBytes/16, nil); err != nil {
		return nil, err
	}
	r.active, r.leave = context.WithCancel(context.Background())
	r.loads.init()
	r.acks.init()
	return r, nil
}

// cache maps the hashes of keys to entries.
type cache = ristretto.Cache[uint64, *byte]

// cacheGet returns the entry with this hash, or nil. The entry may belong to another key.
func cacheGet(in *cache, hash uint64) entry {
	first, _ := in.Get(hash)
	return entryAt(first)
}

// newCache returns a cache that takes at most this much memory. It calls onExit, if not nil, for each entry that it no longer holds.
func newCache(bytes int64, onExit func(first *byte)) (*cache, error) {
	return ristretto.NewCache(&ristretto.Config[uint64, *byte]{
		// Ten counters per entry of the usual size, which is about 600 bytes with all overhead. With four counters a cache that evicts has
		// a hit rate that is two percentage points lower.
		NumCounters:        max(bytes/60, 1_000),
		MaxCost:            bytes,
		BufferItems:        64,
		IgnoreInternalCost: true,
		// The keys are hashes already. The second hash is 0, so ristretto does not compare keys; entry.named does.
		KeyToHash: func(hash uint64) (uint64, uint64) { return hash, 0 },
		OnExit:    onExit,
	})
}

// Run polls Postgres and receives hints until ctx ends or another process takes the slot (ErrSlotTaken). Get works after Run has ended,
// from Postgres.
func (r *Replica) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return r.keepPolling(ctx) })
	group.Go(func() error { r.subscribe(ctx); return nil })
	group.Go(func() error { r.acknowledge(ctx); return nil })
	return group.Wait()
}

// Close waits for the running loads. From then on Get serves from the cache only and otherwise returns [ErrUnavailable]. Call it before
// closing what Load uses.
func (r *Replica) Close() { r.loads.close() }

// Leave gives up the lease and then deletes the row in edges. In this order control never stops waiting for an edge that may still serve
// from its cache. Get then reads Postgres. Leave returns when this is done or ctx ends. Run must have been called, and continues until
// its own context ends.
func (r *Replica) Leave(ctx context.Context) error {
	r.leave()
	select {
	case <-r.left:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("leave the registry of edges: %w", ctx.Err())
	}
}

// Ready returns nil while the replica holds a lease.
func (r *Replica) Ready() error {
	if !r.lease.Load().covers(time.Now(), r.options.Lease) {
		return errors.New("no lease: the last completed poll of the database is too old")
	}
	return nil
}

// Key is a key to look up.
type Key struct {
	name   []byte
	domain int
	hash   uint64
}

// Key returns a key for [Replica.Get], and starts to read the memory that Get needs first. name has the form of catalog.Key, domain is the
// length of its first part. Key does not copy name.
func (r *Replica) Key(name []byte, domain int) Key {
	hash := maphash.Bytes(r.seed, name)
	r.front.prefetch(hash)
	r.stamps.prefetch(hash)
	return Key{name, domain, hash}
}

// Get returns the value of a key. It is nil if the key does not resolve, unless Load returned one with Missing. Get does not retain the
// key. now must have been read after the request was received. The value is shared and must not be changed.
//
// Errors: [ErrUnavailable], or the error of Load for a statement that failed.
func (r *Replica) Get(now time.Time, key Key) ([]byte, error) {
	// The lease is loaded here, once, before lookup reads a counter. A poll bumps the counters first and stores its lease last, so
	// counters that are read after the lease include every bump of its poll. This holds for a lease that started after now, too,
	// which is why covers accepts it. In the other order a request could stall between the two reads: it finds the counters unmoved
	// while no lease is valid, which is when control no longer waits for this edge. A later poll then bumps the counters and stores
	// its lease, and the request would take that lease as the right to serve the entry that the poll has just voided.
	if e := r.lookup(r.lease.Load(), now, r.options.Lease, key.hash, key.name); e != nil {
		return e.value(), nil
	}
	return r.miss(key.hash, string(key.name), key.domain)
}

// lookup returns the cached entry of a key if l covers now for span and no change has voided the entry, otherwise nil. The caller has
// loaded l before the call: lookup reads the counters, and Get says why they come second.
func (r *Replica) lookup(l *lease, now time.Time, span time.Duration, hash uint64, key []byte) entry {
	if !l.covers(now, span) {
		return nil
	}
	sampled := sample()
	if !sampled || !r.learns.Load() {
		if e := r.front.get(hash); e != nil && e.named(key) && r.stamps.current(e) {
			return e
		}
	}
	if e := cacheGet(r.positive, hash); e != nil && e.named(key) && r.stamps.current(e) {
		if r.front.put(hash, e, sampled) && cacheGet(r.positive, hash).pointer() != e.pointer() {
			// ristretto dropped the entry, and forget was called, before the index had it.
			r.front.drop(hash, e)
		}
		return e
	}
	if e := cacheGet(r.negative, hash); e != nil && e.named(key) && r.stamps.current(e) {
		return e
	}
	return nil
}

// remember stores an entry in the positive or the negative cache. An older entry of the same key in the other cache stays there; its
// stamps have moved, so lookup does not return it.
func (r *Replica) remember(hash uint64, e entry) {
	r.cacheOf(e).Set(hash, e.pointer(), int64(len(e))+overhead)
	r.learns.Store(r.positive.RemainingCost() < r.positive.MaxCost()/4)
}

// forget drops from the front index an entry that ristretto no longer holds.
func (r *Replica) forget(first *byte) {
	if e := entryAt(first); e != nil {
		r.front.drop(maphash.Bytes(r.seed, e.name()), e)
	}
}

func (r *Replica) cacheOf(e entry) *cache {
	if !e.resolves() {
		return r.negative
	}
	return r.positive
}
