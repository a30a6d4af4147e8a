package figures

import (
	"fmt"
	"time"
)

// Milliseconds formats a duration in milliseconds.
func Milliseconds(d time.Duration) string { return fmt.Sprintf("%.1f ms", InMilliseconds(d)) }

// Percentile returns the p-th percentile of ascending durations.
func Percentile(ascending []time.Duration, p int) time.Duration {
	if len(ascending) == 0 {
		return 0
	}
	return ascending[min(len(ascending)*p/100, len(ascending)-1)]
}

// InMilliseconds converts a duration to a number of milliseconds.
func InMilliseconds(span time.Duration) float64 { return span.Seconds() * 1000 }
