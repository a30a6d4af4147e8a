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

// A change that comes between the reading of the stamps and the end of the load voids the entry.
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

// Who arrives while a load runs may use it only if nothing was bumped since it began: its row may have been read before the
// change that the new request comes after.
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
	time.Sleep(20 * time.Millisecond) // the late one joins the running load; if it came later still it would pass all the same
	close(read)
	if got := <-early; got != "old" {
		t.Errorf("the early request got %q, want its own load's %q", got, "old")
	}
	if got := <-late; got != "new" {
		t.Errorf("the late request got %q, want %q", got, "new")
	}
}

// Until the cache has taken its entry a load that ended is told as the cache would tell it: by who comes later too, but not after a
// change.
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
		t.Errorf("asked %d times for what was just loaded", n)
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

// A process that was stopped finds that the time of its loads has run out; no server is to blame.
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
	f.mustGet(t, "abcd", "other", "v") // and Postgres does not count as down
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
