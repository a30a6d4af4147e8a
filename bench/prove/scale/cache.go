package scale

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"deeplink/bench/load"
	"deeplink/bench/prove/figures"
	"deeplink/bench/prove/fleet"
	"deeplink/bench/prove/visitor"
	"deeplink/bench/result"
	"deeplink/deploy/stack"
)

// Edge is an edge that is to hold a number of links.
type Edge struct {
	*stack.Node
	took   time.Duration // from its start until it was ready
	held   int
	memory struct{ heap, resident, cached float64 } // bytes of live objects, of resident memory, and of the cache by its own count
	rounds []result.Round
	pauses []float64 // seconds, the longest pause of each round
}

// compareCaches has edges hold few links and many, and compares the memory and the latency.
func (c Command) compareCaches(ctx context.Context, s *Sized, out io.Writer) error {
	raw, err := s.rawBytes(ctx)
	if err != nil {
		return err
	}
	empty, err := s.AddEdge(ctx, 0, c.ServerThreads)
	if err != nil {
		return err
	}
	if err := empty.weigh(ctx); err != nil {
		return err
	}
	if err := s.stopEdges(ctx); err != nil {
		return err
	}
	var edges []*Edge
	for _, held := range c.Cached {
		edge, err := s.AddEdge(ctx, held, c.ServerThreads)
		if err != nil {
			return err
		}
		edges = append(edges, edge)
		if err := visitor.Warm(ctx, edge.Node, s.keys, edge.held); err != nil {
			return err
		}
		if err := edge.weigh(ctx); err != nil {
			return err
		}
	}
	for range c.Rounds {
		for _, edge := range edges {
			if err := c.measure(ctx, s, edge); err != nil {
				return err
			}
		}
	}
	figures.WriteHeader(out, "links in memory", "bytes a link", "by the edge's count", "raw data", "links in a GiB", "resident MiB", "p50 µs", "p99 µs", "p99.9 µs", "p99.9, ratio", "longest pause µs")
	first := result.Series{Rounds: edges[0].rounds}
	for _, edge := range edges {
		series := result.Series{Rounds: edge.rounds}
		_, ratio := series.Against(first, func(r result.Round) float64 { return r.Latencies.P999 })
		each := (edge.memory.heap - empty.memory.heap) / float64(edge.held)
		figures.WriteRow(out, edge.held, each, edge.memory.cached/float64(edge.held), raw, int(float64(1<<30)/each), edge.memory.resident/(1<<20),
			series.Median(func(r result.Round) float64 { return r.Latencies.P50 }),
			series.Median(func(r result.Round) float64 { return r.Latencies.P99 }),
			series.Median(func(r result.Round) float64 { return r.Latencies.P999 }), ratio, largest(edge.pauses)*1e6)
	}
	return s.stopEdges(ctx)
}

// rawBytes returns the average size of what an edge must know of a link: its address and the columns from which responses are made.
func (s *Sized) rawBytes(ctx context.Context) (raw float64, err error) {
	conn, err := pgx.Connect(ctx, s.Owner)
	if err != nil {
		return 0, err
	}
	defer conn.Close(ctx)
	err = conn.QueryRow(ctx, `
		select avg(octet_length(concat(o.org_key, '/', l.short_code, l.id::text, l.short_code, l.path, l.channel, l.utm_source, l.utm_medium,
		           l.utm_campaign, l.utm_term, l.utm_content, l.fallback_url, l.og_title, l.og_description, l.og_image_url, l.params::text)))
		from links l tablesample system (1) join organizations o on o.id = l.organization_id`).Scan(&raw)
	return raw, err
}

// weigh records how much memory the edge uses, after a garbage collection.
func (e *Edge) weigh(ctx context.Context) (err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+e.Admin+"/debug/pprof/heap?gc=1", nil)
	if err != nil {
		return err
	}
	response, err := fleet.Client.Do(request)
	if err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		return err
	}
	response.Body.Close()
	if e.memory.heap, err = fleet.Metric(ctx, e.Admin, "go_memstats_heap_alloc_bytes"); err != nil {
		return err
	}
	if e.memory.cached, err = fleet.Metric(ctx, e.Admin, `deeplink_edge_cache_bytes{of="links"}`); err != nil {
		return err
	}
	e.memory.resident, err = residentBytes(e.PID())
	return err
}

// residentBytes returns the resident memory of a process.
func residentBytes(pid int) (float64, error) {
	file, err := os.Open(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if size, found := strings.CutPrefix(lines.Text(), "VmRSS:"); found {
			kilobytes, err := strconv.ParseFloat(strings.TrimSpace(strings.TrimSuffix(size, "kB")), 64)
			return kilobytes * 1024, err
		}
	}
	return 0, fmt.Errorf("process %d: no resident memory in its status", pid)
}

// measure does one round of clicks on links that the edge holds.
func (c Command) measure(ctx context.Context, s *Sized, edge *Edge) error {
	target, err := load.ParseTarget(edge.URL())
	if err != nil {
		return err
	}
	round, err := load.Run(ctx, load.Options{
		Targets: []load.Target{target}, Connections: 32, Rate: c.Rate, Warmup: 2 * time.Second, Duration: c.Duration,
		Source: load.Request{Paths: s.keys.First(edge.held).Skewed(1.05), Clients: 1 << 20}.Source(),
	})
	if err != nil {
		return err
	}
	edge.rounds = append(edge.rounds, round)
	pause, err := fleet.Metric(ctx, edge.Admin, `go_gc_duration_seconds{quantile="1"}`)
	edge.pauses = append(edge.pauses, pause)
	return err
}

func largest(values []float64) (most float64) {
	for _, value := range values {
		most = max(most, value)
	}
	return most
}

// longestWord returns the longest word of a text, which must have one.
func longestWord(text string) (longest string) {
	for word := range strings.FieldsSeq(text) {
		if len(word) > len(longest) {
			longest = word
		}
	}
	return longest
}
