package main

import (
	"bufio"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
)

func TestMemoryIsInHugePages(t *testing.T) {
	if !hugePagesAllowed() {
		t.Skip("this system gives nobody large pages")
	}
	before := hugeBytes(t)
	memory := make([]byte, 64<<20)
	for i := 0; i < len(memory); i += 4096 {
		memory[i] = 1
	}
	present := askForHugePages(0)
	if gained := hugeBytes(t) - before; gained < len(memory)/2 {
		t.Errorf("%d of %d bytes came to be in large pages", gained, len(memory))
	}
	if again := askForHugePages(present); again != present {
		t.Logf("%d bytes, then %d: something else has grown", present, again)
	}
	runtime.KeepAlive(memory)
}

// hugeBytes is how much of this process is in large pages.
func hugeBytes(t *testing.T) (total int) {
	t.Helper()
	file, err := os.Open("/proc/self/smaps_rollup")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if text, ok := strings.CutPrefix(lines.Text(), "AnonHugePages:"); ok {
			if _, err := fmt.Sscanf(text, "%d kB", &total); err != nil {
				t.Fatal(err)
			}
		}
	}
	return total << 10
}

func TestOnlyOwnMemoryIsAdvised(t *testing.T) {
	for line, expected := range map[string]bool{
		"c000000000-c004000000 rw-p 00000000 00:00 0                              [anon: Go: heap]": true,
		"7f0000000000-7f0000200000 rw-p 00000000 00:00 0":                                           true,
		"7f0000000000-7f00001ff000 rw-p 00000000 00:00 0":                                           false, // holds no large page
		"c004000000-c008000000 ---p 00000000 00:00 0":                                               false, // nothing is there yet
		"7f0000000000-7f0010000000 rw-s 00000000 00:01 77 /memfd:shared":                            false,
		"00400000-00c00000 r-xp 00000000 fe:00 12345 /usr/bin/edge":                                 false,
		"00c00000-01c00000 rw-p 00800000 fe:00 12345 /usr/bin/edge":                                 false,
		"": false,
	} {
		if _, got := parseRegion(line); got != expected {
			t.Errorf("%q: %t, expected %t", line, got, expected)
		}
	}
}
