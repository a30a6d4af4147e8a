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

// Take asks for one request of key, as Memory.Take does. It never fails and takes 25 ms at most. The surface must be
// one of those given to New.
func (l *Limiter) Take(ctx context.Context, surface Surface, key Key) time.Duration {
	if l.mayAsk() {
		now := time.Now()
		wait, err := l.redis.Take(ctx, surface, key)
		if err == nil {
			l.retryAt.Store(0)
			if wait == 0 {
				// Should Redis not answer the next one, this process goes on from what it has let through.
				l.memory[surface].Take(key, now)
			}
			return wait
		}
		// A caller that gave up says nothing about Redis.
		if ctx.Err() == nil {
			l.retryAt.Store(int64(time.Since(l.base) + breakerPause))
		}
	}
	l.fallbacks.Add(1)
	return l.memory[surface].Take(key, time.Now())
}

// Fallbacks returns how many requests were counted within this process because Redis did not answer.
func (l *Limiter) Fallbacks() int64 {
	return l.fallbacks.Load()
}

// mayAsk reports whether Redis is up, as far as is known, or this request is the one that finds out.
func (l *Limiter) mayAsk() bool {
	at := l.retryAt.Load()
	if at == 0 {
		return true
	}
	now := time.Since(l.base)
	return int64(now) >= at && l.retryAt.CompareAndSwap(at, int64(now+breakerPause))
}
