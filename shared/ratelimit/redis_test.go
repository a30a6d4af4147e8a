package ratelimit

import (
	"context"
	"encoding/hex"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"deeplink/shared/devservers"
	"deeplink/shared/testkit"
)

// patient is the bound of a test that waits for a condition, on a busy machine.
const patient = 20 * time.Second

func connect(t testing.TB, server *devservers.Redis) (*Redis, redis.UniversalClient) {
	t.Helper()
	client, err := Open(server.URL(), 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return NewRedis(client, "limit:"), client
}

// patiently repeats a request that failed, as one does for which a busy machine had no connection in time. Only a request that was not
// counted may be repeated, so count tells how many have been.
func patiently(t interface{ Fatalf(string, ...any) }, r *Redis, surface Surface, key Key, count func() int64) time.Duration {
	before := count()
	for deadline := time.Now().Add(patient); ; {
		wait, err := r.Take(context.Background(), surface, key)
		if err == nil {
			return wait
		}
		if count() != before {
			return 0 // admitted, and the answer came late
		}
		if time.Now().After(deadline) {
			t.Fatalf("Redis does not answer: %v", err)
		}
	}
}

// bench is one key in Redis and its log as the test understands it, in microseconds of Redis's clock.
type bench struct {
	t      *rapid.T
	redis  *Redis
	client redis.UniversalClient
	key    Key
	name   string
	log    []int64
}

func (b *bench) now() int64 {
	at, err := b.client.Time(context.Background()).Result()
	if err != nil {
		b.t.Fatal(err)
	}
	return at.UnixMicro()
}

func (b *bench) stored() []int64 {
	var times []int64
	if err := b.client.LRange(context.Background(), b.name, 0, -1).ScanSlice(&times); err != nil {
		b.t.Fatal(err)
	}
	return times
}

// age lets time pass: nothing but the distance to the clock counts, so the log is moved instead of the clock.
func (b *bench) age(by time.Duration) {
	for i, at := range b.stored() {
		if err := b.client.LSet(context.Background(), b.name, int64(i), at-by.Microseconds()).Err(); err != nil {
			b.t.Fatal(err)
		}
	}
	for i := range b.log {
		b.log[i] -= by.Microseconds()
	}
}

// inWindow returns the admitted times that count for a request at now.
func (b *bench) inWindow(now int64, surface Surface) []int64 {
	for i, at := range b.log {
		if at > now-surface.Window.Microseconds() {
			return b.log[i:]
		}
	}
	return nil
}

// untilFree returns how long the oldest admitted time stays in the window.
func (b *bench) untilFree(surface Surface) time.Duration {
	now := b.now()
	in := b.inWindow(now, surface)
	if len(in) == 0 {
		return 0
	}
	return time.Duration(in[0]-now)*time.Microsecond + surface.Window
}

func (b *bench) take(surface Surface) {
	window := surface.Window.Microseconds()
	earliest := b.now()
	count := func() int64 { return int64(len(b.stored())) + sum(b.stored()) }
	wait := patiently(b.t, b.redis, surface, b.key, count).Microseconds()
	latest := b.now()
	most, least := b.inWindow(earliest, surface), b.inWindow(latest, surface)
	switch {
	case wait == 0 && len(least) >= surface.Limit:
		b.t.Fatalf("admitted with %d in the window, the limit is %d", len(least), surface.Limit)
	case wait != 0 && len(most) < surface.Limit:
		b.t.Fatalf("refused with %d in the window, the limit is %d", len(most), surface.Limit)
	case wait != 0:
		free := most[len(most)-surface.Limit] + window
		if wait > free-earliest || wait < free-latest {
			b.t.Fatalf("wait %d, expected %d to %d", wait, free-latest, free-earliest)
		}
	}
	stored := b.stored()
	if len(stored) > surface.Limit {
		b.t.Fatalf("%d times are stored, the limit is %d", len(stored), surface.Limit)
	}
	if wait == 0 {
		admitted := stored[len(stored)-1]
		if admitted < earliest || admitted > latest {
			b.t.Fatalf("admitted at %d, expected %d to %d", admitted, earliest, latest)
		}
		b.log = append(b.log, admitted)
	}
}

func sum(times []int64) (total int64) {
	for _, at := range times {
		total += at
	}
	return total
}

func TestRedisCountsExactly(t *testing.T) {
	t.Parallel()
	limiter, client := connect(t, testkit.NewRedis(t))
	var next byte
	rapid.Check(t, func(t *rapid.T) {
		next++
		surface := Surface{Name: "model", Limit: rapid.IntRange(1, 6).Draw(t, "limit"), Window: time.Hour}
		key := Key{next}
		b := &bench{t: t, redis: limiter, client: client, key: key, name: "limit:model:" + hex.EncodeToString(key[:])}
		if err := client.Del(context.Background(), b.name).Err(); err != nil {
			t.Fatal(err)
		}
		const edge = -1 // just before the oldest leaves the window
		for range rapid.IntRange(1, 40).Draw(t, "requests") {
			pause := time.Duration(rapid.SampledFrom([]int{0, 0, 0, 1, 10, 25, 59, edge}).Draw(t, "pause")) * time.Minute
			if pause == edge*time.Minute {
				pause = b.untilFree(surface) - 2*time.Millisecond
			}
			b.age(max(0, pause))
			b.take(surface)
		}
	})
}

func TestRedisAdmitsExactlyTheLimitOfARace(t *testing.T) {
	t.Parallel()
	const requests, racers = 5, 100
	server := testkit.NewRedis(t)
	surface := Surface{Name: "race", Limit: 100, Window: time.Hour}
	var admitted, failed atomic.Int64
	var racing sync.WaitGroup
	for range 2 {
		// Two clients, as two replicas of control are. The time-out is not what is tested here.
		limiter, _ := connect(t, server)
		limiter.timeout = patient
		for range racers / 2 {
			racing.Go(func() {
				for range requests {
					wait, err := limiter.Take(t.Context(), surface, Key{})
					switch {
					case err != nil:
						failed.Add(1)
					case wait == 0:
						admitted.Add(1)
					}
				}
			})
		}
	}
	racing.Wait()
	if admitted.Load() != int64(surface.Limit) || failed.Load() != 0 {
		t.Errorf("%d of %d admitted, %d failed; the limit is %d", admitted.Load(), requests*racers, failed.Load(), surface.Limit)
	}
}

func TestRedisAdmitsAgainAfterTheWaitAndNotBefore(t *testing.T) {
	t.Parallel()
	limiter, _ := connect(t, testkit.NewRedis(t))
	surface := Surface{Name: "wait", Limit: 3, Window: 300 * time.Millisecond}
	take := func() time.Duration {
		wait, err := limiter.Take(t.Context(), surface, Key{})
		if err != nil {
			t.Skipf("the machine is too busy: %v", err)
		}
		return wait
	}
	// Redis counted the first some time between these two.
	started := time.Now()
	var counted time.Time
	for range surface.Limit {
		if wait := take(); wait != 0 {
			t.Fatalf("wait %s within the limit", wait)
		}
		if counted.IsZero() {
			counted = time.Now()
		}
	}
	for {
		asked := time.Now()
		wait := take()
		answered := time.Now()
		if wait == 0 {
			if early := time.Since(started); early < surface.Window-time.Millisecond {
				t.Errorf("admitted after %s, the window is %s", early, surface.Window)
			}
			return
		}
		earliest, latest := started.Add(surface.Window-time.Millisecond), counted.Add(surface.Window+time.Millisecond)
		if answered.Add(wait).Before(earliest) || asked.Add(wait).After(latest) {
			t.Errorf("%s to %s after the start: wait %s, the window is %s", asked.Sub(started), answered.Sub(started), wait, surface.Window)
		}
		if time.Since(started) > surface.Window+patient {
			t.Fatalf("still refused after %s", time.Since(started))
		}
		time.Sleep(wait)
	}
}

func TestRedisExpiresIdleKeys(t *testing.T) {
	t.Parallel()
	limiter, client := connect(t, testkit.NewRedis(t))
	surface := Surface{Name: "idle", Limit: 5, Window: time.Hour}
	patiently(t, limiter, surface, Key{}, func() int64 { return client.DBSize(t.Context()).Val() })
	name := "limit:idle:" + hex.EncodeToString(make([]byte, 16))
	// Never before the window is over, or the limit would be exceeded.
	if ttl := client.PTTL(t.Context(), name).Val(); ttl <= surface.Window-patient || ttl > surface.Window+time.Millisecond {
		t.Errorf("%s expires in %s, the window is %s", name, ttl, surface.Window)
	}
}

func TestRedisNeverRejectsForLongerThanTheWindow(t *testing.T) {
	t.Parallel()
	limiter, client := connect(t, testkit.NewRedis(t))
	surface := Surface{Name: "clock", Limit: 4, Window: time.Minute}
	for name, stored := range map[string]int{"empty log": 0, "half a log": 2, "full log": 4} {
		key := Key{byte(stored)}
		list := "limit:clock:" + hex.EncodeToString(key[:])
		// What was admitted before the clock was set back by an hour lies in its future.
		future := client.Time(t.Context()).Val().Add(time.Hour)
		for i := range stored {
			at := future.Add(time.Duration(i) * time.Second)
			if err := client.RPush(t.Context(), list, at.UnixMicro()).Err(); err != nil {
				t.Fatal(err)
			}
		}
		length := func() int64 { return client.LLen(t.Context(), list).Val() }
		for range surface.Limit - stored {
			if wait := patiently(t, limiter, surface, key, length); wait != 0 {
				t.Errorf("%s: wait %s within the limit", name, wait)
			}
		}
		if wait := patiently(t, limiter, surface, key, length); wait <= 0 || wait > surface.Window {
			t.Errorf("%s: wait %s, expected at most %s", name, wait, surface.Window)
		}
	}
}

func TestRedisCountsCorrectlyAfterTheLimitWasLowered(t *testing.T) {
	t.Parallel()
	limiter, client := connect(t, testkit.NewRedis(t))
	surface := Surface{Name: "lowered", Limit: 5, Window: time.Minute}
	list := "limit:lowered:" + hex.EncodeToString(make([]byte, 16))
	// Of five within the minute, the last two stay in it for 40 s and more.
	for _, ago := range []time.Duration{50, 40, 30, 20, 10} {
		at := client.Time(t.Context()).Val().Add(-ago * time.Second)
		if err := client.RPush(t.Context(), list, at.UnixMicro()).Err(); err != nil {
			t.Fatal(err)
		}
	}
	surface.Limit = 2
	wait := patiently(t, limiter, surface, Key{}, func() int64 { return client.LLen(t.Context(), list).Val() })
	if wait > 40*time.Second || wait < 40*time.Second-patient {
		t.Errorf("wait %s, expected 40 s", wait)
	}
}

func TestEveryNodeOfAClusterCounts(t *testing.T) {
	t.Parallel()
	c := testkit.NewRedisCluster(t)
	client, err := Open(c.URL(), 2)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	limiter := NewRedis(client, "limit:")
	surface := Surface{Name: "cluster", Limit: 2, Window: time.Hour}
	for i := range byte(24) {
		key := Key{i}
		name := "limit:cluster:" + hex.EncodeToString(key[:])
		length := func() int64 { return client.LLen(t.Context(), name).Val() }
		for range surface.Limit {
			if wait := patiently(t, limiter, surface, key, length); wait != 0 {
				t.Errorf("key %d: wait %s within the limit", i, wait)
			}
		}
		if wait := patiently(t, limiter, surface, key, length); wait <= 0 {
			t.Errorf("key %d: admitted above the limit", i)
		}
	}
	for _, server := range c.Servers {
		if keys, err := server.Tell(t.Context(), "DBSIZE"); err != nil || keys == "0" {
			t.Errorf("%s has %s keys, %v", server.Addr(), keys, err)
		}
	}
}

// TestChecksUseTheConnectionsThatAreKept: one that is made for a check takes much of its time.
func TestChecksUseTheConnectionsThatAreKept(t *testing.T) {
	t.Parallel()
	client, err := Open(testkit.NewRedis(t).URL(), Connections)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	kept := func() uint32 { return client.PoolStats().TotalConns }
	for end := time.Now().Add(patient); kept() < Connections; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d connections are kept, expected %d", kept(), Connections)
		}
	}
	limiter := NewRedis(client, "limit:")
	limiter.timeout = patient
	var group sync.WaitGroup
	for range 100 {
		group.Go(func() {
			if _, err := limiter.Take(t.Context(), LinkReads, Key{}); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	stats := client.PoolStats()
	if others := stats.PipelineStats; others != nil && others.TotalConns > 0 || stats.TotalConns != Connections || stats.Misses > 0 {
		t.Errorf("%+v: expected %d connections and none made since", stats, Connections)
	}
}
