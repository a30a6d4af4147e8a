package devservers

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// process is one line of the kernel's process table.
type process struct {
	pid    int
	parent int
	name   string
}

// processes reads the process table, without processes that end meanwhile.
func processes() ([]process, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	var found []process
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		stat, err := os.ReadFile(filepath.Join("/proc", entry.Name(), "stat"))
		if err != nil {
			continue
		}
		p := process{pid: pid}
		if p.name, p.parent, err = parseStat(stat); err != nil {
			return nil, err
		}
		found = append(found, p)
	}
	return found, nil
}

// parseStat reads the name, which may contain spaces and brackets, and the parent from "pid (name) state parent …".
func parseStat(stat []byte) (name string, parent int, err error) {
	open, end := bytes.IndexByte(stat, '('), bytes.LastIndexByte(stat, ')')
	if open < 0 || end < open {
		return "", 0, fmt.Errorf("read a process: %q", stat)
	}
	fields := bytes.Fields(stat[end+1:])
	if len(fields) < 2 {
		return "", 0, fmt.Errorf("read a process: %q", stat)
	}
	parent, err = strconv.Atoi(string(fields[1]))
	return string(stat[open+1 : end]), parent, err
}

// runsOn reports whether the process works in a folder or has it in its arguments. Not every user may read the former; the latter is
// readable, but PostgreSQL's children overwrite theirs.
func (p process) runsOn(folder string) bool {
	proc := filepath.Join("/proc", strconv.Itoa(p.pid))
	if working, err := os.Readlink(filepath.Join(proc, "cwd")); err == nil && working == folder {
		return true
	}
	arguments, err := os.ReadFile(filepath.Join(proc, "cmdline"))
	return err == nil && slices.Contains(strings.Split(string(arguments), "\x00"), folder)
}

// childrenOf returns the processes whose parent is pid.
func childrenOf(pid int) ([]int, error) {
	all, err := processes()
	if err != nil {
		return nil, err
	}
	var children []int
	for _, p := range all {
		if p.parent == pid {
			children = append(children, p.pid)
		}
	}
	return children, nil
}
