package replica

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"deeplink/shared/postgres"
)

const (
	// loadTimeout bounds one query, and the wait for a slot. A load runs at most two queries, and a request waits for at most two loads,
	// or four if the epoch moves while it waits.
	loadTimeout = time.Second
	// maxLoads is the maximum number of concurrent loads, maxQueued the maximum number of keys that wait for a slot.
	maxLoads  = 64
	maxQueued = 8192
)

var (
	errQueueFull = fmt.Errorf("replica: load queue full: %d keys are waiting for the database", maxQueued)
	errClosed    = errors.New("replica: closed")
)

// loads holds the running loads, at most one per key: many concurrent requests for one link cost one query. Ristretto stores a new
// entry some time after Set, so a load stays here until then.
type loads struct {
	mu      sync.Mutex
	running map[string]*load
	slots   chan struct{}
	closed  bool
	group   sync.WaitGroup
}

// load is one read of a key from Postgres. Its results may be read after done is closed.
type load struct {
	done  chan struct{}
	value []byte
	err   error
	// entry is what the load put into the cache, or nil. A request that arrived after the start of the load must check the entry like
	// a cached one: the load may have read the row before that request arrived.
	entry entry
	ended bool // guarded by loads.mu
}

func (l *loads) init() {
	l.running = make(map[string]*load)
	l.slots = make(chan struct{}, maxLoads)
}

// close lets no new load start and waits for the running ones.
func (l *loads) close() {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.group.Wait()
}

// miss returns the value from Postgres or, while Postgres cannot be reached, from an entry that stale may serve.
func (r *Replica) miss(hash uint64, key string, domain int) ([]byte, error) {
	defer observe(r.counts.misses, time.Now())
	epoch := r.stamps.epoch.Load()
	value, err := r.fetch(hash, key, domain)
	if err == nil || !unreachable(err) {
		return value, err
	}
	e := r.stale(hash, key)
	if r.stamps.epoch.Load() != epoch {
		// Postgres came back meanwhile, and the poll voided all entries, including the one that this request could have been served.
		value, err = r.fetch(hash, key, domain)
		if err == nil || !unreachable(err) {
			return value, err
		}
		e = r.stale(hash, key)
	}
	if e == nil {
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	r.counts.stale.Add(1)
	return e.value(), nil
}

// stale returns the cached entry of a key if it may be served while Postgres cannot be reached, otherwise nil.
func (r *Replica) stale(hash uint64, key string) entry {
	if r.options.StaleIfError == 0 {
		return nil
	}
	// The lease before the counters, as in Get: the poll that reaches Postgres again may come at any moment.
	return r.lookup(r.lease.Load(), time.Now(), r.options.Lease+r.options.StaleIfError, hash, []byte(key))
}

// unreachable reports whether the query was not sent or Postgres did not respond. Only then may stale entries be served.
func unreachable(err error) bool {
	return errors.Is(err, errPostgresDown) || errors.Is(err, errQueueFull) || errors.Is(err, errClosed) || postgres.Unreachable(err)
}

// fetch joins the running load of a key or starts one. A request uses a load that it joined only if the entry is servable when the load
// ends. Otherwise it uses the next load, which starts after the request arrived.
func (r *Replica) fetch(hash uint64, key string, domain int) ([]byte, error) {
	l, started := r.join(hash, key, domain)
	<-l.done
	// The load has ended, so the lease is loaded after the entry was made and before its counters are read.
	if !started && !r.servable(r.lease.Load(), time.Now(), l.entry) {
		l, _ = r.join(hash, key, domain)
		<-l.done
	}
	return l.value, l.err
}

// servable reports whether an entry may be served: l covers now, and no change has voided the entry. As in lookup, the caller has
// loaded l before the call, and the counters are read here, after it.
func (r *Replica) servable(l *lease, now time.Time, e entry) bool {
	return e != nil && l.covers(now, r.options.Lease) && r.stamps.current(e)
}

// join returns the running load of a key, or a load that has ended if its entry is servable and not yet in the cache. Otherwise it
// starts a load. Every load ends within three times loadTimeout.
func (r *Replica) join(hash uint64, key string, domain int) (l *load, started bool) {
	r.loads.mu.Lock()
	defer r.loads.mu.Unlock()
	if l := r.loads.running[key]; l != nil && (!l.ended || r.servable(r.lease.Load(), time.Now(), l.entry)) {
		return l, false
	}
	l = &load{done: make(chan struct{})}
	if l.err = r.loads.refusal(); l.err != nil {
		close(l.done)
		return l, true
	}
	r.loads.running[key] = l
	r.loads.group.Go(func() {
		r.run(l, hash, key, domain)
		r.loads.end(l)
		if l.entry != nil {
			r.cacheOf(l.entry).Wait()
		}
		r.loads.drop(key, l)
	})
	return l, true
}

// refusal returns the reason why no further load may start, or nil. The caller holds l.mu.
func (l *loads) refusal() error {
	switch {
	case l.closed:
		return errClosed
	case len(l.running) >= maxLoads+maxQueued:
		return errQueueFull
	default:
		return nil
	}
}

func (l *loads) end(ended *load) {
	l.mu.Lock()
	defer l.mu.Unlock()
	ended.ended = true
	close(ended.done)
}

// drop removes a load, unless another load has replaced it.
func (l *loads) drop(key string, ended *load) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.running[key] == ended {
		delete(l.running, key)
	}
}

