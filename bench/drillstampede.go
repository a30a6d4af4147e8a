package main

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// stampede asks one edge for one link that it does not know, by many connections at once.
type stampede struct{ requests int }

const (
	edgeLoads = "deeplink_edge_loads_total"
	// dialers is how many connections are made at once.
	dialers = 64
)

func (d stampede) run(ctx context.Context, f *fleet) ([]finding, error) {
	_, keys, err := makeLinks(ctx, f, 1)
	if err != nil {
		return nil, err
	}
	edge := f.edges[0]
	visitors := make([]*visitor, d.requests)
	for i := range visitors {
		visitors[i] = newVisitor(edge.Addr)
		defer visitors[i].hangUp()
	}
	if err := connectAll(visitors); err != nil {
		return nil, err
	}
	before, err := metric(ctx, edge.Admin, edgeLoads)
	if err != nil {
		return nil, err
	}
	answers := newVisits()
	began := time.Now()
	var asking sync.WaitGroup
	for _, v := range visitors {
		asking.Go(func() { answers.click(v, keys[0].path) })
	}
	asking.Wait()
	took := time.Since(began)
	after, err := metric(ctx, edge.Admin, edgeLoads)
	all, others := answers.total(302)
	return []finding{
		counted(fmt.Sprintf("loads for %d requests at once for one cold link, answered in %s", d.requests, milliseconds(took)),
			fmt.Sprint(after-before), "≤ 2", after-before <= 2 && after > before),
		none(fmt.Sprintf("of these not answered 302 (%v)", answers), others, all),
	}, err
}

// connectAll connects all visitors.
func connectAll(visitors []*visitor) error {
	var dialing sync.WaitGroup
	errs := make([]error, dialers)
	for d := range dialers {
		dialing.Go(func() {
			for i := d; i < len(visitors) && errs[d] == nil; i += dialers {
				errs[d] = visitors[i].connect()
			}
		})
	}
	dialing.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
