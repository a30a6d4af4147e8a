package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"deeplink/bench/load"
)

// scaleCommand compares a small Deeplink with a large one: what is asked of Postgres (scalestore.go), and what edges hold in
// memory (scalecache.go).
type scaleCommand struct {
	Small         int           `default:"10000" help:"Links of the small one."`
	Large         int           `default:"10000000" help:"Links of the large one, over organizations of which the largest has a tenth."`
	Cached        []int         `default:"10000,1000000,5000000" help:"How many links edges hold in memory. The others are compared with the first."`
	Rounds        int           `default:"5" help:"Rounds in turn."`
	Rate          float64       `default:"10000" help:"Requests a second while latencies of edges are measured."`
	Duration      time.Duration `default:"20s" help:"Length of such a round."`
	Only          string        `enum:"store,cache,all" default:"all" help:"store, cache, or all."`
	ServerThreads int           `default:"1" help:"GOMAXPROCS of each edge."`
	Log           string        `help:"File for what the programs write." type:"path"`
}

// Run prints tables.
func (c scaleCommand) Run(ctx context.Context) error {
	if c.Small < 1 || c.Large < c.Small || len(c.Cached) == 0 || slices.Max(c.Cached) > c.Large || slices.Min(c.Cached) < 1 || c.Rounds < 1 {
		return errors.New("the large one must be larger than the small one and than what edges hold")
	}
	log, err := createLog(c.Log)
	if err != nil {
		return err
	}
	defer log.Close()
	large, err := openSized(ctx, c.Large, log)
	if err != nil {
		return err
	}
	defer large.close(context.WithoutCancel(ctx))
	fmt.Printf("%d links in %.0f s, %d organizations, of which the largest has %d\n", c.Large, large.took.Seconds(), large.organizations, large.largestLinks)
	if c.Only != "cache" {
		small, err := openSized(ctx, c.Small, log)
		if err != nil {
			return err
		}
		err = errors.Join(c.compareStores(ctx, small, large, os.Stdout), small.close(context.WithoutCancel(ctx)))
		if err != nil {
			return err
		}
	}
	if c.Only != "store" {
		return c.compareCaches(ctx, large, os.Stdout)
	}
	return nil
}

// sized is a Deeplink with many links, one control and no edge yet.
type sized struct {
	*fleet
	keys          *load.Keys // all links', in no order
	organizations int
	largest       organization
	largestLinks  int
	took          time.Duration
}

// perOrganization is how many links one has on average: few, most organizations are small.
const perOrganization = 800

func openSized(ctx context.Context, links int, log io.Writer) (_ *sized, err error) {
	s := new(sized)
	if s.fleet, err = launch(ctx, 1, 0, log); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close(context.WithoutCancel(ctx)))
		}
	}()
	file := filepath.Join(s.dir, "keys")
	began := time.Now()
	made, err := fillCommand{
		Links: links, Organizations: max(1, links/perOrganization), Keys: file, Database: s.Owner, Rebuild: true, Audit: true,
	}.fill(ctx, os.Stderr)
	if err != nil {
		return nil, err
	}
	s.took, s.organizations = time.Since(began), made.Organizations
	s.largest, s.largestLinks = organization{orgKey: made.Largest.Key, serverKey: made.Largest.ServerKey}, made.Largest.Links
	s.keys, err = load.ReadKeys(file)
	return s, err
}

// startEdge starts an edge that holds up to so many links. Its address is its own.
func (s *sized) startEdge(ctx context.Context, held, threads int) (*edgeUnderTest, error) {
	addrs, err := freeAddrs(1)
	if err != nil {
		return nil, err
	}
	// A filled link takes about 640 bytes, and a sixteenth of the room is for unknown codes.
	settings := append(slices.Clone(s.edgeSettings), fmt.Sprintf("EDGE_CACHE_BYTES=%d", 32<<20+held*768))
	if threads > 0 {
		settings = append(settings, fmt.Sprintf("GOMAXPROCS=%d", threads))
	}
	began := time.Now()
	node, err := s.StartEdge(ctx, addrs[0], settings...)
	if err != nil {
		return nil, err
	}
	s.edges = append(s.edges, node)
	return &edgeUnderTest{Node: node, took: time.Since(began), held: held}, nil
}

// stopEdges stops all edges.
func (s *sized) stopEdges(ctx context.Context) error {
	var errs []error
	for _, edge := range s.edges {
		errs = append(errs, edge.Stop(ctx, stopTimeout))
	}
	s.edges = nil
	return errors.Join(errs...)
}

// durations are how long things took.
type durations []time.Duration

func (s durations) percentile(p int) time.Duration {
	return percentile(slices.Sorted(slices.Values(s)), p)
}

// writeRow writes a line of a table.
func writeRow(out io.Writer, cells ...any) {
	texts := make([]string, len(cells))
	for i, cell := range cells {
		switch cell := cell.(type) {
		case time.Duration:
			texts[i] = fmt.Sprintf("%.2f", inMilliseconds(cell))
		case float64:
			texts[i] = fmt.Sprintf("%.2f", cell)
		default:
			texts[i] = fmt.Sprint(cell)
		}
	}
	fmt.Fprintln(out, "| "+strings.Join(texts, " | ")+" |")
}

// writeHeader begins a table: the first column is text, the others are numbers.
func writeHeader(out io.Writer, names ...string) {
	fmt.Fprintln(out, "\n| "+strings.Join(names, " | ")+" |\n|---|"+strings.Repeat("--:|", len(names)-1))
}
