package speed

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"time"

	"deeplink/bench/load"
	"deeplink/bench/progress"
	"deeplink/bench/prove/fleet"
	"deeplink/bench/result"
)

const (
	// latencyShare is the share of nginx's highest rate (same job) at which both are measured: a busy day, on which neither queues.
	latencyShare       = 0.4
	latencyConnections = 64
	// latencySkew is close to the distribution of wrk's requests.
	latencySkew = 1.01
	// warmUp is how long a contender gets requests before its turn counts.
	warmUp = time.Second
)

// browserHeader is that of wrk.lua.
var browserHeader = []string{
	"User-Agent: Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/139.0.0.0 Safari/537.36",
	"Accept: text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,image/apng,*/*;q=0.8",
	"Accept-Encoding: gzip, deflate, br, zstd",
	"Accept-Language: en-GB,en;q=0.9,de;q=0.8",
	`Sec-Ch-Ua: "Chromium";v="140", "Not=A?Brand";v="24", "Google Chrome";v="140"`,
	"Sec-Ch-Ua-Mobile: ?0",
	`Sec-Ch-Ua-Platform: "Windows"`,
	"Sec-Fetch-Dest: document",
	"Sec-Fetch-Mode: navigate",
	"Sec-Fetch-Site: cross-site",
	"Upgrade-Insecure-Requests: 1",
	"Referer: https://mail.example.net/",
}

var errNoRate = errors.New("--latency needs the rates of the edge and of " + sameJobNginx)

// latency sends the edge and nginx (same job) the same number of requests per second, in turn, at a fixed schedule. The rate derives from
// the earlier measurement. From then on this process stays on the client core.
func (c Command) latency(ctx context.Context, f *field, report *report) error {
	var two []contender
	var rate float64
	for _, name := range []string{theEdge, sameJobNginx} {
		i := slices.IndexFunc(f.contenders, func(c contender) bool { return c.name == name })
		j := slices.IndexFunc(report.file.Series, func(s result.Series) bool { return s.Contender == name })
		if i < 0 || j < 0 {
			return errNoRate
		}
		two = append(two, f.contenders[i])
		rate = latencyShare * report.file.Series[j].Median(result.Round.Rate)
	}
	if err := load.Pin(fleet.ClientCore); err != nil {
		return err
	}
	for _, has := range two {
		report.open = append(report.open, result.Series{Contender: has.name, Scenario: fmt.Sprintf("%s, %.0f a second", has.scenario, rate)})
	}
	bar := progress.Bar(c.Rounds*len(two), "turns at one rate", os.Stderr)
	for range c.Rounds {
		for _, i := range rand.Perm(len(two)) {
			round, err := two[i].atRate(ctx, rate, c.Duration)
			if err != nil {
				return fmt.Errorf("%s: %w", two[i].name, err)
			}
			report.open[i].Rounds = append(report.open[i].Rounds, round)
			_ = bar.Add(1) // a failed write to the terminal is harmless
		}
	}
	report.file.Series = append(report.file.Series, report.open...)
	return bar.Finish()
}

// atRate does one round with a contender.
func (c contender) atRate(ctx context.Context, rate float64, span time.Duration) (round result.Round, err error) {
	target, err := load.ParseTarget("http://" + c.addr)
	if err != nil {
		return round, err
	}
	request := load.Request{Header: browserHeader, Clients: wrkClients, Path: c.keys[0]}
	if len(c.keys) > 1 {
		request.Paths = load.NewKeys(c.keys...).Skewed(latencySkew)
	}
	// With a million keys, a garbage collection stops the generator for tens of milliseconds, which both latencies would include.
	runtime.GC()
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	before, err := fleet.ProcessorTimeOf(c.pid)
	if err != nil {
		return round, err
	}
	round, err = load.Run(ctx, load.Options{
		Targets: []load.Target{target}, Connections: latencyConnections, Rate: rate, Warmup: warmUp, Duration: span, Source: request.Source(),
	})
	if err != nil {
		return round, err
	}
	after, err := fleet.ProcessorTimeOf(c.pid)
	round.CPU = float64((after - before).Microseconds()) / (float64(round.Answers) * (1 + warmUp.Seconds()/span.Seconds())) // the warm-up is included
	return round, err
}

// printLatencies prints the latencies of two servers at the same rate.
func (r *report) printLatencies(out io.Writer) {
	fmt.Fprintln(out, "\n| server, at the same rate | requests for | p50 µs | p99 µs | p99.9 µs | CPU µs per request | failed | sent late |")
	fmt.Fprintln(out, "|---|---|--:|--:|--:|--:|--:|--:|")
	for _, s := range r.open {
		var late int64
		for _, round := range s.Rounds {
			late += round.Late
		}
		fmt.Fprintf(out, "| %s | %s | %.0f | %.0f | %.0f | %.2f | %d | %d |\n", s.Contender, s.Scenario, s.Median(p50), s.Median(p99), s.Median(p999),
			s.Median(perRequest), failures(s), late)
	}
	ratios, middle := r.open[0].Against(r.open[1], p99)
	fmt.Fprintf(out, "\np99 of the edge compared with %s at the same rate: %.2f (%.2f – %.2f); target at most %s, stretch target at most %s.\n",
		r.open[1].Contender, middle, slices.Min(ratios), slices.Max(ratios), judged(middle <= p99Budget.reach, p99Budget.reach),
		judged(middle <= p99Budget.moonshot, p99Budget.moonshot))
}
