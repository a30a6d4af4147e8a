// Package ratelimit limits requests with exact sliding windows: it admits a request if fewer than Limit requests were admitted in the
// Window before it. Rejected requests do not count. Memory counts within one process, Redis across all processes, and Limiter across all
// processes while Redis responds.
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

// The limits of the API, one per group of routes. Clients rely on them; the OpenAPI document states them.
var (
	Resolution   = Surface{Name: "resolution", Limit: 500, Window: time.Second}
	Match        = Surface{Name: "match", Limit: 30, Window: time.Minute}
	LinkReads    = Surface{Name: "link_reads", Limit: 1000, Window: time.Second}
	LinkWrites   = Surface{Name: "link_writes", Limit: 100, Window: time.Second}
	LinkBulk     = Surface{Name: "link_bulk", Limit: 10, Window: time.Second}
	SDKSession   = Surface{Name: "sdk_session", Limit: 60, Window: time.Minute}
	SDKEvents    = Surface{Name: "sdk_events", Limit: 600, Window: time.Minute}
	Portal       = Surface{Name: "portal", Limit: 30, Window: time.Second}
	Regeneration = Surface{Name: "regeneration", Limit: 10, Window: time.Hour}
)

// Key is a rate-limit key: an address (clientip.Key), or the id of an API key or an organization.
type Key = [16]byte

// RetryAfter returns the smallest whole number of seconds, at least 1, that is not shorter than wait.
func RetryAfter(wait time.Duration) int {
	return max(1, int((wait+time.Second-1)/time.Second))
}

// Message returns the message of the 429 response. Clients may parse it, so its text is fixed.
func Message(seconds int) string {
	return fmt.Sprintf("Rate limit exceeded. Retry after %d second(s).", seconds)
}
