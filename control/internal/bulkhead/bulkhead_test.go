package bulkhead

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// acquire takes a slot that must be free.
func acquire(t *testing.T, b *Bulkhead, key string) (release func()) {
	t.Helper()
	before := b.Stats()
	release, err := b.Acquire(t.Context(), key)
	if err != nil {
		t.Fatalf("%s got no slot: %v", key, err)
	}
	if after := b.Stats(); after.InUse != before.InUse+1 {
		t.Fatalf("slots in use: %d before and %d after %s got one", before.InUse, after.InUse, key)
	}
	return release
}

// await starts a call that has to wait, and returns its result.
func await(t *testing.T, ctx context.Context, b *Bulkhead, key string) <-chan outcome {
	t.Helper()
	ended := make(chan outcome, 1)
	go func() {
		release, err := b.Acquire(ctx, key)
		ended <- outcome{release, err}
	}()
	synctest.Wait()
	if len(ended) > 0 {
		t.Fatalf("%s did not have to wait", key)
	}
	return ended
}

type outcome struct {
	release func()
	err     error
}

func TestStuckKeyDelaysOnlyItself(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := New(Limits{Slots: 6, PerKey: 2, MaxWaiting: 100, MaxWait: time.Hour})
		for range 2 {
			acquire(t, b, "stuck") // never released
		}
		var waiting []<-chan outcome
		ctx, cancel := context.WithCancel(t.Context())
		for range 50 {
			waiting = append(waiting, await(t, ctx, b, "stuck"))
		}
		for range 100 {
			acquire(t, b, "other")()
		}
		if s := b.Stats(); s.InUse != 2 || s.Waiting != 50 {
			t.Errorf("%+v; expected 2 in use and 50 waiting, all of the stuck key", s)
		}
		cancel()
		for _, w := range waiting {
			if o := <-w; !errors.Is(o.err, context.Canceled) {
				t.Errorf("a caller that gave up got %v", o.err)
			}
		}
	})
}

func TestFreeSlotsAreGrantedRoundRobin(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := New(Limits{Slots: 1, PerKey: 1, MaxWaiting: 100, MaxWait: time.Hour})
		release := acquire(t, b, "first")
		var mu sync.Mutex
		var order []string
		// The greedy key is there first and with many; the modest ones come after it.
		for _, name := range []string{"greedy 1", "greedy 2", "greedy 3", "modest 1", "shy 1"} {
			key := name[:len(name)-2]
			go func() {
				release, err := b.Acquire(t.Context(), key)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				order = append(order, name)
				mu.Unlock()
				release()
			}()
			synctest.Wait()
		}
		release()
		synctest.Wait()
		expected := []string{"greedy 1", "modest 1", "shy 1", "greedy 2", "greedy 3"}
		if !slices.Equal(order, expected) {
			t.Errorf("slots went to %q, expected %q", order, expected)
		}
	})
}

func TestCallerBeyondTheQueueGetsErrFullAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := New(Limits{Slots: 2, PerKey: 1, MaxWaiting: 2, MaxWait: time.Hour})
		release := acquire(t, b, "a")
		first, second := await(t, t.Context(), b, "a"), await(t, t.Context(), b, "a")
		began := time.Now()
		if _, err := b.Acquire(t.Context(), "a"); !errors.Is(err, ErrFull) || time.Since(began) != 0 {
			t.Errorf("after %v: %v, expected ErrFull at once", time.Since(began), err)
		}
		acquire(t, b, "b")()
		release()
		(<-first).release()
		(<-second).release()
		acquire(t, b, "a")()
		if s := b.Stats(); s != (Stats{Full: 1}) {
			t.Errorf("%+v; expected one refusal and nothing in use", s)
		}
	})
}

func TestWaitIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := New(Limits{Slots: 1, PerKey: 1, MaxWaiting: 10, MaxWait: 6 * time.Second})
		release := acquire(t, b, "a")
		began := time.Now()
		for _, key := range []string{"a", "b"} {
			waiting := await(t, t.Context(), b, key)
			if o := <-waiting; !errors.Is(o.err, ErrTimeout) {
				t.Errorf("%s: %v, expected ErrTimeout", key, o.err)
			}
		}
		if took := time.Since(began); took != 12*time.Second {
			t.Errorf("both waited %v, expected 12 s", took)
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := b.Acquire(ended, "c"); !errors.Is(err, context.Canceled) {
			t.Errorf("a caller whose context had ended got %v", err)
		}
		release()
		acquire(t, b, "b")()
		if s := b.Stats(); s != (Stats{TimedOut: 2}) {
			t.Errorf("%+v; expected two time-outs and nothing in use", s)
		}
	})
}

func TestNoBoundIsExceededAndNoSlotIsLost(t *testing.T) {
	t.Parallel()
	limits := Limits{Slots: 5, PerKey: 2, MaxWaiting: 4, MaxWait: 200 * time.Microsecond}
	b := New(limits)
	var total atomic.Int64
	var perKey [8]atomic.Int64
	var granted, refused atomic.Int64
	var callers sync.WaitGroup
	for range 64 {
		callers.Go(func() {
			for range 200 {
				key := rand.IntN(len(perKey))
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rand.IntN(400))*time.Microsecond)
				release, err := b.Acquire(ctx, fmt.Sprint(key))
				cancel()
				if err != nil {
					refused.Add(1)
					continue
				}
				granted.Add(1)
				if n := total.Add(1); n > int64(limits.Slots) {
					t.Errorf("%d slots in use, expected at most %d", n, limits.Slots)
				}
				if n := perKey[key].Add(1); n > int64(limits.PerKey) {
					t.Errorf("%d slots in use by one key, expected at most %d", n, limits.PerKey)
				}
				time.Sleep(time.Duration(rand.IntN(100)) * time.Microsecond)
				perKey[key].Add(-1)
				total.Add(-1)
				release()
			}
		})
	}
	callers.Wait()
	if granted.Load() == 0 || refused.Load() == 0 {
		t.Errorf("%d granted and %d refused: this test shows nothing", granted.Load(), refused.Load())
	}
	s := b.Stats()
	if s.InUse != 0 || s.Waiting != 0 {
		t.Errorf("in the end %d slots are in use and %d callers wait, expected none", s.InUse, s.Waiting)
	}
	// What is idle takes no memory, and no turn of a key is left over.
	if len(b.keys) != 0 || b.turns.Len() != 0 {
		t.Errorf("in the end %d keys and %d turns are kept, expected none", len(b.keys), b.turns.Len())
	}
	// All slots are there again.
	for i := range limits.Slots {
		acquire(t, b, fmt.Sprint("after", i))
	}
}
