package replica

import (
	"math/rand/v2"
	"sync/atomic"
)

const (
	// hotBits is the base-2 logarithm of the number of slots. 4,096 links receive most clicks, and the table fits the processor's cache.
	hotBits = 12
	// cacheEvery: one in cacheEvery lookups, chosen at random, goes to ristretto even if the entry is hot. From these lookups ristretto
	// learns which keys are popular, and what they find becomes hot.
	cacheEvery = 16
)

// hot holds the most requested entries in a direct-mapped table in front of ristretto. A ristretto lookup takes a lock, a map access and
// a record of the access, which touch about a dozen cache lines. Like ristretto, hot only stores entries: their stamps decide whether
// they may be served. The zero value is empty.
type hot [1 << hotBits]atomic.Pointer[byte]

func (h *hot) at(hash uint64) *atomic.Pointer[byte] { return &h[hash>>(64-hotBits)] }

// get returns the entry in the slot of a hash, or nil. The entry may belong to another key.
func (h *hot) get(hash uint64) entry { return entryAt(h.at(hash).Load()) }

// put replaces the entry in the slot of a hash.
func (h *hot) put(hash uint64, e entry) {
	if slot := h.at(hash); slot.Load() != e.pointer() {
		slot.Store(e.pointer())
	}
}

// sample reports whether this lookup must go to ristretto even if the entry is hot.
func sample() bool { return rand.Uint32()%cacheEvery == 0 }
