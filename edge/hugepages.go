package main

import (
	"bytes"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"unsafe"
)

// A click reads a dozen places of a memory of gigabytes. In pages of 4 KiB most of them cost a walk through the page table, which took
// a tenth of all the time there is; in pages of 2 MiB nearly none does. Go asks for large pages for none of its heap, and where the
// system does not give them to everybody (transparent_hugepage/enabled is madvise) it has to be asked. It has to be asked early: what is
// touched then is large from the begin, as long as the system has large pages to give without much ado. To make them of small ones later
// stops whoever needs that memory for milliseconds each. So does the first touch of one in a virtual machine, whose host has to find the
// memory then: what the heap needs first is there before the first click.

// heapPiece is how much memory is asked for at a time.
const heapPiece = 64 << 20

// reserveHugePages asks for large pages for the memory that the heap will grow into: size bytes. It takes the first of them, ready bytes;
// no other is there before it is touched. It must be called once, by the program, before there is anything in the heap.
func reserveHugePages(size, ready int64) {
	if !hugePagesAllowed() || !mayReserve() {
		return
	}
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(math.MaxInt64))
	pieces := make([][]byte, size/heapPiece+1)
	begins := make([]uintptr, len(pieces))
	for i := range pieces {
		pieces[i] = make([]byte, heapPiece)
		begins[i] = uintptr(unsafe.Pointer(unsafe.SliceData(pieces[i])))
		advise(begins[i], heapPiece, adviseHugePage)
	}
	runtime.KeepAlive(pieces)
	// From here on they are the heap's, which takes the lowest free place each time, and believes that nothing is there yet.
	debug.FreeOSMemory()
	slices.Sort(begins)
	for _, begin := range begins {
		advise(begin, max(0, min(ready, heapPiece)), advisePopulateWrite)
		ready -= heapPiece
	}
}

// maxReady is how much memory is there before the first click at most. It takes 40 ms to have it all, or a second where the host of a
// virtual machine has to find it.
const maxReady = 256 << 20

// readyMemory is how much memory is to be there before the first click, and for garbage to gather in: a process that was given less
// than it asks for shall not end before it begins.
func readyMemory(cacheBytes, limit int64) int64 { return min(cacheBytes, maxReady, limit/4) }

// memoryLimit is the least of GOMEMLIMIT and what a container may have (cgroup v2, memory.max).
func memoryLimit() int64 {
	limit := debug.SetMemoryLimit(-1)
	text, err := os.ReadFile("/sys/fs/cgroup/memory.max")
	if err != nil {
		return limit
	}
	return min(limit, containerLimit(string(text)))
}

// containerLimit reads memory.max, which says max when there is none.
func containerLimit(text string) int64 {
	limit, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	if err != nil {
		return math.MaxInt64
	}
	return limit
}

// Advices of madvise(2).
const (
	adviseHugePage      = 14
	advisePopulateWrite = 23 // since Linux 5.14
)

// advise tells the system what to do with memory. Whatever it makes of it, the memory is what it was.
func advise(begin uintptr, length int64, advice uintptr) {
	_, _, _ = syscall.Syscall(syscall.SYS_MADVISE, begin, uintptr(length), advice)
}

// hugePagesAllowed reports whether the system gives them to who asks.
func hugePagesAllowed() bool {
	enabled, err := os.ReadFile("/sys/kernel/mm/transparent_hugepage/enabled")
	return err == nil && !bytes.Contains(enabled, []byte("[never]"))
}

// mayReserve reports whether the system lets a process have more memory than it will use. Where it does not, Go ends when it is refused
// some (proc_sys_vm(5), setrlimit(2)).
func mayReserve() bool {
	overcommit, err := os.ReadFile("/proc/sys/vm/overcommit_memory")
	if err != nil || strings.TrimSpace(string(overcommit)) == "2" {
		return false
	}
	for _, limit := range []int{syscall.RLIMIT_AS, syscall.RLIMIT_DATA} {
		var of syscall.Rlimit
		if syscall.Getrlimit(limit, &of) != nil || of.Cur != math.MaxUint64 {
			return false
		}
	}
	return true
}
