package replica

import (
	"math/rand/v2"
	"sync/atomic"
)

const (
	// hotBits is for how many entries there are places: 4,096 links are most of all clicks, and what finds them stays in the caches of
	// a processor.
	hotBits = 12
	// cacheEvery is which of the lookups ask the cache all the same: one in so many, at random. By those it learns what is popular, and
	// what they find becomes hot.
	cacheEvery = 16
)

// hot has the entries that are asked for the most, in one place each, before the cache: to look into that one takes a lock, a map and a
// note of what was looked up, a dozen places in a memory of gigabytes. Like the cache it is only a memory: what is still true is decided by
// the entry's stamps. The zero value is empty.
type hot [1 << hotBits]atomic.Pointer[byte]

func (h *hot) at(hash uint64) *atomic.Pointer[byte] { return &h[hash>>(64-hotBits)] }

// get returns the entry in the place of a hash, whosever it is; nil when there is none.
func (h *hot) get(hash uint64) entry { return entryAt(h.at(hash).Load()) }

// put takes the place of whatever was there.
func (h *hot) put(hash uint64, e entry) {
	if place := h.at(hash); place.Load() != e.begin() {
		place.Store(e.begin())
	}
}

// isTheCachesTurn reports whether the cache is to be asked though the entry is hot.
func isTheCachesTurn() bool { return rand.Uint32()%cacheEvery == 0 }
