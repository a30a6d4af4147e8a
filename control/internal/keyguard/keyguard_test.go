package keyguard

import (
	"context"
	"encoding/binary"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// database is what Postgres knows. It counts what it is asked.
type database struct {
	mu      sync.Mutex
	valid   map[Hash]bool
	lookups int           // single queries
	batches int           // queries for several keys
	takes   time.Duration // each query
	fails   error
}

func (d *database) find(hash Hash) (bool, error) {
	time.Sleep(d.takes)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lookups++
	return d.valid[hash], d.fails
}

func (d *database) findAll(_ context.Context, hashes []Hash) (map[Hash]bool, error) {
	d.mu.Lock()
	d.batches++
	found := make(map[Hash]bool)
	for _, hash := range hashes {
		if d.valid[hash] {
			found[hash] = true
		}
	}
	fails := d.fails
	d.mu.Unlock()
	time.Sleep(d.takes)
	return found, fails
}

func (d *database) set(hash Hash, valid bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.valid[hash] = valid
}

func (d *database) queries() (lookups, batches int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.lookups, d.batches
}

func hashOf(n int) (hash Hash) {
	binary.BigEndian.PutUint64(hash[:], uint64(n))
	return hash
}

func addressOf(n int) (address Address) {
	binary.BigEndian.PutUint32(address[12:], uint32(n))
	return address
}

// client sends keys to a guard.
type client struct {
	*Guard
	database *database
}

func newClient() client {
	d := &database{valid: make(map[Hash]bool), takes: time.Millisecond}
	return client{New(d.findAll), d}
}

// send sends a key, and returns whether it was accepted.
func (c client) send(ctx context.Context, hash Hash, address Address) (accepted bool, err error) {
	err = c.Do(ctx, hash, address, func() (bool, error) {
		valid, err := c.database.find(hash)
		accepted = valid
		return valid, err
	})
	if errors.Is(err, ErrUnknown) {
		return false, nil
	}
	return accepted, err
}

// must sends a key and demands that it is accepted, or that it is not, and returns how long that took.
func (c client) must(t *testing.T, accepted bool, hash Hash, address Address) time.Duration {
	t.Helper()
	began := time.Now()
	if got, err := c.send(t.Context(), hash, address); err != nil || got != accepted {
		t.Errorf("accepted: %t, %v; expected %t", got, err, accepted)
	}
	return time.Since(began)
}

// longest is how long a valid key waits at most: for the next batch to begin, for its queries, of which 10,000 keys take three, and for a
// query of its own.
func (c client) longest() time.Duration { return BatchInterval + (3+1)*c.database.takes }

func TestTenThousandUnknownKeysCostFewQueries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, attacker := newClient(), addressOf(1)
		known, fresh := hashOf(-1), hashOf(-2)
		c.database.set(known, true)
		c.must(t, true, known, attacker)
		c.database.set(fresh, true)
		var flood sync.WaitGroup
		for i := range 10_000 {
			flood.Go(func() { c.must(t, false, hashOf(i), attacker) })
		}
		var others sync.WaitGroup
		others.Go(func() {
			if took := c.must(t, true, known, attacker); took > c.database.takes {
				t.Errorf("a key seen before waited %s", took)
			}
		})
		others.Go(func() {
			if took := c.must(t, true, fresh, attacker); took > c.longest() {
				t.Errorf("a key never seen before waited %s, expected at most %s", took, c.longest())
			}
		})
		others.Go(func() {
			time.Sleep(100 * time.Millisecond)
			late := hashOf(-3)
			c.database.set(late, true) // by another process
			if took := c.must(t, true, late, attacker); took > c.longest() {
				t.Errorf("a key made a moment ago waited %s, expected at most %s", took, c.longest())
			}
		})
		flood.Wait()
		others.Wait()
		lookups, batches := c.database.queries()
		// The three others have a query each, and one more than a batch.
		if lookups > AddressLookups+4 || batches > 3+10_000/batchSize+1 {
			t.Errorf("10,000 made-up keys took %d queries and %d batches", lookups, batches)
		}
	})
}

func TestSequentialUnknownKeysAreSlowedDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient()
		began := time.Now()
		for i := range 1000 {
			c.must(t, false, hashOf(i), addressOf(1))
		}
		took := time.Since(began)
		lookups, batches := c.database.queries()
		if mostLookups := AddressLookups + int(took/addressRefill); lookups > mostLookups {
			t.Errorf("%d queries in %s, expected at most %d", lookups, took, mostLookups)
		}
		if mostBatches := int(took/BatchInterval) + 1; batches > mostBatches {
			t.Errorf("%d batches in %s, expected at most %d", batches, took, mostBatches)
		}
	})
}

func TestManyAddressesShareABudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient()
		began := time.Now()
		var flood sync.WaitGroup
		for i := range 10_000 {
			flood.Go(func() { c.must(t, false, hashOf(i), addressOf(i)) })
		}
		flood.Wait()
		lookups, _ := c.database.queries()
		if most := TotalLookups + int(time.Since(began)/totalRefill); lookups > most {
			t.Errorf("10,000 made-up keys of as many addresses took %d queries, expected at most %d", lookups, most)
		}
		valid := hashOf(-1)
		c.database.set(valid, true)
		if took := c.must(t, true, valid, addressOf(-1)); took > c.longest() {
			t.Errorf("a valid key of another address waited %s, expected at most %s", took, c.longest())
		}
	})
}

func TestManyValidKeysBehindOneAddressDoNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient()
		for i := range 5000 {
			c.database.set(hashOf(i), true)
			if took := c.must(t, true, hashOf(i), addressOf(1)); took > c.database.takes {
				t.Fatalf("key %d waited %s", i, took)
			}
		}
		if _, batches := c.database.queries(); batches > 0 {
			t.Errorf("%d batches", batches)
		}
	})
}

func TestAddressIsNotSlowedDownByAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient()
		for i := range 2 * AddressLookups {
			c.must(t, false, hashOf(i), addressOf(1))
		}
		for i := range AddressLookups {
			if took := c.must(t, false, hashOf(i), addressOf(2)); took > c.database.takes {
				t.Errorf("key %d of another address waited %s", i, took)
			}
		}
		time.Sleep(time.Minute)
		if took := c.must(t, false, hashOf(0), addressOf(1)); took > c.database.takes {
			t.Errorf("a minute later, a key waited %s", took)
		}
	})
}

func TestRevokedKeyIsRejectedAtOnceAndThenUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, key := newClient(), hashOf(1)
		c.database.set(key, true)
		c.must(t, true, key, addressOf(1))
		c.database.set(key, false)
		for range 1000 {
			c.must(t, false, key, addressOf(1))
			time.Sleep(time.Millisecond)
		}
		lookups, _ := c.database.queries()
		if most := 2 + AddressLookups + int(1000*(BatchInterval+time.Second/100)/addressRefill); lookups > most {
			t.Errorf("%d queries for a revoked key, expected at most %d", lookups, most)
		}
		c.database.set(key, true)
		c.must(t, true, key, addressOf(1))
	})
}

func TestCanceledKeyDoesNotDelayTheBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient()
		key := hashOf(-1)
		c.database.set(key, true)
		for i := range 2 * AddressLookups {
			c.must(t, false, hashOf(i), addressOf(1))
		}
		gone, leave := context.WithCancel(t.Context())
		var all sync.WaitGroup
		var left atomic.Int64
		for i := range 10 {
			ctx := gone
			if i%2 > 0 {
				ctx = t.Context()
			}
			all.Go(func() {
				accepted, err := c.send(ctx, key, addressOf(1))
				if i%2 > 0 && (!accepted || err != nil) {
					t.Errorf("accepted: %t, %v", accepted, err)
				}
				if errors.Is(err, context.Canceled) {
					left.Add(1)
				}
			})
			synctest.Wait() // the first one runs the batch, and leaves
		}
		leave()
		all.Wait()
		if left.Load() == 0 {
			t.Error("no lookup ended while the key waited")
		}
	})
}

