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
	const room = 128 << 20
	usual := collectionsOf(room)
	stop := collectLate(room)
	goal := []metrics.Sample{{Name: "/gc/heap/goal:bytes"}}
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		if metrics.Read(goal); goal[0].Value.Uint64() > room*9/10 && goal[0].Value.Uint64() < room*11/10 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("the heap may grow to %d MiB, expected %d", goal[0].Value.Uint64()>>20, room>>20)
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
	cycles := []metrics.Sample{{Name: "/gc/cycles/total:gc-cycles"}}
	metrics.Read(cycles)
	before := cycles[0].Value.Uint64()
	for range bytes >> 16 {
		garbage = make([]byte, 1<<16)
	}
	garbage = nil
	metrics.Read(cycles)
	return cycles[0].Value.Uint64() - before
}
