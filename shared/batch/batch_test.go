package batch

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"
)

const bound = 10 * time.Second

// square is a request whose result shows whether it belongs to the request.
type square struct{ of, is int }

// server handles batches after let is closed. It records the sizes of the batches.
type server struct {
	batcher *Batcher[*square]
	let     chan struct{}

	mu    sync.Mutex
	sizes []int
}

func newServer(senders, most int) *server {
	s := &server{let: make(chan struct{})}
	s.batcher = New(senders, most, func(ctx context.Context, all []*square) {
		s.mu.Lock()
		s.sizes = append(s.sizes, len(all))
		s.mu.Unlock()
		select {
		case <-s.let:
		case <-ctx.Done():
			return
		}
		for _, q := range all {
			q.is = q.of * q.of
		}
	})
	return s
}

// sent waits until trips batches have been started. A request that has a sender collects others only when it starts its batch.
func (s *server) sent(t *testing.T, trips int) {
	t.Helper()
	for end := time.Now().Add(bound); ; time.Sleep(time.Millisecond) {
		s.mu.Lock()
		n := len(s.sizes)
		s.mu.Unlock()
		if n >= trips {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d round trips have started, expected %d", n, trips)
		}
	}
}

// loaded waits until busy senders are in use and queued requests wait.
func (s *server) loaded(t *testing.T, busy, queued int) {
	t.Helper()
	for end := time.Now().Add(bound); ; time.Sleep(time.Millisecond) {
		gotBusy, gotQueued := s.batcher.Load()
		if gotBusy == busy && gotQueued == queued {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d lines are taken and %d questions wait, expected %d and %d", gotBusy, gotQueued, busy, queued)
		}
	}
}

func TestConcurrentRequestsEachGetTheirOwnResult(t *testing.T) {
	t.Parallel()
	const senders, most = 3, 10
	s := newServer(senders, most)
	var group sync.WaitGroup
	for i := range senders + 4*most {
		group.Go(func() {
			q := &square{of: i}
			if err := s.batcher.Do(context.Background(), q); err != nil || q.is != i*i {
				t.Errorf("%d: %d, %v", i, q.is, err)
			}
		})
		s.loaded(t, min(i+1, senders), max(0, i+1-senders))
		s.sent(t, min(i+1, senders))
	}
	close(s.let)
	group.Wait()
	s.loaded(t, 0, 0)
	// Each of the first three was sent alone. The queued ones were sent ten at a time, except for the rest that was left to other senders.
	if trips := len(s.sizes); trips > senders+4+senders {
		t.Errorf("%d requests took %d round trips: %v", senders+4*most, trips, s.sizes)
	}
	for i, size := range s.sizes {
		if size > most || i < senders && size != 1 {
			t.Errorf("batches of %v, expected one request in each of the first batches, then at most %d", s.sizes, most)
		}
	}
}

func TestCanceledRequestDoesNotDelayOthers(t *testing.T) {
	t.Parallel()
	s := newServer(1, 10)
	var group sync.WaitGroup
	do := func(expected error) (cancel context.CancelFunc) {
		ctx, cancel := context.WithCancel(context.Background())
		group.Go(func() {
			if err := s.batcher.Do(ctx, &square{}); !errors.Is(err, expected) {
				t.Errorf("the canceled request got %v, expected %v", err, expected)
			}
		})
		return cancel
	}
	end := do(nil)
	s.loaded(t, 1, 0)
	s.sent(t, 1)
	first := do(context.Canceled)
	s.loaded(t, 1, 1)
	patient := make(chan int, 1)
	group.Go(func() {
		q := &square{of: 3}
		if err := s.batcher.Do(context.Background(), q); err != nil {
			t.Error(err)
		}
		patient <- q.is
	})
	s.loaded(t, 1, 2)
	first()
	s.loaded(t, 1, 1)
	end() // its batch ends
	s.loaded(t, 1, 0)
	close(s.let)
	if got := <-patient; got != 9 {
		t.Errorf("the queued request got %d, expected 9", got)
	}
	group.Wait()
	s.loaded(t, 0, 0)
}

// tooLate is a context that ends at the moment when its request gets the sender.
type tooLate struct {
	context.Context
	release func()
}

func (c tooLate) Done() <-chan struct{} {
	c.release()
	ended := make(chan struct{})
	close(ended)
	return ended
}

func (c tooLate) Err() error { return context.Canceled }

// TestRequestThatEndsWhenItGetsTheSenderReleasesIt cancels requests at the moment when they get the sender. Do may see the two events
// in either order.
func TestRequestThatEndsWhenItGetsTheSenderReleasesIt(t *testing.T) {
	t.Parallel()
	s := newServer(1, 10)
	for range 64 {
		if !s.batcher.enter(&request[*square]{}) {
			t.Fatal("the sender was not released")
		}
		if err := s.batcher.Do(tooLate{t.Context(), sync.OnceFunc(s.batcher.release)}, &square{}); !errors.Is(err, context.Canceled) {
			t.Errorf("the late request got %v, expected %v", err, context.Canceled)
		}
	}
	s.loaded(t, 0, 0)
	if len(s.sizes) != 0 {
		t.Errorf("%d canceled requests were sent", len(s.sizes))
	}
}

func TestPanicReleasesTheSender(t *testing.T) {
	t.Parallel()
	b := New(1, 10, func(context.Context, []*square) { panic("in send") })
	func() {
		defer func() { recover() }()
		_ = b.Do(t.Context(), &square{})
	}()
	if busy, _ := b.Load(); busy != 0 {
		t.Errorf("%d senders are busy, expected none", busy)
	}
}
