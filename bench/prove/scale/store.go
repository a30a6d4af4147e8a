package scale

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"deeplink/bench/prove/figures"
	"deeplink/bench/prove/fleet"
	"deeplink/bench/prove/visitor"
)

const (
	// missesPerRound is how many links are requested once each from a new edge, missClients at a time.
	missesPerRound = 2000
	missClients    = 4
	// callsPerRound is how many links each side creates, reads and deletes in its turn.
	callsPerRound = 200
	// listings is how often each list is requested.
	listings = 100
)

// comparison is one measurement of both sides, in each round.
type comparison struct {
	what         string
	small, large []durations
}

// compareStores compares queries over few links with queries over many, in turn, and measures lists of one organization with very many
// links.
func (c Command) compareStores(ctx context.Context, small, large *Sized, out io.Writer) error {
	misses, starts := comparison{what: "a click on a link that is not in memory"}, comparison{what: "an edge starts"}
	calls := []comparison{{what: "create"}, {what: "get"}, {what: "delete"}}
	for range c.Rounds {
		for _, side := range []*Sized{small, large} {
			start, missed, err := side.missOnce(ctx, missesPerRound)
			if err != nil {
				return err
			}
			made, err := side.callAPI(ctx, callsPerRound)
			if err != nil {
				return err
			}
			add := func(to *comparison, s durations) {
				if side == small {
					to.small = append(to.small, s)
				} else {
					to.large = append(to.large, s)
				}
			}
			add(&misses, missed)
			add(&starts, durations{start})
			for i := range calls {
				add(&calls[i], made[i])
			}
		}
	}
	figures.WriteHeader(out, fmt.Sprintf("ms, medians of %d rounds in turn", c.Rounds), fmt.Sprintf("p50, %d links", c.Small), fmt.Sprintf("p50, %d links", c.Large),
		"ratio", fmt.Sprintf("p99, %d links", c.Small), fmt.Sprintf("p99, %d links", c.Large), "ratio")
	for _, of := range append([]comparison{misses, starts}, calls...) {
		figures.WriteRow(out, of.what, median(of.small, 50), median(of.large, 50), of.ratio(50), median(of.small, 99), median(of.large, 99), of.ratio(99))
	}
	return large.listAll(ctx, out)
}

// median returns the median of the rounds' percentiles.
func median(rounds []durations, p int) time.Duration {
	var all durations
	for _, round := range rounds {
		all = append(all, round.percentile(p))
	}
	return all.percentile(50)
}

// ratio returns the median of the rounds' ratios.
func (of comparison) ratio(p int) float64 {
	all := make([]float64, len(of.small))
	for i := range all {
		all[i] = float64(of.large[i].percentile(p)) / float64(of.small[i].percentile(p))
	}
	slices.Sort(all)
	return all[len(all)/2]
}

// missOnce starts an edge and requests links that it has not cached, each once.
func (s *Sized) missOnce(ctx context.Context, n int) (start time.Duration, missed durations, err error) {
	edge, err := s.AddEdge(ctx, n, 0)
	if err != nil {
		return 0, nil, err
	}
	defer s.stopEdges(context.WithoutCancel(ctx))
	paths := make(chan string, n)
	for _, i := range rand.Perm(s.keys.Len())[:min(n, s.keys.Len())] {
		paths <- string(s.keys.At(i))
	}
	close(paths)
	clicks := visitor.NewVisits()
	var clients sync.WaitGroup
	for range missClients {
		clients.Go(func() {
			v := visitor.New(edge.Addr)
			defer v.HangUp()
			for path := range paths {
				clicks.Click(v, path)
			}
		})
	}
	clients.Wait()
	if all, others := clicks.Total(http.StatusFound); others > all/2 {
		// Some links have expired or have no target, most have one.
		return 0, nil, fmt.Errorf("most clicks had another status than 302: %v", clicks)
	}
	for _, m := range clicks.Took {
		missed = append(missed, m.Took)
	}
	return edge.took, missed, ctx.Err()
}