func TestFailedBatchIsReportedAsErrorNotAsUnknownKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient()
		for i := range 2 * AddressLookups {
			c.must(t, false, hashOf(i), addressOf(1))
		}
		key, down := hashOf(-1), errors.New("down")
		c.database.set(key, true)
		c.database.fails = down
		if accepted, err := c.send(t.Context(), key, addressOf(1)); accepted || !errors.Is(err, down) {
			t.Errorf("accepted: %t, %v; expected the error of the batch", accepted, err)
		}
		c.database.fails = nil
		c.must(t, true, key, addressOf(1))
	})
}

func TestPanicOfABatchEndsAllWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := New(func(context.Context, []Hash) (map[Hash]bool, error) { panic("in the batch") })
		var all sync.WaitGroup
		var panics, failures atomic.Int64
		for i := range AddressLookups + 5 {
			all.Go(func() {
				defer func() {
					if recover() != nil {
						panics.Add(1)
					}
				}()
				if err := g.Do(t.Context(), hashOf(i), addressOf(1), func() (bool, error) { return false, nil }); errors.Is(err, errUnanswered) {
					failures.Add(1)
				}
			})
		}
		all.Wait()
		if panics.Load() == 0 || panics.Load()+failures.Load() != 5 {
			t.Errorf("%d panics and %d failures, expected 5 together", panics.Load(), failures.Load())
		}
		if len(g.turn) > 0 {
			t.Error("the turn was kept")
		}
	})
}

func TestMemoryIsBounded(t *testing.T) {
	t.Parallel()
	b := newBudgets(AddressLookups, addressRefill)
	now := time.Now()
	for i := range 5 * maxBudgets {
		b.take(addressOf(i), now)
	}
	if n := len(b.younger) + len(b.older); n > 2*maxBudgets {
		t.Errorf("%d budgets, expected at most %d", n, 2*maxBudgets)
	}
	var s recentlyValid
	for i := range 5 * maxProven {
		s.add(hashOf(i))
		if !s.has(hashOf(0)) {
			t.Fatalf("a key in use was forgotten after %d others", i)
		}
	}
	if n := len(s.younger) + len(s.older); n > 2*maxProven {
		t.Errorf("%d keys, expected at most %d", n, 2*maxProven)
	}
}

// The budget of an address survives the change of generations.
func TestBudgetIsATokenBucket(t *testing.T) {
	t.Parallel()
	b := newBudgets(2, time.Second)
	now := time.Now()
	for _, step := range []struct {
		after time.Duration
		ok    bool
	}{{0, true}, {0, true}, {0, false}, {999 * time.Millisecond, false}, {time.Millisecond, true}, {0, false}, {1100 * time.Millisecond, true},
		{0, false}, {time.Second, true}, {time.Second, true}, {time.Second, true}, {0, false}, {time.Hour, true}, {0, true}, {0, false}} {
		now = now.Add(step.after)
		if ok := b.take(addressOf(1), now); ok != step.ok {
			t.Errorf("%+v: %t", step, ok)
		}
	}
	// taken is how many tokens are there.
	taken := func(address Address) (n int) {
		for b.take(address, now) {
			n++
		}
		return n
	}
	b.giveBack(addressOf(1), now)
	if n := taken(addressOf(1)); n != 1 {
		t.Errorf("%d tokens after one was given back", n)
	}
	for range 5 {
		b.giveBack(addressOf(2), now)
	}
	if n := taken(addressOf(2)); n != 2 {
		t.Errorf("a bucket holds %d tokens, its size is 2", n)
	}
}
