package drills

import (
	"context"
	"fmt"
	"sync"
	"time"

	"deeplink/bench/prove/figures"
	"deeplink/bench/prove/fleet"
	"deeplink/bench/prove/visitor"
)

// stampede requests one uncached link from one edge, over many connections at once.
type stampede struct{ requests int }

const (
	// dialers is how many connections are established concurrently.
	dialers = 64
)

func (d stampede) run(ctx context.Context, f *fleet.Fleet) ([]figures.Finding, error) {
	_, keys, err := fleet.MakeLinks(ctx, f, 1)
	if err != nil {
		return nil, err
	}
	edge := f.Edges[0]
	visitors := make([]*visitor.Visitor, d.requests)
	for i := range visitors {
		visitors[i] = visitor.New(edge.Addr)
		defer visitors[i].HangUp()
	}
	if err := connectAll(visitors); err != nil {
		return nil, err
	}
	// The edge voids its entry for the link twice: on the hint of its creation and at the next poll. During the stampede, the poll would
	// cause one more load.
	if err := awaitPoll(ctx, edge.Admin); err != nil {
		return nil, err
	}
	before, err := fleet.Metric(ctx, edge.Admin, fleet.EdgeLoads)
	if err != nil {
		return nil, err
	}
	answers := visitor.NewVisits()
	began := time.Now()
	var asking sync.WaitGroup
	for _, v := range visitors {
		asking.Go(func() { answers.Click(v, keys[0].Path) })
	}
	asking.Wait()
	took := time.Since(began)
	after, err := fleet.Metric(ctx, edge.Admin, fleet.EdgeLoads)
	all, others := answers.Total(302)
	return []figures.Finding{
		figures.Counted(fmt.Sprintf("loads for %d concurrent requests for one uncached link, completed in %s", d.requests, figures.Milliseconds(took)),
			fmt.Sprint(after-before), "≤ 2", after-before <= 2 && after > before),
		figures.None(fmt.Sprintf("of these without status 302 (%v)", answers), others, all),
	}, err
}

// awaitPoll returns when an edge has completed a poll that started after the call. It fails when ctx ends or after a minute.
func awaitPoll(ctx context.Context, admin string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	first, err := fleet.Metric(ctx, admin, fleet.EdgePolls)
	// The next poll may have started before the call, the one after it cannot have.
	for polls := first; err == nil && polls < first+2; polls, err = fleet.Metric(ctx, admin, fleet.EdgePolls) {
		time.Sleep(20 * time.Millisecond)
	}
	return err
}

// connectAll connects all visitors.
func connectAll(visitors []*visitor.Visitor) error {
	var dialing sync.WaitGroup
	errs := make([]error, dialers)
	for d := range dialers {
		dialing.Go(func() {
			for i := d; i < len(visitors) && errs[d] == nil; i += dialers {
				errs[d] = visitors[i].Connect()
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
