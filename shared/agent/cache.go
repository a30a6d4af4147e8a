package agent

import (
	"hash/maphash"
	"math/rand/v2"
	"sync/atomic"
)

const (
	cacheSlots = 1 << 10
	// maxCachedLength bounds the User-Agents that are cached, in bytes: at most half a megabyte in total.
	maxCachedLength = 512
	// sampleRate: one in this many User-Agents that were not cached is stored. So frequent ones get in, and one that occurs once
	// rarely costs an allocation.
	sampleRate = 16
)

// Cache keeps the results of the most frequent User-Agents, one per slot: a few hundred User-Agents send nearly all clicks. Use [NewCache]
// to make one. It is safe for concurrent use.
//
// It earns its place: without it, a redirect from the edge's cache takes 1,157 ns instead of 988 in BenchmarkRedirectHit (the fastest of
// 60 interleaved runs each), 17 % more.
type Cache struct {
	seed  maphash.Seed
	slots [cacheSlots]atomic.Pointer[cached]
}

// cached is immutable.
type cached struct {
	userAgent string
	parsed    parsedAgent
}

func NewCache() *Cache { return &Cache{seed: maphash.MakeSeed()} }

// Parse returns the same as the function [Parse].
func (c *Cache) Parse(userAgent, platformHint []byte) Agent {
	return c.parse(userAgent).with(platformHint)
}

func (c *Cache) parse(userAgent []byte) parsedAgent {
	slot := &c.slots[maphash.Bytes(c.seed, userAgent)%cacheSlots]
	if hit := slot.Load(); hit != nil && hit.userAgent == string(userAgent) {
		return hit.parsed
	}
	parsed := parse(userAgent)
	if len(userAgent) <= maxCachedLength && rand.Uint32()%sampleRate == 0 {
		slot.Store(&cached{string(userAgent), parsed})
	}
	return parsed
}
