package events

import (
	"net/http"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"deeplink/bench/result"
)

// ledger records what phones sent and what control acknowledged. It is safe for concurrent use.
type ledger struct {
	mu           sync.Mutex
	sent         int // number of events
	acknowledged map[eventKey]struct{}
	attempts     int64
	statuses     map[int]int64
	failures     map[string]int64
	// accepted and duplicates are the sums over all responses.
	accepted, duplicates int64
	odd                  []string
	// waits are the times from when a batch was due until it was acknowledged.
	waits *hdrhistogram.Histogram
}

func newLedger() *ledger {
	return &ledger{
		acknowledged: make(map[eventKey]struct{}), statuses: make(map[int]int64), failures: make(map[string]int64),
		waits: result.NewHistogram(),
	}
}

// promise records a batch that will be sent until it is acknowledged.
func (l *ledger) promise(b batch) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sent += len(b.ids)
}

// note records one attempt to send a batch that was due at a time.
func (l *ledger) note(orgKey string, b batch, due time.Time, a attempt) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.attempts++
	if a.status == 0 {
		l.failures[a.failure]++
		return
	}
	l.statuses[a.status]++
	if a.odd != "" {
		l.odd = append(l.odd, a.odd)
	}
	if a.status == http.StatusOK {
		l.accepted += int64(a.receipt.Accepted)
		l.duplicates += int64(a.receipt.Duplicates)
	}
	if !a.acknowledged() {
		return
	}
	_ = l.waits.RecordValue(time.Since(due).Nanoseconds()) // waits beyond the histogram's range are dropped here; the findings count such batches
	for _, id := range b.ids {
		l.acknowledged[eventKey{orgKey, id}] = struct{}{}
	}
}

// missing returns how many acknowledged events are not in the archive.
func (l *ledger) missing(a archive) (n int) {
	for k := range l.acknowledged {
		if a[k] == 0 {
			n++
		}
	}
	return n
}

// unanswered returns how many attempts got no response.
func (l *ledger) unanswered() (n int64) {
	for _, times := range l.failures {
		n += times
	}
	return n
}
