package fleet

import (
	"context"
	"math/rand/v2"
	"time"
)

// Pause waits for that long and reports whether ctx is still alive.
func Pause(ctx context.Context, span time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(span):
		return true
	}
}

// Between returns a random duration of at least low and less than high.
func Between(random *rand.Rand, low, high time.Duration) time.Duration {
	return low + time.Duration(random.Int64N(int64(high-low)))
}
