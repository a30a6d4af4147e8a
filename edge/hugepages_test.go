package main

import (
	"bufio"
	"fmt"
	"math"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
)

func TestHeapGrowsIntoHugePages(t *testing.T) {
	if !hugePagesAllowed() || !mayReserve() {
		t.Skip("this system gives nobody large pages")
	}
	// Memory that other tests used and gave back would be used again, and is in no large pages.
	if alone := "DEEPLINK_TEST_ALONE"; os.Getenv(alone) == "" {
		again := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.count=1")
		again.Env = append(os.Environ(), alone+"=yes")
		if out, err := again.CombinedOutput(); err != nil {
			t.Errorf("in a process of its own: %v\n%s", err, out)
		}
		return
	}
	before := memory(t)
	reserveHugePages(512 << 20).take(80 << 20)
	reserved := memory(t)
	if taken := reserved.resident - before.resident; taken < 72<<20 || taken > 112<<20 {
		t.Errorf("to reserve memory took %d bytes of it, expected 80 MiB", taken)
	}
	heap := make([]*[4096]byte, 32<<10) // as a cache fills: in small pieces, 128 MiB
	for i := range heap {
		heap[i] = new([4096]byte)
		heap[i][0] = 1
	}
	grown := memory(t)
	if gained := grown.huge - before.huge; gained < 96<<20 {
		t.Errorf("%d bytes of a heap that grew by 128 MiB came to be in large pages", gained)
	}
	if taken := grown.huge - reserved.huge; taken > 80<<20 {
		t.Errorf("the heap grew by 128 MiB, and took %d bytes in large pages beside the 80 MiB that were ready", taken)
	}
	runtime.KeepAlive(heap)
}

func TestLittleMemoryIsReadyWhereThereIsLittle(t *testing.T) {
	const mib = 1 << 20
	for _, row := range []struct {
		cache    int64 // EDGE_CACHE_BYTES
		limit    string
		expected int64
	}{
		{256 * mib, "max\n", 640 * mib}, // what it takes when it is full, with garbage
		{4096 * mib, "max\n", maxReady},
		{mib, "max\n", 130 * mib},
		{256 * mib, "134217728\n", 64 * mib}, // 128 MiB
		{256 * mib, "1073741824\n", 512 * mib},
	} {
		if ready := readyMemory(heapRoom(row.cache), containerLimit(row.limit)); ready != row.expected {
			t.Errorf("%d bytes of links and a limit of %q: %d bytes are ready, expected %d", row.cache, row.limit, ready, row.expected)
		}
	}
}

func TestAvailableMemoryIsRead(t *testing.T) {
	if read := available("MemTotal:       24580548 kB\nMemFree:        20003140 kB\nMemAvailable:   23001776 kB\n"); read != 23001776<<10 {
		t.Errorf("%d bytes are available, expected 23001776 KiB", read)
	}
	if text, err := os.ReadFile("/proc/meminfo"); err == nil && available(string(text)) == math.MaxInt64 {
		t.Error("nothing was found in this system's meminfo")
	}
}

// inPages is how many bytes of a process are there, and in large pages.
type inPages struct{ resident, huge int }

func memory(t *testing.T) (m inPages) {
	t.Helper()
	file, err := os.Open("/proc/self/smaps_rollup")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		for name, to := range map[string]*int{"Rss:": &m.resident, "AnonHugePages:": &m.huge} {
			text, found := strings.CutPrefix(lines.Text(), name)
			if !found {
				continue
			}
			if _, err := fmt.Sscanf(text, "%d kB", to); err != nil {
				t.Fatal(err)
			}
			*to <<= 10
		}
	}
	return m
}
