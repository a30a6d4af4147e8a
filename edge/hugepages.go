package main

import (
	"bufio"
	"bytes"
	"context"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// A click reads a dozen places of a memory of gigabytes. In pages of 4 KiB most of them cost a walk through the page table, which took
// a tenth of all the time there is; in pages of 2 MiB nearly none does. Go asks for large pages for none of its heap, and where the
// system does not give them to everybody (transparent_hugepage/enabled is madvise) it has to be asked.
const (
	hugePage       = 2 << 20
	hugePagesEvery = time.Second
)

// Advice of madvise(2).
const (
	adviseHugePage = 14
	adviseCollapse = 25 // Linux 6.1: what is there already, at once. Before that the kernel gets around to it.
)

// keepHugePages asks for large pages for the memory of this process whenever it has grown, until ctx ends.
func keepHugePages(ctx context.Context) {
	if !hugePagesAllowed() {
		return
	}
	tick := time.NewTicker(hugePagesEvery)
	defer tick.Stop()
	var asked uintptr
	for {
		asked = askForHugePages(asked)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// hugePagesAllowed reports whether the system gives them to who asks.
func hugePagesAllowed() bool {
	enabled, err := os.ReadFile("/sys/kernel/mm/transparent_hugepage/enabled")
	return err == nil && !bytes.Contains(enabled, []byte("[never]"))
}

// askForHugePages asks for them unless there is exactly as much memory as the last time, and returns how much there is.
func askForHugePages(asked uintptr) (present uintptr) {
	regions := ownMemory()
	for _, r := range regions {
		present += r.end - r.begin
	}
	if present == asked {
		return asked
	}
	for _, r := range regions {
		r.advise(adviseHugePage)
		// Page by page: one that can't be a large one, such as one of which nothing is there yet, would end it for all behind it.
		for begin := (r.begin + hugePage - 1) &^ (hugePage - 1); begin+hugePage <= r.end; begin += hugePage {
			region{begin, begin + hugePage}.advise(adviseCollapse)
		}
	}
	return present
}

// advise advises the kernel. Whatever comes of it, the memory is what it was.
func (r region) advise(advice uintptr) {
	_, _, _ = syscall.Syscall(syscall.SYS_MADVISE, r.begin, r.end-r.begin, advice)
}

// region is a range of addresses.
type region struct{ begin, end uintptr }

// ownMemory lists what this process can write to and has to itself, in pieces that hold a large page (proc_pid_maps(5)).
func ownMemory() (regions []region) {
	maps, err := os.Open("/proc/self/maps")
	if err != nil {
		return nil
	}
	defer maps.Close()
	for lines := bufio.NewScanner(maps); lines.Scan(); {
		if r, ok := parseRegion(lines.Text()); ok {
			regions = append(regions, r)
		}
	}
	return regions
}

// parseRegion reads a line such as "c000000000-c004000000 rw-p 00000000 00:00 0   [anon: Go: heap]".
func parseRegion(line string) (r region, ok bool) {
	fields := strings.Fields(line)
	if len(fields) < 5 || fields[1] != "rw-p" || fields[4] != "0" {
		return r, false
	}
	from, to, _ := strings.Cut(fields[0], "-")
	begin, err := strconv.ParseUint(from, 16, 64)
	if err != nil {
		return r, false
	}
	end, err := strconv.ParseUint(to, 16, 64)
	return region{uintptr(begin), uintptr(end)}, err == nil && end-begin >= hugePage
}
