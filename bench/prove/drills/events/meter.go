package events

import (
	"maps"
	"math/bits"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/google/uuid"

	"deeplink/bench/result"
)

// stretches is the number of parts of a run, by stored events. The first tenth is compared with the last.
const stretches = 10

// stretch is what happened while that many events were stored.
type stretch struct {
	events   int
	ended    time.Time
	spent    expense // at its end
	attempts int64
	statuses map[int]int64
	failures map[string]int64
	took     *hdrhistogram.Histogram // of acknowledged batches, per request
}

// meter counts stored events and the results of requests. It is safe for concurrent use.
type meter struct {
	total    int
	expenses func() (expense, error)
	progress func(stored int)

	mu        sync.Mutex
	began     time.Time
	spent     expense // at its start
	stored    int
	stretches []stretch // the last one is in progress
	accepted  int64
	repeated  int64 // duplicates reported
	sum       idSum // of all stored events
	err       error
}

// start begins the first stretch.
func (m *meter) start() (err error) {
	m.began = time.Now()
	m.spent, err = m.expenses()
	m.stretches = []stretch{newStretch()}
	return err
}

func newStretch() stretch {
	return stretch{statuses: make(map[int]int64), failures: make(map[string]int64), took: result.NewHistogram()}
}

// note counts one attempt.
func (m *meter) note(a attempt) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := &m.stretches[len(m.stretches)-1]
	p.attempts++
	if a.status == 0 {
		p.failures[a.failure]++
		return
	}
	p.statuses[a.status]++
	if a.acknowledged() {
		_ = p.took.RecordValue(a.took.Nanoseconds())
		m.accepted += int64(a.receipt.Accepted)
		m.repeated += int64(a.receipt.Duplicates)
	}
}

// done counts a batch whose events are stored, and ends the stretch when it is full.
func (m *meter) done(b batch) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, id := range b.ids {
		m.sum.add(id)
	}
	m.stored += len(b.ids)
	m.progress(m.stored)
	p := &m.stretches[len(m.stretches)-1]
	p.events += len(b.ids)
	if m.stored < m.total*len(m.stretches)/stretches {
		return
	}
	p.ended = time.Now()
	if p.spent, m.err = m.expenses(); m.err == nil && m.stored < m.total {
		m.stretches = append(m.stretches, newStretch())
	}
}

// idSum is an order-independent sum of ids: equal for equal sets of ids, and almost certainly different otherwise.
type idSum struct{ high, low uint64 }

func (s *idSum) add(id uuid.UUID) {
	var high, low, carry uint64
	for i := range 8 {
		high, low = high<<8|uint64(id[i]), low<<8|uint64(id[8+i])
	}
	s.low, carry = bits.Add64(s.low, low, 0)
	s.high, _ = bits.Add64(s.high, high, carry)
}

// paces are the stretches as rates and percentiles.
func (m *meter) paces() (paces []pace) {
	began, spent := m.began, m.spent
	for _, p := range m.stretches {
		latencies := result.Summary(p.took)
		paces = append(paces, pace{
			Events: p.events, Spent: p.spent.since(spent),
			Round: result.Round{
				Requests: p.attempts, Answers: answers(p.statuses), Statuses: maps.Clone(p.statuses), Failures: maps.Clone(p.failures),
				Seconds: p.ended.Sub(began).Seconds(), Latencies: latencies,
				CPU: inMicroseconds(p.spent.since(spent).control) / float64(p.attempts),
			},
		})
		began, spent = p.ended, p.spent
	}
	return paces
}

func answers(statuses map[int]int64) (n int64) {
	for _, times := range statuses {
		n += times
	}
	return n
}

// whole are the latencies of all stretches.
func (m *meter) whole() result.Latencies {
	all := result.NewHistogram()
	for _, p := range m.stretches {
		all.Merge(p.took)
	}
	return result.Summary(all)
}

// pace is the result of one stretch.
type pace struct {
	Events int
	Spent  expense
	result.Round
}

// rate is in events per second.
func (p pace) rate() float64 { return float64(p.Events) / p.Seconds }

// controlTime, postgresTime, worked (their sum) and logged are per event, in microseconds and bytes.
func (p pace) controlTime() float64  { return inMicroseconds(p.Spent.control) / float64(p.Events) }
func (p pace) postgresTime() float64 { return inMicroseconds(p.Spent.postgres) / float64(p.Events) }
func (p pace) worked() float64       { return p.controlTime() + p.postgresTime() }
func (p pace) logged() float64       { return float64(p.Spent.logged) / float64(p.Events) }

func inMicroseconds(span time.Duration) float64 { return span.Seconds() * 1e6 }
