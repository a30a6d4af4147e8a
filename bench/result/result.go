// Package result is the file format of measurements: the machine, the command, and every contender's results by round. It reads and writes
// JSON and computes medians and ratios; it measures nothing itself.
package result

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// File is one run. Only compare figures of the same file: machines drift between runs.
type File struct {
	Command []string  `json:"command"`
	Began   time.Time `json:"began"`
	Machine Machine   `json:"machine"`
	Series  []Series  `json:"series"`
}

// Series is what one contender did in one scenario, round by round. Rounds of a file are interleaved: round 1 of every series comes before
// round 2 of any.
type Series struct {
	Contender string  `json:"contender"`
	Scenario  string  `json:"scenario"`
	Rounds    []Round `json:"rounds"`
}

// Round is one contender's turn, after its warm-up.
type Round struct {
	// Began is when counting began. It shows whether rounds of two files took turns.
	Began time.Time `json:"began,omitzero"`
	// Requests were sent. Answers counts those with a response, by status in Statuses; the others failed, by cause in Failures.
	Requests int64 `json:"requests"`
	Answers  int64 `json:"answers"`
	// Expected is how many of Answers had a status that the scenario expects.
	Expected int64            `json:"expected,omitempty"`
	Statuses map[int]int64    `json:"statuses"`
	Failures map[string]int64 `json:"failures,omitempty"`
	// Wanted is the rate of an open loop in requests per second, and 0 in a closed loop.
	Wanted float64 `json:"wanted,omitempty"`
	// Late is how many requests of an open loop were sent more than 1 ms after they were due. Backlog is the largest number of requests
	// that were due but not sent.
	Late    int64 `json:"late,omitempty"`
	Backlog int64 `json:"backlog,omitempty"`
	// Overslept is how many of the late requests had a free connection: the generator or its machine was slow, not the server.
	Overslept int64   `json:"overslept,omitempty"`
	Seconds   float64 `json:"seconds"`
	// Latencies count from when a request was due, so that they include the wait for the previous request. They cover only responses with
	// an expected status.
	Latencies Latencies `json:"latencies"`
	// Refused are the latencies of all other responses, nil if there were none.
	Refused *Latencies `json:"refused,omitempty"`
	// CPU is the CPU time of the contender per request, in microseconds, or 0 if unknown.
	CPU float64 `json:"cpuMicroseconds,omitempty"`
}

// Rate returns responses per second.
func (r Round) Rate() float64 { return float64(r.Answers) / r.Seconds }

// Latencies are percentiles in microseconds. A file does not keep the histogram.
type Latencies struct {
	P50  float64 `json:"p50"`
	P90  float64 `json:"p90"`
	P99  float64 `json:"p99"`
	P999 float64 `json:"p999"`
	Max  float64 `json:"max"`

	// Histogram counts nanoseconds. It is nil in a result that was read from a file or measured by another tool.
	Histogram *hdrhistogram.Histogram `json:"-"`
}

// NewHistogram counts nanoseconds from 1 µs to 1 minute with three significant digits.
func NewHistogram() *hdrhistogram.Histogram {
	return hdrhistogram.New(int64(time.Microsecond), int64(time.Minute), 3)
}

// Summary returns the percentiles of a histogram of nanoseconds.
func Summary(h *hdrhistogram.Histogram) Latencies {
	at := func(percent float64) float64 { return float64(h.ValueAtQuantile(percent)) / 1000 }
	return Latencies{P50: at(50), P90: at(90), P99: at(99), P999: at(99.9), Max: float64(h.Max()) / 1000, Histogram: h}
}

// Median returns the median of value over the rounds, and 0 without rounds.
func (s Series) Median(value func(Round) float64) float64 { return median(s.values(value)) }

// Against returns the ratio of this series to another in each round that both have, and the median of these ratios. Noise that lasts longer
// than a round cancels out.
func (s Series) Against(other Series, value func(Round) float64) (ratios []float64, middle float64) {
	mine, theirs := s.values(value), other.values(value)
	for i := range min(len(mine), len(theirs)) {
		ratios = append(ratios, mine[i]/theirs[i])
	}
	return ratios, median(ratios)
}

func (s Series) values(value func(Round) float64) []float64 {
	values := make([]float64, len(s.Rounds))
	for i, round := range s.Rounds {
		values[i] = value(round)
	}
	return values
}

func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	half := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[half]
	}
	return (sorted[half-1] + sorted[half]) / 2
}

// Write writes the file as JSON.
func (f *File) Write(path string) error {
	text, err := json.MarshalIndent(f, "", "  ")
	if err != nil {
		return fmt.Errorf("write results: %w", err)
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}

// Read reads a file that Write wrote.
func Read(path string) (*File, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	f := new(File)
	if err := json.Unmarshal(text, f); err != nil {
		return nil, fmt.Errorf("%s is not a results file: %w", path, err)
	}
	return f, nil
}
