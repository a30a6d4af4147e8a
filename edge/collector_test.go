package main

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"testing"
	"time"
)

func TestHeapGrowsToItsRoomBeforeItIsCollected(t *testing.T) {
	const mib = 1 << 20
	for _, row := range []struct {
		live, roots, room int64
		percent           int
	}{
		{64 * mib, 0, 640 * mib, 900}, // up to 640 MiB
		{64 * mib, 32 * mib, 640 * mib, 600},
		{256 * mib, 0, 640 * mib, 150},
		{320 * mib, 0, 640 * mib, 100},
		{600 * mib, 0, 640 * mib, 100}, // as Go does it
		{900 * mib, 0, 640 * mib, 100},
		{mib, 0, 640 * mib, 16000},
		{0, 0, 640 * mib, 16000},
	} {
		if percent := gcPercent(row.live, row.roots, row.room); percent != row.percent {
			t.Errorf("%d MiB of %d live: %d %%, expected %d", row.live/mib, row.room/mib, percent, row.percent)
		}
	}
}

// TestCollectionsAreRareWhileLittleLives makes the same garbage with and without.
func TestCollectionsAreRareWhileLittleLives(t *testing.T) {
	if _, set := os.LookupEnv("GOGC"); set {
		t.Skip("GOGC is set, and stays what it is")
	}
	runtime.GC()
	// Other tests leave something behind, and where half of the room lives there is nothing to wait for.
	room := 128<<20 + 8*int(read("/gc/heap/live:bytes"))
	usual := collectionsOf(room)
	runtime.GC() // garbage made during a collection counts as living until the next
	stop := collectLate(int64(room))
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		goal := int(read("/gc/heap/goal:bytes"))
		if goal > room/10*9 && goal < room/10*11 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("the heap may grow to %d MiB, expected %d", goal>>20, room>>20)
		}
	}
	late := collectionsOf(room)
	stop()
	if after := debug.SetGCPercent(defaultGCPercent); after != defaultGCPercent {
		t.Errorf("afterwards the heap may grow by %d %%, expected %d", after, defaultGCPercent)
	}
	if late > 2 || usual <= late {
		t.Errorf("%d collections for %d MiB of garbage, %d without collectLate", late, room>>20, usual)
	}
}

var garbage []byte

// collectionsOf counts the collections while so many bytes become garbage.
func collectionsOf(bytes int) uint64 {
	runtime.GC()
	before := read("/gc/cycles/total:gc-cycles")
	for range bytes >> 10 {
		garbage = make([]byte, 1<<10) // small: of large blocks so many are made while it collects that it does not collect again
	}
	garbage = nil
	return read("/gc/cycles/total:gc-cycles") - before
}

func read(metric string) uint64 {
	sample := []metrics.Sample{{Name: metric}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}
