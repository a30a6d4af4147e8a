package scenarios

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"deeplink/bench/load"
	"deeplink/bench/result"
)

// Exit statuses of load.
const (
	exitThreshold   = 2
	exitNoResponses = 3
	exitStale       = 4
)

// ExitError is an error with the exit status that the program ends with.
type ExitError struct {
	Status int
	reason string
}

// Error implements error.
func (e *ExitError) Error() string { return e.reason }

// unreachable gives an error its exit status if the cause is that a connection could not be established.
func unreachable(err error) error {
	var dial *net.OpError
	if errors.Is(err, load.ErrUnreachable) || errors.As(err, &dial) && dial.Op == "dial" {
		return &ExitError{exitNoResponses, err.Error()}
	}
	return err
}

// total is the sum of all rounds of a scenario.
type total struct {
	scenario                   string
	requests, expected, errors int64
	stale                      int64
	latencies                  result.Latencies
}

// totals merges the rows of each scenario, in the order in which they ran.
func (l *loading) totals() (all []*total) {
	for _, r := range l.rows {
		i := slices.IndexFunc(all, func(t *total) bool { return t.scenario == r.scenario })
		if i < 0 {
			i = len(all)
			all = append(all, &total{scenario: r.scenario, latencies: result.Latencies{Histogram: result.NewHistogram()}})
		}
		t := all[i]
		t.requests += r.round.Requests
		t.expected += r.round.Expected
		t.errors += r.round.Requests - r.round.Expected
		t.stale += r.round.Failures[failedStale]
		t.latencies.Histogram.Merge(r.round.Latencies.Histogram)
		t.latencies = result.Summary(t.latencies.Histogram)
	}
	return all
}

// check returns an ExitError for the worst problem: a stale response, no expected response, or a missed threshold.
func (l *loading) check() error {
	reasons := map[int][]string{}
	miss := func(status int, format string, values ...any) {
		reasons[status] = append(reasons[status], fmt.Sprintf(format, values...))
	}
	acceptable := l.MaxErrorRate
	if acceptable < 0 && len(l.ExpectStatus) > 0 {
		acceptable = 0
	}
	totals := l.totals()
	if len(totals) == 0 {
		miss(exitNoResponses, "no request was sent")
	}
	for _, t := range totals {
		if t.stale > 0 {
			miss(exitStale, "%s: %d stale responses: a deleted link was served after its delete had completed. Please report this", t.scenario, t.stale)
		}
		if t.expected == 0 {
			miss(exitNoResponses, "%s: none of %d requests got an expected response", t.scenario, t.requests)
			continue
		}
		if share := float64(t.errors) / float64(t.requests); acceptable >= 0 && share > float64(acceptable) {
			miss(exitThreshold, "%s: %d of %d requests failed or got an unexpected status: %.2f %%, the threshold is %.2f %%", t.scenario, t.errors,
				t.requests, 100*share, 100*acceptable)
		}
		if p99 := time.Duration(t.latencies.P99 * float64(time.Microsecond)); l.MaxP99 > 0 && p99 > l.MaxP99 {
			miss(exitThreshold, "%s: p99 is %v, the threshold is %v", t.scenario, p99, l.MaxP99)
		}
	}
	for _, status := range []int{exitStale, exitNoResponses, exitThreshold} {
		if len(reasons[status]) > 0 {
			return &ExitError{status, strings.Join(reasons[status], "\n")}
		}
	}
	return nil
}
