// Package scale is `prove scale`: it compares few links with millions, in Postgres (store.go) and in the memory of edges (cache.go).
package scale

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"deeplink/bench/fill"
	"deeplink/bench/load"
	"deeplink/bench/prove/figures"
	"deeplink/bench/prove/fleet"
	"deeplink/bench/prove/proof"
)

// Command compares a small Deeplink with a large one: queries of Postgres, and the memory of edges.
type Command struct {
	Small         int           `default:"10000" help:"Links of the small database."`
	Large         int           `default:"10000000" help:"Links of the large database; the largest organization has a tenth."`
	Cached        []int         `default:"10000,1000000,5000000" help:"Numbers of links in the memory of edges. The others are compared with the first."`
	Rounds        int           `default:"5" help:"Interleaved rounds."`
	Rate          float64       `default:"10000" help:"Requests per second while the latencies of edges are measured."`
	Duration      time.Duration `default:"20s" help:"Length of such a round."`
	Only          string        `enum:"store,cache,all" default:"all" help:"What to compare: store, cache or all."`
	ServerThreads int           `default:"1" help:"GOMAXPROCS of each edge."`
}

// Run prints tables.
func (c Command) Run(ctx context.Context, out *proof.Output) error {
	if c.Small < 1 || c.Large < c.Small || len(c.Cached) == 0 || slices.Max(c.Cached) > c.Large || slices.Min(c.Cached) < 1 || c.Rounds < 1 {
		return errors.New("the large one must be larger than the small one and than what edges hold")
	}
	large, err := Open(ctx, c.Large, out.Log)
	if err != nil {
		return err
	}
	defer large.Close(context.WithoutCancel(ctx))
	fmt.Fprintf(out, "%d links in %.0f s, %d organizations, of which the largest has %d\n", c.Large, large.took.Seconds(), large.organizations, large.largestLinks)
	if c.Only != "cache" {
		small, err := Open(ctx, c.Small, out.Log)
		if err != nil {
			return err
		}
		err = errors.Join(c.compareStores(ctx, small, large, out), small.Close(context.WithoutCancel(ctx)))
		if err != nil {
			return err
		}
	}
	if c.Only != "store" {
		return c.compareCaches(ctx, large, out)
	}
	return nil
}

// Sized is a Deeplink with many links, one control and initially no edge.
type Sized struct {
	*fleet.Fleet
	keys          *load.Keys // those of all links, in no order
	organizations int
	largest       fleet.Organization
	largestLinks  int
	took          time.Duration
}

// perOrganization is the average number of links of an organization: most organizations are small.
const perOrganization = 800

// Open starts and fills one. The caller closes it.
func Open(ctx context.Context, links int, log io.Writer) (_ *Sized, err error) {
	s := new(Sized)
	if s.Fleet, err = fleet.Launch(ctx, 1, 0, log); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close(context.WithoutCancel(ctx)))
		}
	}()
	file := filepath.Join(s.Dir, "keys")
	began := time.Now()
	made, err := fill.Command{
		Links: links, Organizations: max(1, links/perOrganization), Keys: file, Database: s.Owner, Rebuild: true, Audit: true,
	}.Fill(ctx, os.Stderr)
	if err != nil {
		return nil, err
	}
	s.took, s.organizations = time.Since(began), made.Organizations
	s.largest, s.largestLinks = fleet.Organization{OrgKey: made.Largest.Key, ServerKey: made.Largest.ServerKey}, made.Largest.Links
	s.keys, err = load.ReadKeys(file)
	return s, err
}

// AddEdge starts an edge, at a new address, with room for that many links.
func (s *Sized) AddEdge(ctx context.Context, held, threads int) (*Edge, error) {
	addrs, err := fleet.FreeAddrs(1)
	if err != nil {
		return nil, err
	}
	// A filled link takes about 640 bytes, and a sixteenth of the memory is for unknown codes.
	settings := append(slices.Clone(s.EdgeSettings), fmt.Sprintf("EDGE_CACHE_BYTES=%d", 32<<20+held*768))
	if threads > 0 {
		settings = append(settings, fmt.Sprintf("GOMAXPROCS=%d", threads))
	}
	began := time.Now()
	node, err := s.StartEdge(ctx, addrs[0], settings...)
	if err != nil {
		return nil, err
	}
	s.Edges = append(s.Edges, node)
	return &Edge{Node: node, took: time.Since(began), held: held}, nil
}

// stopEdges stops all edges.
func (s *Sized) stopEdges(ctx context.Context) error {
	var errs []error
	for _, edge := range s.Edges {
		errs = append(errs, edge.Stop(ctx, fleet.StopTimeout))
	}
	s.Edges = nil
	return errors.Join(errs...)
}

// durations are measured durations.
type durations []time.Duration

func (s durations) percentile(p int) time.Duration {
	return figures.Percentile(slices.Sorted(slices.Values(s)), p)
}
