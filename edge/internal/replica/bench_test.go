package replica

import (
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"testing"
	"time"
)

// BenchmarkLookup measures lookups of cached links, one link or links drawn by Zipf's law.
func BenchmarkLookup(b *testing.B) {
	for _, links := range []int{1, 1_000_000} {
		b.Run(fmt.Sprintf("%d links", links), func(b *testing.B) {
			r, names := filled(b, links)
			now := time.Now()
			r.lease.Store(&lease{start: now})
			l := r.lease.Load()
			draws := make([]uint32, 1<<20)
			zipf := rand.NewZipf(rand.New(rand.NewPCG(1, 2)), 1.0001, 1, uint64(links-1))
			for i := range draws {
				draws[i] = uint32(zipf.Uint64())
			}
			lookup := func(n int) {
				name := names[draws[n%len(draws)]]
				if key := r.Key(name, 4); r.lookup(l, now, time.Hour, key.hash, key.name) == nil {
					b.Fatalf("%s is not cached", name)
				}
			}
			for n := range 4 * len(draws) {
				lookup(n)
			}
			b.ResetTimer()
			for n := range b.N {
				lookup(n)
			}
		})
	}
}

// filled returns a replica that has cached this many links, and their names.
func filled(b *testing.B, links int) (*Replica, [][]byte) {
	b.Helper()
	r, err := New(Options{CacheBytes: 2 << 30})
	if err != nil {
		b.Fatal(err)
	}
	names := make([][]byte, links)
	value := make([]byte, 300)
	for i := range names {
		name := fmt.Sprintf("abcd/promo%d", i)
		names[i] = []byte(name)
		r.remember(maphash.String(r.seed, name), newEntry(r.stamps.read("abcd", "abcd", name), name, value))
		if i%10_000 == 0 {
			r.positive.Wait() // ristretto drops what its buffer has no room for
		}
	}
	r.positive.Wait()
	return r, names
}
