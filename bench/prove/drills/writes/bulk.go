package writes

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"deeplink/bench/prove/figures"
	"deeplink/bench/prove/fleet"
	"deeplink/bench/prove/visitor"
)

// bulk sends bulk requests with 1,000 creates each, and clicks on each link at every edge right after the response.
type bulk struct{ rounds int }

const created = 1000

func (d bulk) run(ctx context.Context, f *fleet.Fleet) ([]figures.Finding, error) {
	o, err := fleet.NewOrganization(ctx, f.OperatorCommand)
	if err != nil {
		return nil, err
	}
	var took []time.Duration
	pending, unresolved, clicks := 0, 0, 0
	for range d.rounds {
		span, propagation, paths, err := d.create(ctx, f, o)
		if err != nil {
			return nil, err
		}
		took = append(took, span)
		if propagation != "complete" {
			pending++
		}
		missed, err := click(ctx, f, paths)
		if err != nil {
			return nil, err
		}
		unresolved += missed
		clicks += len(paths) * len(f.Edges)
	}
	slices.Sort(took)
	return []figures.Finding{
		figures.AtMost(fmt.Sprintf("%d creates in one request, median of %d", created, d.rounds), took[len(took)/2], time.Second),
		{What: "responses that were not complete", Figure: fmt.Sprintf("%d of %d", pending, d.rounds), Bound: "0", Kept: pending == 0, Timed: true},
		figures.None("first clicks after a response that found no link", unresolved, clicks),
	}, nil
}

// create sends one request, and returns the paths of the new short URLs.
func (d bulk) create(ctx context.Context, f *fleet.Fleet, o fleet.Organization) (took time.Duration, propagation string, paths []string, err error) {
	operations := strings.TrimSuffix(strings.Repeat(`{"op":"create","link":{"path":"/a","fallbackUrl":"https://example.com/a"}},`, created), ",")
	began := time.Now()
	response, text, err := fleet.Send(ctx, f.Controls[0].Addr, o.ServerKey, http.MethodPost, "/links/bulk", strings.NewReader(`{"operations":[`+operations+`]}`))
	if err != nil {
		return 0, "", nil, err
	}
	took = time.Since(began)
	var results struct {
		Results []struct {
			Status int
			Link   struct{ ShortCode string }
		}
	}
	if err := json.Unmarshal(text, &results); err != nil || len(results.Results) != created {
		return 0, "", nil, fmt.Errorf("%d %.300s: %w", response.StatusCode, text, err)
	}
	for _, r := range results.Results {
		if r.Status != http.StatusCreated {
			return 0, "", nil, fmt.Errorf("an operation got %d", r.Status)
		}
		paths = append(paths, "/"+o.OrgKey+"/"+r.Link.ShortCode)
	}
	return took, response.Header.Get("Deeplink-Propagation"), paths, nil
}

// click visits each path once at each edge, and returns how many visits did not get the redirect.
func click(ctx context.Context, f *fleet.Fleet, paths []string) (missed int, err error) {
	missing := make([]int, len(f.Edges))
	group, _ := errgroup.WithContext(ctx)
	for i, edge := range f.Edges {
		group.Go(func() error {
			for _, path := range paths {
				v := visitor.New(edge.Addr) // a visitor of its own, because an address is limited to 500 a second
				status, err := v.Click(path)
				v.HangUp()
				if err != nil {
					return err
				}
				if status != http.StatusFound {
					missing[i]++
				}
			}
			return nil
		})
	}
	err = group.Wait()
	for _, n := range missing {
		missed += n
	}
	return missed, err
}
