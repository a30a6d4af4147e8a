package main

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"
)

// outage takes Postgres away under load and brings it back.
type outage struct {
	span    time.Duration
	clients int // connections to each edge
}

func (d outage) run(ctx context.Context, f *fleet) ([]finding, error) {
	_, keys, err := makeLinks(ctx, f, 100)
	if err != nil {
		return nil, err
	}
	for _, addr := range f.edgeAddrs() {
		v := newVisitor(addr)
		for _, k := range keys {
			if _, err := v.click(k.path); err != nil {
				return nil, err
			}
		}
		v.hangUp()
	}
	known, unknown := newVisits(), newVisits()
	beside, stop := context.WithCancel(ctx)
	var clients sync.WaitGroup
	end := func() { stop(); clients.Wait() }
	defer end()
	for _, addr := range f.edgeAddrs() {
		for range d.clients {
			clients.Go(func() { clickAll(beside, known, addr, keys) })
		}
	}
	pause(ctx, time.Second)
	if err := f.Postgres.StopImmediate(); err != nil {
		return nil, err
	}
	pause(ctx, time.Second) // what had begun before has ended
	down, back := context.WithTimeout(ctx, d.span-time.Second)
	defer back()
	var envelopes int
	for i := 0; down.Err() == nil; i++ {
		v := newVisitor(f.edges[i%len(f.edges)].Addr)
		unknown.click(v, fmt.Sprintf("/%s/none-%d", keys[0].path[1:5], i))
		var envelope struct{ StatusCode int }
		if json.Unmarshal(v.response.Body(), &envelope) == nil && envelope.StatusCode == 503 {
			envelopes++
		}
		v.hangUp()
		pause(down, 100*time.Millisecond)
	}
	if err := f.Postgres.Start(ctx); err != nil {
		return nil, err
	}
	began := time.Now()
	for _, edge := range f.edges {
		if err := edge.Ready(ctx); err != nil {
			return nil, err
		}
	}
	leased := time.Since(began)
	pause(ctx, time.Second)
	end()
	all, others := known.total(302)
	asked, wrong := unknown.total(503)
	return []finding{
		none(fmt.Sprintf("clicks on cached links not answered 302 in %v without Postgres (%v)", d.span, known), others, all),
		none("unknown keys not answered 503", wrong, asked),
		none("of these without the envelope", asked-envelopes, asked),
		atMost("leases are back after", leased, 2*time.Second),
	}, nil
}
