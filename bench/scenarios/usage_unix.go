//go:build unix

package scenarios

import (
	"syscall"
	"time"
)

// processorTime returns the CPU time that this process has used on all cores.
func processorTime() time.Duration {
	var usage syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &usage) // never fails with these arguments
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
