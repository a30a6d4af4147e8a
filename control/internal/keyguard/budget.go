package keyguard

import (
	"sync"
	"time"
)

// maxBudgets is the maximum number of addresses in a generation. Two generations take about 4 MB.
const maxBudgets = 1 << 14

// budgets holds a token bucket per address. An address without an entry has a full bucket.
//
// The buckets are in two generations. A bucket that is used moves to the younger one. When that has maxBudgets buckets, or is older
// than the time to fill a bucket, it becomes the older one, and the former older one is dropped. So a flood of addresses can refill an
// attacker's bucket early; the total budget bounds the cost of that.
type budgets struct {
	size   float64
	refill time.Duration // for one token

	mu             sync.Mutex
	younger, older map[Address]bucket
	began          time.Time // of the younger generation
}

type bucket struct {
	tokens float64
	at     time.Time // when it had this many tokens
}

func newBudgets(size int, refill time.Duration) budgets {
	return budgets{size: float64(size), refill: refill, younger: make(map[Address]bucket)}
}

// take takes a token of the address, and reports whether there was one.
func (b *budgets) take(address Address, now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	tokens := b.tokens(address, now)
	if tokens < 1 {
		return false
	}
	b.set(address, tokens-1, now)
	return true
}

// giveBack returns a token that was taken.
func (b *budgets) giveBack(address Address, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.set(address, min(b.size, b.tokens(address, now)+1), now)
}

// tokens is called with mu held.
func (b *budgets) tokens(address Address, now time.Time) float64 {
	found, ok := b.younger[address]
	if !ok {
		if found, ok = b.older[address]; !ok {
			return b.size
		}
	}
	return min(b.size, found.tokens+float64(max(0, now.Sub(found.at)))/float64(b.refill))
}

// set is called with mu held.
func (b *budgets) set(address Address, tokens float64, now time.Time) {
	full := time.Duration(b.size) * b.refill
	if _, ok := b.younger[address]; !ok && len(b.younger) >= maxBudgets || now.Sub(b.began) > full {
		b.younger, b.older, b.began = make(map[Address]bucket), b.younger, now
	}
	b.younger[address] = bucket{tokens, now}
}