func (r *Replica) run(l *load, hash uint64, key string, domain int) {
	defer func() {
		if p := recover(); p != nil {
			l.err = fmt.Errorf("load of a link panicked: %v\n%s", p, debug.Stack())
		}
	}()
	breaker := r.breakerOf(key[domain+1:])
	if !breaker.allows(time.Now()) {
		l.err = errPostgresDown
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), loadTimeout)
	defer cancel()
	select {
	case r.loads.slots <- struct{}{}:
		defer func() { <-r.loads.slots }()
	case <-ctx.Done():
		l.err = fmt.Errorf("wait for one of %d loads to end: %w", maxLoads, ctx.Err())
		return
	}
	r.counts.loads.Add(1)
	start := time.Now()
	e, complete, err := r.loadRow(key, domain)
	if err != nil && unreachable(err) && shouldRetry(time.Since(start)) {
		e, complete, err = r.loadRow(key, domain)
	}
	observe(r.counts.loadTimes, start)
	breaker.record(err == nil || !unreachable(err), time.Now())
	if err != nil {
		r.counts.loadErrors.Add(1)
		l.err = err
		return
	}
	l.value = e.value()
	if complete {
		r.remember(hash, e)
		l.entry = e
	}
}

// breakerOf returns the circuit breaker of the loads of a code.
func (r *Replica) breakerOf(code string) *breaker {
	if r.options.IsFile != nil && r.options.IsFile(code) {
		return &r.files
	}
	return &r.links
}

// shouldRetry reports whether a query that failed after took runs again. A quick failure means that the pooled connection was dead. A
// failure well after the timeout means that this process was suspended. A query that ran for its whole timeout is not repeated:
// Postgres hangs.
func shouldRetry(took time.Duration) bool {
	return took < loadTimeout/2 || took > loadTimeout+100*time.Millisecond
}

// loadRow reads a key, and reads it again if the first result named an organization whose stamp was not read before.
func (r *Replica) loadRow(key string, domain int) (e entry, complete bool, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), loadTimeout)
	defer cancel()
	name, code := key[:domain], key[domain+1:]
	if e, complete, err = r.loadOnce(ctx, key, name, code); err == nil && !complete {
		e, complete, err = r.loadOnce(ctx, key, name, code)
	}
	return e, complete, err
}

// loadOnce runs one query. It reads the stamps before the query, so that a change in between voids the entry. complete is false if the
// domain belongs to another organization than the one whose stamp was read.
func (r *Replica) loadOnce(ctx context.Context, key, domain, code string) (e entry, complete bool, err error) {
	orgKey := r.organization(domain)
	stamped := r.stamps.read(orgKey, domain, key)
	result, err := r.options.Load(ctx, domain, code)
	if err != nil {
		return nil, false, err
	}
	e = newEntry(stamped, key, result.Value)
	if result.Missing {
		e.markMissing()
	}
	if result.OrgKey == "" || result.OrgKey == orgKey {
		return e, true, nil
	}
	r.organizations.Store(domain, result.OrgKey)
	return e, false, nil
}

// organization returns the key of the organization that owns a domain, as far as this edge has learned it, else "". On the shared host
// the domain's name is the organization's key.
func (r *Replica) organization(domain string) string {
	if !strings.Contains(domain, ".") {
		return domain
	}
	orgKey, _ := r.organizations.Load(domain)
	learned, _ := orgKey.(string)
	return learned
}

// bump voids every entry that depends on one of the tags.
func (r *Replica) bump(tags []string) {
	for _, tag := range tags {
		r.stamps.bump(tag)
	}
}
