//go:build !unix

package scenarios

import "time"

// processorTime is not available, so a generator at its limit is not detected.
func processorTime() time.Duration { return 0 }
