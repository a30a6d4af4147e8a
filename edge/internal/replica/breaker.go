package replica

import (
	"errors"
	"sync"
	"time"
)

// probeEvery is how long after a failed load the next load may try again. Until then the others fail at once.
const probeEvery = 250 * time.Millisecond

var errPostgresDown = errors.New("replica: the last load could not reach the database")

// breaker is a circuit breaker. While Postgres cannot be reached, it fails loads at once, so that requests do not wait for timeouts. It
// does not decide what is served: it only replaces a wait that would end in an error with that error. The zero value is closed (loads
// pass). It is safe for concurrent use.
type breaker struct {
	mu   sync.Mutex
	down bool
	next time.Time // when the next load may try
}

// allows reports whether a load may run. While Postgres is down, one load per probeEvery may.
func (b *breaker) allows(now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.down && now.Before(b.next) {
		return false
	}
	b.next = now.Add(probeEvery)
	return true
}

// record stores the outcome of a load. answered is true if Postgres responded, even with a failed statement.
func (b *breaker) record(answered bool, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.down = !answered
	b.next = now.Add(probeEvery)
}
