package replica

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// A change between the reading of the stamps and the end of the load voids the entry.
func TestFillNeverServesAfterChange(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	f.untilReady(t)
	f.loadFrom(func(context.Context, string, string) (Result, error) {
		f.bump([]string{"k:abcd/code"}) // a hint arrives after the row was read
		return Result{OrgKey: "abcd", Value: []byte("old")}, nil
	})
	f.mustGet(t, "abcd", "code", "old")
	f.loadFrom(func(context.Context, string, string) (Result, error) {
		return Result{OrgKey: "abcd", Value: []byte("new")}, nil
	})
	f.mustGet(t, "abcd", "code", "new")
}

// A request that arrives during a load may share it only if nothing was bumped since its start: otherwise the load may have read its row
// before a change that the new request must see.
func TestLateRequestDoesNotUseLoadFromBeforeAChange(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	f.untilReady(t)
	asked, read := make(chan struct{}, 1), make(chan struct{})
	f.loadFrom(func(context.Context, string, string) (Result, error) {
		asked <- struct{}{}
		<-read
		return Result{OrgKey: "abcd", Value: []byte("old")}, nil
	})
	early, late := make(chan string, 1), make(chan string, 1)
	go func() { value, _ := f.get("abcd", "code"); early <- value }()
	<-asked
	f.loadFrom(func(context.Context, string, string) (Result, error) {
		return Result{OrgKey: "abcd", Value: []byte("new")}, nil
	})
	f.bump([]string{"k:abcd/code"})
	joined := make(chan struct{})
	go func() { close(joined); value, _ := f.get("abcd", "code"); late <- value }()
	<-joined
	time.Sleep(20 * time.Millisecond) // the late request joins the running load; if it came even later, the test would pass as well
	close(read)
	if got := <-early; got != "old" {
		t.Errorf("the early request got %q, want its own load's %q", got, "old")
	}
	if got := <-late; got != "new" {
		t.Errorf("the late request got %q, want %q", got, "new")
	}
}

// After its end, a load stays usable, like the cached entry, until the cache has stored that entry, but not after a change.
func TestEndedLoadIsUsedUntilAChange(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	f.untilReady(t)
	var asked atomic.Int64
	f.loadFrom(func(context.Context, string, string) (Result, error) {
		asked.Add(1)
		return Result{OrgKey: "abcd", Value: []byte("new")}, nil
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
		t.Errorf("%d loads of a link that was just loaded", n)
	}
	f.bump([]string{"k:" + key})
	f.mustGet(t, "abcd", "code", "new")
}

func TestConcurrentRequestsForOneKeyShareALoad(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	f.untilReady(t)
	var asked atomic.Int64
	f.loadFrom(func(context.Context, string, string) (Result, error) {
		asked.Add(1)
		time.Sleep(50 * time.Millisecond)
		return Result{OrgKey: "abcd", Value: []byte("v")}, nil
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

// The deadline of a load may pass while the process is suspended; that is not a failure of Postgres.
func TestLoadOfASuspendedProcessIsRetried(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	f.untilReady(t)
	var asked atomic.Int64
	f.loadFrom(func(ctx context.Context, _, _ string) (Result, error) {
		if asked.Add(1) == 1 {
			time.Sleep(loadTimeout + 200*time.Millisecond)
			return Result{}, ctx.Err()
		}
		return Result{OrgKey: "abcd", Value: []byte("v")}, nil
	})
	f.mustGet(t, "abcd", "code", "v")
	f.mustGet(t, "abcd", "other", "v") // and the breaker of Postgres stays closed
}

func TestPanicInALoadIsReturnedAsError(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	f.loadFrom(func(context.Context, string, string) (Result, error) { panic("bug") })
	if _, err := f.get("abcd", "code"); err == nil {
		t.Error("no error")
	}
}

func TestNoLoadStartsAfterClose(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	f.untilReady(t)
	var running, done atomic.Int64
	f.loadFrom(func(context.Context, string, string) (Result, error) {
		defer done.Add(1)
		running.Add(1)
		time.Sleep(time.Millisecond)
		return Result{OrgKey: "abcd", Value: []byte("here")}, nil
	})
	f.mustGet(t, "abcd", "cached", "here")
	var clicks sync.WaitGroup
	for i := range 50 {
		clicks.Go(func() {
			for j := 0; ; j++ {
				if _, err := f.get("abcd", fmt.Sprintf("%d-%d", i, j)); err != nil {
					if !errors.Is(err, ErrUnavailable) {
						t.Errorf("after Close: %v, expected ErrUnavailable", err)
					}
					return
				}
			}
		})
	}
	until(t, "loads", func() bool { return done.Load() > 100 })
	f.Close()
	if begun, ended := running.Load(), done.Load(); begun != ended {
		t.Errorf("Close left %d loads running", begun-ended)
	}
	clicks.Wait()
	f.mustGet(t, "abcd", "cached", "here")
}
