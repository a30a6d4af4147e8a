package ratelimit

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// looks and lookEvery bound how long a request waits for a healthy Redis: it checks for the response looks times, every lookEvery. A
	// process that lacks processor time checks late, so it does not mistake its own delay for silence of Redis.
	looks     = 10
	lookEvery = 50 * time.Millisecond
	// attempts is the maximum number of times that a request is sent to a healthy Redis.
	attempts = 3
	// probePatience is how long a request that probes an open breaker waits. A later response still closes the breaker.
	probePatience = 25 * time.Millisecond
	// fallbackKeys is the number of keys per surface that a process counts by itself while Redis is down.
	fallbackKeys = 65536
)

// Limiter counts in Redis, over all processes together. It never fails open and never fails closed: while Redis is down, each process
// counts alone. It is safe for concurrent use.
//
// A request waits for a late response of Redis, because only Redis knows what the other processes admitted. The process counts alone only
// after Redis failed [maxFailures] times in a row, or was silent for [looks] times [lookEvery]. An outage delays one request, and those
// that wait at the same time, by that long. After that one request per [breakerPause] waits, for [probePatience].
//
// A request whose connection failed is sent again, so Redis may count it twice. That can reject another request too early, but never
// admits one too many.
//
// When processes count alone, each admits at most the limit in a window, what it admitted through Redis included. So n processes admit at
// most n times the limit in a window of an outage, and of its end.
type Limiter struct {
	redis     *Redis
	memory    map[Surface]*Memory
	base      time.Time
	breaker   *breaker
	fellBack  atomic.Int64 // when a request was last counted without Redis, in nanoseconds since base
	fallbacks atomic.Int64
	checks    sync.WaitGroup
}

// New returns a limiter for the surfaces given.
func New(redis *Redis, surfaces ...Surface) *Limiter {
	l := &Limiter{redis: redis, memory: make(map[Surface]*Memory, len(surfaces)), base: time.Now(), breaker: newBreaker()}
	for _, surface := range surfaces {
		l.memory[surface] = NewMemory(surface, fallbackKeys)
	}
	return l
}

// Take counts one request of key, as Memory.Take does. It never fails. On a machine that is not overloaded it takes at most 0.5 s when Redis
// stops responding, and 1.5 s when a part of a cluster does. It has no context: a canceled request would be admitted without being
// counted in Redis. The surface must be one of those given to New.
func (l *Limiter) Take(surface Surface, key Key) time.Duration {
	return l.take(request{key: key, surfaces: []Surface{surface}})
}

// TakeBoth is Take for a request that counts on two surfaces. It is admitted if both have room, and otherwise counts on neither; the result
// is then the longer of the two waits. While this process counts alone, a request that arrives together with others may be counted on the
// first surface and rejected by the second.
func (l *Limiter) TakeBoth(first, second Surface, key Key) time.Duration {
	return l.take(request{key: key, surfaces: []Surface{first, second}})
}

// request is a request of a key, which counts on one or two surfaces.
type request struct {
	key      Key
	surfaces []Surface
}

func (l *Limiter) take(r request) time.Duration {
	isOpen, opened := l.breaker.watch()
	if now := time.Now(); !isOpen {
		// Otherwise Redis would count a request that this process then rejects.
		if wait := l.remembered(r, now, false); wait > 0 {
			return wait
		}
	}
	var wait time.Duration
	var counted bool
	if isOpen {
		wait, counted = l.probe(r)
	} else {
		wait, counted = l.count(r, opened)
	}
	// Redis admitted the request before this time, so that it leaves the window of this process no earlier than that of Redis.
	now := time.Now()
	if !counted {
		l.fellBack.Store(int64(now.Sub(l.base)))
		l.fallbacks.Add(1)
		if len(r.surfaces) > 1 {
			if wait := l.remembered(r, now, true); wait > 0 {
				return wait
			}
		}
		for _, surface := range r.surfaces {
			wait = max(wait, l.memory[surface].Take(r.key, now))
		}
		return wait
	}
	if wait > 0 {
		return wait
	}
	// If Redis fails later, this process goes on from what it has admitted.
	for _, surface := range r.surfaces {
		if memory := l.memory[surface].Take(r.key, now); l.isBound(surface, now) {
			wait = max(wait, memory)
		}
	}
	return wait
}

