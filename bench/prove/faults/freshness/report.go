package freshness

import (
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"deeplink/bench/prove/figures"
)

// report is the outcome of a run. It is complete once all workers have ended.
type report struct {
	fault string
	rows  []*row
}

// row is the outcome for one kind of change, written by several workers.
type row struct {
	name                        string
	left, asked, refused, reads atomic.Int64

	mu      sync.Mutex
	took    []time.Duration
	pending int
	stale   []string
}

func (r *row) add(took time.Duration, propagation string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.took = append(r.took, took)
	if propagation != "complete" {
		r.pending++
	}
}

func (r *row) addStale(what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stale = append(r.stale, what)
}

// stale returns the number of responses that showed the state before a completed change.
func (r *report) stale() (n int) {
	for _, row := range r.rows {
		n += len(row.stale)
	}
	return n
}

func (r *report) print(out io.Writer) {
	fmt.Fprintf(out, "fault: %s\n", r.fault)
	figures.WriteHeader(out, "change", "calls", "pending", "p50 ms", "p90 ms", "p99 ms", "reads", "reads right after a change", "refused", "stale")
	var stories []string
	for _, row := range r.rows {
		slices.Sort(row.took)
		figures.WriteRow(out, row.name, len(row.took), row.pending, figures.Percentile(row.took, 50), figures.Percentile(row.took, 90),
			figures.Percentile(row.took, 99), row.reads.Load(), row.asked.Load(), row.refused.Load(), len(row.stale))
		stories = append(stories, row.stale[:min(len(row.stale), 3)]...)
	}
	for _, story := range stories {
		fmt.Fprintln(out, "\n"+story)
	}
}
