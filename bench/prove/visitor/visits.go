package visitor

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"deeplink/bench/prove/figures"
)

// Visits counts the results of clicks. It is safe for concurrent use.
type Visits struct {
	// Drain is how long stopping edges wait for a client's next request, or 0 if no edge is stopped.
	Drain time.Duration

	mu       sync.Mutex
	statuses map[int]int
	Refused  int // connections refused, then retried
	// Requests that no process received: on a connection that was never accepted, or after the client was idle for too long.
	unaccepted, late int
	failures         map[string]int
	Took             []moment
}

// moment is the latency of one response, and its time.
type moment struct {
	at   time.Time
	Took time.Duration
}

// NewVisits returns an empty count.
func NewVisits() *Visits {
	return &Visits{statuses: make(map[int]int), failures: make(map[string]int)}
}

// Click has one visitor click, and counts the result.
func (s *Visits) Click(v *Visitor, path string) {
	began := time.Now()
	status, err := v.Click(path)
	s.Count(began, status, err)
}

// Count counts a request of any other client, which was sent at began and has just ended.
func (s *Visits) Count(began time.Time, status int, err error) {
	ended := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.fail(err)
		return
	}
	s.statuses[status]++
	s.Took = append(s.Took, moment{ended, ended.Sub(began)})
}

// fail counts a click without a response. The lock is held.
func (s *Visits) fail(err error) {
	end, hung := errors.AsType[hungUp](err)
	switch {
	case errors.Is(err, errRefused):
		s.Refused++
	case hung && end.first:
		s.unaccepted++
	case hung && s.Drain > 0 && end.after >= s.Drain:
		s.late++
	default:
		s.failures[err.Error()]++
	}
}

// Answered returns the number of responses, and how many had another status than the expected one.
func (s *Visits) Answered(wanted int) (all, others int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for status, n := range s.statuses {
		all += n
		if status != wanted {
			others += n
		}
	}
	return all, others
}

// Unheard returns the number of requests that no process received.
func (s *Visits) Unheard() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.unaccepted + s.late
}

// failed returns how many requests ended without a response.
func (s *Visits) failed() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, times := range s.failures {
		n += times
	}
	return n
}

// Total returns the number of requests, and how many did not get a response with the expected status.
func (s *Visits) Total(wanted int) (all, others int) {
	all, others = s.Answered(wanted)
	lost := s.Unheard() + s.failed()
	return all + lost, others + lost
}

// String lists statuses and failures.
func (s *Visits) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	text := fmt.Sprintf("%v, failures %v, closed before the first response %d", s.statuses, s.failures, s.unaccepted)
	if s.Drain > 0 {
		text += fmt.Sprintf(", on connections unused for %v %d", s.Drain, s.late)
	}
	return text + fmt.Sprintf(", refused and retried %d", s.Refused)
}

// P99 returns the 99th percentile of the responses that arrived in a period, and their number.
func (s *Visits) P99(from, to time.Time) (time.Duration, int) { return s.Percentile(99, from, to) }

// Percentile returns the p-th percentile of the responses that arrived in a period, and their number.
func (s *Visits) Percentile(p int, from, to time.Time) (time.Duration, int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var spans []time.Duration
	for _, m := range s.Took {
		if m.at.After(from) && !m.at.After(to) {
			spans = append(spans, m.Took)
		}
	}
	slices.Sort(spans)
	return figures.Percentile(spans, p), len(spans)
}
