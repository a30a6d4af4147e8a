package ratelimit

import (
	"encoding/binary"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"pgregory.net/rapid"
)

// log is the definition of the limiter: every admitted time, kept for good.
type log []time.Duration

// take returns how long a request at now has to wait, and remembers it when that is not at all.
func (l *log) take(now time.Duration, surface Surface) time.Duration {
	var inWindow []time.Duration
	for _, t := range *l {
		if t > now-surface.Window {
			inWindow = append(inWindow, t)
		}
	}
	if len(inWindow) >= surface.Limit {
		return inWindow[len(inWindow)-surface.Limit] + surface.Window - now
	}
	*l = append(*l, now)
	return 0
}

func TestMemoryCountsExactly(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		surface := Surface{
			Limit:  rapid.IntRange(1, 40).Draw(t, "limit"),
			Window: time.Duration(rapid.IntRange(1, 100).Draw(t, "window")),
		}
		memory := NewMemory(surface, 1000)
		expected := make(map[byte]*log)
		now := time.Duration(0)
		for range rapid.IntRange(1, 400).Draw(t, "requests") {
			now += time.Duration(rapid.SampledFrom([]int{0, 0, 1, 2, 7, int(surface.Window) - 1, int(surface.Window)}).Draw(t, "pause"))
			who := rapid.ByteRange(0, 2).Draw(t, "who")
			if expected[who] == nil {
				expected[who] = new(log)
			}
			got, want := memory.Take(Key{who}, memory.base.Add(now)), expected[who].take(now, surface)
			if got != want {
				t.Fatalf("request of %d at %d: wait %d, expected %d", who, now, got, want)
			}
		}
	})
}

func TestMemoryCountsALateTimeWithTheLastAdmitted(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		surface := Surface{Limit: rapid.IntRange(1, 8).Draw(t, "limit"), Window: 50}
		memory := NewMemory(surface, 1000)
		expected := new(log)
		clock := time.Duration(0)
		for range rapid.IntRange(1, 200).Draw(t, "requests") {
			clock += time.Duration(rapid.IntRange(0, 20).Draw(t, "pause"))
			now := clock - time.Duration(rapid.IntRange(0, 30).Draw(t, "late"))
			got := memory.Take(Key{}, memory.base.Add(now))
			if len(*expected) > 0 {
				now = max(now, (*expected)[len(*expected)-1])
			}
			if want := expected.take(now, surface); got != want {
				t.Fatalf("request at %d: wait %d, expected %d", now, got, want)
			}
		}
	})
}

func TestMemoryAdmitsExactlyTheLimitOfARace(t *testing.T) {
	t.Parallel()
	const requests, racers = 20, 100
	surface := Surface{Limit: 500, Window: time.Hour}
	memory := NewMemory(surface, 1000)
	var admitted atomic.Int64
	var racing sync.WaitGroup
	for range racers {
		racing.Go(func() {
			for range requests {
				if memory.Take(Key{1}, time.Now()) == 0 {
					admitted.Add(1)
				}
			}
		})
	}
	racing.Wait()
	if admitted.Load() != int64(surface.Limit) {
		t.Errorf("%d of %d admitted, the limit is %d", admitted.Load(), requests*racers, surface.Limit)
	}
}

func TestMemoryAdmitsAgainAfterTheWaitAndNotBefore(t *testing.T) {
	t.Parallel()
	memory := NewMemory(Portal, 1000)
	now := memory.base
	for range Portal.Limit {
		if wait := memory.Take(Key{}, now); wait != 0 {
			t.Fatalf("wait %s within the limit", wait)
		}
		now = now.Add(time.Millisecond)
	}
	wait := memory.Take(Key{}, now)
	if expected := time.Second - 30*time.Millisecond; wait != expected {
		t.Fatalf("wait %s, expected %s", wait, expected)
	}
	if again := memory.Take(Key{}, now.Add(wait-1)); again != 1 {
		t.Errorf("wait %s when 1 ns is left", again)
	}
	if again := memory.Take(Key{}, now.Add(wait)); again != 0 {
		t.Errorf("wait %s after the wait", again)
	}
}

func shardOf(m *Memory, key Key) *shard { return m.shard(hashOf(key, m.seed)) }

// crowd returns keys which all belong to the shard of the first.
func crowd(m *Memory, size int) []Key {
	var keys []Key
	for i := uint64(0); len(keys) < size; i++ {
		var key Key
		binary.LittleEndian.PutUint64(key[:], i)
		if len(keys) == 0 || shardOf(m, key) == shardOf(m, keys[0]) {
			keys = append(keys, key)
		}
	}
	return keys
}

func TestMemoryStaysBoundedUnderAFloodOfKeys(t *testing.T) {
	t.Parallel()
	const maxKeys = 10 * shardCount
	memory := NewMemory(Resolution, maxKeys)
	for i := range uint64(20 * maxKeys) {
		var key Key
		binary.LittleEndian.PutUint64(key[:], i)
		if wait := memory.Take(key, memory.base.Add(time.Duration(i))); wait != 0 {
			t.Fatalf("a new key waits %s", wait)
		}
	}
	for i := range memory.shards {
		s := &memory.shards[i]
		if s.used > 10 || len(s.cells) > 32 {
			t.Errorf("shard %d has %d keys in %d cells, the bound is 10", i, s.used, len(s.cells))
		}
	}
}

