//go:build stall

package replica

import (
	"context"
	"errors"
	"hash/maphash"
	"io"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// A request reads the lease and the stamps, and can stall between the two. These tests need a build in which it does:
// bench/prove/faults/broken/testdata/stall.patch calls stall before and after each reading of an entry's stamps.
// TestRequestThatStallsBetweenItsReadsGetsTheNewTarget in bench/prove/faults/broken runs them.

// stall is called by the goroutine that reads the stamps.
var stall = func() {}

// stalled is an edge that has lost Postgres and Redis: control waits for its lease to end, not for its bump. It has cached the old target.
type stalled struct {
	*Replica
	load atomic.Pointer[Load]
}

const stalledKey = "abcd/code"

// newStalled returns the edge at the moment when it may no longer serve from the cache.
func newStalled(t *testing.T, staleIfError time.Duration) *stalled {
	t.Helper()
	const lasts = 2 * time.Second
	s := &stalled{}
	var err error
	s.Replica, err = New(Options{
		Lease: lasts, StaleIfError: staleIfError, CacheBytes: 1 << 20, Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
		Load: func(ctx context.Context, domain, code string) (Result, error) {
			return (*s.load.Load())(ctx, domain, code)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.leave()
		s.Close()
		s.positive.Close()
		s.negative.Close()
	})
	s.lease.Store(&lease{start: time.Now()})
	s.loads("old")
	if got, err := s.get(); got != "old" || err != nil {
		t.Fatalf("Get = %q, %v; expected the old target", got, err)
	}
	s.positive.Wait()
	time.Sleep(lasts + staleIfError)
	return s
}

func (s *stalled) loads(target string) {
	s.loadFrom(func(context.Context, string, string) (Result, error) {
		return Result{OrgKey: "abcd", Value: []byte(target)}, nil
	})
}

func (s *stalled) loadFrom(load Load) { s.load.Store(&load) }

func (s *stalled) get() (string, error) {
	value, err := s.Get(time.Now(), s.Key([]byte(stalledKey), len("abcd")))
	return string(value), err
}

// pollAt runs a whole poll while a request stalls for the n-th time from now: the poll bumps the tags of the change, then stores its lease.
// The returned function ends that and returns how often requests stalled.
func (s *stalled) pollAt(n int64) (end func() int64) {
	var stalls atomic.Int64
	stall = func() {
		if stalls.Add(1) == n {
			s.bump([]string{"k:" + stalledKey})
			s.Replica.lease.Store(&lease{start: time.Now()})
		}
	}
	return func() int64 {
		stall = func() {}
		return stalls.Load()
	}
}

// The change is complete before the request arrives, so the request must get the new target or an error, wherever it stalls.
func TestStalledRequest(t *testing.T) {
	tests := []struct {
		name string
		// request sends the request, which stalls, and returns how often it did.
		request func(t *testing.T, at int64) int64
	}{
		{"cache", func(t *testing.T, at int64) int64 {
			s := newStalled(t, 0)
			return s.mustGetNew(t, at)
		}},
		{"front index", func(t *testing.T, at int64) int64 {
			s := newStalled(t, 0)
			hash := maphash.String(s.seed, stalledKey)
			first, _ := s.positive.Get(hash)
			s.front.put(hash, entryAt(first), true)
			return s.mustGetNew(t, at)
		}},
		{"joined load", func(t *testing.T, at int64) int64 {
			s := newStalled(t, 0)
			s.positive.Clear()
			read := make(chan struct{})
			s.loadFrom(func(context.Context, string, string) (Result, error) {
				<-read // the load has read the row, and the change follows
				return Result{OrgKey: "abcd", Value: []byte("old")}, nil
			})
			go func() { _, _ = s.get() }()
			synctest.Wait()
			s.loads("new")
			end := s.pollAt(at)
			late := make(chan string)
			go func() { got, _ := s.get(); late <- got }()
			synctest.Wait() // the late request has joined the load
			close(read)
			if got := <-late; got != "new" {
				t.Errorf("stall %d: the late request got %q from a load that started before the change", at, got)
			}
			return end()
		}},
		{"stale if error", func(t *testing.T, at int64) int64 {
			s := newStalled(t, 3*time.Second)
			s.loadFrom(func(context.Context, string, string) (Result, error) { return Result{}, errPostgresDown })
			end := s.pollAt(at)
			if got, err := s.get(); !errors.Is(err, ErrUnavailable) {
				t.Errorf("stall %d: Get = %q, %v; expected ErrUnavailable", at, got, err)
			}
			return end()
		}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			for at, stalls := int64(1), int64(1); at <= stalls; at++ {
				synctest.Test(t, func(t *testing.T) { stalls = test.request(t, at) })
			}
		})
	}
}

func (s *stalled) mustGetNew(t *testing.T, at int64) (stalls int64) {
	t.Helper()
	s.loads("new")
	end := s.pollAt(at)
	if got, err := s.get(); got != "new" || err != nil {
		t.Errorf("stall %d: Get = %q, %v; expected the new target", at, got, err)
	}
	return end()
}
