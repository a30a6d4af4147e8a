// Package ratelimit counts requests in sliding windows, exactly: a request is admitted when fewer than Limit were
// admitted in the Window before it, and a refused one does not count (decisions.md 8). Memory counts within one process,
// Redis over all processes, Limiter over all of them for as long as Redis answers.
package ratelimit

import (
	"fmt"
	"time"
)

// Surface is a group of routes that share a limit.
type Surface struct {
	Name   string        // part of the key in Redis and a metric label
	Limit  int           // requests per Window, at least 1
	Window time.Duration // whole microseconds
}

// The limits of interface.md 8, one per row, and of decisions.md 6.
var (
	Resolution   = Surface{Name: "resolution", Limit: 500, Window: time.Second}
	Match        = Surface{Name: "match", Limit: 30, Window: time.Minute}
	LinkReads    = Surface{Name: "link_reads", Limit: 1000, Window: time.Second}
	LinkWrites   = Surface{Name: "link_writes", Limit: 100, Window: time.Second}
	SDKSession   = Surface{Name: "sdk_session", Limit: 60, Window: time.Minute}
	SDKEvents    = Surface{Name: "sdk_events", Limit: 600, Window: time.Minute}
	Portal       = Surface{Name: "portal", Limit: 30, Window: time.Second}
	Regeneration = Surface{Name: "regeneration", Limit: 10, Window: time.Hour}
)

// Key is who is counted: an address (clientip.Key), the id of an API key or of an organization.
type Key = [16]byte

// RetryAfter returns the smallest whole number of seconds, at least 1, that is not shorter than wait.
func RetryAfter(wait time.Duration) int {
	return max(1, int((wait+time.Second-1)/time.Second))
}

// Message returns the message of the 429 response (interface.md 7).
func Message(seconds int) string {
	return fmt.Sprintf("Rate limit exceeded. Retry after %d second(s).", seconds)
}
