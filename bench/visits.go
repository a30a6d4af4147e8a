package main

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// visits counts what visitors were answered. It is safe for concurrent use.
type visits struct {
	// drain is how long edges that stop wait for a client's next request, when they are stopped at all.
	drain time.Duration

	mu       sync.Mutex
	statuses map[int]int
	refused  int // connections, asked for again
	// Requests that nobody was there to hear: a connection that was never accepted, and a client that was silent for too long.
	unaccepted, late int
	failures         map[string]int
	took             []moment
}

// moment is how long one answer took, and when it came.
type moment struct {
	at   time.Time
	took time.Duration
}

func newVisits() *visits {
	return &visits{statuses: make(map[int]int), failures: make(map[string]int)}
}

// click has one visitor click, and counts.
func (s *visits) click(v *visitor, path string) {
	began := time.Now()
	status, err := v.click(path)
	ended := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.fail(err)
		return
	}
	s.statuses[status]++
	s.took = append(s.took, moment{ended, ended.Sub(began)})
}

// fail counts a click without an answer. The lock is held.
func (s *visits) fail(err error) {
	end, hung := errors.AsType[hungUp](err)
	switch {
	case errors.Is(err, errRefused):
		s.refused++
	case hung && end.first:
		s.unaccepted++
	case hung && s.drain > 0 && end.after >= s.drain:
		s.late++
	default:
		s.failures[err.Error()]++
	}
}

// answered returns how many answers there were, and how many of them had another status than the one wanted.
func (s *visits) answered(wanted int) (all, others int) {
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

// unheard returns how many requests nobody was there to hear.
func (s *visits) unheard() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.unaccepted + s.late
}

// failed returns how many requests were given another end than an answer.
func (s *visits) failed() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, times := range s.failures {
		n += times
	}
	return n
}

// total returns how many requests there were, and how many of them were not answered with the status wanted.
func (s *visits) total(wanted int) (all, others int) {
	all, others = s.answered(wanted)
	lost := s.unheard() + s.failed()
	return all + lost, others + lost
}

// String tells statuses and failures.
func (s *visits) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	text := fmt.Sprintf("%v, failures %v, hung up on before the first answer %d", s.statuses, s.failures, s.unaccepted)
	if s.drain > 0 {
		text += fmt.Sprintf(", on connections unused for %v %d", s.drain, s.late)
	}
	return text + fmt.Sprintf(", refused and asked again %d", s.refused)
}

// p99 returns the 99th percentile of the answers that came in a span of time, and how many they are.
func (s *visits) p99(from, to time.Time) (time.Duration, int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var spans []time.Duration
	for _, m := range s.took {
		if m.at.After(from) && !m.at.After(to) {
			spans = append(spans, m.took)
		}
	}
	slices.Sort(spans)
	return percentile(spans, 99), len(spans)
}
