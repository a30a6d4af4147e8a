package main

import (
	"context"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// Clicks wait for the processors while garbage is collected. Go collects when the heap has doubled, which is often while few links are in
// memory and many unknown codes are looked up. Here the heap may first grow into the memory that was taken at the start.

const (
	// defaultGCPercent is Go's own: the heap may double.
	defaultGCPercent = 100
	// collectorCheck is how often what lives is looked at. For so long after a collection the heap may grow by what was right before it.
	collectorCheck = 100 * time.Millisecond
	// goMinimum is the least heap for which Go collects (heapMinimum in runtime/mgcpacer.go).
	goMinimum = 4 << 20
)

// collectLate lets the heap grow to room before garbage is collected, until stop is called. An operator's GOGC stays what it is, and
// GOMEMLIMIT is kept in any case. It is for the program to call, once: all of the process has one collector.
func collectLate(room int64) (stop func()) {
	if _, set := os.LookupEnv("GOGC"); set {
		return func() {}
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		pace(ctx, room)
	}()
	return func() {
		cancel()
		<-done
	}
}

// pace sets after each collection how far the heap may grow until the next.
func pace(ctx context.Context, room int64) {
	defer debug.SetGCPercent(debug.SetGCPercent(defaultGCPercent))
	check := time.NewTicker(collectorCheck)
	defer check.Stop()
	now := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/scan/stack:bytes"}, {Name: "/gc/scan/globals:bytes"}}
	for percent := defaultGCPercent; ; {
		metrics.Read(now)
		live, roots := now[0].Value.Uint64(), now[1].Value.Uint64()+now[2].Value.Uint64()
		if next := gcPercent(int64(live), int64(roots), room); next != percent {
			percent = next
			debug.SetGCPercent(percent)
		}
		select {
		case <-ctx.Done():
			return
		case <-check.C:
		}
	}
}

// gcPercent is by how much of what lives in the heap and of its roots, in percent, the heap may grow until the next collection. Go lets
// it grow to so many percent of goMinimum in any case.
func gcPercent(live, roots, room int64) int {
	most := 100 * room / goMinimum
	return int(max(defaultGCPercent, min(100*(room-live)/max(live+roots, 1), most)))
}
