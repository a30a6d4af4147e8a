package catalog

import (
	"math"
	"time"
)

// NoExpiry stands for a link without an expiry. 0 is a valid time.
const NoExpiry = math.MinInt64

// Verdict is the state of a link, which decides how an edge responds.
type Verdict uint8

// The verdicts. Judge checks Suspended first, then Inactive, then Expired.
const (
	Resolves  Verdict = 1
	Suspended Verdict = 2
	Inactive  Verdict = 3
	Expired   Verdict = 4
)

// Judge returns the verdict of a link that exists. expiry is in milliseconds since 1970, or NoExpiry; a link has expired
// from that millisecond on.
func Judge(suspended, active bool, expiry int64, now time.Time) Verdict {
	switch {
	case suspended:
		return Suspended
	case !active:
		return Inactive
	case expiry != NoExpiry && now.UnixMilli() >= expiry:
		return Expired
	}
	return Resolves
}
