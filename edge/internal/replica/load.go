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
	// loadTimeout bounds one question to Postgres, and the wait for a turn to ask. A load asks twice at most, and a click waits
	// for two loads at most, or four when everything is forgotten meanwhile.
	loadTimeout = time.Second
	// maxLoads is how many questions may be open at once, maxQueued how many more keys may wait for their turn.
	maxLoads  = 64
	maxQueued = 8192
)

var (
	errQueueFull = fmt.Errorf("replica: %d keys wait for the database already", maxQueued)
	errClosed    = errors.New("replica: closed")
)

// loads are the questions to Postgres under way, at most one per key: a link that a million phones open at once is asked for
// once. The cache takes entries a while after they were set, so a load stays until then.
type loads struct {
	mu      sync.Mutex
	running map[string]*load
	slots   chan struct{}
	closed  bool
	group   sync.WaitGroup
}

// load is one question. Its results may be read once done is closed.
type load struct {
	done  chan struct{}
	value []byte
	err   error
	// entry is what it put into the cache, nil for nothing. Those who came after the load began may use it only as they would use
	// the cache: the row may have been read before they came.
	entry entry
	ended bool // guarded by loads.mu
}

func (l *loads) init() {
	l.running = make(map[string]*load)
	l.slots = make(chan struct{}, maxLoads)
}

// close waits for the loads that run, and lets no other begin.
func (l *loads) close() {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.group.Wait()
}

// miss answers from Postgres, or, while that cannot be reached, from what the cache may still tell.
func (r *Replica) miss(hash uint64, key string, domain int) ([]byte, error) {
	defer observe(r.counts.misses, time.Now())
	epoch := r.stamps.epoch.Load()
	value, err := r.fetch(hash, key, domain)
	if err == nil || !unreachable(err) {
		return value, err
	}
	e := r.remembered(hash, []byte(key))
	if r.stamps.epoch.Load() != epoch {
		// Postgres came back meanwhile, and everything was forgotten, also what this click would have been told.
		value, err = r.fetch(hash, key, domain)
		if err == nil || !unreachable(err) {
			return value, err
		}
		e = r.remembered(hash, []byte(key))
	}
	hold := r.options.Lease + r.options.StaleIfError
	if e != nil && r.options.StaleIfError > 0 && r.lease.Load().covers(time.Now(), hold) {
		r.counts.stale.Add(1)
		return e.value(), nil
	}
	return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
}

// unreachable reports whether Postgres was not asked or did not answer: the one case in which stale answers are allowed.
func unreachable(err error) bool {
	return errors.Is(err, errPostgresDown) || errors.Is(err, errQueueFull) || errors.Is(err, errClosed) || postgres.Unreachable(err)
}

// fetch joins the running load of a key or starts one. A joined load whose entry may not be told is of no use to who joined it;
// the next one, of whoever comes first, began after all of them had arrived.
func (r *Replica) fetch(hash uint64, key string, domain int) ([]byte, error) {
	l, started := r.join(hash, key, domain)
	<-l.done
	if !started && !r.tellable(l.entry) {
		l, _ = r.join(hash, key, domain)
		<-l.done
	}
	return l.value, l.err
}

// tellable reports whether an entry may be told now: nothing it depends on has been bumped, and the lease holds.
func (r *Replica) tellable(e entry) bool {
	return e != nil && r.stamps.current(e) && r.lease.Load().covers(time.Now(), r.options.Lease)
}

// join returns the load of a key that runs, or that has ended while its entry is not in the cache yet and may still be told.
// Otherwise it starts one. Every load ends within three times loadTimeout.
func (r *Replica) join(hash uint64, key string, domain int) (l *load, started bool) {
	r.loads.mu.Lock()
	defer r.loads.mu.Unlock()
	if l := r.loads.running[key]; l != nil && (!l.ended || r.tellable(l.entry)) {
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

// refusal says why no other load may begin now. The caller holds l.mu.
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

// drop forgets a load, unless another one took its place.
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
	if !r.postgres.allows(time.Now()) {
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
	began := time.Now()
	e, complete, err := r.ask(key, domain)
	if err != nil && unreachable(err) && worthAnother(time.Since(began)) {
		e, complete, err = r.ask(key, domain)
	}
	observe(r.counts.loadTimes, began)
	r.postgres.heard(err == nil || !unreachable(err), time.Now())
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

// worthAnother reports whether a question that failed after so long is asked again: at once when the connection had died in
// the pool, and when the time ran out because this process stood still. A Postgres that hangs is waited for once.
func worthAnother(took time.Duration) bool {
	return took < loadTimeout/2 || took > loadTimeout+100*time.Millisecond
}

// ask asks, and once more when the first answer told whose domain it is.
func (r *Replica) ask(key string, domain int) (e entry, complete bool, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), loadTimeout)
	defer cancel()
	name, code := key[:domain], key[domain+1:]
	if e, complete, err = r.load(ctx, key, name, code); err == nil && !complete {
		e, complete, err = r.load(ctx, key, name, code)
	}
	return e, complete, err
}

// load asks once. The stamps are read before the row is asked for, so that a change which comes between voids the entry. They
// are complete unless the domain turned out to belong to another organization than the one whose stamp was read.
func (r *Replica) load(ctx context.Context, key, domain, code string) (e entry, complete bool, err error) {
	orgKey := r.organization(domain)
	marks := r.stamps.read(orgKey, domain, key)
	answer, err := r.options.Load(ctx, domain, code)
	if err != nil {
		return nil, false, err
	}
	e = newEntry(marks, key, answer.Value)
	if answer.OrgKey == "" || answer.OrgKey == orgKey {
		return e, true, nil
	}
	r.organizations.Store(domain, answer.OrgKey)
	return e, false, nil
}

// organization returns whose domain it is, as far as is known; a custom domain not met before gives "". On the shared host
// the organization's key is the domain's name.
func (r *Replica) organization(domain string) string {
	if !strings.Contains(domain, ".") {
		return domain
	}
	orgKey, _ := r.organizations.Load(domain)
	known, _ := orgKey.(string)
	return known
}

// forget bumps every tag.
func (r *Replica) forget(tags []string) {
	for _, tag := range tags {
		r.stamps.bump(tag)
	}
}
