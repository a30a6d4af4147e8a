package load

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Pin restricts all threads of this process to some cores, and sets GOMAXPROCS to their number. cores are numbers from 0, such as "1" or
// "0,2-3".
func Pin(cores string) error {
	set, err := parseCores(cores)
	if err != nil {
		return err
	}
	runtime.GOMAXPROCS(set.Count())
	// A new thread inherits the cores of its creator, so the work is complete once a pass finds no new thread.
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
