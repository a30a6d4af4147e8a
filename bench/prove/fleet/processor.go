package fleet

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// ProcessorTimeOf returns the CPU time of a process in user and kernel mode, over all its threads.
func ProcessorTimeOf(pid int) (time.Duration, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	_, _, own, _, err := ParseStat(stat)
	return own, err
}

// ParseStat reads a line of the process table: "pid (name) state parent …", proc(5). own is the process's CPU time, ended that of its
// terminated children.
func ParseStat(stat []byte) (pid, parent string, own, ended time.Duration, err error) {
	const tick = 10 * time.Millisecond // USER_HZ is 100 on every architecture of Linux
	begin, end := bytes.IndexByte(stat, '('), bytes.LastIndexByte(stat, ')')
	fields := strings.Fields(string(stat[end+1:]))
	if begin < 1 || len(fields) < 15 {
		return "", "", 0, 0, fmt.Errorf("read a process: %q", stat)
	}
	var times [4]time.Duration
	for i := range times {
		ticks, err := strconv.ParseInt(fields[11+i], 10, 64)
		if err != nil {
			return "", "", 0, 0, fmt.Errorf("read a process: %q", stat)
		}
		times[i] = time.Duration(ticks) * tick
	}
	return string(bytes.TrimSpace(stat[:begin])), fields[1], times[0] + times[1], times[2] + times[3], nil
}
