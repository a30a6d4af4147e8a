package fleet

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// ProcessorTimeOf returns the CPU time of a process in user and kernel mode, over its present threads, in nanoseconds (schedstat in
// proc(5)): /proc/pid/stat counts in steps of 10 ms, which is a hundredth of a short turn.
func ProcessorTimeOf(pid int) (time.Duration, error) {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil || len(threads) == 0 {
		return 0, fmt.Errorf("read the threads of process %d: %w", pid, errors.Join(err, os.ErrNotExist))
	}
	var sum time.Duration
	for _, thread := range threads {
		text, err := os.ReadFile(thread)
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
			continue // the thread has ended
		}
		if err != nil {
			return 0, err
		}
		onCPU, _, _ := strings.Cut(string(text), " ")
		ns, err := strconv.ParseInt(onCPU, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("read %s: %w", thread, err)
		}
		sum += time.Duration(ns)
	}
	return sum, nil
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
