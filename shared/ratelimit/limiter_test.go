package ratelimit

import (
	"context"
	"crypto/rand"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"deeplink/shared/batch"
	"deeplink/shared/devservers"
	"deeplink/shared/testkit"
)

// within repeats a condition until it holds.
func within(t *testing.T, condition func() bool, expected string) {
	t.Helper()
	for deadline := time.Now().Add(patient); !condition(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never happened: %s", expected)
		}
	}
}

func TestLimiterCountsInRedis(t *testing.T) {
	t.Parallel()
	server := testkit.NewRedis(t)
	surface := Surface{Name: "shared", Limit: 7, Window: time.Hour}
	first, _ := connect(t, server)
	second, client := connect(t, server)
	limiters := []*Limiter{New(first, surface), New(second, surface)}
	var admitted int
	var key Key
	rand.Read(key[:])
	for i := range 20 {
		if limiters[i%2].Take(surface, key) == 0 {
			admitted++
		}
	}
	if n := limiters[0].Fallbacks() + limiters[1].Fallbacks(); n != 0 {
		t.Errorf("%d requests were counted without Redis", n)
	}
	stored := client.LLen(t.Context(), fmt.Sprintf("limit:shared:%x", key[:])).Val()
	if admitted != surface.Limit || stored != int64(surface.Limit) {
		t.Errorf("%d admitted by two limiters and %d times in Redis, the limit is %d", admitted, stored, surface.Limit)
	}
}

func TestLimiterCountsLocallyWithoutRedisAndReturnsToIt(t *testing.T) {
	t.Parallel()
	server := testkit.NewRedis(t)
	counter, client := connect(t, server)
	surface := Surface{Name: "fallback", Limit: 5, Window: time.Hour}
	limiter := New(counter, surface)
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		wait := limiter.Take(surface, Key{})
		if admitted := wait == 0; admitted != (i < surface.Limit) || wait > surface.Window {
			t.Errorf("request %d without Redis waits %s, the limit is %d", i, wait, surface.Limit)
		}
	}
	if limiter.Fallbacks() != 20 || limiter.Up() {
		t.Errorf("%d fallbacks, expected 20; Redis is up: %t", limiter.Fallbacks(), limiter.Up())
	}
	if err := server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	within(t, func() bool {
		limiter.Take(surface, Key{1})
		return limiter.Up() && client.Exists(t.Context(), "limit:fallback:01000000000000000000000000000000").Val() == 1
	}, "Redis counts again")
}

// A window holds the limit, no matter which process counted which part of it.
func TestLimitHoldsWhenRedisComesBack(t *testing.T) {
	t.Parallel()
	for name, outage := range map[string]struct {
		begin, end func(*devservers.Redis) error
		left       int64 // in Redis, at most
	}{
		"Redis hangs": {(*devservers.Redis).Pause, (*devservers.Redis).Resume, 12},
		// What is refused for what was admitted meanwhile is not counted.
		"Redis is lost": {(*devservers.Redis).Kill, func(server *devservers.Redis) error { return server.Start(t.Context()) }, 4},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := testkit.NewRedis(t)
			counter, client := connect(t, server)
			surface := Surface{Name: "outage", Limit: 12, Window: time.Hour}
			limiter := New(counter, surface)
			admitted := 0
			take := func(n int) {
				for range n {
					if limiter.Take(surface, Key{}) == 0 {
						admitted++
					}
				}
			}
			take(4)
			if err := outage.begin(server); err != nil {
				t.Fatal(err)
			}
			take(4)
			if limiter.Fallbacks() == 0 {
				t.Fatal("Redis answered")
			}
			if err := outage.end(server); err != nil {
				t.Fatal(err)
			}
			within(t, func() bool {
				limiter.Take(surface, Key{1})
				return client.Exists(t.Context(), "limit:outage:01000000000000000000000000000000").Val() == 1
			}, "Redis counts again")
			before := limiter.Fallbacks()
			take(20)
			if admitted != surface.Limit {
				t.Errorf("%d admitted, the limit is %d", admitted, surface.Limit)
			}
			if n := client.LLen(t.Context(), "limit:outage:00000000000000000000000000000000").Val(); n > outage.left && limiter.Fallbacks() == before {
				t.Errorf("%d times in Redis, expected %d at most", n, outage.left)
			}
		})
	}
}

func TestHungRedisDelaysFewRequests(t *testing.T) {
	t.Parallel()
	server := testkit.NewRedis(t)
	counter, _ := connect(t, server)
	surface := Surface{Name: "hung", Limit: 1_000_000, Window: time.Minute}
	limiter := New(counter, surface)
	limiter.Take(surface, Key{})
	var tries atomic.Int64
	counter.batcher = batch.New(Connections, maxBatch, func(ctx context.Context, all []*check) {
		tries.Add(1)
		counter.send(ctx, all)
	})
	if err := server.Pause(); err != nil {
		t.Fatal(err)
	}
	const watched = 2 * time.Second
	started := time.Now()
	for time.Since(started) < watched || tries.Load() < 2 && time.Since(started) < patient {
		asked := time.Now()
		limiter.Take(surface, Key{})
		if took := time.Since(asked); took > patient {
			t.Fatalf("one request took %s", took)
		}
	}
	// Without the breaker it would be 80, and without another try 1.
	if n, most := tries.Load(), int64(time.Since(started)/breakerPause)+1; n < 2 || n > most {
		t.Errorf("Redis delayed %d requests in %s, expected 2 to %d", n, time.Since(started), most)
	}
	if err := server.Resume(); err != nil {
		t.Fatal(err)
	}
	within(t, func() bool {
		before := limiter.Fallbacks()
		for range 20 {
			limiter.Take(surface, Key{})
		}
		return limiter.Fallbacks() == before
	}, "Redis counts every request again")
}

func BenchmarkRedisTake(b *testing.B) {
	server := testkit.NewRedis(b)
	counter, _ := connect(b, server)
	for b.Loop() {
		if _, err := counter.Take(b.Context(), LinkReads, Key{}); err != nil {
			b.Fatal(err)
		}
	}
}

// TestRequestOnTwoSurfacesCountsOnBothOrNeither fills one of two windows, with Redis and without it.
func TestRequestOnTwoSurfacesCountsOnBothOrNeither(t *testing.T) {
	t.Parallel()
	few, many := Surface{Name: "few", Limit: 2, Window: time.Minute}, Surface{Name: "many", Limit: 5, Window: time.Hour}
	server := testkit.NewRedis(t)
	_, client := connect(t, server)
	redis := New(NewRedis(client, "both:"), few, many)
	_, gone := connect(t, server)
	gone.Close()
	for name, l := range map[string]*Limiter{"Redis": redis, "memory": New(NewRedis(gone, "gone:"), few, many)} {
		key := Key{1}
		for i := range 2 {
			if wait := l.TakeBoth(many, few, key); wait != 0 {
				t.Errorf("%s: request %d waits %v, expected room in both windows", name, i, wait)
			}
		}
		for range 5 {
			if wait := l.TakeBoth(many, few, key); wait <= 0 || wait > time.Minute {
				t.Errorf("%s: the smaller window is full, and the wait is %v, expected that of its window", name, wait)
			}
		}
		for i := range 3 {
			if wait := l.Take(many, key); wait != 0 {
				t.Errorf("%s: request %d on the larger window waits %v: rejected requests counted there", name, i, wait)
			}
		}
		if wait := l.TakeBoth(many, few, key); wait <= time.Minute {
			t.Errorf("%s: both windows are full, and the wait is %v, expected the longer one", name, wait)
		}
		l.Wait()
	}
}
