package batch

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"
)

const bound = 10 * time.Second

// square is a question whose answer shows whether it is its own.
type square struct{ of, is int }

// server answers once it is let. It notes how many it was asked at once.
type server struct {
	lines *Lines[*square]
	let   chan struct{}

	mu    sync.Mutex
	sizes []int
}

func newServer(lines, most int) *server {
	s := &server{let: make(chan struct{})}
	s.lines = New(lines, most, func(ctx context.Context, all []*square) {
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

// sent waits until so many questions or batches of them are under way or answered: who has a line looks only then who goes along.
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
			t.Fatalf("%d round trips have begun, expected %d", n, trips)
		}
	}
}

// loaded waits until so many lines are taken and so many questions wait.
func (s *server) loaded(t *testing.T, taken, waiting int) {
	t.Helper()
	for end := time.Now().Add(bound); ; time.Sleep(time.Millisecond) {
		gotTaken, gotWaiting := s.lines.Load()
		if gotTaken == taken && gotWaiting == waiting {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d lines are taken and %d questions wait, expected %d and %d", gotTaken, gotWaiting, taken, waiting)
		}
	}
}

func TestManyAtOnceAreEachAnsweredTheirOwn(t *testing.T) {
	t.Parallel()
	const lines, most = 3, 10
	s := newServer(lines, most)
	var group sync.WaitGroup
	for i := range lines + 4*most {
		group.Go(func() {
			q := &square{of: i}
			if err := s.lines.Do(context.Background(), q); err != nil || q.is != i*i {
				t.Errorf("%d: %d, %v", i, q.is, err)
			}
		})
		s.loaded(t, min(i+1, lines), max(0, i+1-lines))
		s.sent(t, min(i+1, lines))
	}
	close(s.let)
	group.Wait()
	s.loaded(t, 0, 0)
	// Each of the first three had a line to itself. Who waited went by ten, but for what one line left to the others.
	if trips := len(s.sizes); trips > lines+4+lines {
		t.Errorf("%d questions took %d round trips: %v", lines+4*most, trips, s.sizes)
	}
	for i, size := range s.sizes {
		if size > most || i < lines && size != 1 {
			t.Errorf("%v were sent at once, expected 1 by each line first, and then %d at most", s.sizes, most)
		}
	}
}

func TestWhoGivesUpKeepsNobodyWaiting(t *testing.T) {
	t.Parallel()
	s := newServer(1, 10)
	var group sync.WaitGroup
	ask := func(expected error) (cancel context.CancelFunc) {
		ctx, cancel := context.WithCancel(context.Background())
		group.Go(func() {
			if err := s.lines.Do(ctx, &square{}); !errors.Is(err, expected) {
				t.Errorf("who gave up got %v, expected %v", err, expected)
			}
		})
		return cancel
	}
	end := ask(nil)
	s.loaded(t, 1, 0)
	s.sent(t, 1)
	first := ask(context.Canceled)
	s.loaded(t, 1, 1)
	patient := make(chan int, 1)
	group.Go(func() {
		q := &square{of: 3}
		if err := s.lines.Do(context.Background(), q); err != nil {
			t.Error(err)
		}
		patient <- q.is
	})
	s.loaded(t, 1, 2)
	first()
	s.loaded(t, 1, 1)
	end() // its round trip ends
	s.loaded(t, 1, 0)
	close(s.let)
	if got := <-patient; got != 9 {
		t.Errorf("who waited got %d, expected 9", got)
	}
	group.Wait()
	s.loaded(t, 0, 0)
}

// tooLate is a context that ends in the moment in which its question is handed the line.
type tooLate struct {
	context.Context
	hand func()
}

func (c tooLate) Done() <-chan struct{} {
	c.hand()
	ended := make(chan struct{})
	close(ended)
	return ended
}

func (c tooLate) Err() error { return context.Canceled }

// TestLineIsHandedOnByWhomItReachesTooLate has questions given up in the moment in which they are handed the line, which they may see in
// either order.
func TestLineIsHandedOnByWhomItReachesTooLate(t *testing.T) {
	t.Parallel()
	s := newServer(1, 10)
	for range 64 {
		if !s.lines.enter(&question[*square]{}) {
			t.Fatal("the line was not given back")
		}
		if err := s.lines.Do(tooLate{t.Context(), sync.OnceFunc(s.lines.handOn)}, &square{}); !errors.Is(err, context.Canceled) {
			t.Errorf("who came too late got %v, expected %v", err, context.Canceled)
		}
	}
	s.loaded(t, 0, 0)
	if len(s.sizes) != 0 {
		t.Errorf("%d were sent whose time was over", len(s.sizes))
	}
}

func TestPanicKeepsNoLine(t *testing.T) {
	t.Parallel()
	lines := New(1, 10, func(context.Context, []*square) { panic("on the way") })
	func() {
		defer func() { recover() }()
		_ = lines.Do(t.Context(), &square{})
	}()
	if taken, _ := lines.Load(); taken != 0 {
		t.Errorf("%d lines are taken, expected none", taken)
	}
}
