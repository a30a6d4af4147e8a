package scenarios

import (
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/schollz/progressbar/v3"

	"deeplink/bench/load"
	"deeplink/bench/result"
)

// table prints rounds as they come.
type table struct {
	out     io.Writer
	open    bool // shows what is of interest in an open loop
	begun   bool
	limited bool // something was answered 429
	stale   int64

	sent, overslept int64    // in open loops
	busy            []string // scenarios in which the generator took nearly all of its cores
}

func (t *table) row(number int, p part) {
	if !t.begun {
		t.begun = true
		fmt.Fprintf(t.out, "%-18s %5s %10s %9s %9s %9s %9s %9s", "scenario", "round", "answers/s", "p50 µs", "p90 µs", "p99 µs", "p99.9 µs", "max µs")
		if t.open {
			fmt.Fprintf(t.out, " %9s %9s %9s", "wanted/s", "late", "backlog")
		}
		fmt.Fprintln(t.out, "  statuses, failures")
	}
	r := p.round
	fmt.Fprintf(t.out, "%-18s %5d %10.0f %9.0f %9.0f %9.0f %9.0f %9.0f", p.scenario, number, r.Rate(),
		r.Latencies.P50, r.Latencies.P90, r.Latencies.P99, r.Latencies.P999, r.Latencies.Max)
	if t.open {
		fmt.Fprintf(t.out, " %9.0f %9d %9d", r.Wanted, r.Late, r.Backlog)
	}
	fmt.Fprintln(t.out, "  "+outcomes(r))
	t.limited = t.limited || r.Statuses[429] > 0
	t.stale += r.Failures[failedStale]
	if r.Wanted > 0 {
		t.sent += r.Requests
		t.overslept += r.Overslept
	}
}

// outcomes says what was answered and what failed.
func outcomes(r result.Round) string {
	var all []string
	for _, status := range slices.Sorted(maps.Keys(r.Statuses)) {
		all = append(all, fmt.Sprintf("%d: %d", status, r.Statuses[status]))
	}
	for _, failure := range slices.Sorted(maps.Keys(r.Failures)) {
		all = append(all, fmt.Sprintf("%s: %d", failure, r.Failures[failure]))
	}
	return strings.Join(all, ", ")
}

// noteBusy notes which share of its cores the generator used.
func (t *table) noteBusy(scenario string, share float64) {
	if share > 0.9 && !slices.Contains(t.busy, scenario) {
		t.busy = append(t.busy, scenario)
	}
}

// notes says what a reader of the table should know.
func (t *table) notes() {
	if t.limited {
		fmt.Fprintln(t.out, "429 is a rate limit: 500 clicks a second of one address (--clients, if the edge trusts this machine), 30 matches a minute of one\n"+
			"address, 1,000 reads and 100 writes a second of one server key (several --server-key, or a lower --rate).")
	}
	if t.overslept > t.sent/1000 {
		fmt.Fprintf(t.out, "%.1f %% of the requests were sent late though their connection was free: this machine was too slow for the generator, which is in\n"+
			"the latencies. Give it cores of its own (--pin).\n", 100*float64(t.overslept)/float64(t.sent))
	}
	if len(t.busy) > 0 {
		fmt.Fprintf(t.out, "The generator used all of its cores (%s): there it was the limit as much as the server. Give it more (--pin), or wait longer\n"+
			"between requests (--rate).\n", strings.Join(t.busy, ", "))
	}
	if t.stale > 0 {
		fmt.Fprintln(t.out, "A deleted link was served after its delete was answered: this must not happen. Please report it.")
	}
}

// loadBar shows on a terminal how far a round is.
type loadBar struct {
	bar     *progressbar.ProgressBar // nil: no terminal
	name    string
	options load.Options
	last    load.Progress
	at      time.Time
}

func newLoadBar(name string, options load.Options) *loadBar {
	b := &loadBar{name: name, options: options, at: time.Now()}
	if info, err := os.Stderr.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
		b.bar = progressbar.NewOptions64(int64(options.Warmup+options.Duration), progressbar.OptionSetWriter(os.Stderr), progressbar.OptionClearOnFinish(),
			progressbar.OptionSetPredictTime(false), progressbar.OptionSetElapsedTime(false), progressbar.OptionSetWidth(30))
	}
	return b
}

func (b *loadBar) show(p load.Progress) {
	if b.bar == nil {
		return
	}
	done := p.Elapsed
	what := b.name + ", warming up"
	if !p.Warming {
		done += b.options.Warmup
		what = b.name
	}
	if span := time.Since(b.at).Seconds(); span > 0 {
		what += fmt.Sprintf(", %.0f/s", float64(p.Sent-b.last.Sent)/span)
	}
	if p.Backlog > 0 {
		what += fmt.Sprintf(", backlog %d", p.Backlog)
	}
	b.last, b.at = p, time.Now()
	b.bar.Describe(what)
	_ = b.bar.Set64(int64(done)) // a bar that cannot be drawn is no reason to stop
}

func (b *loadBar) clear() {
	if b.bar != nil {
		_ = b.bar.Clear() // as above
	}
}
