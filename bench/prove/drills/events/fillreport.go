package events

import (
	"fmt"
	"io"

	"deeplink/bench/prove/figures"
)

// The rate must not fall by more than a fifth. An export of ten times as many events may take a quarter more memory, because the garbage
// collector may run late by that much.
const (
	leastOfFirst = 0.8
	mostOfTenth  = 1.25
)

// findings are the promises.
func (r *fillReport) findings() []figures.Finding {
	first, last := r.paces[0], r.paces[len(r.paces)-1]
	return []figures.Finding{
		atLeast("events a second, the last tenth to the first", last.rate(), first.rate(), leastOfFirst),
		atLeast("events a second of a processor, the last tenth to the first", 1e6/last.worked(), 1e6/first.worked(), leastOfFirst),
		r.all("events in the table", r.counted.events),
		r.all("events in the table, each once", r.counted.distinct),
		r.all("ids remembered", r.counted.ids),
		r.toldAccepted(),
		r.all("lines of the export", r.whole.Lines),
		figures.Counted("ids of the export are those acknowledged", fmt.Sprint(r.exportedSum == r.sum), "true", r.exportedSum == r.sum),
		r.memory(),
	}
}

// atLeast compares the ratio of two rates with its lower bound.
func atLeast(what string, rate, to, bound float64) figures.Finding {
	f := figures.Counted(what, fmt.Sprintf("%.0f : %.0f = %.2f", rate, to, rate/to), fmt.Sprintf("≥ %.2f", bound), rate/to >= bound)
	f.Timed = true
	return f
}

// all compares a count with the number of events.
func (r *fillReport) all(what string, n int64) figures.Finding {
	return figures.Counted(what, fmt.Sprint(n), fmt.Sprint(r.events), n == int64(r.events))
}

// toldAccepted compares the sum of the responses with what was sent. Events of requests without a response may be missing.
func (r *fillReport) toldAccepted() figures.Finding {
	unanswered := int64(0)
	for _, p := range r.paces {
		unanswered += p.Requests - p.Answers
	}
	f := r.all(fmt.Sprintf("reported as accepted, with %d unanswered requests", unanswered), r.accepted)
	f.Kept = f.Kept || r.accepted < int64(r.events) && unanswered > 0
	return f
}

// memory compares the peaks of the two exports.
func (r *fillReport) memory() figures.Finding {
	f := figures.Counted("peak memory of the export of all, to that of a tenth", megabytes(r.whole.Peak)+" : "+megabytes(r.tenth.Peak),
		fmt.Sprintf("≤ %.2f", mostOfTenth), float64(r.whole.Peak) <= mostOfTenth*float64(r.tenth.Peak))
	f.Timed = true
	return f
}

func megabytes(bytes int64) string { return fmt.Sprintf("%.1f MiB", float64(bytes)/(1<<20)) }

// print writes tables.
func (r *fillReport) print(out io.Writer) {
	fmt.Fprintf(out, "%d events in batches of %d by %d phones, %.1f %% of the batches twice at once; %d keys\n\n",
		r.events, fullBatch, r.clients, 100*r.repeat, r.keys)
	r.printPaces(out)
	fmt.Fprintf(out, "duplicates reported: %d; %s of events, %s of ids, both with their indexes\n\n",
		r.repeated, megabytes(r.counted.eventBytes), megabytes(r.counted.idBytes))
	fmt.Fprint(out, "| export | lines | MB | s | lines/s | peak memory |\n|---|--:|--:|--:|--:|--:|\n")
	for _, e := range []struct {
		what string
		exported
	}{{"the first tenth", r.tenth}, {"all", r.whole}} {
		seconds := e.Took.Seconds()
		fmt.Fprintf(out, "| %s | %d | %.0f | %.1f | %.0f | %s |\n",
			e.what, e.Lines, float64(e.Bytes)/1e6, seconds, float64(e.Lines)/seconds, megabytes(e.Peak))
	}
	figures.Print(out, r.findings())
}

func (r *fillReport) printPaces(out io.Writer) {
	fmt.Fprintln(out, "| tenth | s | events/s | p50 ms | p99 ms | CPU µs per event: control | Postgres | WAL bytes per event | responses by status | no response |")
	fmt.Fprintln(out, "|--:|--:|--:|--:|--:|--:|--:|--:|---|--:|")
	seconds := 0.0
	for i, p := range r.paces {
		seconds += p.Seconds
		fmt.Fprintf(out, "| %d | %.1f | %.0f | %.1f | %.1f | %.1f | %.1f | %.0f | %v | %d |\n", i+1, p.Seconds, p.rate(),
			p.Latencies.P50/1000, p.Latencies.P99/1000, p.controlTime(), p.postgresTime(), p.logged(), p.Statuses, p.Requests-p.Answers)
	}
	fmt.Fprintf(out, "| all | %.1f | %.0f | %.1f | %.1f | | | | | |\n\n", seconds, float64(r.events)/seconds, r.latencies.P50/1000, r.latencies.P99/1000)
}
