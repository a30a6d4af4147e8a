package ratelimit

import (
	"encoding/binary"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// ringBytes is the memory of all rings of m.
func ringBytes(m *Memory) (sum int) {
	for i := range m.shards {
		s := &m.shards[i]
		s.Lock()
		for _, r := range s.rings.all {
			sum += 8 * len(r.times)
		}
		s.Unlock()
	}
	return sum
}

func numbered(i uint64) (key Key) {
	binary.LittleEndian.PutUint64(key[:], i)
	return key
}

func TestIdleKeysReleaseTheirRings(t *testing.T) {
	t.Parallel()
	for name, surface := range map[string]Surface{"resolution": Resolution, "link reads": LinkReads, "match": Match} {
		synctest.Test(t, func(t *testing.T) {
			memory := NewMemory(surface, 1<<16)
			const keys = 1000
			for i := range uint64(keys) {
				for range surface.Limit {
					if wait := memory.Take(numbered(i), time.Now()); wait != 0 {
						t.Fatalf("%s: key %d waits %s within its limit", name, i, wait)
					}
				}
			}
			// Keys whose cells are neighbours may displace one another, by the table's random seed.
			if ringBytes(memory) < keys*8*surface.Limit*99/100 {
				t.Errorf("%s: %d bytes after %d bursts, expected a full ring for nearly each", name, ringBytes(memory), keys)
			}
			// No more requests come: the rings must go by themselves.
			time.Sleep(2*surface.Window + 2*time.Second)
			synctest.Wait()
			if left := ringBytes(memory); left != 0 {
				t.Errorf("%s: idle keys hold %d bytes of rings, expected none", name, left)
			}
			// And again: the next burst must be found, too.
			for range surface.Limit {
				memory.Take(numbered(0), time.Now())
			}
			if wait := memory.Take(numbered(0), time.Now()); wait != surface.Window {
				t.Errorf("%s: after a second burst the wait is %s, expected %s", name, wait, surface.Window)
			}
			time.Sleep(2*surface.Window + 2*time.Second)
			synctest.Wait()
			if left := ringBytes(memory); left != 0 {
				t.Errorf("%s: after a second burst idle keys hold %d bytes of rings, expected none", name, left)
			}
		})
	}
}

// Rings that are released while requests go on must not change what is admitted.
func TestMemoryCountsExactlyWhileRingsAreReleased(t *testing.T) {
	t.Parallel()
	type request struct {
		pause time.Duration
		who   byte
	}
	rapid.Check(t, func(rt *rapid.T) {
		surface := Surface{
			Limit:  rapid.SampledFrom([]int{ownTimes + 1, 2 * ownTimes, 2*ownTimes + 1, 30}).Draw(rt, "limit"),
			Window: rapid.SampledFrom([]time.Duration{minSweep / 2, minSweep, 3*minSweep + 1}).Draw(rt, "window"),
		}
		pauses := []time.Duration{0, 0, surface.Window / 40, surface.Window / 40, surface.Window / 20, surface.Window / 9, surface.Window / 3, minSweep}
		requests := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) request {
			return request{rapid.SampledFrom(pauses).Draw(rt, "pause"), rapid.ByteRange(0, 1).Draw(rt, "who")}
		}), 100, 300).Draw(rt, "requests")
		wrong := ""
		synctest.Test(t, func(*testing.T) {
			memory := NewMemory(surface, 1000)
			expected := make(map[byte]*log)
			for _, r := range requests {
				time.Sleep(r.pause)
				synctest.Wait() // for a sweep that is due at this time
				if expected[r.who] == nil {
					expected[r.who] = new(log)
				}
				now := time.Now()
				got, want := memory.Take(Key{r.who}, now), expected[r.who].take(now.Sub(memory.base), surface)
				if got != want {
					wrong = fmt.Sprintf("request of %d at %s: wait %s, expected %s", r.who, now.Sub(memory.base), got, want)
					return
				}
			}
		})
		if wrong != "" {
			rt.Fatal(wrong)
		}
	})
}

func TestRingsStayBoundedHoweverManyKeysBurstAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { // time stands still: no sweep releases anything
		const maxKeys = 1 << 12
		memory := NewMemory(Resolution, maxKeys)
		// All within one window: nothing is idle, and all rings together would take 16 MB.
		for i := range uint64(maxKeys) {
			for range Resolution.Limit {
				memory.Take(numbered(i), memory.base)
			}
		}
		for i := range memory.shards {
			s := &memory.shards[i]
			if s.rings.bytes > memory.ringRoom {
				t.Errorf("shard %d has rings of %d bytes, the bound is %d", i, s.rings.bytes, memory.ringRoom)
			}
		}
		if sum, bound := ringBytes(memory), shardCount*memory.ringRoom; sum > bound || sum < bound/2 {
			t.Errorf("all rings take %d bytes, expected at most %d and most of it", sum, bound)
		}
		// The key that burst last keeps its count.
		if wait := memory.Take(numbered(maxKeys-1), memory.base); wait != Resolution.Window {
			t.Errorf("the last key waits %s after its burst, expected %s", wait, Resolution.Window)
		}
	})
}
