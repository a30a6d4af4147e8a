package main

import (
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// freshnessReport is the outcome of a run. It is complete once all workers have ended.
type freshnessReport struct {
	fault string
	rows  []*freshnessRow
}

// freshnessRow is the outcome for one kind of change, written by several workers.
type freshnessRow struct {
	name                        string
	left, asked, refused, reads atomic.Int64

	mu      sync.Mutex
	took    []time.Duration
	pending int
	stale   []string
}

func (r *freshnessRow) add(took time.Duration, propagation string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.took = append(r.took, took)
	if propagation != "complete" {
		r.pending++
	}
}

func (r *freshnessRow) addStale(what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stale = append(r.stale, what)
}

// stale is how many answers were from before a change that had been answered.
func (r *freshnessReport) stale() (n int) {
	for _, row := range r.rows {
		n += len(row.stale)
	}
	return n
}

func (r *freshnessReport) print(out io.Writer) {
	fmt.Fprintf(out, "fault: %s\n", r.fault)
	fmt.Fprintf(out, "%-12s %8s %8s %8s %8s %8s %8s %8s %8s %8s\n", "change", "calls", "pending", "p50 ms", "p90 ms", "p99 ms", "reads", "asked", "refused", "stale")
	for _, row := range r.rows {
		slices.Sort(row.took)
		fmt.Fprintf(out, "%-12s %8d %8d %8.1f %8.1f %8.1f %8d %8d %8d %8d\n", row.name, len(row.took), row.pending,
			inMilliseconds(percentile(row.took, 50)), inMilliseconds(percentile(row.took, 90)), inMilliseconds(percentile(row.took, 99)),
			row.reads.Load(), row.asked.Load(), row.refused.Load(), len(row.stale))
		for _, what := range row.stale[:min(len(row.stale), 3)] {
			fmt.Fprintln(out, "  ", what)
		}
	}
}

// percentile returns the p-th percentile of ascending spans.
func percentile(ascending []time.Duration, p int) time.Duration {
	if len(ascending) == 0 {
		return 0
	}
	return ascending[min(len(ascending)*p/100, len(ascending)-1)]
}

func inMilliseconds(span time.Duration) float64 { return span.Seconds() * 1000 }
