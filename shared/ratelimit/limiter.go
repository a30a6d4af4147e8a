package ratelimit

import (
	"context"
	"sync/atomic"
	"time"
)

const (
	// breakerPause is how long Redis is left alone after it failed. A hung Redis thus delays one request in this time.
	breakerPause = 250 * time.Millisecond
	// fallbackKeys is how many keys of a surface each process counts on its own while Redis is down.
	fallbackKeys = 65536
)

// Limiter counts in Redis and, while Redis does not answer, within this process: it is never open and never closed. It
// is safe for concurrent use.
type Limiter struct {
	redis     *Redis
	memory    map[Surface]*Memory
	base      time.Time
	retryAt   atomic.Int64 // when Redis may be asked again, in nanoseconds since base; 0 when it answered last
	fellBack  atomic.Int64 // when a request was last counted without Redis, in nanoseconds since base
	fallbacks atomic.Int64
}

// New returns a limiter for the surfaces given.
func New(redis *Redis, surfaces ...Surface) *Limiter {
	l := &Limiter{redis: redis, memory: make(map[Surface]*Memory, len(surfaces)), base: time.Now()}
	for _, surface := range surfaces {
		l.memory[surface] = NewMemory(surface, fallbackKeys)
	}
	return l
}

// Take asks for one request of key, as Memory.Take does. It never fails and takes 50 ms at most. The surface must be
// one of those given to New.
func (l *Limiter) Take(ctx context.Context, surface Surface, key Key) time.Duration {
	memory, now := l.memory[surface], time.Now()
	isUp, isBound := l.retryAt.Load() == 0, l.isBound(surface, now)
	if isUp && isBound {
		// Redis would count what is then refused here.
		if wait := memory.Wait(key, now); wait > 0 {
			return wait
		}
	}
	if isUp || l.mayTry() {
		wait, err := l.redis.Take(ctx, surface, key)
		if err == nil {
			l.retryAt.Store(0)
			if wait > 0 {
				return wait
			}
			// Should Redis not answer the next one, this process goes on from what it has let through.
			if wait = memory.Take(key, now); isBound {
				return wait
			}
			return 0
		}
		// A caller that gave up says nothing about Redis.
		if ctx.Err() == nil {
			l.retryAt.Store(int64(time.Since(l.base) + breakerPause))
		}
		now = time.Now()
	}
	l.fellBack.Store(int64(now.Sub(l.base)))
	l.fallbacks.Add(1)
	return memory.Take(key, now)
}

// isBound reports whether this process may have admitted requests within the window that Redis never heard of. Then what it counted
// holds too.
func (l *Limiter) isBound(surface Surface, now time.Time) bool {
	return l.fallbacks.Load() > 0 && int64(now.Sub(l.base))-l.fellBack.Load() < int64(surface.Window)
}

// Fallbacks returns how many requests were counted within this process because Redis did not answer.
func (l *Limiter) Fallbacks() int64 {
	return l.fallbacks.Load()
}

// failureLasts is how long a failure counts when nobody asks after it.
const failureLasts = time.Minute

// Up reports whether Redis answered when it was last asked, or that is a minute ago.
func (l *Limiter) Up() bool {
	at := l.retryAt.Load()
	return at == 0 || int64(time.Since(l.base))-at > int64(failureLasts)
}

// mayTry reports whether this request is the one that finds out whether Redis is up again.
func (l *Limiter) mayTry() bool {
	at := l.retryAt.Load()
	if at == 0 {
		return true // another one has found out
	}
	now := time.Since(l.base)
	return int64(now) >= at && l.retryAt.CompareAndSwap(at, int64(now+breakerPause))
}