// remembered returns the wait by the count of this process alone, of the surfaces where it applies, or of all.
func (l *Limiter) remembered(r request, now time.Time, all bool) (wait time.Duration) {
	for _, surface := range r.surfaces {
		if all || l.isBound(surface, now) {
			wait = max(wait, l.memory[surface].Wait(r.key, now))
		}
	}
	return wait
}

// isBound reports whether this process may have admitted requests within the window that Redis did not count. Then the count of this
// process applies as well.
func (l *Limiter) isBound(surface Surface, now time.Time) bool {
	return l.fallbacks.Load() > 0 && int64(now.Sub(l.base))-l.fellBack.Load() < int64(surface.Window)
}

// count counts one request in Redis while the breaker is closed. It returns early when opened is closed.
func (l *Limiter) count(r request, opened <-chan struct{}) (wait time.Duration, counted bool) {
	for range attempts {
		c := l.send(r)
		answered := c.await(looks, lookEvery, opened)
		c.giveUp()
		switch {
		case answered && c.err == nil:
			return c.wait, true
		case !answered:
			l.breaker.silent(c.sent)
		}
		if isOpen, _ := l.breaker.watch(); isOpen {
			break
		}
	}
	return 0, false
}

// probe counts one request in Redis if a probe of the open breaker is due.
func (l *Limiter) probe(r request) (wait time.Duration, counted bool) {
	if !l.breaker.mayProbe() {
		return 0, false
	}
	c := l.send(r)
	defer c.giveUp()
	if !c.await(1, probePatience, nil) || c.err != nil {
		return 0, false
	}
	return c.wait, true
}

// sentCheck is a request that Redis counts, or that waits for a connection.
type sentCheck struct {
	sent   time.Time
	giveUp context.CancelFunc // cancels a check that still waits for a connection
	done   chan struct{}      // closed once wait and err are there
	wait   time.Duration
	err    error
}

// send counts one request in Redis and reports the result to the breaker, even if the caller no longer waits.
func (l *Limiter) send(r request) *sentCheck {
	ctx, cancel := context.WithCancel(context.Background())
	c := &sentCheck{sent: time.Now(), giveUp: cancel, done: make(chan struct{})}
	l.checks.Go(func() {
		defer close(c.done)
		c.wait, c.err = l.redis.take(ctx, r)
		switch {
		case c.err == nil:
			l.breaker.succeed()
		case ctx.Err() == nil:
			l.breaker.fail(c.sent)
		}
	})
	return c
}

// await checks for the response a limited number of times and reports whether it has arrived. It returns early when opened is closed.
func (c *sentCheck) await(looks int, every time.Duration, opened <-chan struct{}) bool {
	next := time.NewTimer(every)
	defer next.Stop()
	for range looks {
		select {
		case <-c.done:
			return true
		case <-opened:
			return c.isDone()
		case <-next.C:
			next.Reset(every)
		}
		if c.isDone() { // select chooses at random
			return true
		}
	}
	return false
}

func (c *sentCheck) isDone() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// Fallbacks returns how many requests were counted within this process because Redis did not respond.
func (l *Limiter) Fallbacks() int64 {
	return l.fallbacks.Load()
}

// Up reports whether Redis is healthy, as far as this process knows. It becomes true a minute after the last request that probed Redis.
func (l *Limiter) Up() bool { return l.breaker.up() }

// Wait waits for all running checks. After the Redis client was closed they end at once.
func (l *Limiter) Wait() { l.checks.Wait() }
