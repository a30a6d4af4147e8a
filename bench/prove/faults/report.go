package faults

import (
	"fmt"
	"io"
	"slices"
	"time"

	"deeplink/bench/prove/faults/history"
	"deeplink/bench/prove/figures"
)

// linearizeLimit bounds porcupine's time for one key on one edge.
const linearizeLimit = 10 * time.Second

// report is the result of a run.
type report struct {
	Seed          uint64                `json:"seed"`
	Seconds       float64               `json:"seconds"`
	Revocations   int64                 `json:"revocations"`
	Reads         int64                 `json:"reads"`
	Violations    int                   `json:"violations"`
	Losses        int                   `json:"losses"`
	Corruption    int                   `json:"corruption"`
	Findings      []history.Finding     `json:"findings,omitempty"`
	Linearization history.Linearization `json:"linearization"`
	Surprises     map[string]int        `json:"surprises,omitempty"`
	Faults        []reportRow           `json:"faults"`

	during []string // the faults that were active at the finding that ended the run
}

// reportRow is what happened while one fault was active. Latencies are of changes with a response, in milliseconds.
type reportRow struct {
	Fault       string  `json:"fault"`
	Times       int64   `json:"times"`
	Complete    int     `json:"complete"`
	Pending     int     `json:"pending"`
	ByHand      int     `json:"byHand"`
	Unknown     int     `json:"unknown"`
	Refused     int     `json:"refused"`
	P50         float64 `json:"p50"`
	P90         float64 `json:"p90"`
	P99         float64 `json:"p99"`
	Longest     float64 `json:"longest"`
	Reads       int64   `json:"reads"`
	Unavailable int64   `json:"unavailable"`
	Unconnected int64   `json:"unconnected"`
	Unanswered  int64   `json:"unanswered"`
	Failed      int64   `json:"failed"`
}

// newReport reports a completed run.
func newReport(r *run) *report {
	report := &report{
		Seed: r.seed, Seconds: r.took.Seconds(), Revocations: r.tally.all.revocations.Load(), Reads: r.recorder.Reads(),
		Violations: r.recorder.Count(history.Violation), Losses: r.recorder.Count(history.Loss), Corruption: r.recorder.Count(history.Corruption),
		Findings: r.recorder.Findings(), Surprises: r.surprises, during: r.during,
	}
	report.Linearization = r.recorder.Linearize(linearizeLimit)
	for _, row := range r.tally.rows() {
		report.Faults = append(report.Faults, row.report())
	}
	return report
}

func (r *row) report() reportRow {
	slices.Sort(r.took)
	spent := func(p int) float64 { return figures.InMilliseconds(figures.Percentile(r.took, p)) }
	return reportRow{
		Fault: r.name, Times: r.times.Load(), Complete: r.complete, Pending: r.pending, ByHand: r.byHand, Unknown: r.unknown, Refused: r.refused,
		P50: spent(50), P90: spent(90), P99: spent(99), Longest: spent(100),
		Reads: r.reads.Load(), Unavailable: r.unavailable.Load(), Unconnected: r.unconnected.Load(), Unanswered: r.unanswered.Load(), Failed: r.failed.Load(),
	}
}

// wrong returns all findings as an error.
func (r *report) wrong() error {
	if r.Violations+r.Losses+r.Corruption+len(r.Linearization.Illegal) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %d violations, %d losses, %d corruptions, %d keys that porcupine cannot explain (seed %d)",
		errWrong, r.Violations, r.Losses, r.Corruption, len(r.Linearization.Illegal), r.Seed)
}

// mostStories bounds the printed stories.
const mostStories = 5

// markdown prints the report for people.
func (r *report) markdown(out io.Writer) {
	fmt.Fprintf(out, "seed %d, %.0f s: %d revocations, %d reads, %d violations, %d losses, %d corruptions\n",
		r.Seed, r.Seconds, r.Revocations, r.Reads, r.Violations, r.Losses, r.Corruption)
	l := r.Linearization
	fmt.Fprintf(out, "porcupine: %d keys, %d reads, not explained: %v, not decided: %v\n\n", l.Keys, l.Reads, l.Illegal, l.Undecided)
	fmt.Fprintln(out, "| while | times | complete | pending | by hand | no response | refused | p50 ms | p90 ms | p99 ms | longest ms | reads | 503 | no connection | no response | other errors |")
	fmt.Fprintln(out, "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|")
	for _, f := range r.Faults {
		fmt.Fprintf(out, "| %s | %d | %d | %d | %d | %d | %d | %.1f | %.1f | %.1f | %.1f | %d | %d | %d | %d | %d |\n", f.Fault, f.Times, f.Complete, f.Pending,
			f.ByHand, f.Unknown, f.Refused, f.P50, f.P90, f.P99, f.Longest, f.Reads, f.Unavailable, f.Unconnected, f.Unanswered, f.Failed)
	}
	for what, times := range r.Surprises {
		fmt.Fprintf(out, "\nunexpected, %d times: %s\n", times, what)
	}
	for _, f := range r.Findings[:min(len(r.Findings), mostStories)] {
		fmt.Fprintf(out, "\n%s of %s at %.4fs: %s\n", f.Verdict, f.Key, f.At.Seconds(), f.Story)
	}
}
