//go:build !unix

package scenarios

import "time"

// processorTime is not available; a generator at its limit goes unnoticed.
func processorTime() time.Duration { return 0 }
