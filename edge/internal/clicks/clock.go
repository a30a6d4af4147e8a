package clicks

import (
	"sync/atomic"
	"time"
)

// clock is the click clock: the machine's monotonic clock, set from Postgres's clock. Its times are in milliseconds since 1970.
type clock struct {
	start  time.Time    // has a monotonic reading
	offset atomic.Int64 // nanoseconds since 1970 at start
	seal   atomic.Int64 // no later record has an earlier time
}

func (c *clock) init(now time.Time) {
	c.start = now
	c.offset.Store(now.UnixNano())
}

// at returns the time of a reading of the machine's clock.
func (c *clock) at(now time.Time) int64 {
	return (c.offset.Load() + int64(now.Sub(c.start))) / int64(time.Millisecond)
}

// set sets the clock: reading is the machine's clock when Postgres's clock was not earlier than database. The difference is less than
// the duration of one query.
func (c *clock) set(database, reading time.Time) {
	c.offset.Store(database.UnixNano() - int64(reading.Sub(c.start)))
}

// raise moves the seal forward to at and returns the seal.
func (c *clock) raise(at int64) int64 {
	for {
		seal := c.seal.Load()
		if seal >= at {
			return seal
		}
		if c.seal.CompareAndSwap(seal, at) {
			return at
		}
	}
}
