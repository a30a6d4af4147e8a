// Package keyguard bounds the load that invented API keys cause on Postgres. It never rejects a valid key for this reason.
//
// An invented key with a correct checksum differs from a valid one only in that Postgres has no row for it. So each address has a budget of
// lookups that find no valid key, and all addresses together have another one. Within both budgets each key is looked up by a separate
// query. Over budget, keys that were not recently valid in this process wait for the next batch: one query at most every [BatchInterval]
// for all waiting keys. A batch starts after its requests have arrived, so it finds a key that another control has just created. Only keys
// that the batch finds get a separate query.
//
// The worst case of one process, whatever is sent to it: lookups of keys that are not valid cost [AddressLookups] single queries at once
// and one more every 3 s for an address, [TotalLookups] single queries at once and as many in each second for all addresses, and in each
// second four batches, each of one query for every [batchSize] requests that wait. A valid key is never rejected. If a budget is used up
// and the key was not recently valid in this process, its first request waits for [BatchInterval], for the running batch and for its own
// batch.
//
// A recently valid key only has the right to a separate query. Nothing of its row is cached: every request reads the row, so a revoked key
// stops working with the next request.
package keyguard

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// AddressLookups is the budget of an address: lookups that found no valid key. It refills within a minute. A mistyped key, or a fleet
	// with an old key, stays within it or is slowed down without harm.
	AddressLookups = 20
	addressRefill  = time.Minute / AddressLookups
	// TotalLookups is the budget of all addresses together, which refills within a second, because an attacker may have many addresses. It
	// is a small part of the capacity of one Postgres.
	TotalLookups = 200
	totalRefill  = time.Second / TotalLookups
	// BatchInterval is the time between the starts of two batches.
	BatchInterval = 250 * time.Millisecond
	// batchSize is the maximum number of keys per query. Larger queries take more than a few milliseconds.
	batchSize = 4096
	// batchTimeout bounds one query. A request has twice that time for all of its work.
	batchTimeout = 5 * time.Second
)

// ErrUnknown is the error for a key without a valid row.
var ErrUnknown = errors.New("no valid key has this hash")

// errUnanswered is the result for a key whose batch panicked.
var errUnanswered = errors.New("the batch of keys ended without a result")

// Hash is the hash under which a key is stored.
type Hash = [32]byte

// Address is the client's address, as clientip.Key returns it.
type Address = [16]byte

// Guard decides which keys may cost a query of their own. It is safe for concurrent use.
type Guard struct {
	// validHashes returns the valid keys, without expired ones and those of suspended organizations. These are rejected like unknown keys,
	// and the response time must not show the difference.
	validHashes func(ctx context.Context, hashes []Hash) (map[Hash]bool, error)
	proven      recentlyValid
	addresses   budgets
	total       budgets // of one key, the zero Address

	// turn is held by the request that runs a batch.
	turn      chan struct{}
	nextBatch time.Time // read and written with turn held

	mu      sync.Mutex
	waiting []*waiter

	// How many keys that are not proven were looked up by a query of their own and in batches, and how many queries the batches took.
	singles, batched, batches atomic.Int64
}

// waiter is a request whose key waits for the next batch.
type waiter struct {
	hash  Hash
	done  chan struct{} // closed once valid and err are there
	valid bool
	err   error
}

// New returns a Guard that has seen no key. validHashes is called by one goroutine at a time.
func New(validHashes func(ctx context.Context, hashes []Hash) (map[Hash]bool, error)) *Guard {
	return &Guard{
		validHashes: validHashes,
		addresses:   newBudgets(AddressLookups, addressRefill),
		total:       newBudgets(TotalLookups, totalRefill),
		turn:        make(chan struct{}, 1),
	}
}

// Do runs lookup, which reads the row of the key by a query of its own, unless a batch shows that the key is not valid. lookup reports
// whether the key is valid; its error says that it could not find out. Do returns ErrUnknown when lookup did not run, the error of lookup
// or of the batch, or that of ctx while the key waits.
func (g *Guard) Do(ctx context.Context, hash Hash, address Address, lookup func() (valid bool, err error)) error {
	isProven := g.proven.has(hash)
	isReserved := !isProven && g.reserve(address)
	switch {
	case isReserved:
		g.singles.Add(1)
	case !isProven:
		valid, err := g.await(ctx, hash)
		if err != nil {
			return err
		}
		if !valid {
			return ErrUnknown
		}
	}
	valid, err := lookup()
	switch {
	case err != nil:
		// The reservation is not given back: Postgres has a problem and may have done the work.
	case !valid:
		g.proven.remove(hash)
	default:
		if isReserved {
			g.giveBack(address)
		}
		g.proven.add(hash)
	}
	return err
}

// reserve takes a single lookup out of both budgets.
func (g *Guard) reserve(address Address) bool {
	now := time.Now()
	if !g.addresses.take(address, now) {
		return false
	}
	if !g.total.take(Address{}, now) {
		g.addresses.giveBack(address, now)
		return false
	}
	return true
}

// giveBack returns the lookup of a valid key: a fleet with many keys behind one address must not use up its budget.
func (g *Guard) giveBack(address Address) {
	now := time.Now()
	g.addresses.giveBack(address, now)
	g.total.giveBack(Address{}, now)
}

// await returns whether the next batch finds the key valid.
func (g *Guard) await(ctx context.Context, hash Hash) (valid bool, err error) {
	g.batched.Add(1)
	w := &waiter{hash: hash, done: make(chan struct{}), err: errUnanswered}
	g.mu.Lock()
	g.waiting = append(g.waiting, w)
	leads := len(g.waiting) == 1
	g.mu.Unlock()
	if leads {
		// The batch must not end with this request: the other requests need it.
		g.batch(context.WithoutCancel(ctx))
	}
	select {
	case <-w.done:
		return w.valid, w.err
	case <-ctx.Done():
		return false, ctx.Err()
	}
}

// batch looks up all waiting keys when the next batch is due. The request of the first waiting key calls it.
func (g *Guard) batch(ctx context.Context) {
	g.turn <- struct{}{}
	defer func() { <-g.turn }()
	time.Sleep(time.Until(g.nextBatch))
	g.nextBatch = time.Now().Add(BatchInterval)
	g.mu.Lock()
	all := g.waiting
	g.waiting = nil
	g.mu.Unlock()
	answered := 0
	defer func() {
		for _, w := range all[answered:] {
			close(w.done)
		}
	}()
	for part := range slices.Chunk(all, batchSize) {
		g.query(ctx, part)
		for _, w := range part {
			close(w.done)
		}
		answered += len(part)
	}
}

// query looks up some of the waiting keys.
func (g *Guard) query(ctx context.Context, some []*waiter) {
	ctx, cancel := context.WithTimeout(ctx, batchTimeout)
	defer cancel()
	hashes := make([]Hash, len(some))
	for i, w := range some {
		hashes[i] = w.hash
	}
	g.batches.Add(1)
	valid, err := g.validHashes(ctx, hashes)
	for _, w := range some {
		w.valid, w.err = valid[w.hash], err
	}
}
