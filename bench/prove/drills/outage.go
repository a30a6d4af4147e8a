package drills

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"deeplink/bench/prove/figures"
	"deeplink/bench/prove/fleet"
	"deeplink/bench/prove/visitor"
)

// outage stops Postgres under load and restarts it.
type outage struct {
	span    time.Duration
	clients int // connections to each edge
}

func (d outage) run(ctx context.Context, f *fleet.Fleet) ([]figures.Finding, error) {
	_, keys, err := fleet.MakeLinks(ctx, f, 100)
	if err != nil {
		return nil, err
	}
	for _, addr := range f.EdgeAddrs() {
		v := visitor.New(addr)
		for _, k := range keys {
			if _, err := v.Click(k.Path); err != nil {
				return nil, err
			}
		}
		v.HangUp()
	}
	known, unknown := visitor.NewVisits(), visitor.NewVisits()
	background, stop := context.WithCancel(ctx)
	var clients sync.WaitGroup
	end := func() { stop(); clients.Wait() }
	defer end()
	for _, addr := range f.EdgeAddrs() {
		for range d.clients {
			clients.Go(func() { clickAll(background, known, addr, keys) })
		}
	}
	fleet.Pause(ctx, time.Second)
	if err := f.Postgres.StopImmediate(); err != nil {
		return nil, err
	}
	fleet.Pause(ctx, time.Second) // requests that had started before have ended
	down, back := context.WithTimeout(ctx, d.span-time.Second)
	defer back()
	var envelopes int
	for i := 0; down.Err() == nil; i++ {
		v := visitor.New(f.Edges[i%len(f.Edges)].Addr)
		unknown.Click(v, fmt.Sprintf("/%s/none-%d", keys[0].Path[1:5], i))
		var envelope struct{ StatusCode int }
		if json.Unmarshal(v.Response.Body(), &envelope) == nil && envelope.StatusCode == 503 {
			envelopes++
		}
		v.HangUp()
		fleet.Pause(down, 100*time.Millisecond)
	}
	if err := f.Postgres.Start(ctx); err != nil {
		return nil, err
	}
	began := time.Now()
	for _, edge := range f.Edges {
		if err := edge.Ready(ctx); err != nil {
			return nil, err
		}
	}
	leased := time.Since(began)
	fleet.Pause(ctx, time.Second)
	end()
	all, others := known.Total(302)
	asked, wrong := unknown.Total(503)
	return []figures.Finding{
		figures.None(fmt.Sprintf("clicks on cached links without status 302 in %v without Postgres (%v)", d.span, known), others, all),
		figures.None("unknown keys without status 503", wrong, asked),
		figures.None("of these without the envelope", asked-envelopes, asked),
		figures.AtMost("leases are back after", leased, 2*time.Second),
	}, nil
}
