package replica

import (
	"errors"
	"sync"
	"time"
)

// probeEvery is how often a Postgres that could not be reached is tried again by a click; the others are told at once.
const probeEvery = 250 * time.Millisecond

var errPostgresDown = errors.New("replica: the database did not answer a moment ago")

// breaker remembers that Postgres could not be reached, so that clicks do not queue up behind time-outs. It never decides
// what is true: it only turns a wait that would end in an error into that error.
type breaker struct {
	mu   sync.Mutex
	down bool
	next time.Time // when the next one may try
}

func (b *breaker) allows(now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.down && now.Before(b.next) {
		return false
	}
	b.next = now.Add(probeEvery)
	return true
}

func (b *breaker) heard(answered bool, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.down = !answered
	b.next = now.Add(probeEvery)
}
