package catalog

import (
	"math"
	"time"
)

// NoExpiry is the expiry of a link that has none; 0 is a time.
const NoExpiry = math.MinInt64

// Verdict says what a short URL of a known organization answers.
type Verdict uint8

// The verdicts, in the order in which they are judged (decisions.md 3).
const (
	Resolves  Verdict = 1
	Suspended Verdict = 2
	Inactive  Verdict = 3
	Expired   Verdict = 4
)

// Judge returns the verdict over a link that exists. expiry is in milliseconds since 1970, or NoExpiry; a link has expired
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
