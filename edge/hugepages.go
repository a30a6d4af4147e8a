package main

import (
	"bytes"
	"fmt"
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
// memory then. So what the heap will take once the cache is full is taken at the start, while nobody waits for it.

const (
	// heapPiece is how much memory is asked for at a time.
	heapPiece = 64 << 20
	// takenPiece is how much is taken at a time. Whoever needs other memory of this process waits for so much.
	takenPiece = 4 << 20
)

// heapRoom is how much memory the heap may come to take: with garbage it is up to twice what lives in it.
func heapRoom(cacheBytes int64) int64 { return 2*cacheBytes + 128<<20 }

// heapMemory is memory that the heap will grow into: where its pieces begin, in the order in which the heap takes them.
type heapMemory []uintptr

// reserveHugePages asks for large pages for size bytes that the heap will grow into. None of them is there before it is touched or taken.
// It must be called once, by the program, before there is anything in the heap. It returns nothing where the system gives none.
func reserveHugePages(size int64) heapMemory {
	if !hugePagesAllowed() || !mayReserve() {
		return nil
	}
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(math.MaxInt64))
	pieces := make([][]byte, size/heapPiece+1)
	begins := make(heapMemory, len(pieces))
	for i := range pieces {
		pieces[i] = make([]byte, heapPiece)
		begins[i] = uintptr(unsafe.Pointer(unsafe.SliceData(pieces[i])))
		advise(begins[i], heapPiece, adviseHugePage)
	}
	runtime.KeepAlive(pieces)
	// From here on they are the heap's, which takes the lowest free place each time, and believes that nothing is there yet.
	debug.FreeOSMemory()
	slices.Sort(begins)
	return begins
}

// take has the first size bytes there, whatever the heap makes of them meanwhile. It takes some 100 ms for 640 MiB, or two seconds where
// the host of a virtual machine has to find them.
func (m heapMemory) take(size int64) {
	for _, begin := range m {
		for end := begin + heapPiece; begin < end && size > 0; begin += takenPiece {
			advise(begin, min(size, takenPiece), advisePopulateWrite)
			size -= takenPiece
		}
	}
}

// maxReady is how much memory is taken before it is needed at most: the room of EDGE_CACHE_BYTES as it is by default.
const maxReady = 640 << 20

// readyMemory is how much of the heap's room is taken before it is needed, and for garbage to gather in: a process that was given less
// than it asks for shall not end before it begins.
func readyMemory(room, limit int64) int64 { return min(room, maxReady, limit/2) }

// memoryLimit is the least of GOMEMLIMIT, what a container may have (cgroup v2, memory.max) and what the machine has to give.
func memoryLimit() int64 {
	limit := debug.SetMemoryLimit(-1)
	if text, err := os.ReadFile("/sys/fs/cgroup/memory.max"); err == nil {
		limit = min(limit, containerLimit(string(text)))
	}
	if text, err := os.ReadFile("/proc/meminfo"); err == nil {
		limit = min(limit, available(string(text)))
	}
	return limit
}

// containerLimit reads memory.max, which says max when there is none.
func containerLimit(text string) int64 {
	limit, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	if err != nil {
		return math.MaxInt64
	}
	return limit
}

// available reads meminfo (proc_meminfo(5)): how much may be taken without that others have to give some of theirs.
func available(text string) int64 {
	for line := range strings.Lines(text) {
		var kib int64
		if _, err := fmt.Sscanf(line, "MemAvailable: %d kB", &kib); err == nil {
			return kib << 10
		}
	}
	return math.MaxInt64
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
