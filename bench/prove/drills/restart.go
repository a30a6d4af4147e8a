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

// rollingRestart restarts one edge after the other, in order and under load. Clients repeat a request only if the connection is refused.
type rollingRestart struct {
	clients int // connections to each edge
	rounds  int
	drain   time.Duration // EDGE_DRAIN of the edges
}

func (d rollingRestart) run(ctx context.Context, f *fleet.Fleet) ([]figures.Finding, error) {
	t, keys, err := fleet.MakeLinks(ctx, f, 50)
	if err != nil {
		return nil, err
	}
	addrs := f.EdgeAddrs()
	clicks := visitor.NewVisits()
	clicks.Drain = d.drain
	background, stop := context.WithCancel(ctx)
	var clients sync.WaitGroup
	end := func() { stop(); clients.Wait() }
	defer end()
	for _, addr := range addrs {
		for range d.clients {
			clients.Go(func() { clickAll(background, clicks, addr, keys) })
		}
	}
	deleted := deletedLinks{answers: visitor.NewVisits()}
	var failed error
	clients.Go(func() { failed = deleted.deleteAndAsk(background, t, addrs) })
	restarts, err := d.restartAll(ctx, f)
	fleet.Pause(ctx, 300*time.Millisecond)
	end()
	if err == nil {
		err = failed
	}
	return append(d.lost(clicks, restarts), deleted.findings()...), err
}

// lost separates requests that no process received from the others. All count as lost, but a busy machine alone may cause some of the
// former: the kernel completes a connection that the closing listener never accepts, or a client sleeps past the drain.
func (d rollingRestart) lost(clicks *visitor.Visits, restarts int) []figures.Finding {
	all, others := clicks.Total(302)
	unheard := clicks.Unheard()
	unreceived := figures.None(fmt.Sprintf("clicks whose connection closed before its first response, or after it was idle for %v", d.drain), unheard, all)
	unreceived.Timed = true
	return []figures.Finding{figures.None(fmt.Sprintf("other clicks without status 302 in %d restarts (%v)", restarts, clicks), others-unheard, all), unreceived}
}

// restartAll returns how many restarts there were.
func (d rollingRestart) restartAll(ctx context.Context, f *fleet.Fleet) (n int, err error) {
	for range d.rounds {
		for i, edge := range f.Edges {
			if err := edge.Stop(ctx, fleet.StopTimeout); err != nil {
				return n, err
			}
			if f.Edges[i], err = f.StartEdge(ctx, edge.Addr, f.EdgeSettings...); err != nil {
				f.Edges[i] = edge
				return n, err
			}
			n++
			fleet.Pause(ctx, 200*time.Millisecond)
		}
	}
	return n, nil
}

// clickAll clicks links in turn until ctx ends. If the connection is refused, it retries a little later.
func clickAll(ctx context.Context, clicks *visitor.Visits, addr string, keys []fleet.Link) {
	v := visitor.New(addr)
	defer v.HangUp()
	for i := 0; ctx.Err() == nil; i++ {
		clicks.Click(v, keys[i%len(keys)].Path)
		if !v.Connected() {
			fleet.Pause(ctx, 5*time.Millisecond)
			continue
		}
		fleet.Pause(ctx, time.Millisecond)
	}
}

// deletedLinks counts links that were deleted while edges restarted.
type deletedLinks struct {
	answers     *visitor.Visits // of edges that were asked for them
	of, pending int             // number of deletes
}

// deleteAndAsk deletes one link after the other, and requests each from every edge as soon as the delete has completed.
func (d *deletedLinks) deleteAndAsk(ctx context.Context, t *fleet.Tenant, addrs []string) error {
	for ctx.Err() == nil {
		// A call in progress is completed: a canceled call says nothing about the edges.
		bounded := context.WithoutCancel(ctx)
		k, err := t.MakeLink(bounded)
		if err != nil {
			return err
		}
		for _, addr := range addrs {
			v := visitor.New(addr)
			_, _ = v.Click(k.Path) // brings it into memory; an edge that is down cannot serve it
			v.HangUp()
		}
		a, err := t.Call(bounded, "DELETE", "/links/"+k.ID, nil, 200)
		if err != nil {
			return err
		}
		d.of++
		if a.Propagation != "complete" {
			d.pending++ // edges may still serve the deleted link
			continue
		}
		for _, addr := range addrs {
			v := visitor.New(addr)
			d.answers.Click(v, k.Path)
			v.HangUp()
		}
	}
	return nil
}

// findings omit clicks without a response: the click counts cover these.
func (d *deletedLinks) findings() []figures.Finding {
	asked, wrong := d.answers.Answered(404)
	// A stopping edge deregisters, so control does not wait for it. A running edge may be silent for longer than control waits.
	pending := figures.None("deletes that completed as pending", d.pending, d.of)
	pending.Timed = true
	return []figures.Finding{figures.None(fmt.Sprintf("stale responses after a delete (%v)", d.answers), wrong, asked), pending}
}
