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
	drain   time.Duration // EDGE_DRAIN of the edges
}

func (d rollingRestart) run(ctx context.Context, f *fleet) ([]finding, error) {
	t, keys, err := makeLinks(ctx, f, 50)
	if err != nil {
		return nil, err
	}
	addrs := f.edgeAddrs()
	clicks := newVisits()
	clicks.drain = d.drain
	beside, stop := context.WithCancel(ctx)
	var clients sync.WaitGroup
	end := func() { stop(); clients.Wait() }
	defer end()
	for _, addr := range addrs {
		for range d.clients {
			clients.Go(func() { clickAll(beside, clicks, addr, keys) })
		}
	}
	deleted := deletedLinks{answers: newVisits()}
	var failed error
	clients.Go(func() { failed = deleted.deleteAndAsk(beside, t, addrs) })
	restarts, err := d.restartAll(ctx, f)
	pause(ctx, 300*time.Millisecond)
	end()
	if err == nil {
		err = failed
	}
	return append(d.lost(clicks, restarts), deleted.findings()...), err
}

// lost tells the requests that nobody was there to hear from the others. All are lost, but of these a busy machine alone may make
// some: whom the kernel lets in at the end of a listener nobody accepts, and a client that gets no turn outlasts the drain.
func (d rollingRestart) lost(clicks *visits, restarts int) []finding {
	all, others := clicks.total(302)
	unheard := clicks.unheard()
	nobody := none(fmt.Sprintf("clicks hung up on before the first answer of a connection, or when it was unused for %v", d.drain), unheard, all)
	nobody.timed = true
	return []finding{none(fmt.Sprintf("other clicks not answered 302 in %d restarts (%v)", restarts, clicks), others-unheard, all), nobody}
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

// deletedLinks is what became of links that were deleted while edges were restarted.
type deletedLinks struct {
	answers     *visits // of edges that were asked for them
	of, pending int     // deletes
}

// deleteAndAsk deletes one link after the other, and asks every edge as soon as each is deleted.
func (d *deletedLinks) deleteAndAsk(ctx context.Context, t *tenant, addrs []string) error {
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
		d.of++
		if a.propagation != "complete" {
			d.pending++ // edges may answer from before it
			continue
		}
		for _, addr := range addrs {
			v := newVisitor(addr)
			d.answers.click(v, k.path)
			v.hangUp()
		}
	}
	return nil
}

// findings leave out those who got no answer at all: they are clicks like others.
func (d *deletedLinks) findings() []finding {
	asked, wrong := d.answers.answered(404)
	// Every edge that stops says so, and nobody waits for it. One that runs may say nothing for longer than control waits.
	pending := none("deletes answered before every edge was known to have followed", d.pending, d.of)
	pending.timed = true
	return []finding{none(fmt.Sprintf("answers from before a delete (%v)", d.answers), wrong, asked), pending}
}
