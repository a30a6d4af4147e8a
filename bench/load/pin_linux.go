package load

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Pin keeps all threads of this process on some cores, and runs as many of them at a time. cores are numbers from 0, such as "1" or
// "0,2-3".
func Pin(cores string) error {
	set, err := parseCores(cores)
	if err != nil {
		return err
	}
	runtime.GOMAXPROCS(set.Count())
	// A thread starts on the cores of the one that made it, so once a pass finds nothing new all are there.
	pinned := map[int]bool{}
	for found := true; found; {
		found = false
		threads, err := os.ReadDir("/proc/self/task")
		if err != nil {
			return fmt.Errorf("pin: %w", err)
		}
		for _, thread := range threads {
			id, err := strconv.Atoi(thread.Name())
			if err != nil || pinned[id] {
				continue
			}
			if err := unix.SchedSetaffinity(id, &set); err != nil && err != unix.ESRCH {
				return fmt.Errorf("pin to cores %s: %w", cores, err)
			}
			pinned[id], found = true, true
		}
	}
	return nil
}

func parseCores(text string) (set unix.CPUSet, err error) {
	for part := range strings.SplitSeq(text, ",") {
		first, last, isRange := strings.Cut(part, "-")
		if !isRange {
			last = first
		}
		low, err := strconv.ParseUint(first, 10, 10)
		if err != nil {
			return set, fmt.Errorf("%q is no list of cores such as 0,2-3", text)
		}
		high, err := strconv.ParseUint(last, 10, 10)
		if err != nil || high < low {
			return set, fmt.Errorf("%q is no list of cores such as 0,2-3", text)
		}
		for core := low; core <= high; core++ {
			set.Set(int(core))
		}
	}
	return set, nil
}
