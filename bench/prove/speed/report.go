package speed

import (
	"fmt"
	"io"
	"math"
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

// budget is the ratio that an edge must reach against another server in one run, and the stretch target. The ratio is that of the CPU
// time per request: the other server's divided by the edge's.
type budget struct{ reach, moonshot float64 }

var budgets = map[string]budget{
	fixedFasthttp: {0.85, 0.92},
	sameJobNginx:  {1.25, 1.40},
	fixedNginx:    {0.80, 0.90},
	// The edge itself, with requests for one link.
	theEdge: {0.93, 0.97},
}

// precision is how far the ends of the interval of a ratio may be from its median, as a share of the median.
const precision = 0.03

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

// comparison is one series of the edge and a series that it is compared with.
type comparison struct{ edge, other result.Series }

// comparisons lists what the edge is compared with: every other server, another build of the edge over the same links, and itself with
// one link.
func (r *report) comparisons() (list []comparison) {
	all := r.closed()
	for _, edge := range all {
		if edge.Contender != theEdge {
			continue
		}
		for _, other := range all {
			switch {
			case other.Contender == theEdge && (other.Scenario != countOf(1, "link") || edge.Scenario == other.Scenario):
			case other.Contender != theEdge && isEdge(other) && other.Scenario != edge.Scenario:
			default:
				list = append(list, comparison{edge, other})
			}
		}
	}
	return list
}

// processor returns the other server's CPU time per request divided by the edge's, as the median of the rounds and the interval that
// holds the true median with a probability of 95 %.
func (c comparison) processor() (low, middle, high float64) {
	ratios, middle := c.other.Against(c.edge, perRequest)
	slices.Sort(ratios)
	// The number of rounds below the true median is binomial with p = 1/2. This is its lower 2.5 % quantile, approximated by the normal
	// distribution.
	n := float64(len(ratios))
	from := max(0, int(n/2-0.98*math.Sqrt(n)))
	return ratios[from], middle, ratios[len(ratios)-1-from]
}

// resolved reports whether each ratio of CPU time is known to the precision.
func (r *report) resolved() bool {
	for _, c := range r.comparisons() {
		if low, middle, high := c.processor(); high-middle > precision*middle || middle-low > precision*middle {
			return false
		}
	}
	return true
}

// printRatios compares each series of the edge with the others.
func (r *report) printRatios(out io.Writer) {
	fmt.Fprintln(out, "\n| edge, requests for | compared with | CPU time per request, the other's / the edge's: median | 95 % interval | responses/s, the edge's / the other's: median | target | stretch target |")
	fmt.Fprintln(out, "|---|---|--:|---|--:|---|---|")
	for _, c := range r.comparisons() {
		low, middle, high := c.processor()
		reach, moonshot := "", ""
		if b, ok := budgets[c.other.Contender]; ok {
			reach, moonshot = judged(middle >= b.reach, b.reach), judged(middle >= b.moonshot, b.moonshot)
		}
		_, rate := c.edge.Against(c.other, result.Round.Rate)
		other := c.other.Contender
		if other == theEdge {
			other += ", " + c.other.Scenario
		}
		fmt.Fprintf(out, "| %s | %s | %.2f | %.2f – %.2f | %.2f | %s | %s |\n", c.edge.Scenario, other, middle, low, high, rate, reach, moonshot)
	}
	if !r.resolved() {
		fmt.Fprintf(out, "\nThe machine was too noisy to resolve %.0f %% in this many rounds.\n", 100*precision)
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
