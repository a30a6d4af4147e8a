// Package bulkhead divides the slots of a shared resource among tenants, so that no tenant can use up the slots that others need.
//
// It promises that no key holds more slots than its share, and that a waiting caller holds no resource: take the slot first and the
// resource (a database connection) after it. A key whose callers are all stuck delays only itself, unless the stuck keys together hold all
// slots.
package bulkhead

import (
	"container/list"
	"context"
	"errors"
	"sync"
	"time"
)

// Errors of Acquire when a key has used up its share. The caller has no slot then.
var (
	// ErrFull: the maximum number of callers of the key is waiting. Acquire returns it at once.
	ErrFull = errors.New("too many callers wait already")
	// ErrTimeout: the caller waited for Limits.MaxWait.
	ErrTimeout = errors.New("waited too long for a slot")
)

// Limits are the bounds of a Bulkhead. All must be positive.
type Limits struct {
	// Slots is the maximum number of slots in use at the same time, over all keys.
	Slots int
	// PerKey is the maximum number of slots of one key. A value above Slots counts as Slots.
	PerKey int
	// MaxWaiting is the maximum number of waiting callers of one key.
	MaxWaiting int
	// MaxWait bounds how long a caller waits.
	MaxWait time.Duration
}

// Bulkhead is a semaphore with a share for each key.
//
// It is fair in two ways. Callers of one key get slots in the order of their calls. Waiting keys take turns: a free slot goes to the key
// whose last turn is longest ago, independent of the number of its waiting callers. A key without slots and waiting callers takes no
// memory. All methods are safe for concurrent use.
type Bulkhead struct {
	limits Limits

	mu   sync.Mutex
	keys map[string]*tenant
	// turns lists the tenants that wait and have not reached PerKey, the next one first. Unless it is empty, all slots are in use.
	turns *list.List
	stats Stats
}

// tenant is a key that uses or waits for slots.
type tenant struct {
	key     string
	inUse   int
	waiting *list.List    // of *waiter, the first one first
	turn    *list.Element // in Bulkhead.turns, nil when it is not there
}

// waiter is one call of Acquire that waits.
type waiter struct {
	granted chan struct{} // closed with the slot
}

// Stats are the statistics of a Bulkhead.
type Stats struct {
	// InUse and Waiting are the current numbers of slots in use and of waiting callers.
	InUse, Waiting int
	// Full and TimedOut count the callers that got ErrFull and ErrTimeout.
	Full, TimedOut uint64
}

// New returns a Bulkhead with all slots free.
func New(limits Limits) *Bulkhead {
	return &Bulkhead{limits: limits, keys: make(map[string]*tenant), turns: list.New()}
}

// Stats returns the current statistics.
func (b *Bulkhead) Stats() Stats {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.stats
}

// TryAcquire takes a slot of the key if one is free at this moment. If ok, the caller must call release exactly once.
func (b *Bulkhead) TryAcquire(key string) (release func(), ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	t := b.keys[key]
	if t == nil {
		t = &tenant{key: key, waiting: list.New()}
	}
	if b.stats.InUse >= b.limits.Slots || t.inUse >= b.limits.PerKey {
		return nil, false
	}
	b.keys[key] = t
	b.grant(t)
	return func() { b.release(t) }, true
}

// Acquire waits for a slot of the key. The caller must call release exactly once, after it has returned the resource. The
// error is ErrFull, ErrTimeout, or the one of ctx.
func (b *Bulkhead) Acquire(ctx context.Context, key string) (release func(), err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	b.mu.Lock()
	t := b.keys[key]
	if t == nil {
		t = &tenant{key: key, waiting: list.New()}
		b.keys[key] = t
	}
	if b.stats.InUse < b.limits.Slots && t.inUse < b.limits.PerKey {
		b.grant(t)
		b.mu.Unlock()
		return func() { b.release(t) }, nil
	}
	if t.waiting.Len() >= b.limits.MaxWaiting {
		b.stats.Full++
		b.forget(t)
		b.mu.Unlock()
		return nil, ErrFull
	}
	w := &waiter{granted: make(chan struct{})}
	place := t.waiting.PushBack(w)
	b.stats.Waiting++
	b.queue(t)
	b.mu.Unlock()

	patience := time.NewTimer(b.limits.MaxWait)
	defer patience.Stop()
	select {
	case <-w.granted:
		return func() { b.release(t) }, nil
	case <-patience.C:
		err = ErrTimeout
	case <-ctx.Done():
		err = ctx.Err()
	}
	if !b.leave(t, w, place, err) {
		return func() { b.release(t) }, nil
	}
	return nil, err
}

// leave removes a waiter from the queue. It returns false if the waiter has got a slot in the meantime.
func (b *Bulkhead) leave(t *tenant, w *waiter, place *list.Element, why error) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case <-w.granted:
		return false
	default:
	}
	t.waiting.Remove(place)
	b.stats.Waiting--
	if errors.Is(why, ErrTimeout) {
		b.stats.TimedOut++
	}
	if t.waiting.Len() == 0 && t.turn != nil {
		b.turns.Remove(t.turn)
		t.turn = nil
	}
	b.forget(t)
	return true
}

func (b *Bulkhead) release(t *tenant) {
	b.mu.Lock()
	defer b.mu.Unlock()
	t.inUse--
	b.stats.InUse--
	b.queue(t)
	for b.stats.InUse < b.limits.Slots && b.turns.Len() > 0 {
		next := b.turns.Remove(b.turns.Front()).(*tenant)
		next.turn = nil
		w := next.waiting.Remove(next.waiting.Front()).(*waiter)
		b.stats.Waiting--
		b.grant(next)
		close(w.granted)
		b.queue(next)
	}
	b.forget(t)
}

// grant gives the tenant a slot. The lock is held.
func (b *Bulkhead) grant(t *tenant) {
	t.inUse++
	b.stats.InUse++
}

// queue puts the tenant behind the others that wait for a turn, if it waits for one and is not there already. The lock is held.
func (b *Bulkhead) queue(t *tenant) {
	if t.turn == nil && t.waiting.Len() > 0 && t.inUse < b.limits.PerKey {
		t.turn = b.turns.PushBack(t)
	}
}

// forget drops a tenant without slots and waiters. The lock is held.
func (b *Bulkhead) forget(t *tenant) {
	if t.inUse == 0 && t.waiting.Len() == 0 {
		delete(b.keys, t.key)
	}
}
