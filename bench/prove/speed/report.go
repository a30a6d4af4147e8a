package speed

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"deeplink/bench/result"
)

// report is the result of `prove speed`.
type report struct {
	file *result.File
	// busy is, for each series and round, the share of the time for which the load generator used the CPU.
	busy [][]float64
	// open holds the measurements at one rate, the edge first. It is empty without --latency.
	open []result.Series
	// loads is how many links the edge loaded from Postgres during the measurement.
	loads float64
}

// budget is the ratio that an edge must reach against another server in one run, and the stretch target.
type budget struct{ reach, moonshot float64 }

var budgets = map[string]budget{
	fixedFasthttp: {0.85, 0.92},
	sameJobNginx:  {1.25, 1.40},
	fixedNginx:    {0.80, 0.90},
}

// p99Budget bounds the edge's p99 divided by that of nginx (same job), at the same rate.
var p99Budget = budget{1.3, 1}

func p50(r result.Round) float64        { return r.Latencies.P50 }
func p99(r result.Round) float64        { return r.Latencies.P99 }
func p999(r result.Round) float64       { return r.Latencies.P999 }
func perRequest(r result.Round) float64 { return r.CPU }

func (r *report) print(out io.Writer) {
	m := r.file.Machine
	fmt.Fprintf(out, "%s, %d cores, %s, Linux %s, %s. Only figures of the same run can be compared.\n\n",
		m.CPU, m.Cores, m.Memory, m.Kernel, m.Go)
	r.printSeries(out)
	r.printRatios(out)
	if len(r.open) > 0 {
		r.printLatencies(out)
	}
	fmt.Fprintf(out, "\nThe edge loaded %.0f links from Postgres meanwhile.\n", r.loads)
}

// printSeries prints the medians of the rounds.
func (r *report) printSeries(out io.Writer) {
	fmt.Fprintln(out, "| server | requests for | responses/s | p50 µs | p99 µs | p99.9 µs | CPU µs per request | failed | wrk busy |")
	fmt.Fprintln(out, "|---|---|--:|--:|--:|--:|--:|--:|--:|")
	for i, s := range r.closed() {
		fmt.Fprintf(out, "| %s | %s | %.0f | %.0f | %.0f | %.0f | %.2f | %d | %.0f %% |\n", s.Contender, s.Scenario, s.Median(result.Round.Rate),
			s.Median(p50), s.Median(p99), s.Median(p999), s.Median(perRequest), failures(s), 100*slices.Max(r.busy[i]))
	}
}

// closed are the series of wrk.
func (r *report) closed() []result.Series { return r.file.Series[:len(r.busy)] }

// failures returns how many requests of a series failed.
func failures(s result.Series) (failed int64) {
	for _, round := range s.Rounds {
		for _, n := range round.Failures {
			failed += n
		}
	}
	return failed
}

// printRatios prints the rate of each series of the edge divided by that of every other server.
func (r *report) printRatios(out io.Writer) {
	fmt.Fprintln(out, "\n| edge, requests for | compared with | median of the ratios | from – to | CPU per request, median of the ratios | target | stretch target |")
	fmt.Fprintln(out, "|---|---|--:|---|--:|---|---|")
	for _, edge := range r.closed() {
		if edge.Contender != theEdge {
			continue
		}
		for _, other := range r.closed() {
			// Another build of the edge is compared over the same links only.
			if other.Contender == theEdge || isEdge(other) && other.Scenario != edge.Scenario {
				continue
			}
			ratios, middle := edge.Against(other, result.Round.Rate)
			reach, moonshot := "", ""
			if b, ok := budgets[other.Contender]; ok {
				reach, moonshot = judged(middle >= b.reach, b.reach), judged(middle >= b.moonshot, b.moonshot)
			}
			_, processor := edge.Against(other, perRequest)
			fmt.Fprintf(out, "| %s | %s | %.2f | %.2f – %.2f | %.2f | %s | %s |\n", edge.Scenario, other.Contender, middle,
				slices.Min(ratios), slices.Max(ratios), processor, reach, moonshot)
		}
	}
}

// isEdge returns whether a series was measured on an edge, of any build.
func isEdge(s result.Series) bool {
	return s.Contender == theEdge || strings.HasPrefix(s.Contender, theEdge+" at ")
}

func judged(met bool, bound float64) string {
	if !met {
		return fmt.Sprintf("%.2f: **missed**", bound)
	}
	return fmt.Sprintf("%.2f: met", bound)
}
