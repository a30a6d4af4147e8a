// Package compare is `bench compare`: it compares two results of load.
package compare

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"deeplink/bench/result"
)

// Command compares two files of results.
type Command struct {
	A string `arg:"" type:"existingfile" help:"Results of the first build, A."`
	B string `arg:"" type:"existingfile" help:"Results of the second build, B."`
}

// Help implements kong's longer help.
func (c *Command) Help() string {
	return `For each scenario that both files have: the medians over the rounds, and the ratio B/A, which is the median of the ratios of first
rounds, second rounds and so on, with the smallest and the largest of them. Drift of the machine that lasts longer than a round
cancels out if the rounds of the two took turns:

  for i in 1 2 3 4 5; do
    bench load zipf ... --json a.json --append   # against build A
    bench load zipf ... --json b.json --append   # against build B
  done
  bench compare a.json b.json`
}

// Run implements the command.
func (c *Command) Run(context.Context) error {
	a, err := result.Read(c.A)
	if err != nil {
		return err
	}
	b, err := result.Read(c.B)
	if err != nil {
		return err
	}
	return Results(os.Stdout, a, b)
}

// figures are the values of a round that are compared. More is better for the first, less for the others.
var figures = []struct {
	name string
	of   func(result.Round) float64
}{
	{"responses/s", result.Round.Rate},
	{"p50 µs", func(r result.Round) float64 { return r.Latencies.P50 }},
	{"p90 µs", func(r result.Round) float64 { return r.Latencies.P90 }},
	{"p99 µs", func(r result.Round) float64 { return r.Latencies.P99 }},
	{"p99.9 µs", func(r result.Round) float64 { return r.Latencies.P999 }},
	{"max µs", func(r result.Round) float64 { return r.Latencies.Max }},
}

// Results prints two results side by side, and a warning for each reason for which their ratios may mislead. Results without a common
// scenario are an error.
func Results(out io.Writer, a, b *result.File) error {
	for _, difference := range machineDifferences(a.Machine, b.Machine) {
		fmt.Fprintf(out, "Warning: the machines differ, so the ratios do not compare the builds: %s\n", difference)
	}
	pairs := pairSeries(a, b)
	if len(pairs) == 0 {
		return fmt.Errorf("the files have no scenario in common: run the same scenarios for both")
	}
	fmt.Fprintf(out, "%-18s %-10s %12s %12s %8s  %s\n", "scenario", "", "A", "B", "B/A", "smallest to largest")
	for _, p := range pairs {
		name := p.a.Scenario
		for _, f := range figures {
			ratios, middle := p.b.Against(p.a, f.of)
			fmt.Fprintf(out, "%-18s %-10s %12.0f %12.0f %8.3f  %s\n", name, f.name, p.a.Median(f.of), p.b.Median(f.of), middle, spread(ratios))
			name = ""
		}
	}
	printWarnings(out, pairs)
	return nil
}

// printWarnings prints each warning once, with the scenarios that it applies to.
func printWarnings(out io.Writer, pairs []pair) {
	of := map[string][]string{}
	for _, p := range pairs {
		for _, warning := range p.warnings() {
			of[warning] = append(of[warning], p.a.Scenario)
		}
	}
	for _, warning := range slices.Sorted(maps.Keys(of)) {
		fmt.Fprintf(out, "Warning: %s: %s\n", strings.Join(of[warning], ", "), warning)
	}
}

func spread(ratios []float64) string {
	if len(ratios) < 2 {
		return "one round: no spread"
	}
	return fmt.Sprintf("%.3f to %.3f over %d rounds", slices.Min(ratios), slices.Max(ratios), len(ratios))
}

func machineDifferences(a, b result.Machine) (differences []string) {
	for _, field := range []struct{ name, a, b string }{
		{"system", a.System, b.System}, {"processor", a.CPU, b.CPU}, {"cores", fmt.Sprint(a.Cores), fmt.Sprint(b.Cores)},
		{"memory", a.Memory, b.Memory}, {"kernel", a.Kernel, b.Kernel}, {"Go", a.Go, b.Go},
	} {
		if field.a != field.b {
			differences = append(differences, fmt.Sprintf("%s %s and %s", field.name, field.a, field.b))
		}
	}
	return differences
}

// pair holds the series of a scenario that both files have.
type pair struct{ a, b result.Series }

// pairSeries finds the series of the same contender in the same scenario, and those of different contenders where there is only one each.
func pairSeries(a, b *result.File) (pairs []pair) {
	for _, s := range a.Series {
		same := func(o result.Series) bool { return o.Scenario == s.Scenario && o.Contender == s.Contender }
		if i := slices.IndexFunc(b.Series, same); i >= 0 {
			pairs = append(pairs, pair{s, b.Series[i]})
		} else if mine, theirs := ofScenario(a, s.Scenario), ofScenario(b, s.Scenario); len(mine) == 1 && len(theirs) == 1 {
			pairs = append(pairs, pair{s, theirs[0]})
		}
	}
	return pairs
}

func ofScenario(f *result.File, scenario string) []result.Series {
	return slices.DeleteFunc(slices.Clone(f.Series), func(s result.Series) bool { return s.Scenario != scenario })
}

// warnings returns the reasons for which the ratios of a pair may mislead.
func (p pair) warnings() (warnings []string) {
	if len(p.a.Rounds) != len(p.b.Rounds) {
		warnings = append(warnings, fmt.Sprintf("%d rounds and %d: only the first ones are compared", len(p.a.Rounds), len(p.b.Rounds)))
	}
	if !p.interleaved() {
		warnings = append(warnings, "the rounds did not take turns: the ratios include the drift of the machine, up to a third between runs")
	}
	if wanted := func(r result.Round) float64 { return r.Wanted }; p.a.Median(wanted) != p.b.Median(wanted) {
		warnings = append(warnings, fmt.Sprintf("the rates of -r differ: %.0f and %.0f per second", p.a.Median(wanted), p.b.Median(wanted)))
	}
	for name, series := range map[string]result.Series{"A": p.a, "B": p.b} {
		if failed := failedRequests(series); failed > 0 {
			warnings = append(warnings, fmt.Sprintf("%d requests of %s failed and are not in the latencies", failed, name))
		}
	}
	return warnings
}

func failedRequests(s result.Series) (failed int64) {
	for _, r := range s.Rounds {
		failed += r.Requests - r.Answers
	}
	return failed
}

// interleaved reports whether the rounds took turns: both first rounds before either second round, and so on.
func (p pair) interleaved() bool {
	var last time.Time
	for i := range min(len(p.a.Rounds), len(p.b.Rounds)) {
		first, second := p.a.Rounds[i].Began, p.b.Rounds[i].Began
		if first.After(second) {
			first, second = second, first
		}
		if first.IsZero() || !first.After(last) {
			return false
		}
		last = second
	}
	return min(len(p.a.Rounds), len(p.b.Rounds)) > 1
}
