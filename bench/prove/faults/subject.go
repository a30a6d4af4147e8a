package faults

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"

	"deeplink/bench/prove/faults/history"
)

// subject is a key as readers know it: its addresses, and the meaning of a response.
type subject struct {
	*history.Key
	// addresses are the short URLs that all show the state of the key: host (empty for the shared one) and path.
	addresses []address
}

type address struct{ host, path string }

// A subject has its own targets, so that a response for another subject is detected.
func (s *subject) target(n history.State) string {
	return fmt.Sprintf("https://example.com/%s/%d", s.Name, n)
}

// state returns what a response of an edge shows. ok is false if it shows no state.
func (s *subject) state(status int, location []byte) (state history.State, ok bool) {
	switch status {
	case 404:
		return history.Gone, true
	case 410:
		return history.Off, true
	case 302:
		return s.leads(location), true
	}
	return 0, false
}

// leads returns the state of a key that redirects to location.
func (s *subject) leads(location []byte) history.State {
	number, own := bytes.CutPrefix(location, []byte("https://example.com/"+s.Name+"/"))
	n, err := strconv.ParseUint(string(number), 10, 31)
	if !own || err != nil {
		return history.Foreign
	}
	return history.State(n)
}

// board holds the subjects to read. Writers add subjects and mark some as hot.
type board struct {
	mu       sync.Mutex
	subjects atomic.Pointer[[]*subject]
	retired  []*subject
	// hot has, for each edge, the subjects that just changed or are about to: an edge is most likely wrong there.
	hot []chan *subject
}

const mostHot = 64

func newBoard(edges int) *board {
	b := &board{hot: make([]chan *subject, edges)}
	for i := range b.hot {
		b.hot[i] = make(chan *subject, mostHot)
	}
	b.subjects.Store(new([]*subject))
	return b
}

// put makes a subject available to readers.
func (b *board) put(s *subject) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.subjects.Store(new(append(append([]*subject{}, *b.subjects.Load()...), s)))
}

// remove retires a subject whose state is no longer certain.
func (b *board) remove(s *subject) {
	s.Retire()
	b.mu.Lock()
	defer b.mu.Unlock()
	var left []*subject
	for _, other := range *b.subjects.Load() {
		if other != s {
			left = append(left, other)
		}
	}
	b.subjects.Store(&left)
	b.retired = append(b.retired, s)
}

// ever returns all subjects, including removed ones.
func (b *board) ever() []*subject {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append(append([]*subject{}, *b.subjects.Load()...), b.retired...)
}

// heat makes readers of every edge request a subject at once. Busy readers may miss it.
func (b *board) heat(s *subject) {
	for _, edge := range b.hot {
		select {
		case edge <- s:
		default:
		}
	}
}

// some appends n random subjects to others. If there are fewer than n, some occur twice.
func (b *board) some(others []*subject, n int) []*subject {
	all := *b.subjects.Load()
	if len(all) == 0 {
		return others
	}
	for range n {
		others = append(others, all[rand.IntN(len(all))])
	}
	return others
}
