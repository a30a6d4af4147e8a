package main

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// rollingRestart restarts one edge after the other, in order and under load. Clients ask again only when nobody listens.
type rollingRestart struct {
	clients int // connections to each edge
	rounds  int
}

func (d rollingRestart) run(ctx context.Context, f *fleet) ([]finding, error) {
	t, keys, err := makeLinks(ctx, f, 50)
	if err != nil {
		return nil, err
	}
	addrs := f.edgeAddrs()
	clicks, stale := newVisits(), newVisits()
	beside, stop := context.WithCancel(ctx)
	var clients sync.WaitGroup
	for _, addr := range addrs {
		for range d.clients {
			clients.Go(func() { clickAll(beside, clicks, addr, keys) })
		}
	}
	var failed error
	clients.Go(func() { failed = deleteAndAsk(beside, t, addrs, stale) })
	restarts, err := d.restartAll(ctx, f)
	pause(ctx, 300*time.Millisecond)
	stop()
	clients.Wait()
	if err == nil {
		err = failed
	}
	all, others := clicks.total(302)
	asked, wrong := stale.total(404)
	return []finding{
		none(fmt.Sprintf("clicks not answered 302 in %d restarts (%v)", restarts, clicks), others, all),
		none(fmt.Sprintf("answers from before a delete (%v)", stale), wrong, asked),
	}, err
}

// restartAll returns how many restarts there were.
func (d rollingRestart) restartAll(ctx context.Context, f *fleet) (n int, err error) {
	for range d.rounds {
		for i, edge := range f.edges {
			if err := edge.Stop(ctx, stopTimeout); err != nil {
				return n, err
			}
			if f.edges[i], err = f.StartEdge(ctx, edge.Addr, f.edgeSettings...); err != nil {
				f.edges[i] = edge
				return n, err
			}
			n++
			pause(ctx, 200*time.Millisecond)
		}
	}
	return n, nil
}

// clickAll clicks links in turn until ctx ends. When nobody listens it asks again a little later.
func clickAll(ctx context.Context, clicks *visits, addr string, keys []key) {
	v := newVisitor(addr)
	defer v.hangUp()
	for i := 0; ctx.Err() == nil; i++ {
		clicks.click(v, keys[i%len(keys)].path)
		if !v.connected() {
			pause(ctx, 5*time.Millisecond)
			continue
		}
		pause(ctx, time.Millisecond)
	}
}

// deleteAndAsk deletes one link after the other, and asks every edge as soon as each is deleted.
func deleteAndAsk(ctx context.Context, t *tenant, addrs []string, answers *visits) error {
	for ctx.Err() == nil {
		// What was begun is ended: a call that is given up says nothing about the edges.
		bounded := context.WithoutCancel(ctx)
		k, err := t.makeLink(bounded)
		if err != nil {
			return err
		}
		for _, addr := range addrs {
			v := newVisitor(addr)
			_, _ = v.click(k.path) // so that it is in memory; an edge that is down is none that could be wrong
			v.hangUp()
		}
		a, err := t.call(bounded, "DELETE", "/links/"+k.id, nil, 200)
		if err != nil {
			return err
		}
		if a.propagation != "complete" {
			return fmt.Errorf("a delete was answered %q although every edge that stopped had said so", a.propagation)
		}
		for _, addr := range addrs {
			v := newVisitor(addr)
			answers.click(v, k.path)
			v.hangUp()
		}
	}
	return nil
}
