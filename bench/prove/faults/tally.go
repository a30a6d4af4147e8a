package faults

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"deeplink/bench/prove/faults/history"
)

// row counts what happened while one fault was active.
type row struct {
	name                    string
	times                   atomic.Int64 // how often the fault was injected
	reads                   atomic.Int64 // reads that showed a state
	unavailable             atomic.Int64 // reads with status 503
	unconnected, unanswered atomic.Int64 // reads without a connection, or whose connection broke or timed out
	failed                  atomic.Int64 // reads with any other error: there should be none
	revocations             atomic.Int64

	mu                                          sync.Mutex
	complete, pending, byHand, unknown, refused int
	took                                        []time.Duration // of changes with a response
}

func (r *row) answered(outcome history.Outcome, took time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch outcome {
	case history.Complete:
		r.complete++
	case history.Pending:
		r.pending++
	case history.ByHand:
		r.byHand++
		return // its duration does not depend on control
	case history.Unknown:
		r.unknown++
		return
	default:
		r.refused++
		return
	}
	r.took = append(r.took, took)
}

// tally holds the rows of a run: one for everything, one for the times between faults (in which their effects still fade), and one per
// fault. A change counts under every fault that was active at its request or at its response, a read under those at its end.
type tally struct {
	all, calm *row
	mu        sync.Mutex
	faults    []*row
	present   atomic.Pointer[[]*row]
}

func newTally() *tally {
	t := &tally{all: &row{name: "all"}, calm: &row{name: "between faults"}}
	t.set(nil)
	return t
}

// fault returns the row of a fault.
func (t *tally) fault(name string) *row {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, r := range t.faults {
		if r.name == name {
			return r
		}
	}
	r := &row{name: name}
	t.faults = append(t.faults, r)
	return r
}

// set sets the faults that are active from now on.
func (t *tally) set(faults []*row) {
	if len(faults) == 0 {
		faults = []*row{t.calm}
	}
	t.present.Store(&faults)
}

// now returns the rows of the active faults.
func (t *tally) now() []*row { return *t.present.Load() }

// change counts a response. before are the rows of the faults that were active at its request.
func (t *tally) change(before []*row, outcome history.Outcome, took time.Duration, revocation bool) {
	rows := append([]*row{t.all}, before...)
	for _, r := range t.now() {
		if !slices.Contains(rows, r) {
			rows = append(rows, r)
		}
	}
	for _, r := range rows {
		r.answered(outcome, took)
		if revocation && (outcome == history.Complete || outcome == history.Pending || outcome == history.ByHand) {
			r.revocations.Add(1)
		}
	}
}

// Statuses of a read without a response.
const (
	unconnected = 0
	unanswered  = -1
)

// read counts a response of an edge by its status.
func (t *tally) read(status int) {
	t.all.read(status)
	for _, r := range t.now() {
		r.read(status)
	}
}

func (r *row) read(status int) {
	switch status {
	case 302, 404, 410:
		r.reads.Add(1)
	case 503:
		r.unavailable.Add(1)
	case unconnected:
		r.unconnected.Add(1)
	case unanswered:
		r.unanswered.Add(1)
	default:
		r.failed.Add(1)
	}
}

// rows returns all rows in the order of a report.
func (t *tally) rows() []*row {
	t.mu.Lock()
	defer t.mu.Unlock()
	faults := slices.Clone(t.faults)
	slices.SortFunc(faults, func(a, b *row) int { return strings.Compare(a.name, b.name) })
	return append([]*row{t.all, t.calm}, faults...)
}