func TestMemoryEvictsTheLongestIdle(t *testing.T) {
	t.Parallel()
	const size = evictionSample
	surface := Surface{Limit: 1, Window: time.Minute}
	memory := NewMemory(surface, size*shardCount)
	keys := crowd(memory, size+1)
	for i, key := range keys[:size] {
		memory.Take(key, memory.base.Add(time.Duration((i+5)%size)))
	}
	memory.Take(keys[size], memory.base.Add(size))
	const idlest = size - 5
	for i, key := range keys[:size] {
		if i != idlest && memory.Take(key, memory.base.Add(size)) == 0 {
			t.Errorf("key %d was forgotten", i)
		}
	}
	if shardOf(memory, keys[idlest]).find(keys[idlest], hashOf(keys[idlest], memory.seed)) != nil {
		t.Error("the longest idle key was kept")
	}
}

func TestMemoryReleasesTheRingOfAnEvictedKey(t *testing.T) {
	t.Parallel()
	memory := NewMemory(LinkReads, shardCount)
	keys := crowd(memory, 2)
	for range LinkReads.Limit {
		memory.Take(keys[0], memory.base)
	}
	shard := shardOf(memory, keys[0])
	if got, expected := shard.rings.bytes, ringBytesFor(LinkReads.Limit); got != expected {
		t.Errorf("rings of %d bytes after a burst, expected %d", got, expected)
	}
	memory.Take(keys[1], memory.base)
	if shard.rings.bytes != 0 {
		t.Error("the ring of the evicted key was kept")
	}
}

func TestMemoryAllocatesNothing(t *testing.T) {
	memory := NewMemory(Resolution, 10*shardCount)
	now := memory.base
	pause := func(d time.Duration) time.Time {
		now = now.Add(d)
		return now
	}
	for range 2 * Resolution.Limit {
		memory.Take(Key{}, now)
	}
	for name, take := range map[string]func(){
		"admitted": func() { memory.Take(Key{}, pause(time.Second)) },
		"refused":  func() { memory.Take(Key{}, now) },
		"full":     func() { memory.Take(Key{}, pause(3*time.Millisecond)) },
	} {
		if n := testing.AllocsPerRun(1000, take); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
	var i uint64
	flood := func() {
		var key Key
		i++
		binary.LittleEndian.PutUint64(key[:], i)
		memory.Take(key, pause(time.Microsecond))
	}
	for range 100 * shardCount {
		flood()
	}
	if n := testing.AllocsPerRun(1000, flood); n != 0 {
		t.Errorf("a flood of new keys: %v allocations", n)
	}
}

func BenchmarkMemoryHit(b *testing.B) {
	memory := NewMemory(Resolution, 1<<16)
	now := memory.base
	b.ReportAllocs()
	for b.Loop() {
		now = now.Add(2 * time.Millisecond)
		memory.Take(Key{15: 1}, now)
	}
}

func BenchmarkMemoryRefused(b *testing.B) {
	memory := NewMemory(Resolution, 1<<16)
	for range Resolution.Limit {
		memory.Take(Key{}, memory.base)
	}
	b.ReportAllocs()
	for b.Loop() {
		memory.Take(Key{}, memory.base)
	}
}

func BenchmarkMemoryManyKeys(b *testing.B) {
	memory := NewMemory(Resolution, 1<<20)
	now, i := memory.base, uint32(0)
	b.ReportAllocs()
	for b.Loop() {
		i = i*1664525 + 1013904223
		var key Key
		binary.BigEndian.PutUint32(key[12:], i>>15) // 131,072 addresses
		now = now.Add(10 * time.Microsecond)
		memory.Take(key, now)
	}
}

func BenchmarkMemoryParallel(b *testing.B) {
	memory := NewMemory(Resolution, 1<<16)
	var next atomic.Uint32
	b.RunParallel(func(pb *testing.PB) {
		var key Key
		binary.BigEndian.PutUint32(key[12:], next.Add(1))
		now := memory.base
		for pb.Next() {
			now = now.Add(2 * time.Millisecond)
			memory.Take(key, now)
		}
	})
}

// A table agrees with a map, through whatever is added and removed.
func TestTableFindsWhatItHolds(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		table := table{seed: [2]uint64{rapid.Uint64().Draw(t, "seed"), rapid.Uint64Min(1<<32).Draw(t, "other seed")}}
		held := make(map[Key]bool)
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			key := Key{rapid.ByteRange(0, 40).Draw(t, "key")}
			hash := hashOf(key, table.seed)
			switch c := table.find(key, hash); {
			case (c != nil) != held[key] || c != nil && c.key != key:
				t.Fatalf("find %v: %v, held: %v", key, c, held[key])
			case c == nil:
				table.add(key, hash)
			default:
				table.remove(slices.IndexFunc(table.cells, func(at cell) bool { return at.ring != free && at.key == key }))
			}
			held[key] = !held[key]
		}
		for key, expected := range held {
			if found := table.find(key, hashOf(key, table.seed)) != nil; found != expected {
				t.Fatalf("%v found: %v, held: %v", key, found, expected)
			}
		}
	})
}

func TestLocksAreInCacheLinesOfTheirOwn(t *testing.T) {
	const line = 64
	if size := unsafe.Sizeof(shard{}); size%line != 0 {
		t.Errorf("a shard has %d bytes, expected whole cache lines of %d", size, line)
	}
	if size := unsafe.Sizeof(cell{}); size != line {
		t.Errorf("a cell has %d bytes, expected a cache line of %d", size, line)
	}
}
