package scenarios

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"

	"deeplink/bench/load"
	"deeplink/bench/result"
)

// row is a part and its number among the rounds of its scenario.
type row struct {
	part
	number int
}

// print writes the results in the format of --output.
func (l *loading) print(out io.Writer, file *result.File) error {
	switch l.Output {
	case "json":
		encoder := json.NewEncoder(out)
		encoder.SetIndent("", "  ")
		return encoder.Encode(file)
	case "csv":
		return l.printCSV(out)
	}
	return l.printTable(out)
}

func milliseconds(microseconds float64) string {
	return strconv.FormatFloat(microseconds/1000, 'f', 2, 64)
}

func (l *loading) printTable(out io.Writer) error {
	open := slices.ContainsFunc(l.rows, func(r row) bool { return r.round.Wanted > 0 })
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(table, "scenario\tround\trequests\tresponses/s\texpected\tp50 ms\tp90 ms\tp99 ms\tp99.9 ms\tmax ms\t")
	if open {
		fmt.Fprint(table, "wanted/s\tlate\tbacklog\t")
	}
	fmt.Fprintln(table, "  statuses and failures")
	for _, r := range l.rows {
		fmt.Fprintf(table, "%s\t%d\t%d\t%.0f\t%.2f %%\t%s\t", r.scenario, r.number, r.round.Requests, r.round.Rate(),
			100*float64(r.round.Expected)/float64(max(1, r.round.Requests)), percentiles(r.round.Latencies, "\t"))
		if open {
			fmt.Fprintf(table, "%.0f\t%d\t%d\t", r.round.Wanted, r.round.Late, r.round.Backlog)
		}
		fmt.Fprintln(table, "  "+outcomes(r.round, ", "))
		if r.round.Refused != nil {
			fmt.Fprintf(table, "other statuses\t\t\t\t\t%s\t\n", percentiles(*r.round.Refused, "\t"))
		}
	}
	return table.Flush()
}

func percentiles(l result.Latencies, separator string) string {
	texts := []string{milliseconds(l.P50), milliseconds(l.P90), milliseconds(l.P99), milliseconds(l.P999), milliseconds(l.Max)}
	return strings.Join(texts, separator)
}

func (l *loading) printCSV(out io.Writer) error {
	writer := csv.NewWriter(out)
	rows := [][]string{{"name", "scenario", "round", "began", "seconds", "requests", "responses", "expected", "responses_per_second",
		"p50_ms", "p90_ms", "p99_ms", "p999_ms", "max_ms", "other_p50_ms", "other_p99_ms", "wanted_per_second", "late", "backlog", "statuses_and_failures"}}
	for _, r := range l.rows {
		line := []string{l.Name, r.scenario, strconv.Itoa(r.number), r.round.Began.UTC().Format(time.RFC3339), fmt.Sprintf("%.3f", r.round.Seconds),
			fmt.Sprint(r.round.Requests), fmt.Sprint(r.round.Answers), fmt.Sprint(r.round.Expected), fmt.Sprintf("%.1f", r.round.Rate())}
		line = append(line, strings.Split(percentiles(r.round.Latencies, "\t"), "\t")...)
		other := []string{"", ""}
		if r.round.Refused != nil {
			other = []string{milliseconds(r.round.Refused.P50), milliseconds(r.round.Refused.P99)}
		}
		rows = append(rows, append(append(line, other...), fmt.Sprintf("%.0f", r.round.Wanted), fmt.Sprint(r.round.Late), fmt.Sprint(r.round.Backlog),
			outcomes(r.round, "; ")))
	}
	return writer.WriteAll(rows)
}

// outcomes lists statuses and failures with their numbers.
func outcomes(r result.Round, separator string) string {
	var all []string
	for _, status := range slices.Sorted(maps.Keys(r.Statuses)) {
		all = append(all, fmt.Sprintf("%d: %d", status, r.Statuses[status]))
	}
	for _, failure := range slices.Sorted(maps.Keys(r.Failures)) {
		all = append(all, fmt.Sprintf("%s: %d", failure, r.Failures[failure]))
	}
	return strings.Join(all, separator)
}

// notes explains what may mislead readers of the results.
func (l *loading) notes() {
	var limited bool
	var sent, overslept int64
	for _, r := range l.rows {
		limited = limited || r.round.Statuses[429] > 0
		if r.round.Wanted > 0 {
			sent += r.round.Requests
			overslept += r.round.Overslept
		}
	}
	if limited {
		fmt.Fprintln(l.errOut, "Status 429 is a rate limit: 500 clicks per second per address (use --clients if the edge trusts this machine), 30 matches per\n"+
			"minute per address, 1,000 reads and 100 writes per second per server key (use several --server-key, or a lower --rate).")
	}
	if overslept > sent/1000 {
		fmt.Fprintf(l.errOut, "%.1f %% of the requests were sent late although their connection was free: this machine was too slow for the generator,\n"+
			"and the latencies include that. Give the generator cores of its own (--pin).\n", 100*float64(overslept)/float64(sent))
	}
	if len(l.busy) > 0 {
		fmt.Fprintf(l.errOut, "The generator used all of its cores (%s) and limited the result as much as the server did. Give it more cores, or lower --rate.\n",
			strings.Join(l.busy, ", "))
	}
}

// progressLine shows the progress of a round on a terminal.
type progressLine struct {
	bar     *progressbar.ProgressBar // nil: standard error is no terminal
	name    string
	options load.Options
	last    load.Progress
	at      time.Time
}

func newProgressLine(name string, options load.Options) *progressLine {
	p := &progressLine{name: name, options: options, at: time.Now()}
	if term.IsTerminal(int(os.Stderr.Fd())) {
		p.bar = progressbar.NewOptions64(int64(p.whole()), progressbar.OptionSetWriter(os.Stderr), progressbar.OptionClearOnFinish(),
			progressbar.OptionSetPredictTime(false), progressbar.OptionSetElapsedTime(false), progressbar.OptionSetWidth(30))
	}
	return p
}

// whole is the length of the round with its warm-up; for a closed loop with a number of requests, it is that number.
func (p *progressLine) whole() time.Duration {
	switch {
	case p.options.Requests > 0 && p.options.Rate > 0:
		return p.options.Warmup + time.Duration(float64(p.options.Requests)/p.options.Rate*float64(time.Second))
	case p.options.Requests > 0:
		return time.Duration(p.options.Requests)
	}
	return p.options.Warmup + p.options.Duration
}

func (p *progressLine) show(now load.Progress) {
	if p.bar == nil {
		return
	}
	done, what := now.Elapsed, p.name
	if now.Warming {
		what += ", warming up"
	} else {
		done += p.options.Warmup
	}
	if p.options.Requests > 0 && p.options.Rate == 0 {
		done = min(p.whole(), time.Duration(now.Sent)) // including those of the warm-up
	}
	if span := time.Since(p.at).Seconds(); span > 0 {
		what += fmt.Sprintf(", %.0f/s", float64(now.Sent-p.last.Sent)/span)
	}
	if now.Backlog > 0 {
		what += fmt.Sprintf(", backlog %d", now.Backlog)
	}
	p.last, p.at = now, time.Now()
	p.bar.Describe(what)
	_ = p.bar.Set64(int64(done)) // a failed write to the terminal is harmless
}

func (p *progressLine) clear() {
	if p.bar != nil {
		_ = p.bar.Clear() // a failed write to the terminal is harmless
	}
}
