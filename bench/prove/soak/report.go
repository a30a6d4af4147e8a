package soak

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"deeplink/bench/prove/figures"
	"deeplink/bench/prove/fleet"
	"deeplink/bench/result"
)

// edgeClicks counts the redirects of an edge.
const edgeClicks = `deeplink_edge_requests_total{kind="link",status="302"}`

// sample is the state at the end of a span.
type sample struct {
	round         result.Round
	hits          float64 // share of the clicks of the span that were served without Postgres
	edge, control process
	writes        int64 // since the editors began, including the search for saturation
	pending       int64
}

// process is the resource usage of a program.
type process struct {
	heap        float64 // live bytes at the last collection
	resident    float64 // bytes
	goroutines  float64
	descriptors float64
}

// readProcess reads the metrics of a program.
func readProcess(ctx context.Context, admin string) (p process, err error) {
	for name, to := range map[string]*float64{
		"go_gc_heap_live_bytes": &p.heap, "process_resident_memory_bytes": &p.resident,
		"go_goroutines": &p.goroutines, "process_open_fds": &p.descriptors,
	} {
		if *to, err = fleet.Metric(ctx, admin, name); err != nil {
			return p, err
		}
	}
	return p, nil
}

// report is the result of a soak.
type report struct {
	*soak
	most          float64 // responses per second of a closed loop
	out           io.Writer
	samples       []sample
	clicks, loads float64 // counters of the edge at the last sample
}

func newReport(k *soak, most float64, out io.Writer) *report {
	return &report{soak: k, most: most, out: out}
}

// begin prints the header of the table.
func (r *report) begin(ctx context.Context) error {
	fmt.Fprintf(r.out, "The edge serves at most %.0f requests per second; it gets %.0f, alongside %.0f writes per second.\n", r.most, r.Share*r.most, r.Writes)
	figures.WriteHeader(r.out, "until", "responses/s", "p50 µs", "p99 µs", "p99.9 µs", "hits %", "writes", "pending", "edge: heap MiB", "resident MiB", "goroutines",
		"descriptors", "control: heap MiB", "resident MiB", "goroutines", "descriptors")
	_, err := r.sinceLast(ctx)
	return err
}

// sinceLast returns the share of hits since its last call.
func (r *report) sinceLast(ctx context.Context) (hits float64, err error) {
	clicks, err := fleet.Metric(ctx, r.edge.Admin, edgeClicks)
	if err != nil {
		return 0, err
	}
	loads, err := fleet.Metric(ctx, r.edge.Admin, fleet.EdgeLoads)
	hits = 1 - (loads-r.loads)/(clicks-r.clicks)
	r.clicks, r.loads = clicks, loads
	return hits, err
}

// add takes a sample and prints it.
func (r *report) add(ctx context.Context, round result.Round) (err error) {
	s := sample{round: round}
	if s.hits, err = r.sinceLast(ctx); err != nil {
		return err
	}
	if s.edge, err = readProcess(ctx, r.edge.Admin); err != nil {
		return err
	}
	if s.control, err = readProcess(ctx, r.control); err != nil {
		return err
	}
	for _, e := range r.editors {
		s.writes, s.pending = s.writes+e.writes.Load(), s.pending+e.pending.Load()
	}
	r.samples = append(r.samples, s)
	cells := []any{fmt.Sprint(r.Span * time.Duration(len(r.samples))), int(round.Rate()), int(round.Latencies.P50), int(round.Latencies.P99), int(round.Latencies.P999), 100 * s.hits, s.writes, s.pending}
	for _, p := range []process{s.edge, s.control} {
		cells = append(cells, p.heap/(1<<20), p.resident/(1<<20), int(p.goroutines), int(p.descriptors))
	}
	figures.WriteRow(r.out, cells...)
	return nil
}

func (r *report) rounds() (rounds []result.Round) {
	for _, s := range r.samples {
		rounds = append(rounds, s.round)
	}
	return rounds
}

var errSoak = errors.New("a promise was not kept")

// judge prints the result of each promise, and fails unless all were kept.
func (r *report) judge(out io.Writer) error {
	kept := true
	check := func(what string, value, bound float64, good bool) {
		verdict := "kept"
		if !good {
			verdict, kept = "NOT KEPT", false
		}
		fmt.Fprintf(out, "%s: %.4g, bound %.4g: %s\n", what, value, bound, verdict)
	}
	fmt.Fprintln(out)
	for _, of := range []struct {
		what  string
		read  func(sample) float64
		bound float64
	}{
		{"edge: heap", func(s sample) float64 { return s.edge.heap }, 1.05},
		{"edge: resident", func(s sample) float64 { return s.edge.resident }, 1.1},
		{"edge: goroutines", func(s sample) float64 { return s.edge.goroutines }, 1.1},
		{"edge: descriptors", func(s sample) float64 { return s.edge.descriptors }, 1.1},
		{"control: heap", func(s sample) float64 { return s.control.heap }, 1.25},
		{"control: resident", func(s sample) float64 { return s.control.resident }, 1.25},
		{"control: goroutines", func(s sample) float64 { return s.control.goroutines }, 1.1},
		{"control: descriptors", func(s sample) float64 { return s.control.descriptors }, 1.1},
		{"p99.9", func(s sample) float64 { return s.round.Latencies.P999 }, 2},
	} {
		growth := r.growth(of.read)
		check(of.what+", last third of the first", growth, of.bound, growth <= of.bound)
	}
	var failed, others, hits float64
	for _, s := range r.samples {
		hits += s.hits / float64(len(r.samples))
		others += float64(s.round.Answers - s.round.Statuses[302])
		failed += float64(s.round.Requests - s.round.Answers)
	}
	check("hits", hits, 0.99, hits >= 0.99)
	check("clicks without a response", failed, 0, failed == 0)
	check("responses that are no redirect", others, 0, others == 0)
	if !kept {
		return errSoak
	}
	return nil
}

// growth is the median of the last third of the samples divided by that of the first.
func (r *report) growth(read func(sample) float64) float64 {
	third := max(1, len(r.samples)/3)
	return middle(r.samples[len(r.samples)-third:], read) / middle(r.samples[:third], read)
}

func middle(samples []sample, read func(sample) float64) float64 {
	var values []float64
	for _, s := range samples {
		values = append(values, read(s))
	}
	slices.Sort(values)
	return values[len(values)/2]
}
