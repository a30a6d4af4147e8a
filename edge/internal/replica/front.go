package replica

import (
	"math/bits"
	"math/rand/v2"
	"sync/atomic"
	"unsafe"

	"deeplink/edge/internal/prefetch"
)

const (
	// bucketPlaces places fill one cache line of 64 bytes.
	bucketPlaces = 4
	// frontShare: the front index takes one part in frontShare of the memory of the cache. A place takes 16 bytes and an entry about 600
	// with all overhead, so there is about one place per entry.
	frontShare = 32
	// cacheEvery: one in cacheEvery lookups, chosen at random, may displace an entry from the index. When the cache is nearly full, these
	// lookups go to ristretto even if the index has the entry: from them ristretto learns which keys are popular.
	cacheEvery = 16
)

// front is an index over the entries of a ristretto cache: a table of hashes and pointers, four of them in each cache line. A lookup that
// finds its entry here touches one cache line before the entry itself. A ristretto lookup takes a lock, a map access and a record of
// the access, which touch about a dozen. ristretto stays the cache: it decides what is kept, and front forgets what ristretto drops. Like
// ristretto, front only stores entries: their stamps decide whether they may be served.
type front struct {
	buckets []bucket
	shift   int // of a hash, to the number of its bucket
}

type bucket [bucketPlaces]place

// place holds one entry. Its two words are not written together, so a reader can see the hash of one entry with the pointer of another:
// the hash only saves reading entries of other keys, and every reader compares the name.
type place struct {
	hash  atomic.Uint64
	first atomic.Pointer[byte]
}

// newFront returns an index for a cache of this many bytes, which takes at most the frontShare-th part of it.
func newFront(cacheBytes int64) *front {
	buckets := max(2, uint64(cacheBytes)/frontShare/uint64(unsafe.Sizeof(bucket{})))
	power := bits.Len64(buckets) - 1 // rounded down to a power of two
	return &front{buckets: make([]bucket, 1<<power), shift: 64 - power}
}

func (f *front) bucket(hash uint64) *bucket { return &f.buckets[hash>>f.shift] }

// prefetch starts to read the bucket of a hash.
func (f *front) prefetch(hash uint64) { prefetch.Line(uintptr(unsafe.Pointer(f.bucket(hash)))) }

// get returns an entry with this hash, or nil. The entry may belong to another key.
func (f *front) get(hash uint64) entry {
	b := f.bucket(hash)
	for i := range b {
		if b[i].hash.Load() == hash {
			first := b[i].first.Load()
			// What follows the first cache line is read a moment later, in order: most redirects end within three lines.
			prefetch.Line(uintptr(unsafe.Pointer(first)) + 64)
			prefetch.Line(uintptr(unsafe.Pointer(first)) + 128)
			return entryAt(first)
		}
	}
	return nil
}

// put adds an entry, or replaces the one with the same hash, and reports whether the index did not have this entry yet. If the bucket is
// full, displace says whether the entry takes the place of another one.
func (f *front) put(hash uint64, e entry, displace bool) (added bool) {
	b := f.bucket(hash)
	var at *place
	for i := range b {
		if b[i].hash.Load() == hash {
			at = &b[i]
			break
		}
		if at == nil && b[i].first.Load() == nil {
			at = &b[i]
		}
	}
	if at == nil {
		if !displace {
			return false
		}
		at = &b[rand.Uint32()%bucketPlaces]
	}
	if at.first.Load() == e.pointer() {
		return false
	}
	at.first.Store(e.pointer())
	at.hash.Store(hash)
	return true
}

// drop removes an entry, so that its memory can be reused.
func (f *front) drop(hash uint64, e entry) {
	b := f.bucket(hash)
	for i := range b {
		b[i].first.CompareAndSwap(e.pointer(), nil)
	}
}

// sample reports whether this lookup is one of those.
func sample() bool { return rand.Uint32()%cacheEvery == 0 }
