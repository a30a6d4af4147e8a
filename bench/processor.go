package main

import (
	"fmt"
	"os"
	"time"
)

// processorTimeOf is how long a process has been computing, in user and in kernel mode, all its threads together.
func processorTimeOf(pid int) (time.Duration, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	_, _, own, _, err := parseStat(stat)
	return own, err
}