// callAPI creates links of the largest organization, reads and deletes them, one call after the other.
func (s *Sized) callAPI(ctx context.Context, n int) (took [3]durations, err error) {
	addr := s.Controls[0].Addr
	for i := range n {
		if i%40 == 39 {
			fleet.Pause(ctx, time.Second) // a key allows 100 writes per second
		}
		var made struct{ ID string }
		for step, call := range []struct {
			method string
			body   any
			status int
		}{
			{http.MethodPost, map[string]any{"path": "/made", "title": "Created by prove scale", "fallbackUrl": "https://shop.example.com/made"}, http.StatusCreated},
			{http.MethodGet, nil, http.StatusOK},
			{http.MethodDelete, nil, http.StatusOK},
		} {
			path := "/links"
			if step > 0 {
				path += "/" + made.ID
			}
			began := time.Now()
			response, text, err := s.largest.Request(ctx, addr, call.method, path, call.body)
			if err != nil {
				return took, err
			}
			if response.StatusCode != call.status {
				return took, fmt.Errorf("%s %s: %d %s", call.method, path, response.StatusCode, text)
			}
			took[step] = append(took[step], time.Since(began))
			if step == 0 {
				if err := json.Unmarshal(text, &made); err != nil {
					return took, err
				}
			}
		}
	}
	return took, ctx.Err()
}

// listAll requests lists of the largest organization.
func (s *Sized) listAll(ctx context.Context, out io.Writer) error {
	const page = 100
	last := s.largestLinks / page
	sample, err := s.sample(ctx)
	if err != nil {
		return err
	}
	figures.WriteHeader(out, fmt.Sprintf("pages of %d of %d links, ms", page, s.largestLinks), "matches", "p50", "p99", "longest")
	for _, list := range []struct {
		what  string
		query url.Values
	}{
		{"first page", url.Values{}},
		{"page in the middle", url.Values{"page": {fmt.Sprint(last / 2)}}},
		{"last page", url.Values{"page": {fmt.Sprint(last)}}},
		{"isActive=true", url.Values{"isActive": {"true"}}},
		{"isActive=false", url.Values{"isActive": {"false"}}},
		{"channel", url.Values{"channel": {sample.Channel}}},
		{"tag", url.Values{"tag": {sample.Tag}}},
		{"search for a short code", url.Values{"search": {sample.ShortCode}}},
		{"search for a title", url.Values{"search": {sample.Title}}},
		{"search for a path", url.Values{"search": {sample.Path}}},
		{"search for a word of the title", url.Values{"search": {sample.Word}}},
		{"search for two letters", url.Values{"search": {sample.Word[:2]}}},
		{"search for what is nowhere", url.Values{"search": {"zqxjkvbpyg"}}},
	} {
		list.query.Set("limit", fmt.Sprint(page))
		total, took, err := s.list(ctx, list.query)
		if err != nil {
			return err
		}
		figures.WriteRow(out, list.what, total, took.percentile(50), took.percentile(99), took.percentile(100))
	}
	return nil
}

func (s *Sized) list(ctx context.Context, query url.Values) (total int64, took durations, err error) {
	for range listings {
		began := time.Now()
		response, text, err := s.largest.Request(ctx, s.Controls[0].Addr, http.MethodGet, "/links?"+query.Encode(), nil)
		if err != nil {
			return 0, nil, err
		}
		if response.StatusCode != http.StatusOK {
			return 0, nil, fmt.Errorf("list %s: %d %s", query.Encode(), response.StatusCode, text)
		}
		took = append(took, time.Since(began))
		var page struct{ Total int64 }
		if err := json.Unmarshal(text, &page); err != nil {
			return 0, nil, err
		}
		if total = page.Total; time.Since(began) > time.Second {
			break // a sample that is large enough
		}
	}
	return total, took, nil
}

// searched are the values of one link by which lists are filtered.
type searched struct{ ShortCode, Title, Word, Path, Channel, Tag string }

// sample returns the values of one link in the middle of the largest organization that has all of them.
func (s *Sized) sample(ctx context.Context) (found searched, err error) {
	query := url.Values{"limit": {"100"}, "page": {fmt.Sprint(max(1, s.largestLinks/200))}}
	_, text, err := s.largest.Request(ctx, s.Controls[0].Addr, http.MethodGet, "/links?"+query.Encode(), nil)
	if err != nil {
		return found, err
	}
	var page struct {
		Data []struct {
			ShortCode, Path string
			Title, Channel  *string
			Tags            []string
		}
	}
	if err := json.Unmarshal(text, &page); err != nil {
		return found, fmt.Errorf("%s: %w", text, err)
	}
	for _, l := range page.Data {
		if l.Title != nil && l.Channel != nil && len(l.Tags) > 0 && len(*l.Title) > 5 {
			return searched{l.ShortCode, *l.Title, longestWord(*l.Title), l.Path, *l.Channel, l.Tags[0]}, nil
		}
	}
	return found, fmt.Errorf("no link has title, channel and tags: %s", text)
}
