package ratelimit

import (
	"sync"
	"time"
)

const (
	// maxFailures is the number of consecutive failures that opens the breaker. A failure counts only if its check was sent after the
	// previous failure, so concurrent checks that fail by one event, such as a lost primary, count once.
	maxFailures = 3
	// breakerPause is the time between two probes while the breaker is open.
	breakerPause = 250 * time.Millisecond
)

// breaker is a circuit breaker for counting in Redis. It is closed while Redis is healthy, opens when Redis fails repeatedly or is silent,
// and closes with the next response. It is safe for concurrent use.
type breaker struct {
	mu        sync.Mutex
	opened    chan struct{} // closed while the breaker is open
	isOpen    bool
	failures  int       // in a row
	failed    time.Time // when the last failure was recorded
	succeeded time.Time // when the last response was recorded
	probeAt   time.Time // when the next probe may be sent; the breaker is open
}

func newBreaker() *breaker { return &breaker{opened: make(chan struct{})} }

// watch returns whether the breaker is open, and a channel that is closed when it opens.
func (b *breaker) watch() (isOpen bool, opened <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.isOpen, b.opened
}

// mayProbe reports whether the caller should probe Redis while the breaker is open. It returns true once per pause.
func (b *breaker) mayProbe() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	if now.Before(b.probeAt) {
		return false
	}
	b.probeAt = now.Add(breakerPause)
	return true
}

// succeed records a response of Redis, also to an old check.
func (b *breaker) succeed() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.failures, b.succeeded = 0, time.Now()
	if b.isOpen {
		b.isOpen, b.opened = false, make(chan struct{})
	}
}

// fail records the failure of a check that was sent at the given time.
func (b *breaker) fail(sent time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if sent.Before(b.failed) {
		return // it may have failed by the same event as the recorded failure
	}
	b.failures++
	b.failed = time.Now()
	if b.failures >= maxFailures {
		b.open()
	}
}

// silent records that a check sent at the given time got no response. A response to another check since then shows that Redis is up, and
// that only one connection or one node of a cluster is down.
func (b *breaker) silent(sent time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.succeeded.Before(sent) {
		b.open()
	}
}

// open is called with mu held.
func (b *breaker) open() {
	if b.isOpen {
		return
	}
	b.isOpen, b.probeAt = true, time.Now().Add(breakerPause)
	close(b.opened)
}

// failureLasts is how long an open breaker reports Redis as down if no request probes it.
const failureLasts = time.Minute

// up reports whether the breaker is closed, or its next probe has been due for more than a minute.
func (b *breaker) up() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return !b.isOpen || time.Since(b.probeAt) > failureLasts
}
